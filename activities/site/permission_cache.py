"""Caches what was allowed a moment ago, so that many workloads that begin together ask once, not each for itself.

Only what was allowed is kept, for `FRESH` seconds; what it lets happen is judged by the API server anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

FRESH = 10.0
"""Seconds after which an operation that creates something asks again whether that is still allowed (row X4)."""
_MOST = 10_000


class Permits:
    """Positive answers with the time at which they were given."""

    def __init__(self) -> None:
        """Start with none."""
        self._given: dict[Hashable, float] = {}

    def has(self, *what: Hashable) -> bool:
        """Whether this was allowed within the last `FRESH` seconds."""
        at = self._given.get(what)
        return at is not None and asyncio.get_running_loop().time() - at < FRESH

    def give(self, *what: Hashable) -> None:
        """Record that this has just been allowed."""
        if len(self._given) >= _MOST:
            self._given.clear()
        self._given[what] = asyncio.get_running_loop().time()
