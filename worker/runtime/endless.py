"""Keeps an endless activity alive, and detects when it no longer is: heartbeats whose arrival is looked up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, timedelta
from itertools import count
from typing import Any, Final

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names

MARGIN: Final = 1.0
"""Seconds between the end of a lease and the server's heartbeat timeout (row D57).

The server then starts another try, and two tries must not act at once.
"""
SPARE: Final = 3.5
"""Seconds from a heartbeat that is due until the lease ends: an outage that is shorter ends no activity."""
SHORTEST: Final = 1.5
"""Seconds between two heartbeats at least, however short the timeout is."""
LOOK_FIRST: Final = 0.05
LOOK_LAST: Final = 1.0
"""Seconds between two looks whether the server has taken a heartbeat; a heartbeat not taken by then is sent again."""
_LOOK_DEADLINE: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Pace:
    """How often an endless activity sends a heartbeat, and how long it relies on one, in seconds."""

    period: float
    lease: float
    """The time from sending the last accepted heartbeat until the activity ends itself."""

    @classmethod
    def of(cls, timeout: timedelta) -> Pace:
        """Return the pace for a server's heartbeat timeout: of each heartbeat Temporal writes, and may bill, one."""
        lease = timeout.total_seconds() - MARGIN
        return cls(period=max(SHORTEST, lease - SPARE), lease=lease)


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


async def ended(tasks: list[asyncio.Task[None]]) -> None:
    """Wait for cancelled tasks: all that `while_all_last` has to close where the works close what they opened."""
    await asyncio.gather(*tasks, return_exceptions=True)


async def beat(client: Client, remember: Callable[[], Any] = lambda: None) -> None:
    """Heartbeat for ever, and look each time whether the server has taken the heartbeat.

    The SDK does not report a heartbeat that fails. A description of the workflow shows whether it arrived, and costs
    no write and no billed action.

    Raises:
        ApplicationError: if the server no longer accepts its heartbeats.
    """
    info = activity.info()
    assert info.heartbeat_timeout is not None, "an endless activity has a heartbeat timeout"
    pace, clock = Pace.of(info.heartbeat_timeout), asyncio.get_running_loop().time
    taken = _Taken(client, info)
    sent, last, accepted = dict[int, float](), 0, clock()
    for number in count(1):
        # The server's timeout counts from the arrival of a heartbeat, which is never before it was sent.
        sent[number] = clock()
        activity.heartbeat(remember(), number)
        try:
            # Never wait for an answer beyond the lease's end: the server starts another try soon after.
            async with asyncio.timeout_at(accepted + pace.lease):
                arrived = await taken.within(LOOK_LAST, last)
        except TimeoutError as error:
            raise _taken_over() from error
        if arrived is not None:
            # One that was sent again may arrive late: each counts from its own sending.
            accepted, last = sent[arrived], arrived
            sent = {each: at for each, at in sent.items() if each > arrived}
            await asyncio.sleep(max(0.0, accepted + pace.period - clock()))


class _Taken:
    """Looks which heartbeat of an activity's current try the server has taken last."""

    def __init__(self, client: Client, info: activity.Info) -> None:
        self._client, self._info = client, info

    async def within(self, seconds: float, known: int) -> int | None:
        """Return the number of a heartbeat after the known one, if one arrives in this time.

        Raises:
            ApplicationError: if the activity, or this try of it, is over for the server.
        """
        clock, pause = asyncio.get_running_loop().time, LOOK_FIRST
        end = clock() + seconds
        while (left := end - clock()) > 0:
            await asyncio.sleep(min(pause, left))
            pause *= 2
            with suppress(RPCError, TimeoutError):
                if (number := await self._look()) > known:
                    return number
        return None

    async def _look(self) -> int:
        """Return the number of the last heartbeat that the server has of this try; 0 if it has none."""
        info = self._info
        assert info.workflow_id is not None, "it belongs to a workflow"
        handle = self._client.get_workflow_handle(info.workflow_id, run_id=info.workflow_run_id)
        try:
            described = (await handle.describe(rpc_timeout=_LOOK_DEADLINE)).raw_description
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise _taken_over() from error
            raise
        pending = next((one for one in described.pending_activities if one.activity_id == info.activity_id), None)
        if pending is None or pending.attempt != info.attempt:
            raise _taken_over()
        # Until this try has sent one, the server has that of the try before.
        begun, at = pending.last_started_time.ToDatetime(UTC), pending.last_heartbeat_time.ToDatetime(UTC)
        numbers = pending.heartbeat_details.payloads[1:2]
        if at <= begun or not numbers:
            return 0
        (number,) = await self._client.data_converter.decode(numbers, [int])
        return int(number)


def _taken_over() -> ApplicationError:
    return ApplicationError("the heartbeat is not accepted: another watch takes over")


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
