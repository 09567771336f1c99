"""Tracks when each node's lease was renewed, and what of it is news to the monitor. Pure: callers pass time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from holdfast.model import Interval, NodeSight, NodesSeen, NodeTimings, OwnMarks
from holdfast.model.life.state import INTERVALS_KEPT
from holdfast.policy.failures.blindness import due, union
from holdfast.policy.nodes.monitor import held_back, is_mass

GATHER: Final = timedelta(seconds=2)
"""Nodes that fall silent, or renew again, within this time are reported together."""
MOST: Final = 500
"""Nodes in one report."""


@dataclass(slots=True)
class _Node:
    """The fields kept of a node; few, because there are thousands."""

    uid: str = ""
    renewed: str = ""
    heard: datetime | None = None
    """When the renewal was seen; None if the node has no lease, and so is never silent."""
    fault: str = ""
    message: str = ""
    present: bool = False
    """Whether its Node object exists."""


@dataclass(frozen=True, slots=True)
class _Told:
    silent: bool = False
    fault: str = ""
    message: str = ""
    uid: str = ""


WELL: Final = _Told()


class NodeLedger:
    """Every node and its lease. It owns no clock, no task and no connection."""

    def __init__(self, timings: NodeTimings, known: Iterable[NodeSight] = ()) -> None:
        """Start with what was told before: the silence of a node that has not renewed since continues."""
        self._timings = timings
        self._nodes: dict[str, _Node] = {}
        self._known = {one.name: one for one in known}
        self._told = {one.name: _Told(one.silent, one.fault, one.message, one.uid) for one in known}
        self._old: set[str] = set()
        """Silent nodes on which the monitor has had its time to decide."""
        self._believed = {one.name for one in known if one.silent and one.believed}
        """Silent nodes that were doubted for long enough, or are Down: none of them causes doubt again (row D3)."""
        self._doubted: tuple[Interval, ...] = ()
        """Spans in which silence was not believed; the monitor's time to decide begins after them."""
        self._marks: dict[str, OwnMarks] | None = {}
        """The marks on Node objects, until all have been listed once; None from then on (row D11)."""
        self._moved: set[str] = set()
        """Nodes that renewed before all had been listed."""
        self._adopted: dict[str, OwnMarks] = {}
        """Marks to report to the monitor."""
        self._unheard: set[str] = set()
        """Adopted nodes that were silent and have not renewed since: the time of their last renewal is unknown."""
        self._nobody: datetime | None = None
        """The last time that no node renewed: since then some do."""
        self._held: datetime | None = None
        self._held_told: datetime | None = None
        self._first: datetime | None = None
        """Since when there is unreported news."""

    @property
    def leases(self) -> int:
        """How many nodes have a lease."""
        return sum(node.present and node.heard is not None for node in self._nodes.values())

    def renewed(self, name: str, renewed: str, at: datetime) -> None:
        """Record the renewal time of a lease."""
        node = self._nodes.setdefault(name, _Node())
        if node.heard is not None and node.renewed == renewed:
            return
        if node.heard is not None and self._marks is not None:
            self._moved.add(name)
        self._unheard.discard(name)
        known = self._known.pop(name, None)
        same = known is not None and known.silent and known.renewed == renewed
        node.heard = known.heard if known is not None and same else at
        node.renewed = renewed

    def unleased(self, name: str, renewed: str) -> None:
        """Forget a lease that is gone, as it was renewed last: its node cannot be judged by it.

        A list tells of a lease that took its name before it tells that this one is gone; that one stays.
        """
        node = self._nodes.get(name)
        if node is not None and node.renewed == renewed:
            node.heard, node.renewed = None, ""
            self._drop(name)

    def node(self, name: str, uid: str, fault: str, message: str, own: OwnMarks | None = None) -> None:
        """Record a node, healthy if `fault` is empty; `own` holds this installation's marks on it."""
        node = self._nodes.setdefault(name, _Node())
        if self._marks is not None:
            self._marks.pop(name, None)
            if own is not None:
                self._marks[name] = own
        node.uid, node.fault, node.message, node.present = uid, fault, message, True

    def unnode(self, name: str, uid: str) -> bool:
        """Forget a node that is gone; False if another has its name since, which a list may tell first."""
        node = self._nodes.get(name)
        if node is not None and node.present and node.uid != uid:
            return False
        for marks in (self._marks, self._adopted):
            if marks is not None:
                marks.pop(name, None)
        self._unheard.discard(name)
        if node is not None:
            node.uid, node.fault, node.message, node.present = "", "", "", False
            self._drop(name)
        return True

    def _drop(self, name: str) -> None:
        node = self._nodes[name]
        if node.heard is None and not node.present:
            del self._nodes[name]

    def news(self, now: datetime, blind: tuple[Interval, ...], *, listed: bool = True) -> NodesSeen | None:
        """Return the report to send now; None if there is no news, or more may still join it.

        Args:
            now: by the same clock as all other times here.
            blind: the spans in which nothing could be seen.
            listed: whether all nodes and leases have been listed once; before that, nothing counts as missing.
        """
        if not listed:
            return None
        self._adopt()
        silent = {name for name, node in self._nodes.items() if self._is_silent(node, now, blind)} | self._unheard
        self._doubt(silent, now, blind)
        news = self._changed(silent)
        if not news and self._held == self._held_told:
            self._first = None
            return None
        self._first = self._first or now
        urgent = any(one.fault for one in news) or self._held != self._held_told
        if not urgent and now - self._first < GATHER:
            return None
        return NodesSeen(
            at=now,
            nodes=tuple(news[:MOST]),
            total=self.leases,
            silent=len(silent),
            held_since=self._held,
            blind=blind,
        )

    def told(self, seen: NodesSeen) -> None:
        """Record that the monitor received a report."""
        self._held_told, self._first = seen.held_since, None
        for one in seen.nodes:
            self._adopted.pop(one.name, None)
            said = _Told(one.silent, one.fault, one.message, one.uid)
            if one.gone or said == _Told(uid=one.uid):
                self._told.pop(one.name, None)
            else:
                self._told[one.name] = said

    def _adopt(self) -> None:
        """Adopt the marks on Node objects that the monitor does not know, once all have been listed.

        A listed lease does not show when it was last renewed by our clock: a silent node counts as back with its next
        renewal. Its silence counts from now on, because nobody watched before.
        """
        if self._marks is None:
            return
        marks, self._marks = self._marks, None
        self._adopted = {name: own for name, own in marks.items() if name not in self._told}
        for name, own in self._adopted.items():
            if own.is_silent and name not in self._moved and self._nodes[name].heard is not None:
                self._unheard.add(name)
                self._believed.add(name)
        self._moved.clear()

    def _doubt(self, silent: set[str], now: datetime, blind: tuple[Interval, ...]) -> None:
        """Decide, once for each silent node, whether our own sight is lost instead."""
        self._old &= silent
        self._believed &= silent
        standing = silent - self._old
        total = self.leases - len(self._old)
        # While no node renews, our sight is lost, whatever was believed before.
        fresh = standing if len(standing) >= total else standing - self._believed
        if len(standing) >= total:
            self._nobody = now
        since = self._held if self._held is None or self._nobody is None else max(self._held, self._nobody)
        before, held = self._held, held_back(len(fresh), total, since, self._timings, now)
        self._held = held if held is None or before is None else before
        if held is not None:
            return
        if before is not None:
            self._doubted = union((*self._doubted, Interval(begin=before, end=now)), INTERVALS_KEPT)
        if is_mass(len(fresh), total):
            self._believed |= fresh
        grown = self._timings.until_down + GATHER
        unseen = union((*blind, *self._doubted), 2 * INTERVALS_KEPT)
        self._old |= {name for name in standing if name in self._told and self._is_over(name, grown, now, unseen)}

    def _is_silent(self, node: _Node, now: datetime, blind: tuple[Interval, ...]) -> bool:
        if not node.present or node.heard is None or now - node.heard < self._timings.degraded:
            return False  # A lease may outlive its node.
        return due(node.heard, self._timings.degraded, blind) <= now

    def _is_over(self, name: str, grace: timedelta, now: datetime, blind: tuple[Interval, ...]) -> bool:
        heard = self._nodes[name].heard
        return heard is not None and due(heard, grace, blind) <= now

    def _changed(self, silent: set[str]) -> list[NodeSight]:
        news: list[NodeSight] = []
        faulty = {name for name, node in self._nodes.items() if node.fault}
        for name in {*silent, *self._told, *self._adopted, *faulty}:
            node, told = self._nodes.get(name), self._told.get(name, WELL)
            if node is None or (told is not WELL and not node.present):
                news.append(NodeSight(name=name, uid=told.uid, gone=True))
                continue
            # While silence is in doubt, only nodes that were reported silent before stay so.
            own = self._adopted.get(name)
            before = told.silent or (own is not None and own.is_silent)
            unheard = name in silent or (node.heard is None and before)
            is_silent = unheard and (self._held is None or before)
            if own is not None or _Told(is_silent, node.fault, node.message, node.uid) != _Told(
                told.silent, told.fault, told.message, told.uid or node.uid
            ):
                news.append(self._sight(name, is_silent))
        return sorted(news, key=lambda one: (not one.fault, one.name))

    def _sight(self, name: str, silent: bool) -> NodeSight:
        node = self._nodes.get(name, _Node())
        return NodeSight(
            name=name,
            uid=node.uid,
            renewed=node.renewed,
            heard=node.heard,
            silent=silent,
            fault=node.fault,
            message=node.message,
            believed=silent and (name in self._believed or name in self._old),
            own=self._adopted.get(name),
        )
