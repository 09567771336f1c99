"""How an endless activity stays alive, and knows when it no longer is: heartbeats that say when they fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from temporalio import activity
from temporalio.client import AsyncActivityCancelledError, Client
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names

HEARTBEAT_PERIOD: Final = 1.5
LEASE: Final = 4.0
"""Seconds after which an activity ends itself, from when its last accepted heartbeat was sent (row D57).

The server's heartbeat timeout is 5 s or more: then another try runs, and no two may act at once.
"""


async def while_all_last(
    works: Iterable[Coroutine[Any, Any, None]], close: Callable[[list[asyncio.Task[None]]], Awaitable[None]]
) -> None:
    """Work at all of these until the first ends, whichever way; then end the others, and close.

    A worker that goes away cancels what is ending by itself already: that cuts nothing short here.

    Args:
        works: what is worked at.
        close: is given the works, as tasks told to end, and is to wait for them.

    Raises:
        Exception: what the first raised.
        CancelledError: if cancelled while all last.
    """
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            await task
    finally:
        for task in tasks:
            task.cancel()
        closing = asyncio.ensure_future(close(tasks))
        while not closing.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({closing})
        closing.result()


async def beat(client: Client, remember: Callable[[], Any] = lambda: None) -> None:
    """Heartbeat for ever, through the client, which says when it fails; the SDK's own would not.

    Raises:
        CancelledError: if the activity is no longer wanted.
        ApplicationError: if its heartbeats are not accepted any more.
    """
    handle = client.get_async_activity_handle(task_token=activity.info().task_token)
    clock = asyncio.get_running_loop().time
    accepted = clock()
    while True:
        memory = remember()
        activity.heartbeat(memory)  # For the SDK's own clock.
        # The server counts from when a heartbeat reached it, which is not before it was sent.
        sent = clock()
        try:
            # One that hangs is not waited for beyond the lease's end: the server begins another try soon after.
            async with asyncio.timeout(max(0.0, min(HEARTBEAT_PERIOD, accepted + LEASE - sent))):
                await handle.heartbeat(memory)
            accepted = sent
        except AsyncActivityCancelledError as cancelled:
            raise asyncio.CancelledError("the watch is no longer wanted") from cancelled
        except (RPCError, TimeoutError) as error:
            lost = isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND
            if lost or clock() >= accepted + LEASE:
                raise ApplicationError("the heartbeat is not accepted: another watch takes over") from error
        await asyncio.sleep(max(0.0, min(sent + HEARTBEAT_PERIOD, accepted + LEASE) - clock()))


async def worker_leaves(remember: Callable[[], Any] = lambda: None) -> None:
    """Return never.

    Raises:
        ApplicationError: once this worker is told to go away; retried at once, by another.
    """
    await activity.wait_for_worker_shutdown()
    activity.heartbeat(remember())
    raise ApplicationError(
        "this worker goes away: another takes the watch over",
        category=ApplicationErrorCategory.BENIGN,
        next_retry_delay=timedelta(milliseconds=10),
    )


def other_cluster(cluster: str, own_uid: str, asked: str) -> ApplicationError:
    """Return the error of an endless activity whose cluster is another to this worker; another's may be right.

    Args:
        cluster: its name.
        own_uid: what this worker knows by that name.
        asked: what is wanted of which, in words.
    """
    return ApplicationError(
        f"{cluster} is {own_uid} to this worker, but {asked}",
        type=names.ERROR_CLUSTER_MISMATCH,
        next_retry_delay=timedelta(seconds=10),
    )
