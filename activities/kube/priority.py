"""Priorities in a burst: looks, which decisions wait for, go first; then deletions; then proofs that all is gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from typing import Final

GIVEN_WAY: Final = 2.0
"""Seconds for which a removal lets looks go first at most: a look without an answer must not block it. The same for a
proof that lets the deletions of others go first."""
BEGINNING: Final = 1.0
"""The same for each half of the start of a next attempt: a rack falls silent over ten seconds, not at once."""
TOGETHER_FROM: Final = 4
"""With fewer removals in a process, each looks when it would."""
TOGETHER_SECONDS: Final = 1.0
TOGETHER_A_SECOND: Final = 30
"""So many removals look in a second; with more of them, each waits longer for the others, up to `TOGETHER_SECONDS`."""
ENDS_TOGETHER: Final = 3.0
"""The same for the last removals of what has ended and holds no quota."""


class Underway:
    """Counts what is under way in this process; others can wait until nothing of it is."""

    def __init__(self) -> None:
        """Start with nothing under way."""
        self.listeners: list[Callable[[float], None]] = []
        """Called whenever one is over, with the time when it began, by `time.monotonic`."""
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    @contextmanager
    def one(self) -> Generator[None]:
        """Count one until this block ends."""
        begun = time.monotonic()
        self._count += 1
        self._none.clear()
        try:
            yield
        finally:
            self._count -= 1
            if not self._count:
                self._none.set()
            for listener in self.listeners:
                listener(begun)

    async def over(self, seconds: float) -> None:
        """Wait until nothing is under way, for at most so many seconds."""
        await _set_within(self._none, seconds)


class Together:
    """Has many who poll go on in the same moment, so that what they read next is read once for all of them."""

    def __init__(
        self, least: int = TOGETHER_FROM, a_second: float = TOGETHER_A_SECOND, longest: float = TOGETHER_SECONDS
    ) -> None:
        """Start with nobody.

        Args:
            least: with fewer members, each sleeps as long as it would.
            a_second: so many members look in a second; with more of them, each waits longer for the others.
            longest: for how many seconds each waits at most.
        """
        self._least, self._a_second, self._longest = least, a_second, longest
        self._members = 0
        self._opens: asyncio.Event | None = None

    @classmethod
    def at_ends(cls) -> Together:
        """Return one for the last removals of what has ended and holds no quota: nothing waits for these."""
        return cls(least=2, a_second=10, longest=ENDS_TOGETHER)

    @contextmanager
    def member(self) -> Generator[None]:
        """Count one who polls until this block ends."""
        self._members += 1
        try:
            yield
        finally:
            self._members -= 1

    async def sleep(self, seconds: float, most: float) -> None:
        """Sleep for so many seconds; among many, until the first who sleeps goes on.

        Among many, each sleeps for as long as others are to be waited for if that is longer, but no longer than `most`.
        """
        if self._members < self._least:
            await asyncio.sleep(seconds)
            return
        wait = self.wait(seconds, most)
        if self._opens is None:
            self._opens = asyncio.Event()
            asyncio.get_running_loop().call_later(wait, self._open)
        await _set_within(self._opens, wait)

    def wait(self, seconds: float, most: float) -> float:
        """Return for how long one who polls sleeps among those who are there now."""
        return min(most, max(seconds, min(self._longest, self._members / self._a_second)))

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

    @contextmanager
    def asking(self) -> Generator[Callable[[], None]]:
        """Count a removal that has yet to ask for its deletions, until it calls what is yielded.

        After `GIVEN_WAY` it counts no longer: one that gets no answer must not hold the others up.
        """
        with ExitStack() as counted:
            counted.enter_context(self.deletions.one())
            timer = asyncio.get_running_loop().call_later(GIVEN_WAY, counted.close)
            try:
                yield counted.close
            finally:
                timer.cancel()

    async def give_way_to_deletions(self, most: float) -> None:
        """Wait until every removal here has asked for its deletions, for at most `GIVEN_WAY` and so many seconds."""
        await self.deletions.over(max(0.0, min(GIVEN_WAY, most)))


async def _set_within(event: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, for at most so many seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
