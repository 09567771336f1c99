"""The walltime: from when it counts, when it is over, and how far it may be extended (row L18).

It is wall time: neither a checkpoint nor time in which the watch was blind extends it.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from pydantic import ConfigDict

from holdfast.model import (
    Attempt,
    Bounded,
    Failure,
    FailureClass,
    Reason,
    Scope,
    State,
    Workload,
    format_duration,
    parse_duration,
)
from holdfast.policy.attempt.health import LIVE, current
from holdfast.policy.attempt.replace import due_replacements
from holdfast.policy.attempt.success import reached
from holdfast.policy.values.addressee import Addressed
from holdfast.policy.values.decision import Fail, Look
from holdfast.policy.values.edit import edit
from holdfast.policy.values.record import cause, shortened

USUAL_GRACE = timedelta(seconds=30)
"""What Kubernetes gives a pod between TERM and KILL that does not say."""


class WalltimeExtension(Addressed):
    """How much longer each attempt may run from now on than it might so far."""

    by: str
    """For example `1h`."""
    note: str = ""

    # What it does not know is refused in a sentence: a document that cannot be decoded is not.
    model_config = ConfigDict(extra="allow")


def walltime(spec: Workload, state: State) -> timedelta | None:
    """Return how long an attempt may run; None: as long as it takes."""
    life = spec.lifecycle
    if not isinstance(life, Bounded) or not life.walltime:
        return None
    return life.walltime + timedelta(seconds=state.extended)


def backstop(spec: Workload) -> timedelta | None:
    """Return after what time its nodes end its pods by themselves, should nobody else do so; None for never.

    Counted from each pod's own start, which is at most the warm-up grace before all run. It covers what the walltime
    may be extended to, since of a pod that runs it can only be lowered; and the grace between TERM and KILL. By what
    was submitted alone: what is sent twice in one attempt must be the same.
    """
    life, policy = spec.lifecycle, spec.policy
    if not isinstance(life, Bounded) or not life.walltime:
        return None
    most = life.extendable_to or life.walltime
    return most + policy.timings.warmup_grace_period + (policy.deletion.termination_grace or USUAL_GRACE)


def clocked(spec: Workload, state: State, now: datetime) -> State:
    """Return the state with the clock of the living attempt set going as it first runs, and stopped while it is parked.

    What is left of it when the attempt is suspended in place is what it may run once it is resumed.
    """
    attempt, span = state.attempt, walltime(spec, state)
    if attempt is None or span is None or attempt.stage not in LIVE or state.outcome is not None:
        return state
    if attempt.suspended and attempt.walltime_until is not None:
        left = max(0.0, (attempt.walltime_until - now).total_seconds())
        return edit(state, attempt=edit(attempt, walltime_until=None, walltime_left=left))
    if attempt.walltime_until is not None or attempt.ready_at is None or attempt.suspended:
        return state
    if attempt.walltime_left is not None:
        span = timedelta(seconds=attempt.walltime_left)
    return edit(state, attempt=edit(attempt, walltime_until=now + span, walltime_left=None))


def ends_at(state: State) -> datetime | None:
    """Return when the walltime of the living attempt is over, if its clock runs."""
    attempt = state.attempt
    if attempt is None or attempt.stage not in LIVE or state.outcome is not None:
        return None
    return attempt.walltime_until


def over(spec: Workload, state: State, now: datetime) -> Fail | Look | None:
    """Return what an expired walltime requires: a live look, then to fail. None if it has not expired.

    It does not end what has succeeded before: the look tells, before anything is removed.
    """
    attempt, until = state.attempt, ends_at(state)
    if attempt is None or until is None or now < until:
        return None
    seen = current(state)
    if reached(spec, state, seen, {one.component for one in due_replacements(spec, state, seen)}):
        return None
    span = walltime(spec, state)
    what = f"its walltime of {format_duration(span)} is over" if span is not None else "its walltime is over"
    # While something of it is being made, that operation would be broken off for a look that nothing hangs on.
    if not attempt.making and (state.looked_at is None or state.looked_at < until):
        return Look(f"confirming before it is acted on: {what}")
    return Fail(Reason.WALLTIME_EXCEEDED, exceeded(attempt, until, what), what)


def exceeded(attempt: Attempt, until: datetime, what: str) -> Failure:
    """Return the failure for an expired walltime."""
    return Failure(
        cls=FailureClass.DEADLINE,
        scope=Scope.WORKLOAD,
        reason=Reason.WALLTIME_EXCEEDED,
        time=until,
        message=what,
        attempt=attempt.number,
    )


def extension(spec: Workload, state: State, change: WalltimeExtension) -> float:
    """Return by how many seconds the walltime is extended in all, with a change made.

    Raises:
        ValueError: if there is none, if it is over, or if that is more than was submitted, saying what to do.
    """
    for name in change.model_extra or ():
        raise ValueError(f"{name}: expected one of by, note")
    life, span = spec.lifecycle, walltime(spec, state)
    if not isinstance(life, Bounded) or span is None:
        raise ValueError("it has no walltime: it runs as long as it takes")
    if state.outcome is not None or state.intent.cancel:
        what = state.outcome.value if state.outcome is not None else "being deleted"
        raise ValueError(f"it is {what}: nothing of it runs any longer")
    try:
        by = parse_duration(change.by)
    except ValueError as error:
        raise ValueError(f"by: {error}") from None
    if not by:
        raise ValueError("by: 0s: expected more, for example 1h")
    most = life.extendable_to
    if most is None or span + by > most:
        bound = f"expected at most {format_duration(most)}" if most is not None else "expected none"
        becomes = f"{format_duration(span)} would become {format_duration(span + by)}"
        raise ValueError(
            f"by: {format_duration(by)}: {becomes}: {bound}, as was submitted (lifecycle.extendableTo): the backstop "
            "of its pods can only be lowered"
        )
    return state.extended + by.total_seconds()


def extended(state: State, total: float) -> State:
    """Return the state with its walltime extended by so many seconds in all."""
    more, attempt = timedelta(seconds=total - state.extended), state.attempt
    state = edit(state, extended=total)
    if attempt is None or not more:
        return state
    if attempt.walltime_until is not None:
        return edit(state, attempt=edit(attempt, walltime_until=attempt.walltime_until + more))
    if attempt.walltime_left is not None:
        return edit(state, attempt=edit(attempt, walltime_left=attempt.walltime_left + more.total_seconds()))
    return state


def told_extended(state: State, total: float, note: str, now: datetime) -> State:
    """Return the state with an extension remembered."""
    state = extended(state, total)
    until = ends_at(state)
    at = f", until {until:%Y-%m-%d %H:%M:%S} UTC" if until is not None else ""
    text = f"its walltime is extended by {format_duration(timedelta(seconds=total))} in all{at}"
    return cause(state, Reason.WALLTIME_EXTENDED, shortened(f"{note}: {text}" if note else text), now)
