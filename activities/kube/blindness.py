"""When this process could not see its cluster: spans kept in memory, so that no failure clock runs through them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from holdfast.model import Interval
from holdfast.policy.failures.blindness import lasting, union

SPANS_KEPT = 32


def _now() -> datetime:
    return datetime.now(UTC)


class Sight:
    """The spans in which this process could not see the API server.

    A span begins when the first failed request was sent, and ends with the next request that was answered. If there
    are more than `kept`, those that are no blindness go (`lasting`), then the two closest are merged: blindness may be
    overstated, never forgotten.
    """

    def __init__(self, kept: int = SPANS_KEPT, clock: Callable[[], datetime] = _now) -> None:
        if kept < 1:
            raise ValueError(f"kept is {kept}: expected at least 1")
        self._kept = kept
        self._clock = clock
        self._spans: list[Interval] = []
        self._since: datetime | None = None
        self._seen: datetime | None = None

    @property
    def blind(self) -> bool:
        """Whether the last request that ended went unanswered."""
        return self._since is not None

    @property
    def blind_since(self) -> datetime | None:
        """Since when the cluster cannot be seen; None while it can."""
        return self._since

    def lost(self, at: datetime | None = None, *, opened: bool = False) -> None:
        """Record that a request sent at `at` went unanswered, or nothing came since on a stream that was `opened`."""
        when = at or self._clock()
        if self._seen is not None and when < self._seen:
            # Another request was answered after this one was sent: the span begins at that answer at the earliest.
            when = self._seen
        if self._since is None or when < self._since:
            self._since = when

    def regained(self, at: datetime | None = None) -> None:
        """Record that a request was answered at `at`."""
        when = at or self._clock()
        if self._since is not None:
            if when > self._since:
                self._remember(Interval(begin=self._since, end=when))
            self._since = None
        if self._seen is None or when > self._seen:
            self._seen = when

    def intervals(self, since: datetime, now: datetime | None = None) -> tuple[Interval, ...]:
        """Return the blind spans that end after `since`, cut off at it; a span still open ends at `now`."""
        until = now or self._clock()
        spans = list(self._spans)
        if self._since is not None and until > self._since:
            spans.append(Interval(begin=self._since, end=until))
        return tuple(
            span if span.begin >= since else Interval(begin=since, end=span.end) for span in spans if span.end > since
        )

    def _remember(self, span: Interval) -> None:
        if self._spans and span.begin <= self._spans[-1].end:
            last = self._spans[-1]
            self._spans[-1] = Interval(begin=min(last.begin, span.begin), end=max(last.end, span.end))
        else:
            self._spans.append(span)
        if len(self._spans) > self._kept:
            self._spans = list(lasting(self._spans, self._kept))


class Answers:
    """When the last request was sent that the API server answered from its store; its clients may share this."""

    at: datetime | None = None
    """None while there was none."""

    def note(self, sent: datetime) -> None:
        """Record an answer to a request that was sent then."""
        self.at = sent if self.at is None else max(self.at, sent)


class SharedSight(Sight):
    """A sight that also includes the blind spans of another observer of the same cluster."""

    def __init__(self, own: Sight, others: Callable[[datetime], tuple[Interval, ...]]) -> None:
        """Join two observers.

        Args:
            own: the sight of this process's own requests.
            others: returns the other observer's blind spans since a time.
        """
        super().__init__()
        self._own = own
        self._others = others

    def intervals(self, since: datetime, now: datetime | None = None) -> tuple[Interval, ...]:
        """Return the blind spans of both that end after `since`."""
        return union([*self._own.intervals(since, now), *self._others(since)], self._kept)
