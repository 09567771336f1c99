"""How an operation begins: the status it reports to the cluster at its start and when it succeeds."""

from __future__ import annotations

from datetime import datetime

from holdfast.model import (
    Attempt,
    InterruptedCreate,
    Operation,
    OperationKind,
    Reason,
    RefusedCreate,
    Report,
    Stage,
    State,
    SuspendMode,
    Workload,
)
from holdfast.model.calls.cluster import Created, Prepared
from holdfast.model.calls.operations import OPERATIONS
from holdfast.policy.attempt.health import timings
from holdfast.policy.attempt.park import mergeable
from holdfast.policy.attempt.settle import settle
from holdfast.policy.loop.fold import fold
from holdfast.policy.status.report import events_of, report_of
from holdfast.policy.values.edit import edit
from holdfast.policy.values.record import cause
from holdfast.policy.values.steps import Run

_SUBMITTING = {OperationKind.PREPARE, OperationKind.CREATE}
_OWNER_TO_COME = "{owner}"
"""Stands for the uid of an owner that is not made yet, while the end of its preparation is computed in advance."""


def patience(state: State) -> float | None:
    """Return for how many seconds one whole submission may tolerate refusals (row S10); None: forever."""
    timeout = timings(state).submission_timeout
    return None if timeout is None else timeout.total_seconds()


def patience_left(state: State) -> float | None:
    """Return how many of the seconds of `patience` remain after the submission's earlier operations."""
    whole, attempt = patience(state), state.attempt
    return whole if whole is None or attempt is None else max(0.0, whole - attempt.borne)


def is_timed(spec: Workload, state: State, kind: OperationKind) -> bool:
    """Whether the submission timeout bounds an operation."""
    waits = state.policy.refused_create is RefusedCreate.WAIT
    return kind in _SUBMITTING and (waits or (kind is OperationKind.PREPARE and spec.allow_missing_kinds))


def creates_at_once(spec: Workload, state: State) -> bool:
    """Whether preparing an attempt also creates its components, with no decision between (record 0065).

    Not where refusals are waited for, which is timed over both; nor where an interrupted submission is replaced whole
    (S4), each act is recorded first (L36), or a custom resource may say something new in between (F4, F7).
    """
    policy = state.policy
    waits = policy.refused_create is RefusedCreate.WAIT or spec.allow_missing_kinds
    replaces = policy.interrupted_create is InterruptedCreate.REPLACE
    decides = waits or replaces or spec.sensitive or spec.source.generation is not None
    return state.creates_at_once and not decides


def begin(spec: Workload, state: State, run: Run, now: datetime) -> State:
    """Return the state with an operation under way.

    At its end, an operation reports the status that its success leads to. The functions that compute the status then
    also compute it here, in advance, so that the report needs no activity of its own.
    """
    if run.audits:
        state = cause(state, Reason.AUDITED, f"audit entry {run.audits}: about to begin {run.why}", now)
    attempt = state.attempt
    first = _first(spec, state, run.kind)
    creates = run.kind is OperationKind.PREPARE and creates_at_once(spec, state)
    anchors = run.kind is OperationKind.REPORT and attempt is None and spec.source.generation is None
    operation = Operation(
        kind=run.kind,
        attempt=attempt.number if attempt is not None else 0,
        since=now,
        until=run.until,
        strips=run.kind is OperationKind.FORCE_REMOVE and attempt is not None and attempt.strip,
        releases=run.kind in {OperationKind.REMOVE, OperationKind.FORCE_REMOVE}
        and state.outcome is not None
        and not _claims_come_later(spec, state),
        decides=run.decides,
        audits=run.audits,
        report=first,
        causes=state.causes_total,
        patience=patience(state) if run.kind in _SUBMITTING else None,
        creates=creates,
        anchors=anchors and state.shows_waits,
    )
    attempt = _configured(spec, state, OperationKind.CREATE if creates else run.kind)
    if creates and attempt is not None:
        attempt = edit(attempt, stage=Stage.PREPARED)  # It may be seen before the operation has ended.
    state = edit(state, operation=operation, sequence=state.sequence + 1, attempt=attempt)
    if operation.anchors:
        state = edit(state, anchored=True)
    if run.kind is OperationKind.REPLACE and attempt is not None:
        launches = {name: attempt.launches.get(name, 0) for name in attempt.replacing}
        operation = edit(operation, launches=launches, copies=attempt.replacing_copies)
        state = edit(state, operation=operation)
    after = _promised(spec, state, now)
    if after is None:
        return state
    told = edit(after, told_causes=operation.causes)
    done = report_of(spec, told, state.sequence + 1, events_of(told))
    operation = edit(operation, report_done=done, causes_done=after.causes_total)
    return edit(state, operation=operation, sequence=done.sequence)


