"""What was asked and allowed a moment ago, so that a burst of beginnings asks once and not each for itself.

Only what was allowed is kept: for `FRESH` seconds, as far apart as the worker's own looks at the API server, where
something is begun, and for `STANDING` seconds where it goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

FRESH = 2.0
"""Seconds."""
STANDING = 10.0
"""Seconds after which whoever makes something asks again whether that is still allowed (row X4)."""
_MOST = 10_000


class Permits:
    """Positive answers with the time at which they were given."""

    def __init__(self) -> None:
        """Begin without any."""
        self._given: dict[Hashable, float] = {}

    def has(self, *what: Hashable, within: float = FRESH) -> bool:
        """Whether this was allowed within so many seconds."""
        at = self._given.get(what)
        return at is not None and asyncio.get_running_loop().time() - at < within

    def give(self, *what: Hashable) -> None:
        """Note that this has just been allowed."""
        if len(self._given) >= _MOST:
            self._given.clear()
        self._given[what] = asyncio.get_running_loop().time()
