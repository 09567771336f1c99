"""The walltime: when it starts, when it expires, and how far it may be extended (row L18).

It is wall-clock time: neither a checkpoint nor time in which the watch was blind extends it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from graphlib import TopologicalSorter
from typing import Final

from pydantic import ConfigDict

from holdfast.model import (
    ActionKind,
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
from holdfast.model.words import shortened, with_note
from holdfast.policy.attempt.checkpoint import is_ending
from holdfast.policy.attempt.health import LIVE, current
from holdfast.policy.attempt.replace import due_replacements
from holdfast.policy.attempt.success import reached
from holdfast.policy.failures.rules import rule_on
from holdfast.policy.values.addressee import Addressed
from holdfast.policy.values.decision import Fail, Look
from holdfast.policy.values.edit import edit
from holdfast.policy.values.record import cause

USUAL_GRACE = timedelta(seconds=30)
"""The time that Kubernetes gives a pod between TERM and KILL by default."""

ENDLESS_START: Final = timedelta(days=7)
"""The time that the backstop leaves pods to start where no rule acts on late pods."""

LONGEST_DEADLINE: Final = timedelta(seconds=2**31 - 1)
"""The highest `activeDeadlineSeconds` that Kubernetes allows."""

_LATE: Final = Failure(
    cls=FailureClass.TIMEOUT,
    scope=Scope.WORKLOAD,
    reason=Reason.PODS_NOT_RUNNING,
    time=datetime.min.replace(tzinfo=UTC),
)


class WalltimeExtension(Addressed):
    """An extension of the walltime of this attempt and those to come."""

    by: str
    """The additional time, for example `1h`."""
    note: str = ""

    # Unknown fields are allowed here so that `extension` can refuse them with a message. A decoding error has none.
    model_config = ConfigDict(extra="allow")


def walltime(spec: Workload, state: State) -> timedelta | None:
    """Return how long an attempt may run; None: without limit."""
    life = spec.lifecycle
    if not isinstance(life, Bounded) or not life.walltime:
        return None
    return life.walltime + timedelta(seconds=state.extended)


def backstop(spec: Workload) -> timedelta | None:
    """Return the time after which nodes end the pods by themselves (`activeDeadlineSeconds`); None: never.

    It counts from each Job's and pod's own start, and the walltime only once all pods run. So it covers the longest
    start that the rules allow, the longest extension of the walltime, since it can only be lowered on a running pod,
    and the grace between TERM and KILL. It depends only on what was submitted: an object that is sent twice in one
    attempt must be the same both times.
    """
    life = spec.lifecycle
    if not isinstance(life, Bounded) or not life.walltime:
        return None
    most = min(life.extendable_to or life.walltime, LONGEST_DEADLINE)
    whole = most + _longest_start(spec) + (spec.policy.deletion.termination_grace or USUAL_GRACE)
    return min(whole, LONGEST_DEADLINE)


def _longest_start(spec: Workload) -> timedelta:
    """Return how long after the first pods of an attempt the last may run before a rule acts on it."""
    action, timings = rule_on(spec.policy, _LATE).action, spec.policy.timings
    if action.kind is ActionKind.IGNORE:
        return ENDLESS_START
    order = TopologicalSorter({one.name: [after.component for after in one.after] for one in spec.components})
    order.prepare()
    longest = timedelta(0)
    while turn := order.get_ready():
        order.done(*turn)
        longest += timings.warmup_grace_period + (timings.failure_grace_period if action.grace else timedelta(0))
    return longest


def clocked(spec: Workload, state: State, now: datetime) -> State:
    """Return the state with the walltime clock started once the attempt is ready, and stopped while it is parked.

    The time left when the attempt is suspended in place is the time it may run once it is resumed.
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
    """Return when the walltime of the living attempt expires; None if its clock does not run."""
    attempt = state.attempt
    if attempt is None or attempt.stage not in LIVE or state.outcome is not None:
        return None
    return attempt.walltime_until


def over(spec: Workload, state: State, now: datetime) -> Fail | Look | None:
    """Return what an expired walltime requires: a live look, then to fail. None if it has not expired.

    It does not fail a workload that succeeded before it expired: the look finds that out before anything is removed.
    """
    attempt, until = state.attempt, ends_at(state)
    if attempt is None or until is None or now < until:
        return None
    seen = current(state)
    if reached(spec, state, seen, {one.component for one in due_replacements(spec, state, seen)}):
        return None
    span = walltime(spec, state)
    what = f"its walltime of {format_duration(span)} is over" if span is not None else "its walltime is over"
    # While components are being made, a look would interrupt that operation, and its result would change nothing.
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
    """Return the total extension of the walltime in seconds, with this change included.

    Raises:
        ValueError: if no walltime can be extended, or `by` is invalid or exceeds what was submitted, saying what to do.
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
        bound = f"allows {format_duration(most)}" if most is not None else "was not submitted"
        raise ValueError(
            f"by: {format_duration(by)}: the walltime would be {format_duration(span + by)}, and "
            f"lifecycle.extendableTo {bound}; a running pod's activeDeadlineSeconds can only be lowered"
        )
    return state.extended + by.total_seconds()


def check_extension(spec: Workload, state: State, change: WalltimeExtension) -> float:
    """Check an extension before it is accepted, and return what `extension` does.

    It is stricter than `extension`, which also reads what earlier releases have accepted.

    Raises:
        ValueError: as `extension` does, and if the walltime is over and its pods are ending without a whole checkpoint.
    """
    total = extension(spec, state, change)
    if is_ending(state):
        raise ValueError("its walltime is over, and its pods are ending: extend it once it is suspended, if they save")
    return total


def extended(state: State, total: float) -> State:
    """Return the state with its walltime extended by `total` seconds."""
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
    """Return the state with an extension made and recorded as a cause."""
    state = extended(state, total)
    until = ends_at(state)
    at = f", until {until:%Y-%m-%d %H:%M:%S} UTC" if until is not None else ""
    text = f"its walltime is extended by {format_duration(timedelta(seconds=total))} in all{at}"
    return cause(state, Reason.WALLTIME_EXTENDED, with_note(text, shortened(note)), now)
