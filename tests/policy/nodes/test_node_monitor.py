"""Silence, time and evidence in; states and words out: the monitor of nodes without a cluster (L4, L5, L8, L12)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model import (
    Interval,
    NodeBook,
    NodeMarked,
    NodeRecord,
    NodeSight,
    NodesSeen,
    NodeState,
    NodeTimings,
    NodeWord,
)
from holdfast.policy.nodes.monitor import held_back, is_mass, looked, marked, on_node_news, plan, settle
from tests.policy.lives.life import START

ROW = pytest.mark.row
TIMINGS = NodeTimings()
HEALTHY, DEGRADED, DOWN, RETURNING = NodeState.HEALTHY, NodeState.DEGRADED, NodeState.DOWN, NodeState.RETURNING


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


@dataclass
class Monitor:
    """The monitor on a clock of the test's own: it looks and marks at once, and sees what the test describes."""

    book: NodeBook = field(default_factory=NodeBook)
    timings: NodeTimings = TIMINGS
    now: float = 0
    renewals: dict[str, int] = field(default_factory=dict[str, int])
    """By node: how often its lease was renewed."""
    ready: bool = True
    faults: dict[str, str] = field(default_factory=dict[str, str])
    words: dict[str, NodeWord] = field(default_factory=dict[str, NodeWord])
    """What stands on nodes' objects."""
    log: list[tuple[float, str, NodeWord]] = field(default_factory=list[tuple[float, str, NodeWord]])
    dark: bool = False
    """Whether the API server does not answer, so that no look comes back."""

    def sight(self, name: str, *, silent: bool, heard: float = 0) -> NodeSight:
        renewed = str(self.renewals.get(name, 0))
        fault = self.faults.get(name, "")
        return NodeSight(name=name, uid=f"uid-{name}", renewed=renewed, heard=at(heard), silent=silent, fault=fault)

    def sees(self, *nodes: NodeSight, held: float | None = None, blind: tuple[Interval, ...] = ()) -> None:
        since = at(held) if held is not None else None
        self.book = on_node_news(
            self.book, NodesSeen(at=at(self.now), nodes=nodes, total=10, held_since=since, blind=blind)
        )
        self.step()

    def falls_silent(self, name: str, heard: float) -> None:
        """It was heard last then, and this is told when it has been silent for long enough."""
        self.until(heard + self.timings.degraded.total_seconds())
        self.sees(self.sight(name, silent=True, heard=heard))

    def renews(self, name: str) -> None:
        self.renewals[name] = self.renewals.get(name, 0) + 1
        self.sees(self.sight(name, silent=False, heard=self.now))

    def step(self) -> None:
        wanted = None
        for _ in range(20):
            self.book = settle(self.book, self.timings, at(self.now))
            wanted = plan(self.book, self.timings, at(self.now))
            if wanted.mark:
                for wish in wanted.mark:
                    self.words[wish.name] = wish.word
                    self.log.append((self.now, wish.name, wish.word))
                done = [NodeMarked(name=wish.name, word=wish.word) for wish in wanted.mark]
                self.book = marked(self.book, done, at(self.now))
            elif wanted.look and not self.dark:
                sights = [self._look(one) for one in wanted.look]
                self.book = looked(self.book, sights, at(self.now), ())
            else:
                return
        raise AssertionError(f"it does not come to rest: {wanted}")

    def _look(self, record: NodeRecord) -> NodeSight:
        return self.sight(record.name, silent=False).model_copy(update={"ready": self.ready})

    def until(self, second: float) -> None:
        """Let time pass, each deadline in its turn."""
        for _ in range(500):
            wanted = plan(settle(self.book, self.timings, at(self.now)), self.timings, at(self.now))
            due = (wanted.until - START).total_seconds() if wanted.until is not None else second
            if due >= second or (wanted.look and self.dark):
                break
            self.now = max(due, self.now)
            self.step()
        self.now = second
        self.step()

    def state(self, name: str = "a") -> NodeState:
        record = self.book.nodes.get(name)
        return record.state if record is not None else HEALTHY


