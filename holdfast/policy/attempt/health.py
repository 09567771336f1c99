"""Assesses a workload's health: observed failures, failures by timeout, and since when (rows A3-A7, U13)."""

from __future__ import annotations

from collections.abc import Collection, Container, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from holdfast.model import (
    AtEnd,
    Attempt,
    Failure,
    FailureClass,
    Observation,
    Reason,
    Scope,
    Stage,
    State,
    Timings,
    Unhealthy,
    Workload,
)
from holdfast.model.words import counted
from holdfast.policy.attempt.completed import seen_complete, with_completed
from holdfast.policy.attempt.copies import stays
from holdfast.policy.attempt.order import is_to_come
from holdfast.policy.attempt.order import without as not_speaking_of
from holdfast.policy.attempt.replace import due_replacements
from holdfast.policy.attempt.success import judged
from holdfast.policy.failures.avoided_nodes import heeded
from holdfast.policy.failures.blindness import due
from holdfast.policy.failures.first_cause import died, with_death
from holdfast.policy.failures.lost_pods import drained_until, first_lost, still_lost
from holdfast.policy.failures.rules import Ruling
from holdfast.policy.failures.told import is_decided
from holdfast.policy.values.edit import edit

LIVE = frozenset({Stage.PLANNED, Stage.PREPARED, Stage.SUBMITTED})
REMOVING = frozenset({Stage.REMOVING, Stage.FORCING})
"""`LIVE` has the stages of an attempt that is being created or exists; only removal, `REMOVING`, follows them."""


def timings(state: State) -> Timings:
    """Return the timings in force: the policy's, within the operator's limits (row A14)."""
    one_ttl = state.shows_waits and state.policy.deletion.at_end is AtEnd.ACTIVE
    return state.limits.clamp(state.policy.timings, one_ttl=one_ttl)


def pause_of(state: State, attempt: Attempt) -> timedelta:
    """Return how long the next attempt waits after the end of this one, within the operator's limits."""
    if attempt.pause is None:
        return timings(state).retry_pause_period
    return min(attempt.pause, state.limits.grace_period_maximum)


def current(state: State) -> Observation | None:
    """Return the latest observation if it is of the living attempt."""
    observation, attempt = state.observation, state.attempt
    if observation is None or attempt is None or observation.attempt != attempt.number:
        return None
    return with_completed(not_speaking_of(observation, attempt.later), attempt)


def expected_now(spec: Workload, state: State) -> int:
    """Return how many pods must exist by now: only those of components whose turn has come.

    Pods that an object's own spec no longer asks for, since it was scaled down, do not count (row D14).
    """
    return declared_now(spec, state) - _released(current(state))


def declared_now(spec: Workload, state: State) -> int:
    """Return how many pods are declared for the components whose turn has come."""
    waiting = state.attempt.later if state.attempt is not None else ()
    return _declared(spec, waiting)


def shortfall(observation: Observation | None, declared: int, without: Container[str] = frozenset()) -> tuple[int, int]:
    """Return how many expected pods do not exist, and how many neither run nor have succeeded.

    Components in `without` are left out. `declared` is the number of pods declared for the others.

    A complete component lacks no pods, whatever happened to them. A component that the snapshot omits lacks all.
    """
    if observation is None:
        return declared, declared
    views = [view for name, view in observation.components.items() if name not in without]
    absent = unready = max(0, declared - sum(view.declared for view in views))
    absent += sum(view.absent for view in views)
    unready += sum(view.unready for view in views)
    return absent, unready


def not_ready(spec: Workload, state: State) -> int:
    """Return how many expected pods neither run nor have succeeded (condition PodsReady).

    A component that is being recreated does not run, whatever was last seen; one that is due for it is not complete.
    """
    seen = current(state)
    making = state.attempt.making if state.attempt is not None else ()
    due = {one.component for one in due_replacements(spec, state, seen)}
    if seen is not None and due:
        views = {name: edit(view, complete=view.complete and name not in due) for name, view in seen.components.items()}
        seen = edit(seen, components=views)
    waiting = state.attempt.later if state.attempt is not None else ()
    others = _declared(spec, {*making, *waiting})
    _, unready = shortfall(seen, others, making)
    return declared_now(spec, state) - others + unready


class Awaited(NamedTuple):
    """Pods that must start for the first time since their components were created."""

    component: str
    """Empty: all pods of the workload, except those of recreated components."""
    expected: int
    absent: int
    unready: int


