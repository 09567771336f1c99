"""How what happens becomes memory: signals, observations and results of operations, each a pure step of the state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from holdfast import names
from holdfast.model import (
    Cause,
    Failure,
    FailureClass,
    Interval,
    Limits,
    ObjectRef,
    Observation,
    Operation,
    OperationKind,
    Phase,
    Policy,
    Reason,
    Remnant,
    Scope,
    Stage,
    State,
)
from holdfast.model.state import CAUSES_KEPT, INTERVALS_KEPT, TEXT_KEPT
from holdfast.policy.edit import edit
from holdfast.policy.health import LIVE, removal_due, timings
from holdfast.policy.sight import union


@dataclass(frozen=True, slots=True)
class Suspended:
    """A person or a queue wants the workload suspended; `preempted` says that it lost its place to another."""

    note: str = ""
    preempted: bool = False


@dataclass(frozen=True, slots=True)
class Resumed:
    """A suspension is taken back."""

    note: str = ""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The workload is to be deleted."""

    note: str = ""
    reason: Reason = Reason.CANCEL_REQUESTED


@dataclass(frozen=True, slots=True)
class Retried:
    """A person wants another try now."""

    note: str = ""


@dataclass(frozen=True, slots=True)
class Observed:
    """A snapshot came, from the watch or from a live look."""

    observation: Observation


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """A person changed the policy of a workload that is under way."""

    policy: Policy
    note: str = ""


@dataclass(frozen=True, slots=True)
class PrepareDone:
    """Anchor and owner exist."""

    cluster_uid: str
    owner_uid: str
    limits: Limits


@dataclass(frozen=True, slots=True)
class CreateDone:
    """All components exist, or one of them cannot."""

    objects: tuple[ObjectRef, ...]
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class RemoveDone:
    """The removal came back: proven gone, or with what is left."""

    gone: bool
    remnants: tuple[Remnant, ...]
    remnants_total: int
    blind: tuple[Interval, ...] = ()


@dataclass(frozen=True, slots=True)
class ReportDone:
    """The status reached the cluster."""


@dataclass(frozen=True, slots=True)
class OperationRefused:
    """The cluster's worker refused an operation for good; `type` is one of the `ERROR_*` names."""

    type: str
    message: str


@dataclass(frozen=True, slots=True)
class OperationInterrupted:
    """The operation under way was broken off, at our wish."""


Event = (
    Suspended
    | Resumed
    | Cancelled
    | Retried
    | Observed
    | PolicyChanged
    | PrepareDone
    | CreateDone
    | RemoveDone
    | ReportDone
    | OperationRefused
    | OperationInterrupted
)


def shortened(text: str) -> str:
    """Return what is kept of a text from outside, so that the memory stays small whatever it is told."""
    return text if len(text) <= TEXT_KEPT else text[: TEXT_KEPT - 1] + "…"


def cause(state: State, reason: Reason, message: str, now: datetime) -> State:
    """Return the state with one more cause, the oldest dropped above fifty."""
    number = state.attempt.number if state.attempt is not None else 0
    message = shortened(message)
    entry = Cause(time=now, attempt=number, phase=state.phase, reason=reason, message=message)
    return edit(state, causes=(*state.causes, entry)[-CAUSES_KEPT:], causes_total=state.causes_total + 1)


def fold(state: State, event: Event, now: datetime) -> State:
    """Return the state after an event. Pure; it decides nothing, it only remembers."""
    match event:
        case Suspended() | Resumed() | Cancelled() | Retried() | PolicyChanged():
            return _wished(state, event, now)
        case Observed(observation):
            return observed(state, observation, looked_at=None, now=now)
        case _:
            return _came_back(state, event, now)


