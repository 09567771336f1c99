"""Virtual time: what is to happen when. Nothing here waits."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

START = datetime(2000, 1, 1, tzinfo=UTC)
"""When every simulation begins; what people see is the time since then."""

Action = Callable[[], None]


class Clock:
    """The time, and what is due later: the earlier first, of those together the one that was asked for first."""

    def __init__(self) -> None:
        self.now = START
        self._due: list[tuple[datetime, int, Action]] = []
        self._asked = 0

    @property
    def next(self) -> datetime | None:
        """When the next thing is due; None if nothing is."""
        return self._due[0][0] if self._due else None

    @property
    def passed(self) -> timedelta:
        """How much time has passed since the beginning."""
        return self.now - START

    def at(self, when: datetime, action: Action) -> None:
        """Have something done at a time; what is past is done now."""
        self._asked += 1
        heapq.heappush(self._due, (max(when, self.now), self._asked, action))

    def after(self, span: timedelta, action: Action) -> None:
        """Have something done after a time."""
        self.at(self.now + span, action)

    def wake(self, when: datetime) -> None:
        """Have everybody look again at a time."""
        self.at(when, _nothing)

    def take(self) -> Action | None:
        """Return the next thing that is due by now, if there is one."""
        if not self._due or self._due[0][0] > self.now:
            return None
        return heapq.heappop(self._due)[2]


def _nothing() -> None:
    """Be a reason to look again."""
