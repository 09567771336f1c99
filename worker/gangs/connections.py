"""Which connections are kept if there are too many: those of proven pods first, then the newest (row X9). Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

OF_SOURCE_MAXIMUM: Final = 128
"""Connections of one source on which nothing is proven yet."""

C = TypeVar("C")


class Connections(Generic[C]):
    """The open connections. One on which a pod has proven itself is never dropped for another."""

    def __init__(self, at_most: int, of_source: int = OF_SOURCE_MAXIMUM) -> None:
        """Keep `at_most` in all, and `of_source` of each source that are not proven."""
        self._at_most, self._of_source = at_most, of_source
        self._sources: dict[C, str] = {}
        """All of them, with their source."""
        self._unproven: dict[C, None] = {}
        self._unproven_of: dict[str, dict[C, None]] = {}

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

    def prove(self, connection: C) -> None:
        """A pod has proven itself on a connection."""
        if self._unproven.pop(connection, self) is not self:
            self._forget(connection, self._sources[connection])

    def remove(self, connection: C) -> None:
        """A connection is closed."""
        self.prove(connection)
        self._sources.pop(connection, None)

    def _forget(self, connection: C, source: str) -> None:
        mine = self._unproven_of[source]
        del mine[connection]
        if not mine:
            del self._unproven_of[source]
