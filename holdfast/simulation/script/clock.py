"""Virtual time: a queue of actions by due time. Nothing here waits."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

START = datetime(2000, 1, 1, tzinfo=UTC)
"""When every simulation begins; users see the time since then."""

Action = Callable[[], None]


class Clock:
    """The time, and the actions due later: the earliest first, those due together in the order of scheduling."""

    def __init__(self) -> None:
        self.now = START
        self._due: list[tuple[datetime, int, Action]] = []
        self._asked = 0

    @property
    def next(self) -> datetime | None:
        """When the next action is due; None if there is none."""
        return self._due[0][0] if self._due else None

    @property
    def passed(self) -> timedelta:
        """How much time has passed since the beginning."""
        return self.now - START

    def at(self, when: datetime, action: Action) -> None:
        """Schedule an action for a time; a past time means now."""
        self._asked += 1
        heapq.heappush(self._due, (max(when, self.now), self._asked, action))

    def after(self, span: timedelta, action: Action) -> None:
        """Schedule an action after a delay."""
        self.at(self.now + span, action)

    def repeat(self, every: timedelta, times: int, action: Action) -> None:
        """Schedule an action for several times; each is scheduled when the one before it is due."""
        self._asked += 1
        order = self._asked  # All of them go by the order in which the first was asked for.

        def again(left: int) -> None:
            if left:
                heapq.heappush(self._due, (self.now + every, order, lambda: once(left)))

        def once(left: int) -> None:
            again(left - 1)
            action()

        again(times)

    def wake(self, when: datetime) -> None:
        """Make the simulation run again at a time."""
        self.at(when, _nothing)

    def take(self) -> Action | None:
        """Return the next action that is due by now, if there is one."""
        if not self._due or self._due[0][0] > self.now:
            return None
        return heapq.heappop(self._due)[2]


def _nothing() -> None:
    """Do nothing; taking this action makes the simulation run again."""
