"""Priorities in a burst: looks, which decisions wait for, go before requests that only carry decisions out."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

GIVEN_WAY: Final = 2.0
"""Seconds for which a removal lets looks go first at most: a look without an answer must not block it."""
BEGINNING: Final = 1.0
"""The same for each half of the start of a next attempt: a rack falls silent over ten seconds, not at once."""


class Precedence:
    """Counts the looks under way in this process.

    When a tenth of the nodes goes Down at once, the first workload's removal and next attempt take more requests than a
    decision. They would delay the decisions of all other workloads.
    """

    def __init__(self) -> None:
        """Start with no looks."""
        self._looks = 0
        self._none = asyncio.Event()
        self._none.set()

    @contextmanager
    def looking(self) -> Generator[None]:
        """Make removals and new attempts wait until this block ends."""
        self._looks += 1
        self._none.clear()
        try:
            yield
        finally:
            self._looks -= 1
            if not self._looks:
                self._none.set()

    async def give_way(self, seconds: float = GIVEN_WAY) -> None:
        """Wait until no look is under way, for at most so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._none.wait()
        except TimeoutError:
            return