@ROW("L4", level="pure")
def test_L4_a_silent_node_is_degraded_at_30_s_down_at_90_s_and_for_sensitive_workloads_after_five_minutes_more():
    monitor = Monitor()
    monitor.falls_silent("a", heard=7)
    assert (monitor.now, monitor.state(), monitor.words) == (37, DEGRADED, {})
    monitor.until(400)
    assert [word for _, _, word in monitor.log] == [NodeWord.DOWN, NodeWord.LOST]
    down, lost = (second for second, _, _ in monitor.log)
    assert 97 <= down <= 99
    assert 337 <= lost <= 339
    why = monitor.book.nodes["a"].why
    assert why.startswith(f"its lease was last renewed at {at(7):%H:%M:%S} UTC, 5m3")
    assert why.endswith("before: Down, for sensitive workloads too (rule silent 30s + 5m)")


@ROW("L12", level="pure")
def test_L12_a_node_that_is_heard_again_within_the_grace_disturbs_nobody():
    monitor = Monitor()
    monitor.falls_silent("a", heard=0)
    monitor.until(85)
    monitor.renews("a")
    assert (monitor.state(), monitor.words) == (HEALTHY, {})
    monitor.until(500)
    assert monitor.log == []


@ROW("L4", level="pure")
def test_L4_a_renewal_that_only_the_last_look_shows_keeps_the_node_from_being_down():
    monitor = Monitor()
    monitor.falls_silent("a", heard=0)
    monitor.until(80)
    monitor.renewals["a"] = 1  # and the watch has not told of it
    monitor.until(200)
    assert (monitor.state(), monitor.log) == (HEALTHY, [])


@ROW("L4", level="pure")
def test_L4_time_in_which_nothing_was_seen_is_no_silence():
    monitor = Monitor()
    monitor.falls_silent("a", heard=0)
    monitor.until(50)
    monitor.now = 110
    monitor.sees(blind=(Interval(begin=at(50), end=at(110)),))
    monitor.until(140)
    assert monitor.state() is DEGRADED
    monitor.until(155)
    assert monitor.state() is DOWN
    assert 150 <= monitor.log[0][0] <= 152


@ROW("L4", level="pure")
def test_L4_without_an_answer_of_the_api_server_nothing_is_down():
    monitor = Monitor(dark=True)
    monitor.falls_silent("a", heard=0)
    monitor.until(1000)
    assert (monitor.state(), monitor.log) == (DEGRADED, [])


@ROW("L5", level="pure")
def test_L5_a_node_back_from_down_takes_no_pods_until_its_health_check_passes():
    monitor = Monitor(ready=False)
    monitor.falls_silent("a", heard=0)
    monitor.until(120)
    monitor.renews("a")
    assert (monitor.state(), monitor.words["a"]) == (RETURNING, NodeWord.RETURNING)
    monitor.until(200)
    assert monitor.state() is RETURNING, "its kubelet is not ready"
    monitor.ready = True
    monitor.until(260)
    assert (monitor.state(), monitor.words["a"]) == (HEALTHY, NodeWord.NONE)


@ROW("L5", level="pure")
def test_L5_a_returning_node_that_falls_silent_is_down_again_and_checked_for_twice_as_long():
    monitor = Monitor()
    monitor.falls_silent("a", heard=0)
    monitor.until(100)
    monitor.renews("a")
    monitor.falls_silent("a", heard=100)
    monitor.until(195)
    assert monitor.state() is DOWN
    monitor.now = 200
    monitor.renews("a")
    monitor.until(250)
    assert monitor.state() is RETURNING
    monitor.until(265)
    assert monitor.state() is HEALTHY


@ROW("L8", level="pure")
def test_L8_broken_hardware_is_down_at_once_although_its_lease_is_renewed():
    monitor = Monitor(faults={"a": "CperHardwareErrorFatal"})
    monitor.now = 5
    monitor.sees(monitor.sight("a", silent=False, heard=4).model_copy(update={"message": "DIMM 3"}))
    assert (monitor.state(), monitor.log) == (DOWN, [(5, "a", NodeWord.FAULTY)])
    assert monitor.book.nodes["a"].why == "CperHardwareErrorFatal: DIMM 3: Down at once (rule hardware)"
    monitor.faults.clear()
    monitor.renews("a")
    assert (monitor.state(), monitor.words["a"]) == (RETURNING, NodeWord.RETURNING)


