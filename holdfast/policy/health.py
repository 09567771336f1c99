"""Is the workload healthy? Failures that were seen, failures that a clock tells, and since when (rows A3-A7, U13)."""

from __future__ import annotations

from datetime import datetime

from holdfast.model import (
    Attempt,
    Failure,
    FailureClass,
    Observation,
    PodCounts,
    Reason,
    Scope,
    Stage,
    State,
    Timings,
    Unhealthy,
    Workload,
)
from holdfast.policy.edit import edit
from holdfast.policy.replace import due_replacements
from holdfast.policy.rules import rulings
from holdfast.policy.sight import due

LIVE = frozenset({Stage.PLANNED, Stage.PREPARED, Stage.SUBMITTED})
"""The stages of an attempt that is on its way or there; after them comes only removal."""


def timings(state: State) -> Timings:
    """Return the waits in force: the policy's, within the operator's limits (row A14)."""
    return state.limits.clamp(state.policy.timings)


def current(state: State) -> Observation | None:
    """Return the latest observation if it is of the attempt that lives now."""
    observation, attempt = state.observation, state.attempt
    if observation is None or attempt is None or observation.attempt != attempt.number:
        return None
    return observation


def shortfall(observation: Observation | None, expected: int) -> tuple[int, int]:
    """Return how many expected pods are not there, and how many neither run nor have succeeded.

    A complete component lacks nothing, whatever became of its pods; one that the snapshot does not speak of lacks all.
    """
    if observation is None:
        return expected, expected
    absent = unready = max(0, expected - sum(view.pods.expected for view in observation.components.values()))
    for view in observation.components.values():
        if not view.complete:
            pods: PodCounts = view.pods
            absent += max(0, pods.expected - pods.present)
            unready += max(0, pods.expected - pods.ready)
    return absent, unready


def admission_due(state: State, attempt: Attempt) -> datetime:
    """Return when all expected pods must exist (row A4)."""
    return due(attempt.submitted_at or attempt.begun_at, timings(state).admission_grace_period, state.blind)


def warmup_due(state: State, attempt: Attempt) -> datetime:
    """Return when all expected pods must run (row A5)."""
    return due(attempt.submitted_at or attempt.begun_at, timings(state).warmup_grace_period, state.blind)


def removal_due(state: State, attempt: Attempt, now: datetime) -> datetime:
    """Return when an attempt's graceful removal has had its time, and force begins (row A8)."""
    return due(attempt.removing_at or now, timings(state).forceful_deletion_grace_period, state.blind)


def _late(attempt: Attempt, reason: Reason, time: datetime, message: str) -> Failure:
    return Failure(
        cls=FailureClass.TIMEOUT,
        scope=Scope.WORKLOAD,
        reason=reason,
        time=time,
        message=message,
        attempt=attempt.number,
    )


def _orphaned(attempt: Attempt, seen: Observation) -> Failure:
    """Somebody else deleted the attempt's owner, and with it goes everything under it."""
    return Failure(
        cls=FailureClass.MISSING,
        scope=Scope.WORKLOAD,
        reason=Reason.MISSING_COMPONENT,
        time=seen.at,
        message=f"the object that owns attempt {attempt.number} was deleted by another hand",
        attempt=attempt.number,
    )


def failures(spec: Workload, state: State, now: datetime) -> list[Failure]:
    """Return what is wrong with the living attempt: seen failures, and pods that are late or have gone."""
    attempt = state.attempt
    if attempt is None or attempt.stage not in LIVE:
        return []
    if attempt.launch_failure is not None:
        return [attempt.launch_failure]
    if attempt.stage is not Stage.SUBMITTED:
        return []
    seen = current(state)
    if seen is not None and (seen.owner_deleting or not seen.owner_found):
        return [_orphaned(attempt, seen)]
    if seen is None and attempt.ready_at is not None:
        return []  # Some of it has been made again, and nothing is known of that yet.
    # What is made again, alone, is an event of its component and no failure of the workload.
    replaced = {*attempt.replacing, *(due.component for due in due_replacements(spec, state, seen))}
    found = [one for one in seen.failures if one.component not in replaced] if seen is not None else []
    expected = spec.expected_pods
    absent, unready = shortfall(seen, expected)
    if attempt.ready_at is None:
        late = admission_due(state, attempt)
        if absent and now >= late:
            text = f"{absent} of {expected} pods were not created in time"
            found.append(_late(attempt, Reason.PODS_NOT_ADMITTED, late, text))
        late = warmup_due(state, attempt)
        if unready and now >= late:
            text = f"{unready} of {expected} pods did not run in time"
            found.append(_late(attempt, Reason.PODS_NOT_RUNNING, late, text))
    elif unready and not found:
        # After warm-up too, a controller gets its grace to bring a lost pod back (row U13).
        since = state.unhealthy.failure.time if state.unhealthy is not None else now
        found.append(_late(attempt, Reason.INSUFFICIENT_PODS_READY, since, f"{unready} of {expected} pods do not run"))
    return found


def _unhealthy_since(state: State, attempt: Attempt, now: datetime) -> datetime:
    """Return since when it is unhealthy without a break.

    A lateness that began the clock is taken back once it is known that the watch was blind in that time: then the
    clock begins with what is wrong now, or when the lateness truly began.
    """
    unhealthy = state.unhealthy
    if unhealthy is None:
        return now
    match unhealthy.failure.reason:
        case Reason.PODS_NOT_ADMITTED:
            truly = admission_due(state, attempt)
        case Reason.PODS_NOT_RUNNING:
            truly = warmup_due(state, attempt)
        case _:
            return unhealthy.since
    return unhealthy.since if truly <= unhealthy.failure.time else min(now, max(truly, unhealthy.since))


def assess(spec: Workload, state: State, now: datetime) -> State:
    """Return the state with `ready_at` and `unhealthy` brought up to date.

    Unhealthiness is the workload's: one clock runs from its first sign until all is well again, whichever failure it
    was (appwrapper-fault-tolerance.md: "if the FailureGracePeriod passes and the workload is still unhealthy").
    """
    attempt = state.attempt
    if attempt is None or state.outcome is not None or attempt.stage not in LIVE:
        return state if state.unhealthy is None else edit(state, unhealthy=None)
    seen = current(state)
    if attempt.stage is Stage.SUBMITTED and attempt.ready_at is None and seen is not None:
        _, unready = shortfall(seen, spec.expected_pods)
        if not unready:
            state = edit(state, attempt=edit(attempt, ready_at=now))
    ruled = [ruling for ruling in rulings(state.policy, failures(spec, state, now)) if ruling.action.kind != "Ignore"]
    if not ruled:
        return edit(state, unhealthy=None) if state.unhealthy is not None else state
    first = ruled[0]
    since = _unhealthy_since(state, attempt, now)
    return edit(state, unhealthy=Unhealthy(since=since, failure=first.failure, rule=first.rule))
