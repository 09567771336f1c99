"""Whose lease was renewed when, and what of it is news to the monitor. Pure: times are given to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from holdfast.model import Interval, NodeSight, NodesSeen, NodeTimings
from holdfast.policy.node_monitor import held_back
from holdfast.policy.sight import due

GATHER: Final = timedelta(seconds=2)
"""What else falls silent, or is heard again, within so much is told with it."""
MOST: Final = 500
"""Nodes in one report."""


@dataclass(slots=True)
class _Node:
    """What is kept of a node; small, since there are thousands."""

    uid: str = ""
    renewed: str = ""
    heard: datetime | None = None
    """When the renewal was seen; None where it has no lease, and so is never silent."""
    fault: str = ""
    message: str = ""
    present: bool = False
    """Whether its object is there."""


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
        """Begin with what was told before: of a node that has not been heard since, silence goes on."""
        self._timings = timings
        self._nodes: dict[str, _Node] = {}
        self._known = {one.name: one for one in known}
        self._told = {one.name: _Told(one.silent, one.fault, one.message, one.uid) for one in known}
        self._old: set[str] = set()
        """Silent ones on which the monitor has had its time to decide."""
        self._held: datetime | None = None
        self._held_told: datetime | None = None
        self._first: datetime | None = None
        """Since when there is news that has not been told."""

    @property
    def leases(self) -> int:
        """How many nodes have a lease."""
        return sum(node.present and node.heard is not None for node in self._nodes.values())

    def renewed(self, name: str, renewed: str, at: datetime) -> None:
        """A lease bears this renewal time."""
        node = self._nodes.setdefault(name, _Node())
        if node.heard is not None and node.renewed == renewed:
            return
        known = self._known.pop(name, None)
        same = known is not None and known.silent and known.renewed == renewed
        node.heard = known.heard if known is not None and same else at
        node.renewed = renewed

    def unleased(self, name: str) -> None:
        """A lease is gone: its node cannot be judged by it."""
        node = self._nodes.get(name)
        if node is not None:
            node.heard, node.renewed = None, ""
            self._drop(name)

    def node(self, name: str, uid: str, fault: str, message: str) -> None:
        """There is a node, sound where `fault` is empty."""
        node = self._nodes.setdefault(name, _Node())
        node.uid, node.fault, node.message, node.present = uid, fault, message, True

    def unnode(self, name: str) -> None:
        """A node is gone."""
        node = self._nodes.get(name)
        if node is not None:
            node.uid, node.fault, node.message, node.present = "", "", "", False
            self._drop(name)

    def _drop(self, name: str) -> None:
        node = self._nodes[name]
        if node.heard is None and not node.present:
            del self._nodes[name]

    def news(self, now: datetime, blind: tuple[Interval, ...], *, listed: bool = True) -> NodesSeen | None:
        """Return what is to be told now; None where nothing is, or may still be joined by more.

        Args:
            now: by the same clock as all other times here.
            blind: when nothing could be seen.
            listed: whether all nodes and leases have been listed once; until then nothing is missed.
        """
        if not listed:
            return None
        silent = {name for name, node in self._nodes.items() if self._is_silent(node, now, blind)}
        self._old &= silent
        fresh = silent - self._old
        total = self.leases - len(self._old)
        self._held = held_back(len(fresh), total, self._held, self._timings, now)
        if self._held is None:
            grown = self._timings.until_down + GATHER
            self._old |= {name for name in fresh if name in self._told and self._is_over(name, grown, now, blind)}
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
        """The monitor has been told."""
        self._held_told, self._first = seen.held_since, None
        for one in seen.nodes:
            said = _Told(one.silent, one.fault, one.message, one.uid)
            if one.gone or said == _Told(uid=one.uid):
                self._told.pop(one.name, None)
            else:
                self._told[one.name] = said

    def exceptions(self) -> list[NodeSight]:
        """Return what the monitor knows of nodes that are not healthy, for whoever watches next."""
        return [self._sight(name, told.silent) for name, told in self._told.items()]

    def _is_silent(self, node: _Node, now: datetime, blind: tuple[Interval, ...]) -> bool:
        if not node.present or node.heard is None or now - node.heard < self._timings.degraded:
            return False  # A lease may outlive its node.
        return due(node.heard, self._timings.degraded, blind) <= now

    def _is_over(self, name: str, grace: timedelta, now: datetime, blind: tuple[Interval, ...]) -> bool:
        heard = self._nodes[name].heard
        return heard is not None and due(heard, grace, blind) <= now

    def _changed(self, silent: set[str]) -> list[NodeSight]:
        news: list[NodeSight] = []
        for name in {*silent, *self._told, *(name for name, node in self._nodes.items() if node.fault)}:
            node, told = self._nodes.get(name), self._told.get(name, WELL)
            if node is None or (told is not WELL and not node.present):
                news.append(NodeSight(name=name, uid=told.uid, gone=True))
                continue
            # So many at once are not believed, but for those that were told of before.
            unheard = name in silent or (node.heard is None and told.silent)
            is_silent = unheard and (self._held is None or told.silent)
            if _Told(is_silent, node.fault, node.message, node.uid) != _Told(
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
        )
