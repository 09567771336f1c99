"""Caches what was allowed a moment ago, so that many workloads that begin together ask once, not each for itself.

Only what was allowed is kept: `FRESH` seconds for what nobody but Holdfast checks, `RIGHTS_FRESH` for rights, which the
API server checks again with each request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from math import inf

FRESH = 10.0
"""Seconds after which an operation that creates something asks again whether that is still allowed (row X4)."""
RIGHTS_FRESH = 60.0
"""Seconds after which the rights to a kind are asked for again: a request without the right is refused anyway."""
_MOST = 10_000


class Permits:
    """Positive answers with the time at which they were given."""

    def __init__(self) -> None:
        """Start with none."""
        self._given: dict[Hashable, float] = {}

    def has(self, *what: Hashable) -> bool:
        """Whether this was allowed within the last `FRESH` seconds."""
        return self._age(*what) < FRESH

    def has_right(self, *what: Hashable) -> bool:
        """Whether this right was there within the last `RIGHTS_FRESH` seconds."""
        return self._age(*what) < RIGHTS_FRESH

    def _age(self, *what: Hashable) -> float:
        return asyncio.get_running_loop().time() - self._given.get(what, -inf)

    def give(self, *what: Hashable) -> None:
        """Record that this has just been allowed."""
        if len(self._given) >= _MOST:
            self._given.clear()
        self._given[what] = asyncio.get_running_loop().time()
