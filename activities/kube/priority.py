"""Priorities in a burst: looks, which decisions wait for, go first; then deletions; then proofs that all is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Final

GIVEN_WAY: Final = 2.0
"""Seconds for which a removal lets looks go first at most: a look without an answer must not block it. The same for a
proof that lets the deletions of others go first."""
BEGINNING: Final = 1.0
"""The same for each half of the start of a next attempt: a rack falls silent over ten seconds, not at once."""


class Underway:
    """Counts what is under way in this process; others can wait until nothing of it is."""

    def __init__(self) -> None:
        """Start with nothing under way."""
        self.listeners: list[Callable[[], None]] = []
        """Called whenever one is over."""
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    @contextmanager
    def one(self) -> Generator[None]:
        """Count one until this block ends."""
        self._count += 1
        self._none.clear()
        try:
            yield
        finally:
            self._count -= 1
            if not self._count:
                self._none.set()
            for listener in self.listeners:
                listener()

    async def over(self, seconds: float) -> None:
        """Wait until nothing is under way, for at most so many seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self._none.wait()
        except TimeoutError:
            return


class Together:
    """Has those who wait go on in the same moment, so that what they read next is read once for all of them."""

    def __init__(self) -> None:
        """Start with nobody waiting."""
        self._opens: asyncio.Event | None = None

    async def wait(self, seconds: float) -> None:
        """Wait until the first who waits has waited for as long as it would, but no longer than for so many seconds."""
        if self._opens is None:
            self._opens = asyncio.Event()
            asyncio.get_running_loop().call_later(seconds, self._open)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._opens.wait()

    def _open(self) -> None:
        if self._opens is not None:
            self._opens.set()
            self._opens = None


class Precedence:
    """Knows the looks that are under way in this process, and the removals that have yet to ask for their deletions.

    When a tenth of the nodes goes Down at once, the first workload's removal and next attempt take more requests than a
    decision. They would delay the decisions of all other workloads. In the same way the proof that the first workload
    is gone would delay the deletion of the last.
    """

    def __init__(self) -> None:
        """Start with neither."""
        self.looks = Underway()
        self.deletions = Underway()

    async def give_way(self, seconds: float = GIVEN_WAY) -> None:
        """Wait until no look is under way, for at most so many seconds."""
        await self.looks.over(seconds)

    async def give_way_to_deletions(self) -> None:
        """Wait until every removal here has asked for its deletions, for at most `GIVEN_WAY`."""
        await self.deletions.over(GIVEN_WAY)