def _wished(state: State, event: Suspended | Resumed | Cancelled | Retried | PolicyChanged, now: datetime) -> State:
    intent = state.intent
    if event.note:
        event = replace(event, note=shortened(event.note))
    match event:
        case Suspended(note, preempted):
            reason = Reason.PREEMPTED if preempted else Reason.SUSPEND_REQUESTED
            state = edit(state, intent=edit(intent, suspend=True, suspend_reason=reason, note=note))
            return cause(state, reason, note or ("preempted" if preempted else "suspend was asked for"), now)
        case Resumed(note):
            state = edit(state, intent=edit(intent, suspend=False, note=""))
            return cause(state, Reason.RESUMED, note or "resume was asked for", now)
        case Cancelled(note, reason):
            if intent.cancel:
                return state
            state = edit(state, intent=edit(intent, cancel=True, cancel_reason=reason, note=note))
            return cause(state, reason, note or "its deletion was asked for", now)
        case Retried(note):
            if not _can_retry(state):
                return cause(state, Reason.RETRY_REQUESTED, "retry was asked for, but there is nothing to retry", now)
            state = edit(state, intent=edit(intent, retry=True, note=note))
            return cause(state, Reason.RETRY_REQUESTED, note or "retry was asked for", now)
        case PolicyChanged(policy, note):
            return cause(edit(state, policy=policy), Reason.POLICY_CHANGED, note or "the policy was changed", now)


def _can_retry(state: State) -> bool:
    attempt = state.attempt
    if state.outcome is Phase.FAILED:
        return attempt is not None and attempt.stage in LIVE
    return state.outcome is None and state.phase is Phase.RESETTING


def observed(state: State, observation: Observation, looked_at: datetime | None, now: datetime) -> State:
    """Return the state after a snapshot; `looked_at` is when the live look that gave it was begun.

    One of an older attempt, an older version or a foreign owner is let fall and counted. One of a newer attempt than is
    known here cannot be: the attempt advances before its creation is scheduled.
    """
    attempt = state.attempt
    blind = union((*state.blind, *observation.blind), INTERVALS_KEPT)
    if blind != state.blind:
        state = edit(state, blind=blind)
    if observation.anchor_deleting and not state.intent.cancel and state.outcome is not Phase.CANCELLED:
        state = _wished(state, Cancelled("its anchor was deleted in the cluster", Reason.ANCHOR_DELETED), now)
    # Before its owner exists nothing can be seen of an attempt: what comes then is another workload's.
    begun = attempt is not None and attempt.stage in LIVE and attempt.stage is not Stage.PLANNED
    known = begun and attempt is not None and observation.attempt == attempt.number
    foreign = (
        known
        and attempt is not None
        and bool(attempt.owner_uid)
        and bool(observation.owner_uid)
        and observation.owner_uid != attempt.owner_uid
    )
    # A look that was begun after the last snapshot came in is the newer one, whatever versions say.
    later = looked_at is not None and (state.observed_at is None or state.observed_at <= looked_at)
    if not known or foreign:
        return edit(state, dropped=state.dropped + 1)
    if not (later or observation.newer_than(state.observation)):
        # It may be late, or come from a watch that has begun anew, or from a restored cluster: only a look can tell.
        return edit(state, dropped=state.dropped + 1, in_doubt=True)
    return edit(
        state,
        observation=observation,
        observed_at=now,
        looked_at=looked_at,
        in_doubt=state.in_doubt and looked_at is None,
    )


