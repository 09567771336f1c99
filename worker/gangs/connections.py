"""Which connections are kept if there are too many: those of proven pods first, then the newest (row X9). Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

OF_SOURCE_MAXIMUM: Final = 128
"""Connections of one source on which nothing is proven yet."""
OF_POD_MAXIMUM: Final = 8
"""Connections on which one pod has proven itself; an agent uses one."""

C = TypeVar("C")


class Connections(Generic[C]):
    """The open connections. One on which a pod has proven itself is dropped for that pod's own only."""

    def __init__(self, at_most: int, of_source: int = OF_SOURCE_MAXIMUM, of_pod: int = OF_POD_MAXIMUM) -> None:
        """Keep `at_most` in all, `of_source` of each source that are not proven, and `of_pod` of each pod."""
        self._at_most, self._of_source, self._of_pod = at_most, of_source, of_pod
        self._sources: dict[C, str] = {}
        """All of them, with their source."""
        self._unproven: dict[C, None] = {}
        self._unproven_of: dict[str, dict[C, None]] = {}
        self._pods: dict[C, str] = {}
        """The proven ones, each with the uid of the pod that proved itself on it last."""
        self._proven_of: dict[str, dict[C, None]] = {}
        """Those of each pod, the one on which it proved itself longest ago first."""

    def __iter__(self) -> Iterator[C]:
        """Iterate over all of them."""
        return iter(self._sources)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._sources)

    def add(self, connection: C, source: str) -> C | None:
        """Add a new connection; return one that has to be closed for it, which may be itself."""
        excess: C | None = None
        mine = self._unproven_of.get(source, {})
        if len(mine) >= self._of_source:
            excess = next(iter(mine))
        elif len(self._sources) >= self._at_most:
            excess = next(iter(self._unproven), connection)
        if excess is not None:
            self.remove(excess)
        if excess is not connection:
            self._sources[connection] = source
            self._unproven[connection] = None
            self._unproven_of.setdefault(source, {})[connection] = None
        return excess

    def prove(self, connection: C, pod_uid: str) -> C | None:
        """A pod has proven itself on a connection; return another of its own that has to be closed for it."""
        if connection not in self._sources:
            return None
        self._forget(connection)
        mine = self._proven_of.setdefault(pod_uid, {})
        excess = next(iter(mine)) if len(mine) >= self._of_pod else None
        mine[connection] = None
        self._pods[connection] = pod_uid
        if excess is not None:
            self.remove(excess)
        return excess

    def remove(self, connection: C) -> None:
        """A connection is closed."""
        if connection in self._sources:
            self._forget(connection)
            del self._sources[connection]

    def _forget(self, connection: C) -> None:
        """Take it out of those of its pod, or of those that are not proven."""
        pod_uid = self._pods.pop(connection, None)
        if pod_uid is not None:
            _take_out(self._proven_of, pod_uid, connection)
        else:
            del self._unproven[connection]
            _take_out(self._unproven_of, self._sources[connection], connection)


def _take_out(groups: dict[str, dict[C, None]], key: str, connection: C) -> None:
    group = groups[key]
    del group[connection]
    if not group:
        del groups[key]
