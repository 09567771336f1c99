"""Endless activities end in order: what one held is let go, however often it is told to end."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio.api.common.v1 import Payloads
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionResponse
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from bench import bill
from holdfast.worker.runtime.endless import SPARE, Pace, beat, while_all_last
from holdfast.workflows.entity import ENDLESS_HEARTBEAT
from tests.agent.virtual import in_virtual_time

START = datetime(2026, 1, 1, tzinfo=UTC)


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


TIMEOUT = ENDLESS_HEARTBEAT
PACE = Pace.of(TIMEOUT)


class Server:
    """Takes heartbeats, each after so many seconds; None: it never does. Describes the activity it has."""

    def __init__(self, *takes: float | None, outages: Sequence[tuple[float, float]] = (), attempt: int = 1) -> None:
        self.takes = list(takes)
        self.outages = outages
        self.sent: list[float] = []
        self.arrived: list[float] = []
        """When each heartbeat that the server has taken was sent."""
        self.described = 0
        self.pending = PendingActivityInfo(activity_id="watch", attempt=attempt)
        self.pending.last_started_time.FromDatetime(START)
        self.data_converter = DataConverter.default

    def heartbeat(self, *details: Any) -> None:
        """Take a heartbeat as the SDK does: its caller hears nothing of what becomes of it."""
        now = asyncio.get_running_loop().time()
        self.sent.append(now)
        take = self.takes.pop(0) if self.takes else None
        if take is not None and not self._is_out(now):
            asyncio.get_running_loop().call_later(take, self._take, now, details)

    def _take(self, sent: float, details: Sequence[Any]) -> None:
        self.arrived.append(sent)
        payloads = self.data_converter.payload_converter.to_payloads(details)
        self.pending.heartbeat_details.CopyFrom(Payloads(payloads=payloads))
        now = asyncio.get_running_loop().time()
        self.pending.last_heartbeat_time.FromDatetime(START + timedelta(seconds=now + 0.001))

    def _is_out(self, now: float) -> bool:
        return any(begin <= now < end for begin, end in self.outages)

    def get_workflow_handle(self, workflow_id: str, *, run_id: str) -> Server:
        return self

    async def describe(self, *, rpc_timeout: timedelta) -> Any:
        """Describe the workflow; an outage answers nothing."""
        self.described += 1
        if self._is_out(asyncio.get_running_loop().time()):
            await asyncio.sleep(rpc_timeout.total_seconds())
            raise RPCError("Timeout expired", RPCStatusCode.CANCELLED, b"")
        return SimpleNamespace(raw_description=DescribeWorkflowExecutionResponse(pending_activities=[self.pending]))


def lives(server: Server, lasting: float = 100_000) -> float:
    """Return when the activity ended itself, or how long it lasted if it did not."""
    ended: list[tuple[float, str]] = []

    async def main() -> None:
        environment, words = ActivityEnvironment(), ""
        environment.info = dataclasses.replace(
            environment.info, activity_id="watch", attempt=1, heartbeat_timeout=TIMEOUT, workflow_run_id="run"
        )
        environment.on_heartbeat = server.heartbeat
        try:
            async with asyncio.timeout(lasting):
                await environment.run(beat, server)  # pyright: ignore[reportArgumentType]
        except (ApplicationError, TimeoutError) as error:
            words = str(error)
        ended.append((asyncio.get_running_loop().time(), words))

    in_virtual_time(main())
    ((at, words),) = ended
    assert ("another watch takes over" in words) is (at < lasting)
    return at


@pytest.mark.row("D57", level="pure")
@pytest.mark.parametrize(
    "takes", [(), (0.0,), (0.0, 0.0, 0.0), (0.6,), (0.0, 0.6, 0.6)], ids=["never", "once", "three", "slow", "slower"]
)
def test_D57_an_activity_whose_heartbeats_do_not_arrive_ends_before_the_servers_timeout(takes: tuple[float, ...]):
    server = Server(*takes)
    ended = lives(server)
    accepted = server.arrived[-1] if server.arrived else 0.0
    assert ended - accepted <= PACE.lease + 0.001, "and the server begins another try at its timeout, 10 s"
    assert ended - accepted >= PACE.lease - 0.001, "and not before that: an outage of some seconds is borne"


@pytest.mark.row("D57", level="pure")
def test_D57_a_server_that_does_not_answer_ends_the_activity_in_time():
    server = Server(*[0.0] * 100, outages=[(20.0, 1e9)])
    assert lives(server) == pytest.approx(server.arrived[-1] + PACE.lease)


def test_an_outage_that_is_shorter_than_the_spare_time_ends_no_activity():
    for begin in range(100, 110):
        server = Server(*[0.0] * 1_000, outages=[(begin, begin + SPARE - 1.1)])
        assert lives(server, 300) == 300, begin


@pytest.mark.row("D57", level="pure")
@pytest.mark.parametrize("late", [1.3, 1.7, 2.6])
def test_D57_a_heartbeat_that_arrives_late_counts_from_its_own_sending(late: float):
    """The first is sent again before it arrives; what arrives of that series later is not taken for a new one."""
    server = Server(late, late, late)
    ended = lives(server)
    assert server.arrived, "some arrive, and then nothing more"
    assert ended - server.arrived[-1] <= PACE.lease + 0.001


def test_a_try_that_the_server_has_replaced_ends_at_once():
    assert lives(Server(0.0, attempt=2)) < 0.1


def test_an_activity_of_an_earlier_release_has_a_shorter_timeout_and_beats_more_often():
    five = Pace.of(timedelta(seconds=5))
    assert (five.period, five.lease) == (1.5, 4.0)


def test_an_endless_activity_sends_eleven_heartbeats_a_minute_and_each_is_looked_up_once():
    server = Server(*[0.01] * 10_000)
    lives(server, 3600)
    assert len(server.sent) == 655, "a seventh of the 80 a minute that it once sent"
    assert {one.actions for one in (bill.WATCH, bill.NODES, bill.GANG)} == {655}, "and so docs/performance.md says"
    assert server.described == 655
