"""Folds events into the state: signals, observations and results of operations, each as a pure function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from holdfast.model import Attempt, Observation, OperationKind, Phase, Reason, Stage, State
from holdfast.model.life.state import INTERVALS_KEPT
from holdfast.model.observation import Asked
from holdfast.model.words import shortened, with_note
from holdfast.policy.attempt.health import LIVE, pause_of, timings
from holdfast.policy.attempt.replace import joined
from holdfast.policy.attempt.requeue import awaits_kueue, is_queued
from holdfast.policy.attempt.requeue import on_requeue_request as requeue_asked
from holdfast.policy.attempt.requeue import pause as paused
from holdfast.policy.failures.blindness import union
from holdfast.policy.loop.results import ended
from holdfast.policy.sides.gang import on_gang_event as gang_told
from holdfast.policy.sides.probe import on_probe_ended
from holdfast.policy.sides.progress import on_followed
from holdfast.policy.sides.staging import is_paused
from holdfast.policy.status.blocked import counted_out
from holdfast.policy.status.blocked import on_graph_message as graph_told
from holdfast.policy.status.queued import on_queue_message as queue_told
from holdfast.policy.values.displayed import displayed
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import (
    NOT_RETRIED,
    Cancelled,
    CheckpointAsked,
    Event,
    GangBegun,
    GangParted,
    GangResized,
    GangScaled,
    GangTold,
    GangUnsized,
    GraphMissing,
    GraphOrdered,
    GraphTold,
    NotUnderstood,
    Observed,
    PolicyChanged,
    ProbeEnded,
    QueueMissing,
    QueueOrdered,
    QueueTold,
    Reconfigured,
    RequeueAsked,
    Resumed,
    Retried,
    SourceSeen,
    StepsRead,
    StripAsked,
    Suspended,
    WalltimeExtended,
    Wish,
)
from holdfast.policy.values.record import cause
from holdfast.policy.verdicts.hold import contradiction, foreign_attempt, hold
from holdfast.policy.verdicts.strip import stripping
from holdfast.policy.verdicts.walltime import told_extended

_LONGEST = 365 * 86_400.0
"""The longest wait that a request may ask for, in seconds: a longer one may not be a valid time."""


def fold(state: State, event: Event, now: datetime) -> State:
    """Return the state after an event. Pure: it records the event and decides nothing."""
    match event:
        case Suspended() | Resumed() | Cancelled() | Retried() | PolicyChanged():
            return _wished(state, event, now)
        case GangTold() | GangBegun() | GangParted() | GangScaled() | GangResized() | GangUnsized():
            return gang_told(state, event, now)
        case GraphOrdered() | GraphTold() | GraphMissing():
            return graph_told(state, event, now)
        case QueueOrdered() | QueueTold() | QueueMissing():
            return queue_told(state, event, now)
        case Reconfigured():
            return _reconfigured(state, event, now)
        case StripAsked(note):
            return stripping(state, note, now)
        case CheckpointAsked(note):
            state = edit(state, intent=edit(state.intent, checkpoint=True, note=shortened(note)))
            return cause(
                state, Reason.CHECKPOINT_REQUESTED, with_note("a checkpoint was asked for", shortened(note)), now
            )
        case ProbeEnded(number, failure, failing):
            return on_probe_ended(state, number, failure, failing)
        case StepsRead(number, record, failure):
            return on_followed(state, number, record, failure)
        case WalltimeExtended(total, note):
            return told_extended(state, total, note, now)
        case RequeueAsked(request):
            return requeue_asked(state, request, now)
        case NotUnderstood(signal, why):
            state = edit(state, dropped=state.dropped + 1)
            return cause(state, Reason.SIGNAL_NOT_UNDERSTOOD, shortened(f"signal {signal} was dropped: {why}"), now)
        case Observed(observation):
            return observed(state, observation, looked_at=None, now=now)
        case SourceSeen(asked):
            return _asked(state, asked, now)
        case _:
            return ended(state, event, now)


def _wished(state: State, event: Wish, now: datetime) -> State:
    intent = state.intent
    if event.note:
        event = replace(event, note=shortened(event.note))
    match event:
        case Suspended(note, preempted, within):
            reason = Reason.PREEMPTED if preempted else Reason.SUSPEND_REQUESTED
            until = [intent.within] if intent.suspend and intent.within is not None else []
            until += [now + timedelta(seconds=min(max(0.0, within), _LONGEST))] if within is not None else []
            wish = edit(intent, suspend=True, suspend_reason=reason, note=note, by_hand=state.shows_waits)
            state = edit(state, intent=edit(wish, within=min(until, default=None), checkpoint=False))
            there = state.attempt is not None and state.attempt.stage is not Stage.GONE
            if preempted and there and state.preempted_at is None and state.outcome is not Phase.SUCCEEDED:
                state = edit(state, preempted_at=now)
            return cause(state, reason, with_note("preempted" if preempted else "suspend was asked for", note), now)
        case Resumed(note):
            if state.asked is not None and intent.suspend and awaits_kueue(state):
                kind = state.asked.kind
                why = f"resume was asked for, but Kueue has not admitted it: spec.suspend of its {kind} is true"
                state = edit(state, intent=edit(intent, by_hand=False))  # Once Kueue admits it, it begins.
                return cause(state, Reason.RESUMED, why, now)
            state = edit(state, intent=edit(intent, suspend=False, by_hand=False, note="", within=None))
            if state.checkpoint is not None and state.checkpoint.answered:
                # The next suspension asks for a new checkpoint.
                state = edit(state, checkpoint=edit(state.checkpoint, answered=False))
            if state.attempt is not None and state.attempt.stage in LIVE and state.attempt.parking is None:
                state = edit(state, preempted_at=None)  # Nothing has been stopped: there is no eviction to measure.
            what = "resume was asked for"
            if not intent.suspend or state.outcome is not None:
                what += ", but it is not suspended: there is nothing to resume"
            return cause(state, Reason.RESUMED, with_note(what, note), now)
        case Cancelled(note, reason, phases):
            if intent.cancel:
                return state
            if phases and (displayed(state).phase not in phases or intent.retry):
                return fold(state, NotUnderstood("cancel", _outdated(state, phases)), now)
            state = edit(state, intent=edit(intent, cancel=True, cancel_reason=reason, note=note))
            return cause(state, reason, with_note("its deletion was asked for", note), now)
        case Retried(note):
            if counted_out(state):
                why = f"{NOT_RETRIED}its graph counts it as ended: submit the graph again"
                return cause(state, Reason.RETRY_REQUESTED, why, now)
            finished = state.outcome is Phase.FAILED and state.held is None
            if state.kueue_admits and finished and state.shows_waits:
                why = f"{NOT_RETRIED}Kueue counts it as finished: delete it, and apply it again"
                return cause(state, Reason.RETRY_REQUESTED, why, now)
            if not _can_retry(state):
                nothing = "there is nothing to retry"
                if displayed(state).phase is Phase.RESETTING:
                    nothing = "its pods restart in place, without a pause: there is nothing to retry"
                elif state.outcome is Phase.FAILED:
                    nothing = "what is left of it is being removed: retry it once that has ended"
                return cause(state, Reason.RETRY_REQUESTED, f"{NOT_RETRIED}{nothing}", now)
            state = edit(state, intent=edit(intent, retry=True, note=note))
            return cause(state, Reason.RETRY_REQUESTED, with_note("retry was asked for", note), now)
        case PolicyChanged(policy, note):
            state = _timed_anew(edit(state, policy=policy))
            return cause(state, Reason.POLICY_CHANGED, with_note("the policy was changed", note), now)


def _timed_anew(state: State) -> State:
    """Return the state with the waits under way, of a settled workload or between attempts, as the policy is now.

    Each counts from its own begin, so a wait that was shortened may be over (rows A9, A12, A13, A16).
    """
    attempt = state.attempt
    if attempt is None or not state.shows_waits:
        return state
    if state.pause_until is not None and attempt.stage is Stage.GONE and attempt.gone_at is not None:
        state = edit(state, pause_until=attempt.gone_at + paused(attempt, pause_of(state, attempt)))
    if state.outcome not in {Phase.SUCCEEDED, Phase.FAILED} or attempt.stage not in LIVE or state.held is not None:
        return state
    waits, succeeded = timings(state), state.outcome is Phase.SUCCEEDED
    held = waits.success_ttl if succeeded else waits.deletion_on_failure_grace_period
    return edit(state, hold_until=state.since + held if held is not None else None)


def _outdated(state: State, phases: Sequence[Phase]) -> str:
    there = "it is to be tried again" if state.intent.retry else f"it is {displayed(state).phase.value}"
    return f"it holds only while the workload is {' or '.join(one.value for one in phases)}, and {there}"


def _reconfigured(state: State, event: Reconfigured, now: datetime) -> State:
    """Record that the objects now being created have an outdated configuration (row S8)."""
    changed = ", ".join(event.components)
    state = cause(state, Reason.CONFIGURATION_CHANGED, with_note(f"{changed} changed", shortened(event.note)), now)
    attempt, operation = state.attempt, state.operation
    if attempt is None or attempt.stage not in LIVE:
        return state
    if operation is not None and operation.is_creating:
        why = f"its submission was given up, since the configuration of {changed} changed during it"
        return edit(state, attempt=edit(attempt, interrupted=why))
    # An earlier release recorded no digest. Use "", which differs from that of every component that changes now.
    attempt = edit(attempt, config={**dict.fromkeys(event.components, ""), **attempt.config})
    state = edit(state, attempt=attempt)
    if not attempt.replacing:
        return state
    # A component whose turn has not come is created or resumed with its new configuration, once it has.
    later = attempt.later if state.shows_waits else ()
    names = [name for name in event.components if name not in later]
    launches = {name: attempt.launches.get(name, 0) + 1 for name in names}
    again = edit(joined(attempt, names), launches={**attempt.launches, **launches})
    return edit(state, attempt=again)


def _can_retry(state: State) -> bool:
    attempt = state.attempt
    if state.held is not None:
        return True
    if state.outcome is Phase.FAILED:
        return attempt is not None and attempt.stage in LIVE
    resetting = displayed(state).phase is Phase.RESETTING
    if state.shows_waits and attempt is not None and attempt.is_restarting:
        resetting = False  # No attempt follows that would take the wish: it would retry a later failure by itself.
    return state.outcome is None and (resetting or is_queued(state) or is_paused(state))


def observed(state: State, observation: Observation, looked_at: datetime | None, now: datetime) -> State:
    """Return the state after a snapshot; `looked_at` is when the live look that returned it began.

    A snapshot of an older attempt, an older version or a foreign owner is dropped and counted. One of a newer attempt
    holds the workload: it contradicts the state, which advances to an attempt before its creation is scheduled.
    """
    attempt = state.attempt
    blind = union((*state.blind, *observation.blind), INTERVALS_KEPT)
    if blind != state.blind:
        state = edit(state, blind=blind)
    if observation.anchor_deleting:
        state = _deleted(state, observation.asked, now)
    if observation.asked is not None:
        state = _asked(state, observation.asked, now)
        if not observation.attempt:
            return state  # It carries nothing else.
    number = attempt.number if attempt is not None else 0
    operation = state.operation
    resetting = looked_at is None and operation is not None and operation.kind is OperationKind.RESET
    if resetting and observation.attempt <= number:
        # The removal may have begun: its pods end because of it. If it has not, the reset returns a newer look.
        return edit(state, in_doubt=True)
    if observation.attempt > number:
        return hold(state, foreign_attempt(observation.attempt, number), observation.attempt, now)
    if looked_at is not None and attempt is not None:
        state = edit(state, in_doubt=False)
        why = contradiction(attempt, observation)
        if why:
            return hold(state, why, max((number, *observation.others)), now)
    # Nothing can be observed of an attempt before its owner exists. A snapshot before that is of another workload.
    begun = attempt is not None and attempt.stage in LIVE and attempt.stage is not Stage.PLANNED
    known = begun and attempt is not None and observation.attempt == attempt.number
    foreign = (
        known
        and attempt is not None
        and bool(attempt.owner_uid)
        and bool(observation.owner_uid)
        and observation.owner_uid != attempt.owner_uid
    )
    # A live look that began after the last snapshot arrived is newer, whatever the resource versions say.
    later = looked_at is not None and (state.observed_at is None or state.observed_at <= looked_at)
    if not known or foreign:
        revived = attempt is not None and (foreign or _is_revived(attempt, state.phase, observation))
        return edit(state, dropped=state.dropped + 1, in_doubt=state.in_doubt or revived)
    if not (later or observation.newer_than(state.observation)):
        # It may be late, or from a restarted watch, or from a restored cluster. Only a live look can tell which.
        return edit(state, dropped=state.dropped + 1, in_doubt=True)
    return edit(
        state,
        observation=observation,
        observed_at=now,
        looked_at=looked_at,
    )


def _deleted(state: State, asked: Asked | None, now: datetime) -> State:
    """Return the state after the workload's custom resource was deleted, or its Anchor if `asked` is None."""
    if state.intent.cancel or state.outcome is Phase.CANCELLED:
        return state
    why = f"its {asked.kind if asked is not None else 'anchor'} was deleted in the cluster"
    if asked is not None and asked.foreground:
        why += " in the foreground: the cluster deletes its pods at once, and nothing is saved first"
    return _wished(state, Cancelled(why, Reason.ANCHOR_DELETED), now)