def awaited(spec: Workload, state: State, seen: Observation | None) -> list[Awaited]:
    """Return the pods that are still in their admission and warm-up grace, or late (rows A4, A5, U7)."""
    attempt = state.attempt
    if attempt is None or attempt.stage is not Stage.SUBMITTED:
        return []
    result: list[Awaited] = []
    again = {*made_again(spec, state, seen), *_resizing(spec, state, seen)}
    if attempt.ready_at is None:
        without = {*attempt.warming, *again}
        declared = _declared(spec, {*without, *attempt.later})
        expected = declared - _released(seen, without)
        result.append(Awaited("", expected, *shortfall(seen, declared, without)))
    for name in attempt.warming:
        view = seen.components.get(name) if seen is not None and name not in again else None
        if view is not None and not view.complete:
            result.append(Awaited(name, view.pods.expected, view.absent, view.unready))
    return result


def made_again(spec: Workload, state: State, seen: Observation | None) -> set[str]:
    """Return the components that are being recreated or are due for it: their pods are not expected until then."""
    making = state.attempt.making if state.attempt is not None else ()
    return {*making, *(one.component for one in due_replacements(spec, state, seen))}


def _resizing(spec: Workload, state: State, seen: Observation | None) -> set[str]:
    """Return the members' component while its gang is to get another size and as many run as it needs until then.

    A look may be of either size: its Job gets the new one, and its plan, before the gang counts as resized (row T6).
    """
    meeting, members = state.attempt.meeting if state.attempt is not None else None, spec.members
    if not state.shows_waits or meeting is None or members is None or meeting.gang == spec.gang:
        return set()
    view = seen.components.get(members.name) if seen is not None else None
    return {members.name} if view is not None and view.pods.ready >= meeting.gang.min else set()


def _declared(spec: Workload, without: Container[str]) -> int:
    return sum(one.expected_pods for one in spec.components if one.name not in without)


def _released(seen: Observation | None, without: Container[str] = frozenset()) -> int:
    """Return how many declared pods the objects do not ask for now, since they were scaled down."""
    return sum(view.released for name, view in seen.components.items() if name not in without) if seen else 0


class Starting(NamedTuple):
    """Pods that a controller must recreate, or has recreated and that do not run yet (row D14)."""

    expected: int
    unready: int
    until: datetime | None
    """When the first warm-up grace of these pods, or grace of those before them to end, is over; None if some of them
    do not exist."""
    ending: bool = False
    """Whether pods before them still take their grace to end."""


def _backing_off(state: State, seen: Observation | None) -> set[str]:
    """Return the components whose Job may still replace its own failed pods."""
    if seen is None or state.policy.own_failure_grace:
        return set()
    return {name for name, view in seen.components.items() if view.backs_off_until is not None}


def coming_back(
    spec: Workload, state: State, seen: Observation | None, but: Collection[str] = frozenset()
) -> Starting | None:
    """Return the pods that do not run in a workload that was ready once; None if all run, or it never was ready.

    Components in `but` are left out.

    Each existing pod has its WarmupGracePeriod from its own creation, as at the first start. A pod that does not exist
    has none, since its controller has not acted: only while another is still being deleted, it may not be able to.
    """
    attempt = state.attempt
    if attempt is None or attempt.ready_at is None:
        return None
    without = {*attempt.warming, *made_again(spec, state, seen), *_resizing(spec, state, seen), *but}
    declared = _declared(spec, {*without, *attempt.later})
    _, unready = shortfall(seen, declared, without)
    if not unready:
        return None
    views = [view for name, view in seen.components.items() if name not in without] if seen is not None else []
    lacking = [view for view in views if view.unready]
    warmup = timings(state).warmup_grace_period
    times = [due(view.starting, warmup, state.blind) for view in lacking if view.starting is not None]
    ends: list[datetime] = []
    if state.shows_waits:  # Runs of earlier releases go on as they began.
        ends = [view.ending for view in lacking if view.starting is None and view.ending is not None]
    times += ends
    told = declared <= sum(view.declared for view in views)
    until = min(times) if told and times and len(times) == len(lacking) else None
    return Starting(declared - _released(seen, without), unready, until, ending=bool(ends))


def _made_at(attempt: Attempt, component: str) -> datetime:
    return attempt.warming.get(component) or attempt.submitted_at or attempt.begun_at


def admission_due(state: State, attempt: Attempt, component: str = "") -> datetime:
    """Return when all expected pods must exist (row A4): the workload's, or those of a recreated component."""
    return due(_made_at(attempt, component), timings(state).admission_grace_period, state.blind)


def warmup_due(state: State, attempt: Attempt, component: str = "") -> datetime:
    """Return when all expected pods must run (row A5): the workload's, or those of a recreated component."""
    return due(_made_at(attempt, component), timings(state).warmup_grace_period, state.blind)


