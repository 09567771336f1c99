"""What a hub gathers of its gang, and when it says so (rows T9, T12, T13; decision record 0030)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.model.gang.state import Absence, Gang, GangEvent, GangState, Listening, Lost, Reported, Said
from holdfast.model.gang.wire import Announcement, DirectiveKind, Join, MemberState, Report, WorkerFailure
from holdfast.policy.rendezvous.hub import NOBODY_KNOWS, GangHub
from holdfast.policy.rendezvous.news import FAILURES_WHOLE
from holdfast.policy.rendezvous.orders import holders, orders
from holdfast.policy.rendezvous.step import begun, step

ROW = pytest.mark.row
START = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Scene:
    """A hub, its rendezvous, and their clock."""

    def __init__(self, low: int = 1, high: int = 4, **settings: object) -> None:
        self.at = 1000.0
        self.state: GangState = begun(Gang(min=low, max=high, **settings), "uid-1", 1, START)  # type: ignore[arg-type]
        self.told: list[tuple[GangEvent, ...]] = []
        self.joins: dict[str, Join] = {}
        self.lives = 0
        self.attach()

    @property
    def now(self) -> datetime:
        return START + timedelta(seconds=self.at - 1000)

    def attach(self) -> None:
        self.hub = GangHub(self.state.gang, orders(self.state, 0), holders(self.state), self.at)

    def agent(self, name: str, attempt: int = 1) -> Join:
        self.lives += 1
        self.joins[name] = Join(
            member=name,
            pod_uid=f"pod-{name}-{self.lives}",
            attempt=attempt,
            incarnation=f"i{self.lives}",
            started_at=START + timedelta(milliseconds=self.lives),
            address="10.0.0.1",
            port=29500 + self.lives,
        )
        return self.joins[name]

    def says(self, name: str, state: MemberState, round: int = 0, join: Join | None = None, error: str = "") -> bool:
        failures = ()
        if state is MemberState.FAILED:
            failures = (WorkerFailure(local_rank=0, exit_code=1, at=self.now, error=error),)
        report = Report(state=state, round=round, failures=failures, since=self.now)
        return self.hub.hears(Announcement(join=join or self.joins[name], report=report), self.at)

    def joined(self, *names: str) -> None:
        for name in names:
            self.agent(name)
            assert self.says(name, MemberState.INIT)

    def due(self) -> float | None:
        due = self.hub.due(self.at, self.now)
        return None if due is None else max(0.0, round(due - self.at, 3))

    def tell(self) -> tuple[GangEvent, ...]:
        """Tell the rendezvous what may be told now, and take its answer."""
        assert self.due() == 0
        batch, events = self.hub.batch(self.at, self.now)
        seen = self.hub.orders.revision
        self.state = step(self.state, events, self.now).state
        self.hub.done(batch, self.at)
        self.hub.takes(orders(self.state, seen))
        self.told.append(batch.events)
        return batch.events

    def tells(self) -> bool:
        """Whether there are news that may be told now."""
        return self.hub.news.due(self.at, self.hub._running()) is not None and self.due() == 0  # pyright: ignore[reportPrivateUsage]

    def wait(self, seconds: float, speaking: tuple[str, ...] = ()) -> None:
        """Let time go on, with some saying again and again what they said."""
        for _ in range(round(seconds * 4)):
            self.at += 0.25
            for name in speaking:
                self.hub.hearing.speaks(name, self.at)
            self.hub.tick(self.at)

    def running(self, *names: str) -> None:
        """All have joined, and their first round runs."""
        self.joined(*names)
        self.tell()
        for name in names:
            self.says(name, MemberState.HEALTHY, self.state.round)
        self.wait(1, names)
        self.tell()

    def kind(self, name: str) -> str:
        given = self.hub.answer(self.joins[name])
        return given.kind.value if given is not None else "nobody knows"


def test_the_first_word_goes_at_once_and_the_next_a_second_later_with_all_that_came_meanwhile():
    one = Scene()
    one.joined("a")
    assert one.due() == 0
    assert [event.kind for event in one.tell()] == ["Said"]
    one.wait(0.25)
    one.joined("b", "c")
    assert one.due() == 0.75
    one.wait(0.75)
    assert [event.kind for event in one.tell()] == ["Said", "Said"]
    assert one.hub.news.due(one.at, ()) is None


def test_a_heartbeat_is_not_handed_on_and_a_change_is_told_without_saying_again_who_it_is():
    one = Scene(high=2)
    one.running("a", "b")
    one.wait(20, ("a", "b"))
    assert not one.says("a", MemberState.HEALTHY, 1)
    assert one.hub.news.due(one.at, ()) is None
    assert one.says("a", MemberState.SUCCEEDED, 1)
    (event,) = one.tell()
    assert isinstance(event, Reported)
    assert one.kind("a") == "Wait"
    # What is taken back before it was told needs not be told.
    one.says("b", MemberState.UNKNOWN, 1)
    one.says("b", MemberState.HEALTHY, 1)
    assert one.hub.news.due(one.at, ()) is None


def test_until_the_rendezvous_has_answered_an_agent_is_to_go_on_as_it_is():
    one = Scene()
    one.agent("a")
    one.says("a", MemberState.INIT)
    assert one.hub.answer(one.joins["a"]) == NOBODY_KNOWS
    one.tell()
    assert one.kind("a") == "Wait"


def test_a_later_agent_has_no_directive_of_the_one_before_and_the_earlier_one_leaves():
    one = Scene(high=1)
    one.running("a")
    before = one.joins["a"]
    assert one.kind("a") == "Run"
    after = one.agent("a")
    one.says("a", MemberState.INIT)
    assert one.hub.answer(after) == NOBODY_KNOWS
    one.wait(1)
    one.tell()
    given = one.hub.answer(before)
    assert given is not None
    assert given.kind is DirectiveKind.LEAVE
    assert not one.says("a", MemberState.HEALTHY, 1, join=before)
    assert one.kind("a") == "Run"


def test_an_agent_of_an_attempt_that_is_over_leaves_and_of_one_to_come_nobody_knows():
    one = Scene()
    one.state = begun(one.state.gang, "uid-1", 2, START)
    one.attach()
    assert one.hub.answer(one.agent("a", 1)).kind is DirectiveKind.LEAVE  # type: ignore[union-attr]
    assert one.hub.answer(one.agent("b", 3)) is None


@ROW("T9", level="pure")
def test_T9_who_is_silent_for_the_keep_alive_is_lost_and_nobody_before_it_was_listened_to_for_so_long():
    one = Scene(high=3)
    one.running("a", "b", "c")
    one.attach()  # Another hub, which has heard nobody yet.
    one.wait(14.75, ("a", "b"))
    assert not one.hub.news.losses
    one.wait(0.25, ("a", "b"))
    assert list(one.hub.news.losses) == ["c"]
    (loss,) = one.tell()
    assert isinstance(loss, Lost)
    assert loss.absence is Absence.SILENT
    assert one.kind("a") == "Rejoin"
    # It is heard again, saying what it said before: that is news.
    assert one.says("c", MemberState.HEALTHY, 1)
    one.wait(1, ("a", "b", "c"))
    (event,) = one.tell()
    assert isinstance(event, Said)
    assert one.state.members["c"].absent is None


@ROW("T9", level="pure")
def test_T9_time_in_which_the_hub_stood_still_is_no_silence():
    one = Scene(high=3)
    one.running("a", "b", "c")
    one.wait(10, ("a", "b"))
    one.at += 60
    assert one.hub.tick(one.at) > timedelta(seconds=59)
    one.wait(4, ("a", "b"))
    assert not one.hub.news.losses
    one.wait(1.25, ("a", "b"))
    assert list(one.hub.news.losses) == ["c"]


@ROW("T9", level="pure")
def test_T9_a_failure_waits_until_all_others_have_spoken():
    one = Scene(high=3)
    one.running("a", "b", "c")
    one.wait(2, ("a", "b", "c"))
    one.says("a", MemberState.FAILED, 1)
    assert one.due() == 15
    given = one.hub.answer(one.joins["b"])
    assert given is not None
    assert given.ask
    one.says("b", MemberState.HEALTHY, 1)
    assert one.hub.answer(one.joins["b"]).ask is False  # type: ignore[union-attr]
    assert one.due() == 15
    one.says("c", MemberState.FAILED, 1)
    assert one.due() == 0
    assert len(one.tell()) == 2
    assert (one.state.members["a"].restarts, one.state.members["c"].restarts) == (1, 0)


@ROW("T9", level="pure")
def test_T9_a_failure_does_not_wait_for_members_that_have_no_place():
    one = Scene(high=2)
    one.running("a", "b")
    one.joined("c")
    one.wait(1, ("a", "b", "c"))
    one.tell()
    assert one.kind("c") == "Wait"
    one.says("a", MemberState.FAILED, 1)
    assert [name for name in "abc" if one.hub.asks(name)] == ["b"]
    one.says("b", MemberState.HEALTHY, 1)
    one.wait(1, ("a", "b", "c"))
    assert one.due() == 0


@ROW("T9", level="pure")
def test_T9_a_failure_by_a_loss_is_told_with_the_loss_and_charged_to_nobody():
    one = Scene(high=3)
    one.running("a", "b", "c")
    one.wait(2, ("a", "b", "c"))
    one.says("a", MemberState.FAILED, 1)
    one.says("b", MemberState.FAILED, 1)
    one.wait(14.75, ("a", "b"))
    assert not one.tells()
    one.wait(0.25, ("a", "b"))
    assert {event.kind for event in one.tell()} == {"Reported", "Lost"}
    assert not any(member.restarts for member in one.state.members.values())


@ROW("T9", level="pure")
def test_T9_a_pod_that_is_proven_gone_is_told_at_once_and_of_another_pod_says_nothing():
    one = Scene(high=3)
    one.running("a", "b", "c")
    one.wait(2, ("a", "b", "c"))
    one.hub.lost("c", "pod-of-somebody-else", Absence.GONE, "its pod is gone")
    assert one.hub.news.due(one.at, ()) is None
    one.hub.lost("c", one.joins["c"].pod_uid, Absence.GONE, "its pod is gone")
    one.tell()
    assert one.kind("a") == "Rejoin"
    one.hub.lost("c", one.joins["c"].pod_uid, Absence.GONE, "its pod is gone")
    assert one.hub.news.due(one.at, ()) is None


@ROW("T12", level="pure")
def test_T12_what_is_unknown_is_told_and_changes_nothing():
    one = Scene(high=2)
    one.running("a", "b")
    one.wait(2, ("a", "b"))
    one.says("a", MemberState.UNKNOWN, 1)
    one.tell()
    assert (one.kind("a"), one.kind("b")) == ("Run", "Run")


@ROW("T8", level="pure")
def test_T8_the_rendezvous_is_told_that_it_is_listened_to_when_something_falls_due():
    one = Scene(low=2, high=4, join_timeout=timedelta(seconds=30), last_call=timedelta(seconds=1))
    one.joined("a")
    one.tell()
    assert one.due() == 30
    one.wait(25, ("a",))
    one.attach()
    one.wait(5, ("a",))
    assert one.due() == 0
    one.tell()
    # This hub has not listened for a whole keep-alive: nothing fails, and it says so again when it has.
    assert one.state.closed is None
    assert one.due() == 10
    one.wait(10, ("a",))
    one.tell()
    assert one.state.closed is not None


@ROW("D4", level="pure")
@pytest.mark.parametrize(("size", "dead"), [(2, 1), (4, 2), (16, 8), (1000, 500), (16, 15)])
def test_D4_a_gang_that_loses_half_of_its_members_or_more_begins_a_new_round(size: int, dead: int):
    one = Scene(low=1, high=size, last_call=timedelta(seconds=1))
    names = tuple(f"m-{index}" for index in range(size))
    left = names[dead:]
    one.running(*names)
    one.wait(2, names)
    assert one.state.round == 1
    one.wait(14.5, left)
    assert not one.hub.news.losses, "the member timeout is not over"
    for _ in range(30):
        one.wait(1, left)
        for name in left:
            if one.kind(name) == "Rejoin":
                one.says(name, MemberState.INIT)
        if one.due() == 0:
            one.tell()
        if one.state.round == 2:
            break
    assert sorted(one.state.participants) == sorted(left), "no new round within 30 s of the member timeout"
    assert not any(member.restarts for member in one.state.members.values()), "a loss is charged to nobody"


@ROW("D4", level="pure")
@pytest.mark.parametrize("attempts", [2, 3, 10])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 16])
def test_D4_a_hub_that_is_cut_off_itself_declares_nobody_lost(size: int, attempts: int):
    one = Scene(low=1, high=size, keep_alive_attempts=attempts)
    names = tuple(f"m-{index}" for index in range(size))
    one.running(*names)
    # Each speaks once a heartbeat, not all at once; then nobody is heard any more.
    for tick in range(160):
        one.wait(0.25, tuple(name for index, name in enumerate(names) if (tick - index * 20 // size) % 20 == 0))
    one.wait(600)
    assert not one.hub.news.losses
    assert one.state.round == 1


@ROW("D4", level="pure")
def test_D4_who_is_heard_again_after_the_hub_was_cut_off_was_never_lost():
    one = Scene(low=1, high=4)
    one.running("a", "b", "c", "d")
    one.wait(60)
    one.wait(4, ("a", "b", "c", "d"))
    assert not one.hub.news.losses


@ROW("D4", level="pure")
def test_D4_a_hub_that_hears_nobody_believes_the_cluster_of_a_pod_that_is_gone_with_its_node():
    one = Scene(low=1, high=3)
    one.running("a", "b", "c")
    one.hub.doomed[one.joins["a"].pod_uid] = "its node node-1 is Down"
    one.wait(14, ("b", "c"))
    assert not one.hub.news.losses
    one.wait(60)
    assert list(one.hub.news.losses) == ["a"]
    assert one.hub.news.losses["a"].why == "nothing was heard for 15 s, and its node node-1 is Down"
    assert set(one.hub.suspects(one.at)) == {"a", "b", "c"}


@ROW("D4", level="pure")
def test_D4_a_member_that_is_heard_is_there_whatever_the_cluster_says_of_its_node():
    one = Scene(low=1, high=2)
    one.running("a", "b")
    one.hub.doomed[one.joins["a"].pod_uid] = "its node node-1 is Down"
    one.wait(60, ("a", "b"))
    assert not one.hub.news.losses


@ROW("D4", level="pure")
def test_D4_while_the_rendezvous_is_not_reached_nobody_is_lost_and_all_have_a_keep_alive_after_it():
    one = Scene(low=1, high=3)
    one.running("a", "b", "c")
    one.hub.hearing.reaches(one.at)
    one.wait(60, ("a",))  # It is on the host of this hub, and what is cut off is that host.
    assert not one.hub.news.losses
    one.hub.hearing.reaches(one.at)
    one.wait(10, ("a", "b"))
    assert not one.hub.news.losses
    one.hub.hearing.reaches(one.at)
    one.wait(6, ("a", "b"))
    assert list(one.hub.news.losses) == ["c"]


def test_nobody_is_silent_to_a_gang_that_is_closed():
    one = Scene(high=2)
    one.running("a", "b")
    one.wait(1, ("a", "b"))
    one.says("a", MemberState.SUCCEEDED, 1)
    one.says("b", MemberState.SUCCEEDED, 1)
    one.tell()
    assert (one.kind("a"), one.kind("b")) == ("Finish", "Finish")
    one.wait(60)
    assert not one.hub.news.losses
    assert not one.says("a", MemberState.HEALTHY, 1), "whatever its members still say changes nothing"
    one.agent("c")
    one.says("c", MemberState.INIT)
    batch, _ = one.hub.batch(one.at, one.now)
    one.hub.done(batch, one.at)
    one.wait(60)
    assert one.hub.suspects(one.at) == {}


def test_a_flood_of_failures_is_told_in_short_but_for_the_earliest():
    one = Scene(low=1, high=200)
    names = [f"m-{index}" for index in range(200)]
    one.running(*names)
    one.wait(1, tuple(names))
    for name in names:
        one.says(name, MemberState.FAILED, 1, error="x" * 1000)
    batch, events = one.hub.batch(one.at, one.now)
    told = [event.report.failures[0].error for event in events if isinstance(event, Reported)]
    assert len(batch.words) == 200
    assert sorted(map(len, told)) == [64] * (200 - FAILURES_WHOLE) + [1000] * FAILURES_WHOLE
    assert any(isinstance(event, Listening) for event in events)