def _came_back(
    state: State,
    event: PrepareDone | CreateDone | RemoveDone | ReportDone | OperationRefused | OperationInterrupted | Observed,
    now: datetime,
) -> State:
    """Remember how the operation under way ended."""
    operation = state.operation
    state = edit(state, operation=None)
    if operation is None:
        return state
    attempt = state.attempt
    live = attempt is not None and attempt.number == operation.attempt and attempt.stage in LIVE
    state = _told(state, event, operation)
    match event:
        case PrepareDone(cluster_uid, owner_uid, limits):
            state = edit(state, cluster_uid=cluster_uid, limits=limits, anchored=True)
            if attempt is not None and attempt.number == operation.attempt:
                stage = Stage.PREPARED if live else attempt.stage
                state = edit(state, attempt=edit(attempt, owner_uid=owner_uid, stage=stage))
        case CreateDone(objects, failure) if attempt is not None and attempt.number == operation.attempt:
            changes: dict[str, object] = {"objects": objects}
            if live and failure is None:
                changes |= {"stage": Stage.SUBMITTED, "submitted_at": now}
            elif live:
                changes |= {"launch_failure": failure}
            state = edit(state, attempt=edit(attempt, **changes))
        case RemoveDone():
            return _removed(state, event, operation, now)
        case OperationInterrupted() if operation.kind is OperationKind.PREPARE:
            # It may have made the anchor before it was broken off.
            return edit(state, anchored=True)
        case OperationRefused(type_, message):
            return _refused(state, type_, message, now)
        case _:
            pass
    return state


def _told(state: State, event: Event, operation: Operation) -> State:
    """Remember which status has reached the cluster. An operation broken off may have brought it or not."""
    match event:
        case OperationInterrupted() | OperationRefused():
            return state
        case CreateDone(_, failure) if failure is not None:
            told = operation.report
        case RemoveDone(gone) if not gone:
            told = operation.report
        case _:
            told = operation.report_done or operation.report
    return edit(state, told=told, told_causes=max(state.told_causes, operation.causes))


def _removed(state: State, event: RemoveDone, operation: Operation, now: datetime) -> State:
    kind = operation.kind
    attempt = state.attempt
    state = edit(state, blind=union((*state.blind, *event.blind), INTERVALS_KEPT))
    if event.gone:
        if operation.releases:
            state = edit(state, anchored=False)
        if attempt is None or attempt.stage is Stage.GONE:
            return state
        pause = timings(state).retry_pause_period
        gone = edit(attempt, stage=Stage.GONE, gone_at=now, remnants=(), remnants_total=0)
        state = edit(
            state,
            attempt=gone,
            observation=None,
            looked_at=None,
            in_doubt=False,
            unhealthy=None,
            pause_until=now + pause if attempt.pause_after else None,
        )
        return cause(state, Reason.DELETION_COMPLETE, f"attempt {attempt.number} is proven gone", now)
    if attempt is None:
        return state
    if kind is OperationKind.REMOVE and now < removal_due(state, attempt, now):
        # Some of its time passed unseen, perhaps before the deletion could even be sent: that is given back.
        return edit(state, attempt=edit(attempt, remnants=event.remnants, remnants_total=event.remnants_total))
    left = "; ".join(each.sentence() for each in event.remnants[:3])
    more = f" and {event.remnants_total - 3} more" if event.remnants_total > 3 else ""
    changed = event.remnants != attempt.remnants
    state = edit(
        state,
        attempt=edit(
            attempt,
            stage=Stage.FORCING,
            remnants=event.remnants,
            remnants_total=event.remnants_total,
            forced_rounds=attempt.forced_rounds + (1 if kind is OperationKind.FORCE_REMOVE else 0),
        ),
    )
    if kind is OperationKind.REMOVE:
        return cause(state, Reason.DELETION_FORCED, f"forcing the deletion of what is left: {left}{more}", now)
    return cause(state, Reason.DELETION_BLOCKED, f"still there: {left}{more}", now) if changed else state


def _refused(state: State, type_: str, message: str, now: datetime) -> State:
    """Remember a refusal as a failure to launch. What refuses the first attempt has let nothing be created."""
    attempt = state.attempt
    if attempt is None or attempt.stage not in LIVE:
        return state
    failure = Failure(
        cls=FailureClass.LAUNCH,
        scope=Scope.WORKLOAD,
        reason=Reason.REFUSED if type_ in {names.ERROR_REFUSED, names.ERROR_CONFLICT} else Reason.CREATE_FAILED,
        time=now,
        message=shortened(message),
        attempt=attempt.number,
    )
    return edit(state, attempt=edit(attempt, launch_failure=failure))
