"""The time limit of a removal, and the grace period of pods, both measured by the event loop's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta

from holdfast.model import Interval


class Deadline:
    """The deadline of a removal.

    Another clock than this process's set the deadline. So it is read as a duration from the activity's start, a time by
    that same clock. From then on the loop's own clock counts, which nobody adjusts.
    """

    def __init__(self, until: datetime, started: datetime, wall: datetime, now: float, grace: float = 0.0) -> None:
        """Begin.

        Args:
            until: when time is up.
            started: when the activity began, by the clock that `until` was set by.
            wall: that moment by this process's wall clock, which also measures blind intervals.
            now: that moment by the loop's clock.
            grace: seconds that pods have to terminate once their deletion has begun; blind time does not count.
        """
        self._started = started
        self._ahead = wall - started
        self._begun = now
        self._end = now + max(0.0, (until - started).total_seconds())
        self._grace = grace
        self._dying: datetime | None = None

    def dying(self, now: float, since: datetime | None = None) -> None:
        """Record that deletion began, at `since` as the API server reports it, or now; only the first call counts."""
        if self._dying is None:
            here = self._started + timedelta(seconds=now - self._begun)
            # Kubernetes times are whole seconds: the real time may be up to a second later.
            self._dying = min(since + timedelta(seconds=1), here) if since is not None else here

    def left(self, now: float, blind: Sequence[Interval] = ()) -> float:
        """Return the seconds left; time in which the cluster could not be seen does not use up the grace period."""
        end = self._end
        if self._dying is not None and self._grace > 0:
            dark = timedelta()
            for span in blind:
                dark += max(span.end - max(span.begin, self._dying + self._ahead), timedelta())
            begun = self._begun + (self._dying - self._started).total_seconds()
            end = max(end, begun + self._grace + dark.total_seconds())
        return end - now


class Grace:
    """The seconds that pods have to terminate. Only time between two successful looks in a row is used up."""

    def __init__(self, seconds: float, clock: Callable[[], float] | None = None) -> None:
        """Start counting at the first call of `see`; the clock defaults to the running loop's."""
        self._clock = clock or asyncio.get_running_loop().time
        self._seconds, self._left, self._looked, self._dark = seconds, seconds, self._clock(), True
        self._kept: AbstractSet[str] = frozenset()

    def see(self, kept: AbstractSet[str] = frozenset()) -> None:
        """Record that the pods were just seen, and that their deletion has been requested.

        Args:
            kept: the uids of objects whose deletion is refused. Pods of one that was refused before are only now told
                to end, so all of the grace begins again.
        """
        now = self._clock()
        if self._kept - kept:
            self._left, self._dark = self._seconds, True
        self._kept = kept
        if not self._dark:
            self._left -= now - self._looked
        self._looked, self._dark = now, False

    def miss(self) -> None:
        """Record that the pods could not be seen."""
        self._dark = True

    @property
    def is_over(self) -> bool:
        """Whether the grace period is used up."""
        return self._left < 0
