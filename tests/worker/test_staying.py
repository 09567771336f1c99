"""Endless activities end in order: what one held is let go, however often it is told to end."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from holdfast.worker.runtime.endless import LEASE, beat, while_all_last
from tests.agent.virtual import in_virtual_time


class Held:
    """What an activity holds: let go of slowly."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.closed = False
        self.ended: list[bool] = []

    async def close(self, tasks: list[asyncio.Task[None]]) -> None:
        self.begun.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.may_end.wait()
        self.ended = [task.done() for task in tasks]
        self.closed = True


async def _ends() -> None:
    raise ValueError("the worker leaves")


async def _lasts() -> None:
    await asyncio.Event().wait()


async def test_the_first_that_ends_ends_the_others_and_says_why():
    held = Held()
    held.may_end.set()
    with pytest.raises(ValueError, match="the worker leaves"):
        await while_all_last((_ends(), _lasts()), held.close)
    assert (held.closed, held.ended) == (True, [True, True])


async def test_what_is_ending_by_itself_is_not_cut_short_by_a_cancellation():
    held = Held()
    activity = asyncio.create_task(while_all_last((_ends(), _lasts()), held.close))
    await held.begun.wait()
    for _ in range(3):
        activity.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert not activity.done()
    held.may_end.set()
    with pytest.raises(ValueError, match="the worker leaves"):
        await activity
    assert held.closed


async def test_one_that_is_cancelled_while_all_last_lets_go_of_everything():
    held = Held()
    held.may_end.set()
    activity = asyncio.create_task(while_all_last((_lasts(), _lasts()), held.close))
    await asyncio.sleep(0)
    activity.cancel()
    with pytest.raises(asyncio.CancelledError):
        await activity
    assert (held.closed, held.ended) == (True, [True, True])


class Server:
    """Accepts heartbeats, each after so many seconds; None: it never answers."""

    def __init__(self, *takes: float | RPCError | None) -> None:
        self.takes = list(takes)
        self.sent: list[float] = []

    def get_async_activity_handle(self, *, task_token: bytes) -> Server:
        return self

    async def heartbeat(self, *details: Any) -> None:
        self.sent.append(asyncio.get_running_loop().time())
        take = self.takes.pop(0) if self.takes else None
        if isinstance(take, RPCError):
            raise take
        await (asyncio.sleep(take) if take is not None else asyncio.Event().wait())


def ends_after(*takes: float | RPCError | None) -> tuple[float, float]:
    """Return when the last accepted heartbeat was sent, and when the activity ended itself."""
    server = Server(*takes)

    ended: list[float] = []

    async def main() -> None:
        environment = ActivityEnvironment()
        environment.info = dataclasses.replace(environment.info, task_token=b"token")
        with pytest.raises(ApplicationError, match="another watch takes over"):
            await environment.run(beat, server, dict)  # pyright: ignore[reportArgumentType]
        ended.append(asyncio.get_running_loop().time())

    in_virtual_time(main())
    accepted = [at for at, take in zip(server.sent, takes, strict=False) if isinstance(take, float)]
    return (accepted[-1] if accepted else 0.0), ended[0]


@pytest.mark.row("D57", level="pure")
@pytest.mark.parametrize(
    "takes",
    [
        (),
        (0.0,),
        (0.0, 0.0, 0.0),
        (1.4,),
        (0.0, 1.4, 1.4),
        (0.0, *(RPCError("unavailable", RPCStatusCode.UNAVAILABLE, b"") for _ in range(20))),
    ],
    ids=["never", "once", "three", "slowly", "more slowly", "refused"],
)
def test_D57_a_hanging_heartbeat_ends_the_activity_before_the_servers_timeout(takes: Any):
    accepted, ended = ends_after(*takes)
    assert ended - accepted <= LEASE + 0.001, "and the server begins another try 5 s after it took the last one"
    assert ended - accepted >= LEASE - 0.1, "and not long before that: an outage of some seconds is borne"