def removal_due(state: State, attempt: Attempt, now: datetime) -> datetime:
    """Return when the time for an attempt's graceful removal ends and forced removal begins (row A8)."""
    return due(attempt.removing_at or now, timings(state).forceful_deletion_grace_period, state.blind)


def grace_left(state: State, name: str, now: datetime) -> float:
    """Return for how many seconds pods of a component that is being recreated may still end by themselves."""
    whole = timings(state).forceful_deletion_grace_period
    since = state.attempt.replaced.get(name, now) if state.attempt is not None else now
    return max(timedelta(0), due(since, whole, state.blind) - now).total_seconds()


def copy_grace_left(state: State, name: str, index: int, now: datetime) -> float:
    """Return for how many seconds pods of a copy that is being recreated may still end by themselves (row J23)."""
    known = state.copy_restarts.get(name, {}).get(index)
    whole = timings(state).forceful_deletion_grace_period
    return max(timedelta(0), due(known.at if known is not None else now, whole, state.blind) - now).total_seconds()


def _late(attempt: Attempt, reason: Reason, time: datetime, message: str, component: str = "") -> Failure:
    return Failure(
        cls=FailureClass.TIMEOUT,
        scope=Scope.COMPONENT if component else Scope.WORKLOAD,
        component=component,
        reason=reason,
        time=time,
        message=message,
        attempt=attempt.number,
    )


def lateness(attempt: Attempt, one: Awaited, reason: Reason, time: datetime) -> Failure:
    """Return the failure of pods that are late when their grace ends."""
    if reason is Reason.PODS_NOT_ADMITTED:
        text = f"{one.absent:,} of {counted(one.expected, 'pod was', 'pods were')} not created in time"
    else:
        text = f"{one.unready:,} of {counted(one.expected, 'pod')} did not run in time"
    return _late(attempt, reason, time, text, one.component)


def insufficiency(attempt: Attempt, back: Starting, time: datetime) -> Failure:
    """Return the failure of pods that do not run again in time (row U13)."""
    return _late(attempt, Reason.INSUFFICIENT_PODS_READY, time, idle(back.unready, back.expected))


def idle(unready: int, expected: int) -> str:
    """Say how many pods do not run: `1 of 2 pods do not run`."""
    return f"{unready:,} of {counted(expected, 'pod does', 'pods do')} not run"


def _orphaned(attempt: Attempt, seen: Observation) -> Failure:
    """Return the failure of an attempt whose owner another client deleted, and with it all objects under it."""
    return Failure(
        cls=FailureClass.MISSING,
        scope=Scope.WORKLOAD,
        reason=Reason.MISSING_COMPONENT,
        time=seen.at,
        message=f"the object that owns attempt {attempt.number} was deleted by another client",
        attempt=attempt.number,
    )


def failures(spec: Workload, state: State, now: datetime) -> list[Failure]:
    """Return the failures of the living attempt: observed ones, and pods that are late or gone."""
    attempt = state.attempt
    if attempt is None or attempt.stage not in LIVE or attempt.suspended:
        return []
    if attempt.launch_failure is not None:
        return [attempt.launch_failure]
    if attempt.stage is not Stage.SUBMITTED:
        return []
    seen = current(state)
    if seen is not None and (seen.owner_deleting or not seen.owner_found):
        return [_orphaned(attempt, seen)]
    if attempt.is_restarting:
        return []
    if seen is None and (attempt.ready_at is not None or attempt.warming):
        return []  # Components were recreated, and no observation has followed yet.
    # The replacement of a component alone is an event of that component and no failure of the workload.
    replaced = made_again(spec, state, seen)
    counted = heeded(state.policy, attempt, seen.failures, sensitive=spec.sensitive) if seen is not None else []
    if attempt.barrier is None or not attempt.barrier.is_lifted:
        # Until the barrier is lifted, pods wait there for each other.
        counted = [one for one in counted if one.reason != Reason.POD_RESTARTED]
    if seen is not None and timings(state).launch_grace_period is not None:
        counted += seen.stuck
    found = [one for one in counted if one.component not in replaced or stays(spec, attempt, one)]
    lost = still_lost(state, seen, found) if seen is not None else None
    if lost is not None and lost.component not in replaced:
        found.append(lost)
    if attempt.told is not None and is_decided(state):
        found += heeded(state.policy, attempt, (attempt.told,))
    for one in awaited(spec, state, seen):
        for reason, count, until in (
            (Reason.PODS_NOT_ADMITTED, one.absent, admission_due(state, attempt, one.component)),
            (Reason.PODS_NOT_RUNNING, one.unready, warmup_due(state, attempt, one.component)),
        ):
            if count and now >= until:
                found.append(lateness(attempt, one, reason, until))
    # A failure that a Job may still repair by itself must not hide a failure of another component (row D22).
    backing_off = _backing_off(state, seen) if found else set[str]()
    others = [one for one in found if one.scope is not Scope.MEMBER or one.component not in backing_off]
    back = coming_back(spec, state, seen, backing_off) if not others else None
    # A controller also gets its grace to recreate a pod that is lost after the warm-up (row U13).
    if back is not None and (back.until is None or now >= back.until):
        since = state.unhealthy.failure.time if state.unhealthy is not None else back.until or now
        found.append(insufficiency(attempt, back, since))
    return found


