"""Which renewals are news to the monitor of nodes, and which silence is one; on virtual time (rows L4, L8, L12)."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.model import Interval, NodeSight, NodesSeen, NodeTimings
from holdfast.worker.nodes.ledger import NodeLedger

ROW = pytest.mark.row
START = datetime(2026, 1, 1, tzinfo=UTC)


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


class World:
    """Some nodes that renew their leases every ten seconds, until they fall silent."""

    def __init__(self, count: int, known: tuple[NodeSight, ...] = ()) -> None:
        self.ledger = NodeLedger(NodeTimings(), known)
        self.now = 0.0
        self.count = count
        self.silent: set[int] = set()
        self.blind: tuple[Interval, ...] = ()
        self.told: list[tuple[float, NodesSeen]] = []
        for number in range(count):
            self.ledger.node(f"n{number}", f"u{number}", "", "")
        self.renew()

    def renew(self) -> None:
        for number in range(self.count):
            if number not in self.silent:
                self.ledger.renewed(f"n{number}", f"r{self.now}", at(self.now))

    def after(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            if self.now % 10 == 0:
                self.renew()
            seen = self.ledger.news(at(self.now), self.blind)
            if seen is not None:
                self.ledger.told(seen)
                self.told.append((self.now, seen))


@ROW("L4", level="pure")
def test_L4_of_five_hundred_heartbeats_a_second_none_is_told():
    world = World(5000)
    world.after(600)
    assert world.told == []


@ROW("L4", level="pure")
def test_L4_a_rack_that_falls_silent_is_told_once_together_and_once_when_it_is_back():
    world = World(500)
    world.after(15)
    world.silent = set(range(50))
    world.after(120)
    (when, seen), *more = world.told
    assert 40 <= when <= 43
    assert [one.name for one in seen.nodes] == sorted(f"n{number}" for number in range(50))
    assert all(one.silent and one.heard == at(10) for one in seen.nodes)
    assert (seen.total, seen.silent, seen.held_since, more) == (500, 50, None, [])
    world.silent.clear()
    world.after(20)
    ((_, back),) = world.told[1:]
    assert len(back.nodes) == 50
    assert not any(one.silent for one in back.nodes)


@ROW("L4", level="pure")
def test_L4_when_all_fall_silent_none_is_named_and_it_is_said_that_sight_is_doubted():
    world = World(20)
    world.after(15)
    world.silent = set(range(20))
    world.after(600)
    ((_, seen),) = world.told
    assert (seen.nodes, seen.held_since is not None, seen.silent) == ((), True, 20)
    world.silent.clear()
    world.after(20)
    assert (world.told[-1][1].held_since, world.told[-1][1].nodes) == (None, ())


@ROW("L4", level="pure")
def test_L4_blindness_is_no_silence():
    world = World(10)
    world.after(10)
    world.silent = {3}
    world.blind = (Interval(begin=at(20), end=at(60)),)
    world.after(68)
    assert world.told == []
    world.after(6)
    assert [one.name for one in world.told[0][1].nodes] == ["n3"]


@ROW("L8", level="pure")
def test_L8_broken_hardware_is_told_at_once():
    world = World(3)
    world.ledger.node("n1", "u1", "CperHardwareErrorFatal", "memory")
    world.after(1)
    ((when, seen),) = world.told
    assert when == 1
    assert [(one.name, one.fault, one.silent) for one in seen.nodes] == [("n1", "CperHardwareErrorFatal", False)]
    world.ledger.node("n1", "u1", "", "")
    world.after(3)
    assert [(one.name, one.fault) for one in world.told[-1][1].nodes] == [("n1", "")]


@ROW("L12", level="pure")
def test_L12_who_takes_the_watch_over_does_not_let_a_silent_node_begin_anew():
    before = NodeSight(name="n1", uid="u1", renewed="r0.0", heard=at(-40), silent=True)
    same = World(3, (before,))
    same.silent = {1}
    same.after(100)
    assert same.told == [], "as silent as it was told to be"
    heard = NodeSight(name="n2", uid="u2", renewed="earlier", heard=at(-40), silent=True)
    back = World(3, (heard,))
    back.after(3)
    ((_, seen),) = back.told
    assert [(one.name, one.silent) for one in seen.nodes] == [("n2", False)]


def test_a_lease_that_has_outlived_its_node_and_a_node_without_a_lease_are_nobodys_silence():
    world = World(3)
    world.silent = {0, 1}
    assert world.ledger.unnode("n0", "u0")
    world.ledger.unleased("n1", "r0.0")
    world.after(300)
    assert world.told == []
    assert world.ledger.leases == 1


@ROW("L4", level="pure")
def test_L4_a_node_that_took_the_name_of_one_that_is_gone_is_watched_though_a_list_tells_of_it_first():
    world = World(3)
    world.after(5)
    world.ledger.node("n1", "new", "", "")
    world.ledger.renewed("n1", "r5.0", at(5))
    assert not world.ledger.unnode("n1", "u1")
    world.ledger.unleased("n1", "r0.0")
    world.silent = {1}
    world.after(120)
    ((_, seen),) = world.told
    assert [(one.name, one.uid, one.silent) for one in seen.nodes] == [("n1", "new", True)]


def test_a_look_at_five_thousand_nodes_takes_little():
    """Four looks a second: at 20 ms each a twelfth of a core, which a slow machine must not exceed."""
    world = World(5000)
    spent: list[float] = []
    for _ in range(5):
        begun = time.process_time()
        world.ledger.news(at(9), ())
        spent.append(time.process_time() - begun)
    assert min(spent) < 0.02, spent
