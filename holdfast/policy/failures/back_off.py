"""A Job that has retries left waits before it replaces a failed pod: until then that is its own business (row D22)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from holdfast.model import FailureClass, Observation, Scope, State
from holdfast.policy.failures.rules import Ruling

JOB_FIRST: Final = timedelta(seconds=10)
JOB_MAXIMUM: Final = timedelta(minutes=10)
"""How long the Job controller of Kubernetes waits before it replaces a failed pod: at first, and at most."""


def pause_after(failures: int, first: timedelta, maximum: timedelta) -> timedelta:
    """Return how long to wait after so many failures in a row: doubled with each, up to a maximum."""
    # Doubled no further than the maximum needs, so that no number of failures grows into an overflow.
    return min(first * 2 ** min(failures - 1, 10), maximum)


def earliest(times: Iterable[datetime | None]) -> datetime | None:
    """Return the earliest of some times; None where one of them is none, or there are none."""
    every = list(times)
    return min((time for time in every if time is not None), default=None) if None not in every else None


def own_until(state: State, seen: Observation | None, ruling: Ruling) -> datetime | None:
    """Return until when a Job may be in its own back-off over a failure; None where none is, or it does not matter.

    What a rule acts on at once stays the rule's, and a failure grace that the document itself gives is final.
    """
    failure = ruling.failure
    if seen is None or not ruling.action.grace or failure.stuck or state.policy.own_failure_grace:
        return None
    if failure.scope is Scope.MEMBER:
        view = seen.components.get(failure.component)
        return view.backs_off_until if view is not None and failure.cls is not FailureClass.HARDWARE else None
    if failure.cls is not FailureClass.TIMEOUT:
        return None
    # Too few pods of all, or of one component: nobody else must lack any.
    lacking = [one for name, one in seen.components.items() if one.unready and failure.component in {"", name}]
    return earliest(one.backs_off_until for one in lacking)


def others_first(state: State, seen: Observation | None, found: list[Ruling]) -> list[Ruling]:
    """Return rulings with those last that a Job may still put right by itself: what else is wrong decides before."""
    return sorted(found, key=lambda one: own_until(state, seen, one) is not None)