@ROW("L8", level="pure")
def test_L8_broken_hardware_that_falls_silent_is_down_for_sensitive_workloads_too_in_its_time():
    monitor = Monitor(faults={"a": "CperHardwareErrorFatal"})
    monitor.sees(monitor.sight("a", silent=False, heard=0))
    monitor.falls_silent("a", heard=0)
    monitor.until(400)
    assert [word for _, _, word in monitor.log] == [NodeWord.FAULTY, NodeWord.DOWN, NodeWord.LOST]


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (30, "a: Down, unless its lease is renewed"),
        (100, "a: Down for sensitive workloads too, unless its lease is renewed"),
        (400, ""),
    ],
)
def test_what_a_silent_node_is_looked_at_for_next_is_said(second: float, why: str):
    monitor = Monitor()
    monitor.falls_silent("a", heard=0)
    monitor.until(second)
    assert plan(monitor.book, TIMINGS, at(second)).why == why


@ROW("L4", level="pure")
def test_L4_a_flapping_node_stays_degraded_and_tells_nobody():
    monitor = Monitor()
    seen: list[NodeState] = []
    for begin in (0, 40, 80, 120, 160):
        monitor.falls_silent("a", heard=begin)
        seen.append(monitor.state())
        monitor.now = begin + 35
        monitor.renews("a")
        seen.append(monitor.state())
    assert seen == [DEGRADED, HEALTHY, DEGRADED, HEALTHY, DEGRADED, DEGRADED, DEGRADED, DEGRADED, DEGRADED, DEGRADED]
    monitor.until(195 + 605)
    assert (monitor.state(), monitor.log) == (HEALTHY, [])


@ROW("L4", level="pure")
@pytest.mark.parametrize(
    ("silent", "total", "mass"),
    [
        (0, 0, False),
        (0, 5, False),
        (1, 1, True),
        (1, 2, False),
        (2, 3, False),
        (3, 5, True),
        (50, 500, False),
        (3, 10, False),
    ],
)
def test_L4_most_leases_silent_at_once_are_our_sight_and_not_the_nodes(silent: int, total: int, mass: bool):
    assert is_mass(silent, total) is mass


@ROW("L4", level="pure")
def test_L4_while_nobody_renews_nothing_is_down_however_long():
    since = None
    for second in (0, 60, 300, 86400):
        since = held_back(5, 5, since, TIMINGS, at(second))
        assert since == at(0)
    assert held_back(4, 5, at(0), TIMINGS, at(299)) == at(0)
    assert held_back(4, 5, at(0), TIMINGS, at(300)) is None, "some renew all the time: the others are lost"


@ROW("L4", level="pure")
def test_L4_after_a_mass_silence_whoever_is_still_silent_has_the_whole_grace_again():
    monitor = Monitor()
    monitor.falls_silent("a", heard=0)
    monitor.sees(held=30)
    monitor.until(300)
    assert (monitor.state(), monitor.log) == (DEGRADED, [])
    monitor.sees()
    monitor.until(355)
    assert monitor.state() is DEGRADED
    monitor.until(365)
    assert monitor.state() is DOWN


@ROW("L5", level="pure")
def test_L5_a_node_that_cannot_be_marked_is_tried_again_and_passes_no_check_by_that():
    book = NodeBook(nodes={"a": NodeRecord(name="a", since=at(0), at=at(0), heard=at(0), steady=at(0))})
    down = book.nodes["a"].model_copy(update={"state": RETURNING, "word": NodeWord.RETURNING, "downs": 1})
    book = NodeBook(nodes={"a": down})
    refused = marked(book, [NodeMarked(name="a", word=NodeWord.RETURNING, refused="forbidden")], at(40))
    after = settle(refused, TIMINGS, at(40))
    assert after.nodes["a"].state is RETURNING
    assert plan(after, TIMINGS, at(41)).mark == ()
    assert [wish.name for wish in plan(after, TIMINGS, at(101)).mark] == ["a"]


