"""Keeps an endless activity alive, and detects when it no longer is: heartbeats that report their failures."""

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
SDK_PERIOD: Final = 6.0
"""Seconds between the heartbeats for the SDK's own clock, which ends an activity 5 s after the server's timeout."""
LEASE: Final = 4.0
"""Seconds from sending the last accepted heartbeat until an activity ends itself (row D57).

The server's heartbeat timeout is 5 s or more. The server then starts another try, and two tries must not act at once.
"""


async def while_all_last(
    works: Iterable[Coroutine[Any, Any, None]], close: Callable[[list[asyncio.Task[None]]], Awaitable[None]]
) -> None:
    """Run all of these until the first ends, with or without an error; then cancel the others, and close.

    A worker that shuts down may cancel an activity that is already ending: closing still completes.

    Args:
        works: the coroutines to run.
        close: receives the works as cancelled tasks, and waits for them.

    Raises:
        Exception: the error of the first that ended.
        CancelledError: if cancelled while all run.
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
    """Heartbeat for ever through the client, which reports failures; the SDK's own heartbeat does not.

    Raises:
        CancelledError: if the activity is cancelled.
        ApplicationError: if the server no longer accepts its heartbeats.
    """
    handle = client.get_async_activity_handle(task_token=activity.info().task_token)
    clock = asyncio.get_running_loop().time
    accepted, told = clock(), -SDK_PERIOD
    while True:
        memory = remember()
        if clock() - told >= SDK_PERIOD:
            activity.heartbeat(memory)
            told = clock()
        # The server's timeout counts from the arrival of a heartbeat, which is never before it was sent.
        sent = clock()
        try:
            # Never wait for a hanging heartbeat beyond the lease's end: the server starts another try soon after.
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
    """Wait until this worker shuts down, and never return.

    Raises:
        ApplicationError: once this worker shuts down; Temporal retries at once, on another worker.
    """
    await activity.wait_for_worker_shutdown()
    activity.heartbeat(remember())
    raise ApplicationError(
        "this worker goes away: another takes the watch over",
        category=ApplicationErrorCategory.BENIGN,
        next_retry_delay=timedelta(milliseconds=10),
    )


def other_cluster(cluster: str, own_uid: str, asked: str) -> ApplicationError:
    """Return the error of an endless activity whose cluster is not this worker's; another worker's may match.

    Args:
        cluster: the cluster's name.
        own_uid: the uid of the cluster that this worker knows by that name.
        asked: the wanted uid and what it is wanted for, as a clause.
    """
    return ApplicationError(
        f"{cluster} is {own_uid} to this worker, but {asked}",
        type=names.ERROR_CLUSTER_MISMATCH,
        next_retry_delay=timedelta(seconds=10),
    )
