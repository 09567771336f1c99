"""How long a removal may last: measured by the loop's clock, and never shorter than a pod may take to end."""

from __future__ import annotations

from collections.abc import Sequence
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
