"""Stages data sets before an attempt: when, how long to wait for an unavailable store, and what ends it (row L14).

A store that does not answer is no failure: the workload is Pending (Staging) until it does, and no budget is charged.
A data set that differs from the request is a failure, since waiting does not repair it. The version staged first is
used for the workload's whole life. Data sets that are complete in the cache need no store.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.model import Failure, FailureClass, Phase, Reason, Scope, Stage, State, Workload
from holdfast.model.calls.stage import Staged
from holdfast.model.life.data import Staging
from holdfast.model.quantity import format_bytes
from holdfast.model.words import counted, shortened
from holdfast.policy.attempt.health import timings
from holdfast.policy.attempt.settle import enter
from holdfast.policy.values.decision import Decision, Fail, Fetch, Retry, Wait
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import OperationRefused
from holdfast.policy.values.record import cause

FIRST = timedelta(seconds=5)
"""The pause after a try that found the store unavailable; each further one in a row is twice as long."""
LONGEST = timedelta(minutes=5)


def staging_of(state: State) -> Staging:
    """Return the staging state of a workload's data sets; the initial state if none was requested yet."""
    return state.staging or Staging()


def _next(state: State) -> int:
    return state.attempt.number + 1 if state.attempt is not None else 1


def lies_ready(spec: Workload, state: State) -> bool:
    """Whether all data sets that the next attempt reads are staged."""
    return not spec.mounts or staging_of(state).staged == _next(state)


def may_ask(spec: Workload, state: State) -> bool:
    """Whether a workload may ask its queue: not if, once admitted, it would wait for the store and block others.

    Data sets that were staged once are most likely in the cache. That is checked after the admission, so that a requeue
    keeps its place (row L26). If they are not there and the store is unavailable, the workload gives its place back.
    """
    staging = staging_of(state)
    known = bool(staging.sets) and not staging.problem and staging.away_since is None
    return lies_ready(spec, state) or known


def stage(spec: Workload, state: State, now: datetime) -> Decision | None:
    """Decide for a workload that would begin and has nothing in the cluster; None if its data sets allow it."""
    if lies_ready(spec, state):
        return None
    staging, turn = staging_of(state), state.turn
    if staging.problem:
        return Fail(_reason(staging), _failure(state, now), staging.problem)
    if staging.until is not None and now < staging.until:
        if state.intent.retry:
            return Retry(state.intent.note or "a person asked not to wait")
        return Wait(staging.until, f"staging pause: {staging.why}, and is tried again")
    if turn is not None and not turn.admitted and may_ask(spec, state):
        return None  # Its queue must admit it first.
    names = ", ".join(mount.name for mount in spec.mounts)
    why = f"staging {names} for attempt {_next(state)}" + (f", again: {staging.why}" if staging.why else "")
    return Fetch(why, waits=not (staging.sets and staging.away_since is None))


def _reason(staging: Staging) -> Reason:
    if staging.late:
        return Reason.SUBMISSION_TIMEOUT
    return Reason.REFUSED if staging.refused else Reason.STAGING_FAILED


def _failure(state: State, now: datetime) -> Failure:
    staging = staging_of(state)
    return Failure(
        cls=FailureClass.LAUNCH,
        scope=Scope.WORKLOAD,
        reason=_reason(staging),
        time=now,
        message=staging.problem,
        attempt=_next(state),
    )


def fetching(state: State, decision: Fetch, now: datetime) -> State:
    """Return the state while data sets are staged: Pending, unless they are likely to be in the cache.

    In that case the quota stays reserved, as in the pause before an attempt.
    """
    return enter(state, Phase.PENDING, Reason.STAGING, decision.why, now) if decision.waits else state


def skipped(state: State) -> State:
    """Return the state without the pause before the next try of the store."""
    staging = state.staging
    return (
        edit(state, staging=edit(staging, until=None)) if staging is not None and staging.until is not None else state
    )


def is_paused(state: State) -> bool:
    """Whether it waits for the next try of the store."""
    return state.outcome is None and state.staging is not None and state.staging.until is not None


def ended(state: State, event: Staged | OperationRefused, number: int, now: datetime) -> State:
    """Record how a staging after attempt `number` ended."""
    before = staging_of(state)
    if isinstance(event, OperationRefused):
        return _stopped(state, before, event.message, refused=True)
    if event.problem:
        return _stopped(state, before, event.problem)
    if event.away:
        return _away(state, before, event, now)
    state = edit(state, staging=Staging(staged=number + 1, sets=event.sets))
    return cause(state, Reason.STAGED, _told(event, number + 1), now)


def _stopped(state: State, before: Staging, problem: str, *, refused: bool = False, late: bool = False) -> State:
    return edit(state, staging=edit(before, problem=shortened(problem), refused=refused, late=late, until=None))


def _away(state: State, before: Staging, event: Staged, now: datetime) -> State:
    tries = 1 if event.fetched else before.tries + 1
    since = now if event.fetched or before.away_since is None else before.away_since
    pause = min(FIRST * 2 ** min(tries - 1, 16), LONGEST)
    timeout = timings(state).submission_timeout if event.closed else None
    if timeout is not None:
        left = since + timeout - now
        if left <= timedelta(0):
            why = f"not submitted in time: {event.away}"
            return _stopped(state, edit(before, away_since=None), why, late=True)
        pause = min(pause, left)
    why = shortened(f"{event.away}, since {since:%Y-%m-%d %H:%M:%S} UTC")
    staging = edit(before, tries=tries, away_since=since, until=now + pause, why=why)
    state = edit(state, staging=staging)
    intent = state.intent
    if state.outcome is None and not intent.suspend and not intent.cancel and state.held is None:
        state = enter(state, Phase.PENDING, Reason.STAGING, why, now)
    if before.away_since is None or event.fetched:
        reason = Reason.STAGING if event.closed else Reason.STORAGE_UNAVAILABLE
        return cause(state, reason, f"{event.away}: staging waits for it, charged with nothing", now)
    return state


def _told(event: Staged, attempt: int) -> str:
    files, size = sum(one.files for one in event.sets), sum(one.bytes for one in event.sets)
    fetched = f"{format_bytes(event.fetched)} of it fetched" if event.fetched else "all of it from the cache"
    names = ", ".join(one.mount for one in event.sets)
    return f"attempt {attempt} has {names} ready: {counted(files, 'file')}, {format_bytes(size)}, {fetched}"


def is_staging(state: State) -> bool:
    """Whether it waits for its data sets and has nothing in the cluster."""
    attempt = state.attempt
    gone = attempt is None or attempt.stage is Stage.GONE
    return gone and state.reason is Reason.STAGING and state.outcome is None
