"""The barrier of an attempt's pods, and restarts in place: when they are possible, and what follows (row J24)."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.model import (
    Attempt,
    Barrier,
    Observation,
    Operation,
    Phase,
    Policy,
    Reason,
    RestartMode,
    Stage,
    State,
    Workload,
)
from holdfast.model.calls.barrier import Lifted
from holdfast.model.words import counted, shortened
from holdfast.policy.attempt.health import current, timings
from holdfast.policy.attempt.settle import enter
from holdfast.policy.failures.avoided_nodes import down_in
from holdfast.policy.failures.blindness import due
from holdfast.policy.values.edit import edit
from holdfast.policy.values.record import cause


def has_barrier(spec: Workload, policy: Policy) -> bool:
    """Whether pods wait for each other at a barrier, so that they can restart in place.

    A gang has a rendezvous of its own, and restarts its workers by rounds.
    """
    if policy.restart_mode is not RestartMode.IN_PLACE or spec.gang is not None:
        return False
    makers = [one for one in spec.components if one.expected_pods]
    return bool(makers) and all(one.restarts_in_place for one in makers)


def first(spec: Workload, state: State, now: datetime) -> Barrier | None:
    """Return the barrier at which the pods of a new attempt wait; None if they do not wait for each other."""
    return Barrier(attempt=state.restarts, since=now) if has_barrier(spec, state.policy) else None


def recreates(state: State) -> str:
    """Return why a restart of the living attempt must recreate it; empty if it can restart in place."""
    attempt, seen = state.attempt, current(state)
    if attempt is None or attempt.barrier is None:
        return "its pods have no barrier: each needs an in-place restart agent, and a gang has its rendezvous instead"
    if not attempt.barrier.is_lifted:
        return "its pods have not all started yet"
    if attempt.stage is not Stage.SUBMITTED or attempt.launch_failure is not None or attempt.making or attempt.parked:
        return "parts of it are being created"
    return _lost(seen)


def _lost(seen: Observation | None) -> str:
    """Return what is lost of an attempt, so that its pods cannot all restart in place; empty if nothing is."""
    if seen is None or seen.owner_deleting or not seen.owner_found:
        return "its pods are not known"
    down = down_in(seen)
    if down:
        return f"node {down[0]} is down"
    views = seen.components.values()
    absent = sum(view.absent for view in views)
    if absent or seen.missing:
        return f"{counted(absent, 'pod is', 'pods are') if absent else f'{seen.missing[0]} is'} gone"
    if any((view.complete and view.pods.expected) or view.failed for view in views):
        return "a part of it has ended"
    for word, count in (
        ("failed", seen.pods.failed),
        ("succeeded", seen.pods.succeeded),
        ("is being deleted", seen.pods.terminating),
    ):
        if count:
            return f"a pod of it {word}" if count == 1 else f"{count} pods of it {word.replace('is ', 'are ')}"
    return ""


def absent(state: State) -> set[str]:
    """Return the components without pods that could come to the barrier.

    They are still to be created or resumed, or complete: pods that have ended do not come back.
    """
    attempt, seen = state.attempt, current(state)
    later = attempt.later if attempt is not None else ()
    views = seen.components if seen is not None else {}
    done = (name for name, view in views.items() if view.found and view.complete and view.pods.expected)
    return {*later, *done}


def restart(state: State, now: datetime) -> State:
    """Return the state with the living attempt being restarted in place; the restart is counted already."""
    attempt = state.attempt
    assert attempt is not None
    grace = timings(state).forceful_deletion_grace_period
    attempt = edit(
        attempt,
        barrier=Barrier(attempt=state.restarts, since=now, until=now + grace),
        ready_at=None,
        healthy_since=None,
        told=None,
        warming={},
        probe_failing={},
        resume_from=state.saved.uri if state.saved is not None else attempt.resume_from,
    )
    steps = state.steps.begun(attempt.number, now) if state.steps is not None else None
    return edit(state, attempt=attempt, observation=None, looked_at=None, unhealthy=None, steps=steps)


def until(state: State, barrier: Barrier, now: datetime) -> datetime:
    """Return when an attempt that restarts in place is recreated instead; blind time does not count."""
    return due(barrier.since or now, timings(state).forceful_deletion_grace_period, state.blind)


def gathered(attempt: Attempt, now: datetime) -> Attempt:
    """Return the attempt with new pods, which wait at the barrier: those that have passed it run on."""
    barrier = attempt.barrier
    if barrier is None or not barrier.is_lifted:
        return attempt
    return edit(attempt, barrier=edit(barrier, since=now, again=True))


def never_starts(state: State, operation: Operation, event: Lifted) -> bool:
    """Whether programs may not start for the first time: a new attempt, charged to no budget, would end the same way.

    What cannot restart in place, for which its pods had a deadline, is recreated; so is what has run before.
    """
    barrier = state.attempt.barrier if state.attempt is not None else None
    first = operation.until is None and barrier is not None and not barrier.again
    return state.shows_waits and bool(event.refused) and first and not event.renews


def lifted(state: State, attempt: Attempt, barrier: Barrier, event: Lifted, now: datetime) -> State:
    """Return the state after the call that lifts a barrier: the programs run, or the attempt is to be recreated."""
    if event.refused:
        why = f"attempt {attempt.number} cannot restart in place: {event.refused}"
        return edit(state, attempt=edit(attempt, interrupted=shortened(why)))
    if not event.done:
        return state
    restarted = attempt.is_restarting
    attempt = edit(attempt, barrier=edit(barrier, since=None, until=None))
    if not restarted:
        return edit(state, attempt=attempt)
    attempt = edit(attempt, ready_at=None, submitted_at=now, told=None)
    counts = state.restarts_in_place + 1
    state = edit(state, attempt=attempt, restarts_in_place=counts, observation=None, looked_at=None, in_doubt=True)
    text = (
        f"attempt {attempt.number} restarted in place: all its pods are at in-place restart attempt {barrier.attempt}"
    )
    state = enter(state, Phase.RESUMING, Reason.RESTARTED_IN_PLACE, text, now)
    return cause(state, Reason.RESTARTED_IN_PLACE, text, now)


def grace_left(state: State, barrier: Barrier, now: datetime) -> float | None:
    """Return for how many seconds the pods may still get to the barrier; None: for ever."""
    if barrier.until is None:
        return None
    return max(timedelta(0), until(state, barrier, now) - now).total_seconds()
