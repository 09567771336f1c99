"""Many nodes lost at once, tick by tick: the watch's ledger and the monitor's book together, on virtual time (D3)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.model import NodeBook, NodeMarked, NodeSight, NodeTimings, NodeWord
from holdfast.policy.nodes.monitor import looked, marked, on_node_news, plan, settle, told_of
from holdfast.worker.nodes.ledger import NodeLedger

ROW = pytest.mark.row
START = datetime(2026, 1, 1, tzinfo=UTC)
TIMINGS = NodeTimings()
RENEWED_EVERY = 10
TICK = 1.0


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


class Cluster:
    """Nodes that renew their leases every ten seconds, each at its own time, until they are lost."""

    def __init__(self, count: int) -> None:
        self.ledger = NodeLedger(TIMINGS)
        self.book = NodeBook()
        self.count = count
        self.now = 0.0
        self.lost: set[int] = set()
        self.renewals = [0] * count
        self.downs: dict[str, float] = {}
        """When each node was first found Down."""
        self.doubts: list[tuple[float, bool]] = []
        """When the doubt about the watch came, and when it went."""
        self.told: list[str] = []
        """Nodes that the monitor was told are silent."""
        self.until: datetime | None = None
        for number in range(count):
            self.ledger.node(f"n{number}", f"u{number}", "", "")
            self.ledger.renewed(f"n{number}", "r0", at(0))

    def run(self, until: float) -> None:
        while self.now < until:
            self.now += TICK
            ticks = round(self.now / TICK)
            every = round(RENEWED_EVERY / TICK)
            for number in range(ticks % every, self.count, every):
                if number not in self.lost:
                    self.renewals[number] += 1
                    self.ledger.renewed(f"n{number}", f"r{self.renewals[number]}", at(self.now))
            seen = self.ledger.news(at(self.now), ())
            if seen is not None:
                self.ledger.told(seen)
                self.told += [one.name for one in seen.nodes if one.silent]
                self.book = on_node_news(self.book, seen)
            if seen is not None or (self.until is not None and self.until <= at(self.now)):
                self._decide()
            doubted = self.book.held_since is not None
            if doubted != (bool(self.doubts) and self.doubts[-1][1]):
                self.doubts.append((self.now, doubted))

    def _decide(self) -> None:
        """Settle the book and carry out at once what it wants, as the workflow does."""
        while True:
            self.book = settle(self.book, TIMINGS, at(self.now))
            wanted = plan(self.book, TIMINGS, at(self.now))
            self.until = wanted.until
            if wanted.mark:
                for wish in wanted.mark:
                    if wish.word in {NodeWord.DOWN, NodeWord.LOST}:
                        self.downs.setdefault(wish.name, self.now)
                done = [NodeMarked(name=wish.name, word=wish.word) for wish in wanted.mark]
                self.book = marked(self.book, done, at(self.now))
            elif wanted.look:
                sights = [
                    NodeSight(name=one.name, uid=one.uid, renewed=f"r{self.renewals[int(one.name[1:])]}")
                    for one in wanted.look
                ]
                self.book = looked(self.book, sights, at(self.now), ())
            else:
                return


@ROW("D3", level="pure")
@pytest.mark.parametrize(("lost", "count"), [(7, 10), (700, 1_000), (4_000, 5_000)])
def test_D3_a_doubt_that_is_over_stays_over_and_the_lost_nodes_are_down_within_390_s(lost: int, count: int):
    cluster = Cluster(count)
    cluster.run(60)
    cluster.lost = set(range(lost))
    cluster.run(60 + 390)
    assert cluster.downs, "the first is Down"
    assert min(cluster.downs.values()) <= 60 + 390
    cluster.run(60 + 405)
    assert set(cluster.downs) == {f"n{number}" for number in range(lost)}
    assert [doubted for _, doubted in cluster.doubts] == [True, False], f"one doubt, which went: {cluster.doubts}"


@ROW("D3", level="pure")
def test_D3_more_nodes_that_fall_silent_meanwhile_bring_no_doubt_back():
    cluster = Cluster(100)
    cluster.lost = set(range(70))
    cluster.run(350)
    assert [doubted for _, doubted in cluster.doubts] == [True, False]
    cluster.lost = set(range(88))  # Sixty per cent of those that were left.
    cluster.run(391)
    assert len(cluster.downs) == 70
    assert len(cluster.doubts) == 2


@ROW("D3", level="pure")
def test_D3_once_nobody_renews_it_is_the_sight_again_whatever_was_believed():
    cluster = Cluster(100)
    cluster.lost = set(range(70))
    cluster.run(340)
    cluster.lost = set(range(100))
    cluster.run(375)
    assert [doubted for _, doubted in cluster.doubts] == [True, False, True]
    cluster.run(5000)
    assert cluster.downs == {}, "nothing is Down while nobody renews"


@ROW("D3", level="pure")
def test_D3_the_end_of_a_long_outage_makes_nobody_silent():
    cluster = Cluster(200)
    cluster.run(20)
    cluster.lost = set(range(200))
    cluster.run(2000)
    assert [doubted for _, doubted in cluster.doubts] == [True]
    cluster.lost = set()
    cluster.told.clear()
    cluster.run(2200)
    assert cluster.downs == {}, "each had its ten seconds to renew"
    assert len(set(cluster.told)) < 110, "they are doubted until most have"
    assert [doubted for _, doubted in cluster.doubts] == [True, False]


@ROW("D3", level="pure")
def test_D3_who_takes_the_watch_over_doubts_nobody_who_was_believed():
    cluster = Cluster(100)
    cluster.lost = set(range(70))
    cluster.run(340)
    cluster.ledger = NodeLedger(TIMINGS, told_of(cluster.book))
    for number in range(100):
        cluster.ledger.node(f"n{number}", f"u{number}", "", "")
        cluster.ledger.renewed(f"n{number}", f"r{cluster.renewals[number]}", at(cluster.now))
    cluster.run(460)
    assert len(cluster.downs) == 70
    assert [doubted for _, doubted in cluster.doubts] == [True, False]
