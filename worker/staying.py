"""How an endless activity stays alive, and knows when it no longer is: heartbeats that say when they fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from temporalio import activity
from temporalio.client import AsyncActivityCancelledError, Client
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names

HEARTBEAT_PERIOD: Final = 1.5
LEASE: Final = 4.0
"""Seconds without an accepted heartbeat after which an activity ends itself: soon another will run."""


async def beat(client: Client, remember: Callable[[], Any]) -> None:
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
        try:
            async with asyncio.timeout(HEARTBEAT_PERIOD):
                await handle.heartbeat(memory)
            accepted = clock()
        except AsyncActivityCancelledError as cancelled:
            raise asyncio.CancelledError("the watch is no longer wanted") from cancelled
        except (RPCError, TimeoutError) as error:
            lost = isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND
            if lost or clock() - accepted > LEASE:
                raise ApplicationError("the heartbeat is not accepted: another watch takes over") from error
        await asyncio.sleep(HEARTBEAT_PERIOD)


async def worker_leaves(remember: Callable[[], Any]) -> None:
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
