"""Conditions, and the report that shows a workload's state in the cluster."""

from __future__ import annotations

from holdfast.model import (
    Condition,
    ConditionType,
    Event,
    InterruptedCreate,
    Phase,
    Reason,
    RefusedCreate,
    Report,
    Stage,
    State,
    Workload,
)
from holdfast.policy.attempt.ending import is_unproven
from holdfast.policy.attempt.health import REMOVING, current, expected_now, idle, not_ready
from holdfast.policy.attempt.park import shown
from holdfast.policy.attempt.scale import is_at_nothing, overrun
from holdfast.policy.status.registry import unlisted
from holdfast.policy.values.edit import edit
from holdfast.policy.verdicts.decide import failure_reason

_HOLDS_QUOTA = {
    *(Phase.RESUMING, Phase.RUNNING, Phase.CHECKPOINTING, Phase.RESETTING),
    *(Phase.SUSPENDING, Phase.FAILED, Phase.TERMINATING),
}
EVENTS_MAXIMUM = 10

WARNINGS = frozenset(
    {
        Reason.FOUND_FAILED_PODS,
        Reason.PODS_NOT_ADMITTED,
        Reason.PODS_NOT_RUNNING,
        Reason.INSUFFICIENT_PODS_READY,
        Reason.MISSING_COMPONENT,
        Reason.FAILED_COMPONENT,
        Reason.CREATE_FAILED,
        Reason.NODE_DOWN,
        Reason.NODE_STILL_DOWN,
        Reason.NODE_LOST,
        Reason.PROBE_FAILED,
        Reason.NO_PROGRESS,
        Reason.POISON_STEP,
        Reason.EXECUTIONS_EXCEEDED,
        Reason.RETRY_LIMIT_EXCEEDED,
        Reason.LAUNCH_LIMIT_EXCEEDED,
        Reason.PROLOGUE_FAILURE_MAX_RETRIES,
        Reason.RULE_LIMIT_EXCEEDED,
        Reason.MAX_REQUEUE_EXCEEDED,
        Reason.PROLOGUE_FAILURE_MAX_RETRIES,
        Reason.WALLTIME_EXCEEDED,
        Reason.REQUEUED,
        Reason.SUCCESS_UNREACHABLE,
        Reason.MAX_RESTARTS_EXHAUSTED,
        Reason.MAX_ROUNDS_EXHAUSTED,
        Reason.EXIT_BARRIER_TIMEOUT,
        Reason.JOIN_TIMEOUT,
        Reason.MEMBER_FAILED,
        Reason.MEMBER_LOST,
        Reason.SUBMISSION_FAILED,
        Reason.SUBMISSION_TIMEOUT,
        Reason.HELD,
        Reason.REFUSED,
        Reason.RESETTING,
        Reason.DELETION_FORCED,
        Reason.DELETION_BLOCKED,
        Reason.FINALIZERS_STRIPPED,
        Reason.STORAGE_UNAVAILABLE,
        Reason.STAGING_FAILED,
        Reason.CHECKPOINT_PARTIAL,
        Reason.CHECKPOINT_DISCARDED,
    }
)
"""Reasons whose Kubernetes Events are warnings."""
_UNEVENTFUL = frozenset({Reason.SUFFICIENT_PODS_READY, Reason.DELETION_INITIATED, Reason.DELETION_COMPLETE})
"""Reasons without an Event: each is a write, and the status and the history say the same (`docs/decisions/0064`)."""


def conditions(spec: Workload, state: State) -> tuple[Condition, ...]:
    """Return the conditions (row A10: quota and resources are reported gone only once they are proven gone)."""
    attempt = state.attempt
    gone = attempt is None or attempt.stage is Stage.GONE
    # While a workload is held, its objects in the cluster are unknown: they are assumed to exist.
    # A workload that was scaled to 0 keeps its quota too, since the user may scale it up again.
    held = state.held is not None or is_at_nothing(state)
    deployed = held or (attempt is not None and attempt.stage not in {Stage.PLANNED, Stage.GONE})
    # During the retry pause nothing is deployed, and the quota is kept for the next attempt.
    let_go = state.outcome is not None and (gone or (attempt is not None and attempt.cleared))
    quota = (
        held or (state.phase in _HOLDS_QUOTA and not let_go) or still_runs(state) or (is_unproven(state) and not gone)
    )
    result = [
        Condition(type=ConditionType.QUOTA_RESERVED, status=quota, reason=state.reason, message=overrun(spec, state)),
        Condition(type=ConditionType.RESOURCES_DEPLOYED, status=deployed, reason=state.reason),
    ]
    submitted = attempt is not None and attempt.stage is Stage.SUBMITTED
    result.append(
        Condition(
            type=ConditionType.SUBMITTED,
            status=submitted,
            reason=Reason.SUBMITTED if submitted else state.reason,
        )
    )
    unready = not_ready(spec, state)
    ready = submitted and not unready and not (attempt is not None and attempt.suspended)
    result.append(
        Condition(
            type=ConditionType.PODS_READY,
            status=ready,
            reason=Reason.SUFFICIENT_PODS_READY if ready else Reason.INSUFFICIENT_PODS_READY,
            message=idle(unready, expected_now(spec, state)) if unready else "",
        )
    )
    unhealthy = state.unhealthy
    result.append(
        Condition(
            type=ConditionType.UNHEALTHY,
            status=unhealthy is not None,
            reason=Reason.HEALED if unhealthy is None else failure_reason(unhealthy.failure),
            message="" if unhealthy is None else unhealthy.failure.sentence(),
        )
    )
    if attempt is not None and attempt.clearing_at is not None and attempt.removing_at is None:
        reason = Reason.DELETION_COMPLETE if attempt.cleared else Reason.DELETION_INITIATED
        message = "what is still active is deleted, what has ended is kept"
        deleting = ConditionType.DELETING_RESOURCES
        result.append(Condition(type=deleting, status=not attempt.cleared, reason=reason, message=message))
    if attempt is not None and attempt.removing_at is not None:
        forced = attempt.stage is Stage.FORCING
        removing = attempt.stage in REMOVING
        reason = Reason.DELETION_FORCED if forced else Reason.DELETION_INITIATED
        result.append(
            Condition(
                type=ConditionType.DELETING_RESOURCES,
                status=removing,
                reason=reason if removing else Reason.DELETION_COMPLETE,
                message="; ".join(each.sentence() for each in attempt.remnants[:3]),
            )
        )
    return tuple(result)


