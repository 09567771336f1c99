"""Suspension in place: the attempt stays, with its objects suspended and its pods gone, until a resume (row J14)."""

from __future__ import annotations

from datetime import datetime

from holdfast.model import (
    After,
    Attempt,
    ComponentView,
    FailureClass,
    Observation,
    Parking,
    Stage,
    StartStatus,
    State,
    SuspendMode,
    Workload,
)
from holdfast.policy.attempt.completed import with_completed
from holdfast.policy.attempt.order import first_returning, told_of
from holdfast.policy.attempt.order import without as not_speaking_of
from holdfast.policy.attempt.requeue import kept_out
from holdfast.policy.values.decision import Decision, Ignore, Look, Suspend, Unpark
from holdfast.policy.values.edit import edit

ORPHANED = "the object that owns it was deleted by another client: nothing of it can be resumed in place"
AWAKE = "pods of it have come although it is suspended: suspending it again"
OF_PODS = frozenset({FailureClass.NO_PROGRESS, FailureClass.PROBE, FailureClass.NODE_LOST, FailureClass.HARDWARE})
"""What is told of an attempt's pods where they are: it ends with these pods."""


def parks(spec: Workload, state: State) -> bool:
    """Whether the living attempt can be suspended in place: all of it was created, and all its pods belong to Jobs."""
    attempt = state.attempt
    if state.policy.deletion.suspend is not SuspendMode.IN_PLACE or attempt is None or state.outcome is not None:
        return False
    if attempt.stage is not Stage.SUBMITTED or unmade(attempt):
        return False
    seen = shown(state)
    if seen is not None and is_orphaned(seen):
        return False
    return all(one.parks for one in spec.components if one.expected_pods)


def begins_suspended(spec: Workload, state: State) -> bool:
    """Whether a workload that was submitted suspended is created so: a JobSet in the cluster, as JobSet does (row J14).

    What has more to be done before its pods may run begins once it is resumed.
    """
    if not state.begins_suspended or not state.intent.suspend or state.attempt is not None or state.blocked:
        return False
    if state.policy.deletion.suspend is not SuspendMode.IN_PLACE or spec.mounts or spec.sensitive:
        return False
    is_shown = spec.source.generation is not None and any(one.copies is not None for one in spec.components)
    return is_shown and all(one.parks for one in spec.components if one.expected_pods)


def asleep_from_the_first(spec: Workload, attempt: Attempt) -> Attempt:
    """Return an attempt that is to be created suspended; what also waits while suspended is created later."""
    later: list[str] = []
    for one in spec.components:
        if any(_waits_suspended(after) or after.component in later for after in one.after):
            later.append(one.name)
    names = tuple(one.name for one in spec.components if one.expected_pods and one.name not in later)
    return edit(attempt, waiting=tuple(later), parking=Parking.GOING, parked=names, turns=1)


def _waits_suspended(after: After) -> bool:
    return after.status is StartStatus.COMPLETE or not after.created_suspended


def is_unseen(state: State) -> bool:
    """Whether an attempt that was created suspended has not been looked at: its status would not show its Jobs."""
    attempt = state.attempt
    if attempt is None or not attempt.suspended or attempt.parking_at is not None:
        return False
    return attempt.stage is Stage.SUBMITTED and shown(state) is None


def unmade(attempt: Attempt) -> str:
    """Return why an attempt was not created as a whole; empty if it was."""
    failure = attempt.launch_failure
    if failure is None:
        return attempt.interrupted
    return failure.message or f"{failure.subject or 'a component'} could not be made: {failure.reason}"


def is_orphaned(seen: Observation) -> bool:
    """Whether the attempt's owner is deleted or being deleted, and all of the attempt with it."""
    return seen.owner_deleting or not seen.owner_found


def shown(state: State) -> Observation | None:
    """Return the last observation of the living attempt, with suspended components but without uncreated ones.

    A component that was complete stays so, also if somebody has deleted it (row D23).
    """
    observation, attempt = state.observation, state.attempt
    if observation is None or attempt is None or observation.attempt != attempt.number:
        return None
    return with_completed(not_speaking_of(observation, attempt.waiting), attempt)


