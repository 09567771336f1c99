"""Blindness: while the cluster cannot be observed, no failure clock runs (invariant 4, rows U1 and L4)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

from holdfast.model import Interval

SHORTEST: Final = timedelta(seconds=1)
"""A shorter span is no blindness: one request went unanswered, or a stream was cut, and the next was answered."""


def union(intervals: Iterable[Interval], keep: int) -> tuple[Interval, ...]:
    """Return the intervals in order, merged where they touch; then the closest ones merge until `keep` are left.

    So blindness may be overstated, but is never lost.
    """
    merged: list[Interval] = []
    for span in sorted(intervals, key=lambda each: (each.begin, each.end)):
        if span.end <= span.begin:
            continue
        if merged and span.begin <= merged[-1].end:
            if span.end > merged[-1].end:
                merged[-1] = Interval(begin=merged[-1].begin, end=span.end)
        else:
            merged.append(span)
    while len(merged) > keep:
        gaps = [after.begin - before.end for before, after in pairwise(merged)]
        at = gaps.index(min(gaps))
        merged[at : at + 2] = [Interval(begin=merged[at].begin, end=merged[at + 1].end)]
    return tuple(merged)


def lasting(intervals: Iterable[Interval], keep: int) -> tuple[Interval, ...]:
    """Return the intervals as `union` does, but for those that are shorter than `SHORTEST` after touching ones merged.

    They go before the closest merge: a stream that is cut again and again never makes one long blindness.
    """
    found = list(intervals)
    return union((span for span in union(found, len(found)) if span.end - span.begin >= SHORTEST), keep)


def due(start: datetime, grace: timedelta, blind: Iterable[Interval]) -> datetime:
    """Return when a grace that began at `start` ends, with all blind time added; `blind` is ordered and disjoint."""
    end = start + grace
    for span in blind:
        if span.end <= start:
            continue
        if span.begin > end:
            break
        end += span.end - max(span.begin, start)
    return end
