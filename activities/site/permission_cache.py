"""Caches what was allowed a moment ago, so that many workloads that begin together ask once, not each for itself.

Only what was allowed is kept: `FRESH` seconds for what nobody but Holdfast checks, `RIGHTS_FRESH` for rights, which the
API server checks again with each request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from math import inf
from typing import Any, TypeVar

T = TypeVar("T")

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
        self._asked: dict[Hashable, asyncio.Task[Any]] = {}

    def has(self, *what: Hashable) -> bool:
        """Whether this was allowed within the last `FRESH` seconds."""
        return self._age(*what) < FRESH

    def has_right(self, *what: Hashable) -> bool:
        """Whether this right was there within the last `RIGHTS_FRESH` seconds."""
        return self._age(*what) < RIGHTS_FRESH

    async def ask(self, what: Hashable, question: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the answer to a question; whoever asks the same meanwhile is given this answer, or its error."""
        asked = self._asked.get(what)
        if asked is None:
            asked = self._asked[what] = asyncio.create_task(question())
            asked.add_done_callback(lambda _: self._asked.pop(what, None))
        return await asyncio.shield(asked)  # Others may wait for it.

    def _age(self, *what: Hashable) -> float:
        return asyncio.get_running_loop().time() - self._given.get(what, -inf)

    def give(self, *what: Hashable) -> None:
        """Record that this has just been allowed."""
        if len(self._given) >= _MOST:
            self._given.clear()
        self._given[what] = asyncio.get_running_loop().time()