def parked(spec: Workload, state: State) -> Decision:
    """Decide for an attempt that is suspended in place, or being so: none of its pods are expected."""
    attempt, seen = state.attempt, shown(state)
    assert attempt is not None
    if why := unmade(attempt):
        return Suspend(state.intent.suspend_reason, f"it cannot be suspended in place: {why}")
    if seen is not None and is_orphaned(seen):
        if state.looked_at is None:
            return Look("what owns it seems to have been deleted: checking the cluster directly")
        return Suspend(state.intent.suspend_reason, f"attempt {attempt.number}: {ORPHANED}")
    if attempt.stage is not Stage.SUBMITTED:
        return Ignore("it is being created suspended")
    if is_unseen(state):
        return Look("it was created suspended: looking at it")
    if not state.intent.suspend:
        waits = kept_out(state)
        if waits:
            return Ignore(waits)
        back = first_returning(spec, state, seen)
        what = spec.titles(back) or f"attempt {attempt.number}"
        return Unpark(back, f"resuming {what} in place")
    if attempt.parking is Parking.PARKED:
        if seen is not None and seen.occupies:
            if state.looked_at is None:
                return Look("pods seem to have come although it is suspended: checking the cluster directly")
            return Suspend(state.intent.suspend_reason, AWAKE, in_place=True)
        if state.in_doubt:
            return Look("a snapshot came that may be old or new: checking the cluster directly")
    return Ignore("it is suspended")


def park(spec: Workload, state: State, now: datetime, *, kills: bool = False) -> State:
    """Return the state with its attempt being suspended in place."""
    attempt = state.attempt
    assert attempt is not None
    names = tuple(one.name for one in spec.components if one.expected_pods and one.name not in attempt.waiting)
    barrier, told = attempt.barrier, attempt.told
    if state.shows_waits:
        # Pods that come back gather as at a first start: a restart in place has no pods to give a grace to.
        barrier = edit(barrier, until=None) if barrier is not None else None
        # What was told of pods that go is not true of those that come back, perhaps on other nodes.
        told = told if told is None or told.cls not in OF_PODS else None
    attempt = edit(
        attempt,
        barrier=barrier,
        parking=Parking.GOING,
        parking_at=now,
        parked=names,
        resuming=(),
        turns=attempt.turns + 1 - attempt.turns % 2,
        ready_at=None,
        warming={},
        told=told,
        kills=kills,
    )
    return edit(state, attempt=attempt, unhealthy=None)


def unpark(spec: Workload, state: State, components: tuple[str, ...]) -> State:
    """Return the state with components being resumed; those with changes that cannot be merged are recreated later."""
    attempt = state.attempt
    assert attempt is not None
    first = attempt.suspended
    attempt = edit(
        attempt,
        parking=Parking.COMING if first else attempt.parking,
        parked=tuple(name for name in attempt.parked if name not in components),
        resuming=tuple(name for name in components if name in mergeable(spec, attempt)),
        resume_from=state.saved.uri if state.saved is not None else attempt.resume_from,
        turns=attempt.turns + (1 if first else 0),
    )
    return edit(state, attempt=attempt, preempted_at=None)


def mergeable(spec: Workload, attempt: Attempt) -> set[str]:
    """Return the components whose changes since their creation, if any, can all be merged into their objects."""
    return {name for name, body in spec.body_hashes().items() if attempt.bodies.get(name, body) == body}


def returned(attempt: Attempt, now: datetime) -> Attempt:
    """Return the attempt with its resuming components resumed: their graces count from now on."""
    if attempt.parking is Parking.COMING:
        return edit(attempt, parking=None, parking_at=None, resuming=(), submitted_at=now)
    return edit(attempt, resuming=(), warming={**attempt.warming, **dict.fromkeys(attempt.resuming, now)})


def asleep(seen: Observation) -> Observation:
    """Return the snapshot as it will look once no pod of a suspended component is left."""
    views: dict[str, ComponentView] = {}
    for name, view in seen.components.items():
        pods = edit(view.pods, pending=0, running=0, terminating=0)
        copies = edit(view.copies, ready=0, active=0) if view.copies is not None else None
        views[name] = edit(view, pods=pods, copies=copies)
    return edit(seen, components=views, unplanned=0)


def waits_to_return(spec: Workload, parked: tuple[str, ...]) -> str:
    """Return a message on what is resumed later, and when: `Job worker is resumed once Job driver is ready`."""
    said = [
        f"{one.title} is resumed once {' and '.join(told_of(spec, after) for after in one.after)}"
        for one in spec.components
        if one.name in parked and one.after
    ]
    more = len(said) - 3
    return "; ".join(said[:3]) + (f"; and {more} more wait" if more > 0 else "")
