"""Clocks of a gang's nodes are wrong: whose failure came first, which of two agents is the later (rows D43, D56)."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from holdfast.model.gang.wire import Announcement, Join, MemberState, Report, WorkerFailure
from tests.policy.rendezvous.test_gang_hub import START, Scene

ROW = pytest.mark.row


class Clocked(Scene):
    """A scene whose agents have clocks of their own, each so many seconds behind the hub's."""

    behind: dict[str, float]

    def posts(
        self, name: str, state: MemberState, round: int = 0, failed_at: datetime | None = None, join: Join | None = None
    ) -> bool:
        clock = self.now - timedelta(seconds=self.behind.get(name, 0.0))
        failures = ()
        if failed_at is not None:
            own = failed_at - timedelta(seconds=self.behind.get(name, 0.0))
            failures = (WorkerFailure(local_rank=0, exit_code=1, at=own),)
        report = Report(state=state, round=round, failures=failures, since=clock)
        said = {"join": join or self.joins[name], "report": report, "sent": clock}
        return self.hub.hears(Announcement.model_validate(said), self.at, self.now)


def two(**behind: float) -> Clocked:
    one = Clocked(low=2, high=2)
    one.behind = behind
    for name in ("a", "b"):
        one.agent(name)
        one.posts(name, MemberState.INIT)
    one.tell()
    for name in ("a", "b"):
        one.posts(name, MemberState.HEALTHY, 1)
    one.wait(1, ("a", "b"))
    one.tell()
    return one


@ROW("D43", level="pure")
@pytest.mark.parametrize("behind", [{}, {"a": 30.0}, {"a": -30.0}, {"b": 3600.0}, {"a": -5.0, "b": 400.0}])
def test_D43_the_member_whose_worker_failed_first_is_charged_whatever_the_clocks_say(behind: dict[str, float]) -> None:
    one = two(**behind)
    began = one.now
    one.wait(4, ("a", "b"))
    one.posts("b", MemberState.FAILED, 1, began + timedelta(seconds=3))
    one.posts("a", MemberState.FAILED, 1, began)
    one.wait(1, ("a", "b"))
    one.tell()
    assert {name: record.restarts for name, record in one.state.members.items()} == {"a": 1, "b": 0}
    assert abs(one.state.members["a"].report.failures[0].at - began) < timedelta(seconds=1), "by the hub's clock"


@ROW("D43", level="pure")
def test_D43_a_failure_that_is_said_again_is_no_news_though_the_clock_is_known_better_by_then() -> None:
    one = two(a=30.0)
    began = one.now
    one.wait(2, ("a", "b"))
    assert one.posts("a", MemberState.FAILED, 1, began)
    one.posts("b", MemberState.HEALTHY, 1)
    one.tell()
    one.behind["a"] = 29.5
    assert not one.hub.hears(
        Announcement(
            join=one.joins["a"],
            report=Report(
                state=MemberState.FAILED,
                round=1,
                failures=(WorkerFailure(local_rank=0, exit_code=1, at=began - timedelta(seconds=30)),),
                since=began,
            ),
            sent=one.now - timedelta(seconds=29.5),
        ),
        one.at,
        one.now,
    )


def again(one: Scene, name: str, hours: float) -> tuple[Join, Join]:
    """Return an agent and the one after it in the same pod, whose clock was set back by so many hours meanwhile."""
    old = one.joins[name]
    new = one.agent(name).model_copy(
        update={"pod_uid": old.pod_uid, "started_at": old.started_at - timedelta(hours=hours)}
    )
    one.joins[name] = new
    return old, new


@ROW("D56", level="pure")
def test_D56_after_a_clock_was_set_back_the_agent_that_came_later_holds_the_place() -> None:
    one = Scene(low=2, high=2)
    one.running("a", "b")
    old, _ = again(one, "a", 1)
    one.wait(1, ("b",))
    one.says("a", MemberState.INIT)
    one.says("b", MemberState.HEALTHY, 1)
    one.tell()
    assert one.kind("a") != "Leave"
    assert one.state.members["a"].join.incarnation == one.joins["a"].incarnation
    assert one.state.members["a"].ready
    one.hub.hears(Announcement(join=old, report=Report(state=MemberState.HEALTHY, round=1, since=START)), one.at)
    told = one.hub.answer(old)
    assert told is not None
    assert (told.kind.value, told.why) == ("Leave", "a later agent holds its place")


@ROW("D56", level="pure")
def test_D56_a_hub_that_begins_knows_it_once_the_holder_has_been_silent_for_the_keep_alive() -> None:
    one = Scene(low=2, high=2)
    one.running("a", "b")
    again(one, "a", 1)
    one.attach()
    one.says("b", MemberState.HEALTHY, 1)
    one.says("a", MemberState.INIT)
    assert one.kind("a") == "Wait", "the holder may live: nobody knows yet"
    for _ in range(16):
        one.wait(1, ("b",))
        one.says("a", MemberState.INIT)
    one.tell()
    assert one.kind("a") != "Leave"
    assert one.state.members["a"].join.incarnation == one.joins["a"].incarnation
    assert one.hub.lives.of(one.joins["a"]) == 1


@ROW("D56", level="pure")
def test_D56_the_order_outlives_the_hub_that_saw_it() -> None:
    one = Scene(low=2, high=2)
    one.running("a", "b")
    old, new = again(one, "a", 1)
    one.wait(1, ("b",))
    one.says("a", MemberState.INIT)
    one.tell()
    one.attach()
    one.says("a", MemberState.INIT)
    assert one.hub.holders["a"].life == 1
    assert one.kind("a") != "Leave"
    assert one.state.members["a"].join.incarnation == new.incarnation != old.incarnation