def _asked(state: State, asked: Asked, now: datetime) -> State:
    """Return the state after a look at what its custom resource asks for; the latest generation applies.

    Only a change of `spec.suspend` is a request. Without one, what a user has asked for meanwhile stays (rows F4, F7).
    Kueue changes it too, as it evicts and as it admits again: neither takes back what a signal has suspended (row F8).
    """
    before = state.asked
    if before is not None and asked.generation <= before.generation:
        return state
    state = edit(state, asked=asked)
    if asked.deleting:
        return _deleted(state, asked, now)
    if before is None or asked.suspend == before.suspend:
        return state
    note = f"spec.suspend of its {asked.kind} is {str(asked.suspend).lower()}"
    note += f"; its spec was last changed by {asked.by}" if asked.by else ""
    if state.intent.by_hand:
        reason = Reason.SUSPEND_REQUESTED if asked.suspend else Reason.RESUMED
        return cause(state, reason, f"{note}; it stays suspended until `holdfast resume`", now)
    state = _wished(state, Suspended(note) if asked.suspend else Resumed(note), now)
    return edit(state, intent=edit(state.intent, by_hand=False))


def _is_revived(attempt: Attempt, phase: Phase, observation: Observation) -> bool:
    """Whether an attempt that was proven gone seems to be alive: the snapshot is late, or the cluster was restored."""
    if not observation.owner_found or observation.owner_deleting or observation.live:
        return False
    if attempt.stage is Stage.SUBMITTED:
        return observation.attempt < attempt.number
    return attempt.stage is Stage.GONE and phase is Phase.SUSPENDED