def still_runs(state: State) -> bool:
    """Whether pods of a succeeded workload still run: a RayJob is complete, and its cluster waits for the next one.

    The same applies to a failed workload whose active objects were deleted at its end; all other workloads hold their
    quota until they are gone. The last observation counts until the attempt is proven gone: a removal observes nothing.
    """
    observation, attempt = current(state), state.attempt
    if observation is None or attempt is None or attempt.stage is Stage.GONE:
        return False
    if state.outcome is not Phase.SUCCEEDED and not (state.outcome is Phase.FAILED and attempt.cleared):
        return False
    return observation.occupies


def quota_of(given: tuple[Condition, ...]) -> bool:
    """Whether conditions say that the workload holds quota."""
    return any(each.status for each in given if each.type is ConditionType.QUOTA_RESERVED)


def quota_in(report: Report) -> bool:
    """Whether a report says that the workload holds quota."""
    return quota_of(report.conditions)


def overrun_in(report: Report) -> str:
    """Return the message of a report about pods beyond the workload's quota (row F11)."""
    return next((each.message for each in report.conditions if each.type is ConditionType.QUOTA_RESERVED), "")


def report_of(spec: Workload, state: State, sequence: int = 0, events: tuple[Event, ...] = ()) -> Report:
    """Return the status for readers in the cluster."""
    report = Report(
        sequence=sequence,
        phase=state.phase,
        reason=state.reason,
        message=state.message[:1024],
        attempt=state.attempt.number if state.attempt is not None else 0,
        executions=state.executions,
        restarts=state.restarts,
        conditions=conditions(spec, state),
        events=events,
        generation=state.asked.generation if state.asked is not None else None,
        unlist=unlisted(spec, state),
    )
    if spec.source.generation is not None:
        report = edit(report, used=state.used)
    if not shows_copies(spec):
        return report
    seen = shown(state)
    copies = {name: one.copies for name, one in seen.components.items() if one.copies} if seen is not None else {}
    return edit(
        report,
        copies=copies,
        copy_restarts=state.copy_restarts,
        failure=state.outcome_failure,
        barrier=state.attempt.barrier if state.attempt is not None else None,
    )


def shows_copies(spec: Workload) -> bool:
    """Whether a custom resource shows how its copies stand, as a JobSet does (row F16)."""
    return spec.source.generation is not None and any(one.copies is not None for one in spec.components)


def landmarks(report: Report, *, all_active: bool = True) -> tuple[object, ...]:
    """Return what others decide by in the counts of copies: the status is reported again once it differs (row F16).

    Other counts wait for the next report: hundreds of Jobs would have the status written hundreds of times.

    Args:
        report: The status.
        all_active: Whether it counts that all have begun, or may; runs of earlier releases do not count it.
    """
    each = (
        (
            name,
            one.ready + one.succeeded >= one.expected,
            one.succeeded >= one.expected,
            one.failed,
            bool(one.active),
            bool(one.suspended),
            all_active and one.active + one.succeeded + one.failed >= one.expected,
        )
        for name, one in sorted(report.copies.items())
    )
    barrier = report.barrier if all_active else None
    return (quota_in(report), barrier is not None and barrier.is_lifted, *each)


def events_of(state: State) -> tuple[Event, ...]:
    """Return Kubernetes Events for the causes that have not been reported yet: each once, at most the latest ten."""
    fresh = state.causes_total - state.told_causes
    if fresh <= 0:
        return ()
    quiet = _quiet(state)
    events = (
        Event(
            type="Warning" if cause.reason in WARNINGS else "Normal",
            reason=cause.reason,
            message=cause.message[:1024],
            attempt=cause.attempt,
        )
        for cause in state.causes[-fresh:]
        if cause.reason not in quiet
    )
    return tuple(dict.fromkeys(events))[-EVENTS_MAXIMUM:]


def _quiet(state: State) -> frozenset[Reason]:
    """Return the reasons whose causes have no Event."""
    quiet = _UNEVENTFUL
    if state.attempt is not None and state.attempt.stranded:
        quiet -= {Reason.DELETION_COMPLETE}  # The proof says what it does not cover.
    policy = state.policy
    waits = policy.refused_create is RefusedCreate.WAIT or policy.interrupted_create is InterruptedCreate.REPLACE
    # A submission that may take long or be replaced is told with its id (S12). Users of kubectl read all causes (F2).
    return quiet if waits or state.asked is not None else quiet | {Reason.SUBMISSION_SUCCEEDED}