def _unhealthy_since(
    state: State, attempt: Attempt, ruled: Sequence[Ruling], seen: Observation | None, now: datetime
) -> datetime:
    """Return since when the attempt is unhealthy without a break.

    Late pods that started the clock may turn out not to have been late, once it is known that the watch was blind then.
    In that case the clock starts with the present failure, or when the pods were truly late. While drained pods may
    still take to end, and nothing else has failed, no others can be expected: the clock starts once they have ended, or
    should have (row D14).
    """
    unhealthy = state.unhealthy
    ending = drained_until(ruled, seen) if state.shows_waits else None  # Runs of earlier releases go on as they began.
    if ending is not None and ending > now and (unhealthy is None or unhealthy.since >= now):
        return ending
    if unhealthy is None or unhealthy.since > now:
        return now
    match unhealthy.failure.reason:
        case Reason.PODS_NOT_ADMITTED:
            truly = admission_due(state, attempt, unhealthy.failure.component)
        case Reason.PODS_NOT_RUNNING:
            truly = warmup_due(state, attempt, unhealthy.failure.component)
        case _:
            return unhealthy.since
    return unhealthy.since if truly <= unhealthy.failure.time else min(now, max(truly, unhealthy.since))


def _still_warming(spec: Workload, state: State, attempt: Attempt, seen: Observation) -> dict[str, datetime]:
    """Return the recreated components that were not seen running since, with the start of their graces."""
    still: dict[str, datetime] = {}
    members = spec.members if spec.gang is not None and state.shows_waits else None
    for name, since in attempt.warming.items():
        view = seen.components.get(name)
        up = view is not None and view.found and not view.unready
        if view is not None and members is not None and name == members.name:
            # A look may still be of the size before.
            up = up and view.declared >= members.expected_pods
        if name in attempt.making or not up:
            still[name] = since
    return still


def assess(spec: Workload, state: State, now: datetime) -> State:
    """Return the state with `ready_at` and `unhealthy` up to date.

    The whole workload is unhealthy: one clock runs from the first failure until none is left, whichever failures there
    are (appwrapper-fault-tolerance.md: "if the FailureGracePeriod passes and the workload is still unhealthy").
    """
    attempt = state.attempt
    if attempt is None or state.outcome is not None or attempt.stage not in LIVE or attempt.suspended:
        return state if state.unhealthy is None else edit(state, unhealthy=None)
    seen = current(state)
    if attempt.stage is Stage.SUBMITTED and attempt.ready_at is None and seen is not None:
        _, unready = shortfall(seen, declared_now(spec, state))
        # The pods of a failed copy are not waited for, but nothing is ready while a rule acts on that failure.
        lost = any(one.failed and one.excused for one in seen.components.values())
        ruled_out = lost and judged(spec, state, seen, failures(spec, state, now))
        if not unready and not ruled_out and not is_to_come(spec, state, seen):
            attempt = edit(attempt, ready_at=now)
            state = edit(state, attempt=attempt)
    if seen is not None and (completed := seen_complete(spec, state, attempt, seen)) != attempt.completed:
        attempt = edit(attempt, completed=completed)
        state = edit(state, attempt=attempt)
    if attempt.warming and seen is not None and not state.in_doubt:
        state = edit(state, attempt=edit(attempt, warming=_still_warming(spec, state, attempt, seen)))
    ruled = judged(spec, state, seen, failures(spec, state, now))
    if not ruled:
        return edit(state, unhealthy=None) if state.unhealthy is not None else state
    first = ruled[0]
    since = _unhealthy_since(state, attempt, ruled, seen, now)
    death = state.unhealthy.death if state.unhealthy is not None else None
    death = death or died((one.failure for one in ruled), of_nodes=state.shows_waits)
    failure = with_death(spec, first.failure, seen, death, of_nodes=state.shows_waits)
    lost = first_lost(ruled) if state.shows_waits else None  # Runs of earlier releases go on as they began.
    return edit(state, unhealthy=Unhealthy(since=since, failure=failure, rule=first.rule, death=death, lost=lost))
