"""The back-off of Jobs: one that has retries left waits, then replaces a failed pod by itself (row D22)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from holdfast.model import FailureClass, Observation, Scope, State
from holdfast.policy.failures.rules import Ruling

JOB_FIRST: Final = timedelta(seconds=10)
JOB_MAXIMUM: Final = timedelta(minutes=10)
"""The first and the longest wait of the Kubernetes Job controller before it replaces a failed pod."""


def pause_after(failures: int, first: timedelta, maximum: timedelta) -> timedelta:
    """Return how long to wait after so many consecutive failures: doubled with each, up to a maximum."""
    # The exponent is capped, so that no number of failures can overflow.
    return min(first * 2 ** min(failures - 1, 10), maximum)


def earliest(times: Iterable[datetime | None]) -> datetime | None:
    """Return the earliest of some times; None if any of them is None, or there are none."""
    every = list(times)
    return min((time for time in every if time is not None), default=None) if None not in every else None


def own_until(state: State, seen: Observation | None, ruling: Ruling) -> datetime | None:
    """Return until when a Job may be in its own back-off for a failure; None if none is, or it does not matter.

    It does not matter if a rule acts at once, or if the document itself sets the failure grace.
    """
    failure = ruling.failure
    if seen is None or not ruling.action.grace or failure.stuck or state.policy.own_failure_grace:
        return None
    if failure.scope is Scope.MEMBER:
        view = seen.components.get(failure.component)
        return view.backs_off_until if view is not None and failure.cls is not FailureClass.HARDWARE else None
    if failure.cls is not FailureClass.TIMEOUT:
        return None
    # The whole workload or one component has too few pods. Every component that lacks some must be backing off.
    lacking = [one for name, one in seen.components.items() if one.unready and failure.component in {"", name}]
    return earliest(one.backs_off_until for one in lacking)


def others_first(state: State, seen: Observation | None, found: list[Ruling]) -> list[Ruling]:
    """Return rulings with those last that a Job may still repair by itself, so that other failures decide first."""
    return sorted(found, key=lambda one: own_until(state, seen, one) is not None)
