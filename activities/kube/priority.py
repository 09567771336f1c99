"""Who goes first in a burst: looks, which decisions wait for, before what only carries decisions out."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

GIVEN_WAY: Final = 2.0
"""Seconds for which a removal lets looks go first at most: none is kept waiting by one that gets no answer."""
BEGINNING: Final = 1.0
"""The same for each half of a next attempt's beginning: a rack falls silent over ten seconds, not at once."""


class Precedence:
    """The looks that are under way in this process.

    A tenth of the nodes goes Down at once: the first workload's removal and its next attempt take more requests than a
    decision, and would keep all other workloads from theirs.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._looks = 0
        self._none = asyncio.Event()
        self._none.set()

    @contextmanager
    def looking(self) -> Generator[None]:
        """Have removals and new attempts wait for the end of this block."""
        self._looks += 1
        self._none.clear()
        try:
            yield
        finally:
            self._looks -= 1
            if not self._looks:
                self._none.set()

    async def give_way(self, seconds: float = GIVEN_WAY) -> None:
        """Wait until no look is under way, but not for long."""
        try:
            async with asyncio.timeout(seconds):
                await self._none.wait()
        except TimeoutError:
            return
