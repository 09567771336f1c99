"""How long a removal may last, and how long pods may take to end: measured by the loop's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from holdfast.model import Interval


class Deadline:
    """The end of a removal's time.

    It was set by another clock than this process's. So it is read as a span from the activity's start, which the same
    other clock has told; from then on the loop's own clock counts, which nobody sets.
    """

    def __init__(self, until: datetime, started: datetime, wall: datetime, now: float, grace: float = 0.0) -> None:
        """Begin.

        Args:
            until: when time is up.
            started: when the activity began, by the clock that `until` was set by.
            wall: the same moment by this process's wall clock, by which blindness is told.
            now: the same moment by the loop's clock.
            grace: seconds for which pods are let end in sight of us, once their deletion has begun.
        """
        self._started = started
        self._ahead = wall - started
        self._begun = now
        self._end = now + max(0.0, (until - started).total_seconds())
        self._grace = grace
        self._dying: datetime | None = None

    def dying(self, now: float, since: datetime | None = None) -> None:
        """Note that the deletion has begun: at `since`, as the API server tells, or just now. The first word counts."""
        if self._dying is None:
            here = self._started + timedelta(seconds=now - self._begun)
            # Kubernetes tells whole seconds: what it says has passed may have been up to a second later.
            self._dying = min(since + timedelta(seconds=1), here) if since is not None else here

    def left(self, now: float, blind: Sequence[Interval] = ()) -> float:
        """Return the seconds that are left; time in which the cluster could not be seen is no grace."""
        end = self._end
        if self._dying is not None and self._grace > 0:
            dark = timedelta()
            for span in blind:
                dark += max(span.end - max(span.begin, self._dying + self._ahead), timedelta())
            begun = self._begun + (self._dying - self._started).total_seconds()
            end = max(end, begun + self._grace + dark.total_seconds())
        return end - now


class Grace:
    """Seconds that pods have to end by themselves. Only time between two looks that both saw them is used up."""

    def __init__(self, seconds: float, clock: Callable[[], float] | None = None) -> None:
        """Begin with the first look that saw them end, by the running loop's clock if by no other."""
        self._clock = clock or asyncio.get_running_loop().time
        self._left, self._looked, self._dark = seconds, self._clock(), True

    def see(self) -> None:
        """Note that the pods have just been seen, and that their deletion has been asked for."""
        now = self._clock()
        if not self._dark:
            self._left -= now - self._looked
        self._looked, self._dark = now, False

    def miss(self) -> None:
        """Note that they could not be seen."""
        self._dark = True

    @property
    def is_over(self) -> bool:
        """Whether it is used up."""
        return self._left < 0