def test_a_node_that_is_made_anew_is_another_one():
    monitor = Monitor()
    monitor.falls_silent("a", heard=0)
    monitor.until(100)
    monitor.sees(NodeSight(name="a", uid="another", renewed="9", heard=at(100)))
    assert monitor.book.nodes == {}


@pytest.mark.parametrize("gone", [False, True])
@ROW("L8", level="pure")
@ROW("A17", level="pure")
def test_L8_a_late_result_about_an_earlier_node_leaves_the_record_of_its_successor(gone: bool):
    """The mark or the look was for A; the fault of B, which took the name meanwhile, is told before the result."""
    sight = NodeSight(name="a", uid="B", fault="HardwareFailure", heard=at(2))
    book = settle(on_node_news(NodeBook(), NodesSeen(at=at(2), nodes=(sight,), total=10)), TIMINGS, at(2))
    assert (book.nodes["a"].state, book.nodes["a"].told) == (DOWN, NodeWord.NONE)
    assert marked(book, [NodeMarked(name="a", uid="A", word=NodeWord.FAULTY, gone=gone)], at(3)) == book
    sight = NodeSight(name="a", uid="" if gone else "A", asked_uid="A", gone=gone)
    assert looked(book, [sight], at(1), ()) == book
    assert [wish.uid for wish in plan(book, TIMINGS, at(3)).mark] == ["B"]


@pytest.mark.parametrize("gone", [False, True])
@ROW("L8", level="pure")
def test_L8_a_node_whose_successor_is_not_told_yet_is_forgotten(gone: bool):
    """As by a look of an earlier release, whose sight names no node that it was for."""
    book = NodeBook(nodes={"a": NodeRecord(name="a", uid="A", since=at(0), at=at(0), fault="HardwareFailure")})
    for asked in ("A", ""):
        sight = NodeSight(name="a", uid="" if gone else "B", asked_uid=asked, gone=gone)
        assert looked(book, [sight], at(1), ()).nodes == {}
        done = NodeMarked(name="a", uid=asked, word=NodeWord.FAULTY, gone=True)
        assert marked(book, [done], at(1)).nodes == {}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["silent", "renews", "wait", "blind", "late"]),
            st.sampled_from("ab"),
            st.integers(1, 120),
        ),
        max_size=30,
    )
)
@ROW("L4", level="pure")
def test_L4_no_node_is_ever_down_that_was_heard_within_the_grace(story: list[tuple[str, str, int]]):
    """Whatever comes in whatever order: Down needs the whole silence, blindness apart, and a look after it."""
    monitor = Monitor()
    heard = {"a": 0.0, "b": 0.0}
    blind: list[tuple[float, float]] = []
    for what, name, seconds in story:
        before = len(monitor.log)
        match what:
            case "silent":
                monitor.until(max(monitor.now, heard[name] + 30))
                monitor.sees(monitor.sight(name, silent=True, heard=heard[name]))
            case "renews":
                heard[name] = monitor.now
                monitor.renews(name)
            case "late":  # Its renewal is in the cluster, and the watch tells of it never.
                monitor.renewals[name] = monitor.renewals.get(name, 0) + 1
                heard[name] = monitor.now
            case "blind":
                blind.append((monitor.now, monitor.now + seconds))
                monitor.now += seconds
                monitor.sees(blind=tuple(Interval(begin=at(a), end=at(b)) for a, b in blind[-1:]))
            case _:
                monitor.until(monitor.now + seconds)
        for second, which, word in monitor.log[before:]:
            if word in {NodeWord.DOWN, NodeWord.LOST}:
                unseen = sum(max(0.0, min(b, second) - max(a, heard[which])) for a, b in blind)
                grace = 90 if word is NodeWord.DOWN else 330
                assert second - heard[which] - unseen >= grace - 1e-6, (second, heard, blind)
