"""Fencing in the monitor of nodes: off by proof before any workload hears of it, and never where it is heard (L15)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from holdfast.model import (
    NodeBook,
    NodeMarked,
    NodeSight,
    NodesSeen,
    NodeState,
    NodeTimings,
    NodeWord,
    OwnMarks,
)
from holdfast.model.entities.provisioner import FenceAsk, FenceNews, ProvisionerState, ProvisionerStatus
from holdfast.policy.nodes import fence, provisioner
from holdfast.policy.nodes.monitor import looked, marked, on_node_news, plan, settle
from holdfast.policy.nodes.provisioner_status import unfenced
from tests.policy.nodes.test_node_monitor import DEGRADED, DOWN, HEALTHY, RETURNING, TIMINGS, Monitor, at

ROW = pytest.mark.row
FENCING, LOST, NONE, BACK = NodeWord.FENCING, NodeWord.LOST, NodeWord.NONE, NodeWord.RETURNING
FENCED = TIMINGS.model_copy(update={"fence": True})
OFF = {"off": at(50), "off_why": "by hand", "off_renewed": "7"}
WHY = "powered off at 00:01:40 UTC, by proof of its PowerState (rule fence)"


@dataclass
class Fenced(Monitor):
    """The same, with a provisioner that takes what it is asked, and is told nothing more."""

    timings: NodeTimings = FENCED
    ours: bool = True
    sensitive: bool = False
    away: bool = False
    """Whether there is no provisioner."""
    asks: list[tuple[float, FenceAsk]] = field(default_factory=list[tuple[float, FenceAsk]])
    withdrawn: list[str] = field(default_factory=list[str])

    def step(self) -> None:
        for _ in range(20):
            self.book = settle(self.book, self.timings, at(self.now))
            wanted = plan(self.book, self.timings, at(self.now))
            if wanted.mark:
                done: list[NodeMarked] = []
                for wish in wanted.mark:
                    self.words[wish.name] = wish.word
                    self.log.append((self.now, wish.name, wish.word))
                    fenced = wish.word is FENCING
                    ours, sensitive = fenced and self.ours, fenced and self.sensitive
                    done.append(NodeMarked(name=wish.name, word=wish.word, ours=ours, sensitive=sensitive))
                self.book = marked(self.book, done, at(self.now))
            elif wanted.ask:
                self.asks += [(self.now, fence.ask_of(one)) for one in wanted.ask if not one.withdraw]
                gone = [one.name for one in wanted.ask if one.withdraw]
                self.withdrawn += gone
                asked = [one.name for one in wanted.ask if not one.withdraw]
                problems = dict.fromkeys(asked, "not there") if self.away else {}
                self.book = fence.after_requests(self.book, asked, gone, problems, at(self.now))
            elif wanted.look and not self.dark:
                self.book = looked(self.book, [self._look(one) for one in wanted.look], at(self.now), ())
            else:
                return
        raise AssertionError("it does not come to rest")

    def is_off(self, name: str = "a", uid: str = "uid-a", second: float | None = None, **more: str) -> None:
        news = FenceNews(node=name, uid=uid, at=at(self.now if second is None else second), why=WHY, **more)
        self.book = fence.fenced(self.book, news)
        self.step()


@ROW("L15", level="pure")
def test_L15_a_silent_node_is_off_before_any_workload_hears_of_it():
    monitor = Fenced()
    monitor.falls_silent("a", heard=0)
    monitor.until(89)
    assert (monitor.state(), monitor.asks) == (DEGRADED, [])
    monitor.until(95)
    assert [word for _, _, word in monitor.log] == [FENCING], "which tells no workload anything"
    ((second, ask),) = monitor.asks
    assert 90 <= second <= 92
    assert (ask.node, ask.uid, ask.renewed) == ("a", "uid-a", "0")
    assert "its pods are replaced only once its power is off (rule fence)" in ask.why
    monitor.until(5000)
    assert monitor.state() is DOWN
    assert [word for _, _, word in monitor.log] == [FENCING], "however long the provisioner is away"
    assert 8 <= len(monitor.asks) <= 10, "it is asked again now and then"
    monitor.is_off()
    assert [word for _, _, word in monitor.log] == [FENCING, LOST]
    record = monitor.book.nodes["a"]
    assert record.why == f"its lease was last renewed at 00:00:00 UTC; {WHY}"
    assert record.downs == 1
    assert monitor.book.decided == 1


@ROW("L15", level="pure")
def test_L15_a_node_heard_before_its_power_is_cut_keeps_it_and_its_health_is_checked():
    monitor = Fenced()
    monitor.falls_silent("a", heard=0)
    monitor.until(100)
    assert len(monitor.asks) == 1
    monitor.renews("a")
    assert (monitor.state(), monitor.withdrawn) == (RETURNING, ["a"])
    monitor.until(200)
    assert (monitor.state(), monitor.words["a"]) == (HEALTHY, NodeWord.NONE)
    assert [word for _, _, word in monitor.log] == [FENCING, NodeWord.RETURNING, NodeWord.NONE]
    assert (monitor.withdrawn, len(monitor.asks)) == (["a"], 1), "that was said once"


@ROW("L15", level="pure")
def test_L15_the_look_before_it_is_asked_finds_a_renewal_and_nobody_is_asked():
    monitor = Fenced()
    monitor.falls_silent("a", heard=0)
    monitor.renewals["a"] = 1
    monitor.until(200)
    assert (monitor.asks, monitor.withdrawn, monitor.log) == ([], [], [])


@ROW("L15", level="pure")
def test_L15_a_node_with_sensitive_pods_has_as_long_as_those_wait():
    monitor = Fenced(sensitive=True)
    monitor.falls_silent("a", heard=0)
    monitor.until(300)
    assert (monitor.state(), monitor.words["a"], monitor.asks) == (DOWN, FENCING, [])
    monitor.until(340)
    ((second, _),) = monitor.asks
    assert 330 <= second <= 332


@ROW("L15", level="pure")
def test_L15_a_node_without_our_pods_is_never_powered_off():
    monitor = Fenced(ours=False)
    monitor.falls_silent("a", heard=0)
    monitor.until(10_000)
    assert (monitor.state(), monitor.asks) == (DOWN, [])
    monitor.renews("a")
    assert monitor.withdrawn == []


@ROW("L15", level="pure")
def test_L15_while_most_fall_silent_together_nobody_is_powered_off():
    monitor = Fenced()
    monitor.until(30)
    monitor.sees(monitor.sight("a", silent=True, heard=0), held=30)
    monitor.until(400)
    assert (monitor.asks, monitor.log) == ([], [])


@ROW("L15", level="pure")
def test_L15_without_a_provisioner_its_workloads_wait_and_it_is_asked_every_minute():
    monitor = Fenced(away=True)
    monitor.falls_silent("a", heard=0)
    monitor.until(400)
    assert monitor.book.nodes["a"].unasked == "not there"
    assert 5 <= len(monitor.asks) <= 6
    assert monitor.words == {"a": FENCING}


@ROW("L15", level="pure")
def test_L15_a_person_who_cut_the_power_is_believed_at_once_if_it_is_silent():
    monitor = Fenced(timings=TIMINGS)
    monitor.falls_silent("a", heard=0)
    assert monitor.state() is DEGRADED
    monitor.is_off()
    assert (monitor.state(), monitor.words["a"]) == (DOWN, LOST)


def test_L15_what_was_said_of_a_node_that_is_not_silent_yet_is_remembered_until_it_is():
    monitor = Fenced()
    monitor.is_off(second=20)
    monitor.is_off("b", uid="uid-b", second=5)
    assert monitor.book.nodes == {}
    monitor.falls_silent("a", heard=0)
    assert monitor.words == {"a": LOST}
    monitor.falls_silent("b", heard=10)
    assert monitor.state("b") is DEGRADED, "it was heard after that was said"
    assert monitor.book.fenced == {}


def test_L15_what_is_said_of_a_node_that_is_heard_or_another_of_its_name_is_not_believed():
    monitor = Fenced()
    monitor.falls_silent("a", heard=0)
    monitor.is_off(uid="another")
    assert monitor.state() is DEGRADED
    monitor.until(95)
    monitor.renews("a")
    before = len(monitor.log)
    monitor.is_off()
    assert monitor.state() is RETURNING
    assert monitor.log[before:] == [(95, "a", NodeWord.RETURNING)], "what was put on its object is taken off"


@ROW("L15", level="pure")
def test_L15_a_node_that_is_powered_on_again_comes_back_as_any_other():
    monitor = Fenced()
    monitor.falls_silent("a", heard=0)
    monitor.until(95)
    monitor.is_off()
    monitor.until(500)
    monitor.renews("a")
    assert (monitor.state(), monitor.withdrawn) == (RETURNING, [])
    record = monitor.book.nodes["a"]
    assert (record.fenced, record.fenced_why) == (None, "")
    monitor.until(600)
    assert monitor.state() is HEALTHY
    monitor.falls_silent("a", heard=700)
    monitor.until(800)
    assert monitor.words["a"] is FENCING, "and is off anew, whatever it was before"
    assert len(monitor.asks) == 2


def test_a_fence_that_is_switched_on_later_takes_back_nothing_that_was_told():
    monitor = Fenced(timings=TIMINGS)
    monitor.falls_silent("a", heard=0)
    monitor.until(100)
    assert monitor.words == {"a": NodeWord.DOWN}
    monitor.timings = FENCED
    monitor.until(400)
    assert (monitor.words, monitor.asks) == ({"a": LOST}, [])


def test_without_fencing_nothing_of_it_is_written():
    monitor = Monitor()
    monitor.falls_silent("a", heard=0)
    monitor.until(400)
    document = monitor.book.model_dump_json()
    assert not any(word in document for word in ("fenc", '"ours"', '"sensitive"', "asked", "withdraw"))
    assert "fence" not in TIMINGS.model_dump_json()
    assert monitor.book.nodes["a"].state is NodeState.DOWN


ADOPTED: dict[str, tuple[dict[str, Any], bool, tuple[NodeState, NodeWord, NodeWord], bool, bool]] = {
    "nothing": ({}, True, (HEALTHY, NONE, NONE), False, False),
    "down": ({"word": NodeWord.DOWN}, True, (DOWN, NodeWord.DOWN, NodeWord.DOWN), False, False),
    "lost": ({"word": LOST}, True, (DOWN, LOST, LOST), False, False),
    "lost and off": ({"word": LOST, **OFF}, True, (DOWN, LOST, LOST), True, False),
    "off, of an earlier silence": ({"word": LOST, **OFF, "off_renewed": "6"}, True, (DOWN, FENCING, LOST), False, True),
    "off, and heard": ({"word": LOST, **OFF}, False, (DOWN, LOST, LOST), False, False),
    "to be off": ({"word": FENCING}, True, (DOWN, FENCING, NONE), False, True),
    "off, and nothing else": (OFF, True, (HEALTHY, NONE, FENCING), True, False),
    "back": ({"word": BACK}, False, (RETURNING, BACK, BACK), False, False),
}
"""By what stands on a node: that, its silence; its state, what is to stand there and does; if it is off, and ours."""


@pytest.mark.parametrize("case", ADOPTED)
def test_an_empty_memory_takes_a_node_as_its_object_says(case: str):
    own, silent, standing, off, ours = ADOPTED[case]
    sight = NodeSight(name="a", renewed="7", heard=at(0), silent=silent, own=OwnMarks.model_validate(own))
    record = on_node_news(NodeBook(), NodesSeen(at=at(100), nodes=(sight,), total=10)).nodes["a"]
    assert (record.state, record.word, record.told) == standing
    assert (record.fenced, record.fenced_why) == ((at(50), "by hand") if off else (None, ""))
    assert record.ours is ours


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"sensitive": True}, "it is to be asked for"),
        ({}, "it is asked for again"),
        ({"away": True}, "not there"),
    ],
)
def test_a_node_that_is_to_be_off_says_what_it_waits_for(settings: dict[str, bool], said: str):
    monitor = Fenced(**settings)  # type: ignore[arg-type]
    monitor.falls_silent("a", heard=0)
    monitor.until(95)
    assert unfenced(monitor.book, ProvisionerStatus(cluster="c", message="", at_once=8)) == {"a": said}


@ROW("D12", level="pure")
def test_D12_late_news_of_an_earlier_power_off_is_no_proof_for_a_later_silence():
    monitor = Fenced()
    monitor.falls_silent("a", heard=0)
    monitor.until(95)
    assert len(monitor.asks) == 1
    monitor.until(200)  # Its power was cut at 100, and the news of that is on its way.
    monitor.renews("a")
    monitor.until(300)
    assert monitor.state() is HEALTHY, "a person has switched it on again"
    monitor.falls_silent("a", heard=400)
    monitor.until(495)
    assert monitor.words["a"] is FENCING
    before = len(monitor.log)
    monitor.is_off(second=100)
    assert (monitor.words["a"], monitor.log[before:]) == (FENCING, []), "it may be on: it was heard since"
    assert monitor.asks[-1][1].renewed == "1", "proof of this silence is asked for"
    monitor.is_off()
    assert monitor.words["a"] is LOST


@ROW("D12", level="pure")
def test_D12_late_news_does_not_let_a_node_be_down_before_its_time():
    monitor = Fenced()
    monitor.falls_silent("a", heard=0)
    monitor.until(95)
    monitor.renews("a")
    monitor.until(200)
    monitor.falls_silent("a", heard=300)
    monitor.is_off(second=94)
    assert (monitor.state(), monitor.words["a"]) == (DEGRADED, NodeWord.NONE)


@ROW("D12", level="pure")
def test_D12_a_proof_names_the_last_renewal_and_clocks_are_not_compared():
    monitor = Fenced()
    monitor.falls_silent("a", heard=0)
    monitor.until(95)
    asked = len(monitor.asks)
    monitor.is_off(renewed="another")
    assert monitor.words["a"] is FENCING
    assert len(monitor.asks) == asked + 1, "it is asked for again at once"
    monitor.is_off(second=-50, renewed="0")
    assert monitor.words["a"] is LOST, "by a clock that is 50 s behind"
    monitor.is_off("b", uid="uid-b", renewed="1")
    monitor.falls_silent("b", heard=100)
    assert monitor.state("b") is DEGRADED, "said of a silence before it was heard last"


@ROW("D10", level="pure")
def test_D10_of_a_thousand_lost_nodes_each_is_asked_for_as_others_are_off_and_the_others_say_what_they_wait_for():
    monitor = Fenced()
    monitor.until(30)
    names = [f"n{number}" for number in range(1000)]
    monitor.sees(*(monitor.sight(name, silent=True, heard=0) for name in names[:500]))
    monitor.sees(*(monitor.sight(name, silent=True, heard=0) for name in names[500:]))
    monitor.until(95)
    asked = [ask.node for _, ask in monitor.asks]
    assert len(set(asked)) == len(asked) == fence.FENCES_AT_ONCE
    told = ProvisionerStatus(cluster="c", message="", at_once=8)
    waits = unfenced(monitor.book, told)
    assert len(waits) == 1000
    assert waits[next(name for name in names if name not in asked)] == "500 others are asked for before it"
    for name in asked:
        monitor.book = fence.fenced(
            monitor.book, FenceNews(node=name, uid=f"uid-{name}", at=at(monitor.now), why=WHY, renewed="0")
        )
    monitor.step()
    assert {ask.node for _, ask in monitor.asks} == set(names)
    monitor.until(95 + 660)
    assert len(monitor.asks) <= 1000 + 500, "and again now and then, each in its turn"


@ROW("D10", level="pure")
def test_D10_of_whom_is_asked_at_once_the_provisioner_turns_nobody_away():
    monitor = Fenced()
    monitor.until(30)
    names = [f"gke-train-pool-{number:04}-".ljust(63, "x") for number in range(1000)]
    monitor.sees(*(monitor.sight(name, silent=True, heard=0) for name in names[:500]))
    monitor.sees(*(monitor.sight(name, silent=True, heard=0) for name in names[500:]))
    monitor.until(95)
    state = ProvisionerState(cluster="c", cluster_uid="u" * 36)
    for _, ask in monitor.asks:
        long = FenceAsk(node=ask.node, uid="u" * 36, renewed="2026-11-24T09:30:17.123456Z", why=ask.why)
        state = provisioner.fence(state, long, at(monitor.now))
    assert state.turned_away == 0, "the monitor counts it as asked, and asks again only after ten minutes"
    assert len(state.pending) == fence.FENCES_AT_ONCE