def _first(spec: Workload, state: State, kind: OperationKind) -> Report:
    """Return the status that an operation reports at its start; creation does not repeat what preparation wrote."""
    attempt, told = state.attempt, state.told
    if kind is OperationKind.PREPARE and attempt is not None:
        # It is written right before the attempt's owner is made, and is then the status until all exists.
        said = edit(state, attempt=edit(attempt, stage=Stage.PREPARED))
    else:
        said = state
    first = report_of(spec, said, state.sequence + 1, events_of(state))
    if state.owed is not None:
        return edit(first, before=state.owed)
    # Only right after preparation: what an operation reports later also corrects what others have done to the status.
    # An operation that was interrupted may have reported something else, and has taken a sequence.
    if kind is not OperationKind.CREATE or told is None or told.sequence != state.sequence:
        return first
    repeats = first.says_the_same_as(told) and told.generation == first.generation
    return edit(first, repeats=repeats and not first.events and not first.unlist)


def _configured(spec: Workload, state: State, kind: OperationKind) -> Attempt | None:
    """Return the attempt with the digests of the components that an operation now begins to make."""
    attempt = state.attempt
    if attempt is None:
        return None
    if kind is OperationKind.CREATE:
        made = tuple(one.name for one in spec.components)
    elif kind is OperationKind.REPLACE:
        # The other copies keep the form in which they were made.
        made = tuple(name for name in attempt.replacing if name not in attempt.replacing_copies)
    elif kind is OperationKind.UNPARK:
        # A component that cannot be merged into its existing object stays as it was, and is recreated afterwards.
        fits = mergeable(spec, attempt)
        made = tuple(name for name in attempt.resuming if name in fits)
    else:
        return attempt
    hashes = spec.config_hashes
    attempt = edit(attempt, config={**attempt.config, **{name: hashes[name] for name in made}})
    if state.policy.deletion.suspend is SuspendMode.IN_PLACE:
        bodies = spec.body_hashes()
        attempt = edit(attempt, bodies={**attempt.bodies, **{name: bodies[name] for name in made}})
    return attempt


def promise(spec: Workload, state: State, now: datetime) -> Report | None:
    """Return the status that success of the operation under way would lead to; None if it promises none."""
    after = _promised(spec, state, now)
    return report_of(spec, after) if after is not None else None


def _promised(spec: Workload, state: State, now: datetime) -> State | None:
    operation = state.operation
    if operation is None:
        return None
    promised = OPERATIONS[operation.kind].promise
    if operation.creates:
        promised = Prepared(
            cluster_uid=state.cluster_uid, owner_uid=_OWNER_TO_COME, limits=state.limits, created=Created()
        )
    return settle(spec, fold(state, promised, now), now) if promised is not None else None


def _claims_come_later(spec: Workload, state: State) -> bool:
    """Whether the workload's own claims are to go once its last attempt is proven gone (row J22).

    Somebody else may still mount one: that must hold neither the proof nor the quota.
    """
    lives = state.attempt is not None and state.attempt.stage is not Stage.GONE
    return lives and any(not one.retain for one in spec.volume_claims)
