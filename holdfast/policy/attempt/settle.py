"""Phases that follow from facts alone, without a decision."""

from __future__ import annotations

from datetime import datetime

from holdfast.model import Parking, Phase, Reason, Stage, State, Workload
from holdfast.model.words import shortened
from holdfast.policy.attempt.checkpoint import checkpoint_request, resolve
from holdfast.policy.attempt.health import current, declared_now, shortfall
from holdfast.policy.attempt.order import waits
from holdfast.policy.attempt.park import waits_to_return
from holdfast.policy.attempt.requeue import place, queues
from holdfast.policy.attempt.scale import at_nothing, is_at_nothing
from holdfast.policy.values.edit import edit
from holdfast.policy.values.record import cause


def enter(state: State, phase: Phase, reason: Reason, message: str, now: datetime) -> State:
    """Return the state in a phase; `since` moves only when the phase does."""
    since = state.since if state.phase is phase else now
    return edit(state, phase=phase, reason=reason, message=shortened(message), since=since)


def settle(spec: Workload, state: State, now: datetime) -> State:
    """Enter the phase that follows from facts: running once all pods run, suspended or ended once all is gone."""
    state = resolve(spec, state, now)
    attempt = state.attempt
    if state.held is not None:
        return state
    saved = state.phase is Phase.CHECKPOINTING and checkpoint_request(state) is None
    if saved and attempt is not None and attempt.stage is Stage.SUBMITTED and state.outcome is None:
        request = state.checkpoint
        if request is not None and not state.intent.suspend:
            text = f"checkpoint {request.number}: {request.why}"
            state = enter(state, Phase.RUNNING, Reason.SUFFICIENT_PODS_READY, text, now)
    if queues(state) and attempt is not None:
        state = edit(state, attempt=edit(attempt, requeued_in=state.cycle))
        return enter(state, Phase.PENDING, Reason.QUEUED, place(spec, state), now)
    if attempt is not None and attempt.stage is Stage.SUBMITTED and state.outcome is None:
        if is_at_nothing(state) and not at_nothing(spec, state, current(state)):
            phase = Phase.RUNNING if attempt.ready_at is not None else Phase.RESUMING
            state = enter(state, phase, Reason.STARTING, "pods of it are to run again", now)
            state = cause(state, Reason.STARTING, state.message, now)
        if attempt.ready_at is not None and state.phase is Phase.RESUMING:
            state = enter(state, Phase.RUNNING, Reason.SUFFICIENT_PODS_READY, "all expected pods run", now)
            return cause(state, Reason.SUFFICIENT_PODS_READY, f"attempt {attempt.number} runs", now)
        making = state.reason in {Reason.REPLACING, Reason.STARTING, Reason.RESUMED}
        if state.phase is Phase.RUNNING and making and not attempt.making:
            _, unready = shortfall(current(state), declared_now(spec, state))
            if not unready:
                return enter(state, Phase.RUNNING, Reason.SUFFICIENT_PODS_READY, "all expected pods run", now)
        creating = state.phase is Phase.RESUMING and state.reason in {Reason.CREATING, Reason.STARTING, Reason.RESUMED}
        if state.phase is Phase.SUSPENDING and attempt.parking is Parking.PARKED and state.intent.suspend:
            return enter(state, Phase.SUSPENDED, state.intent.suspend_reason, state.message, now)
        creating = creating and not attempt.making and attempt.parking is None
        if creating and attempt.later:
            why = "; ".join(filter(None, (waits(spec, attempt.waiting), waits_to_return(spec, attempt.parked))))
            return enter(state, Phase.RESUMING, Reason.STARTING, why, now)
        if creating:
            return enter(
                state, Phase.RESUMING, Reason.SUBMITTED, "all components are created; their pods are starting", now
            )
    if attempt is None or attempt.stage is Stage.GONE:
        if state.outcome is Phase.CANCELLED and state.phase is not Phase.CANCELLED and not state.anchored:
            return enter(state, Phase.CANCELLED, state.reason, state.message, now)
        if state.phase is Phase.SUSPENDING and state.intent.suspend:
            return enter(state, Phase.SUSPENDED, state.intent.suspend_reason, state.message, now)
    return state
