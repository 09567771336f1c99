"""The status and the explanation of a workload: why it is in its phase, and what comes next, from memory alone."""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.model import (
    ActionKind,
    Attempt,
    BudgetStatus,
    Deadline,
    ExcludedNode,
    Explanation,
    Failure,
    FailureClass,
    OnUnresponsive,
    OperationKind,
    Parking,
    Phase,
    PodCounts,
    Reason,
    RefusedCreate,
    Scope,
    Stage,
    State,
    Status,
    Success,
    Waiting,
    Workload,
    format_duration,
)
from holdfast.model.life.status import GangSize
from holdfast.model.observation import FAILED_CREATE, SCHEDULING_GATED, UNSCHEDULABLE
from holdfast.model.words import counted, escaped
from holdfast.policy.attempt.barrier import absent as absent_at_barrier
from holdfast.policy.attempt.barrier import until as barrier_until
from holdfast.policy.attempt.checkpoint import asked_to_save, checkpoint_request, due_at
from holdfast.policy.attempt.copies import restarted_copy, titles_again
from holdfast.policy.attempt.ending import active_in, is_clearing
from holdfast.policy.attempt.health import (
    LIVE,
    REMOVING,
    current,
    expected_now,
    failures,
    idle,
    not_ready,
    pause_of,
    removal_due,
    timings,
)
from holdfast.policy.attempt.order import waits
from holdfast.policy.attempt.park import shown, waits_to_return
from holdfast.policy.attempt.replace import due_replacements
from holdfast.policy.attempt.requeue import awaits_kueue, is_queued, kept_out
from holdfast.policy.attempt.requeue import pause as paused
from holdfast.policy.attempt.scale import is_at_nothing, overrun
from holdfast.policy.attempt.success import wanted
from holdfast.policy.failures.avoided_nodes import blamed_for, in_full, remembered, room_needed, standing, without
from holdfast.policy.failures.blindness import due
from holdfast.policy.failures.first_cause import with_death
from holdfast.policy.failures.rules import Ruling, rule_on, rulings, title_of
from holdfast.policy.sides.staging import is_paused, is_staging
from holdfast.policy.status.blocked import counted_out
from holdfast.policy.status.report import WARNINGS, conditions, still_runs
from holdfast.policy.values.decision import Wait
from holdfast.policy.values.displayed import displayed
from holdfast.policy.values.edit import edit
from holdfast.policy.verdicts.budgets import used_of
from holdfast.policy.verdicts.decide import decide
from holdfast.policy.verdicts.poison import Alone, hopeless
from holdfast.policy.verdicts.progress import where
from holdfast.policy.verdicts.restart import is_alone
from holdfast.policy.verdicts.strip import let_go
from holdfast.policy.verdicts.walltime import ends_at

CAUSES_SHOWN = 5
ENDS = "its walltime is over: its pods get TERM, and KILL after their grace period; it fails"
_REMEDIES: dict[str, str] = {
    Reason.PODS_NOT_ADMITTED: "see its controllers' Events (`kubectl describe`) for a missing quota, webhook or right",
    Reason.PODS_NOT_RUNNING: "see its pods' Events (`kubectl describe pod`) for a missing node, volume or image",
    Reason.INSUFFICIENT_PODS_READY: "its pods come back if their controller can make them and a node takes them",
}
"""Where to look, by the reason it is unhealthy: Holdfast cannot know what it waits for."""
_WAITS_SHOWN = 3
_STARTS = ("admission grace", "warm-up grace", "termination grace")
"""Begin the waits for pods to start, and for those before them to end."""
_SETTLED = {Phase.SUCCEEDED: "it has succeeded", Phase.FAILED: "it has failed"}
_BESIDE_THE_FILE = {
    "`holdfast namespace enable ": "enable the namespace",
    "its operator gives it": "have the worker's operator set what it lacks",
    "install what defines it": "install what defines that kind",
}
"""What stands in a refusal whose remedy is not in the file, and that remedy: the same file is then tried again."""
_DESCRIBE = "see what its pod waits for: `kubectl -n {ns} describe pod {pod}`"
_UNBLOCKS: dict[str, str] = {
    UNSCHEDULABLE: "add nodes that fit, or lower the pods' requests: `kubectl -n {ns} describe pod {pod}`",
    SCHEDULING_GATED: "whoever set the scheduling gates must remove them: `kubectl -n {ns} describe pod {pod}`",
    FAILED_CREATE: "correct the quota, webhook or right that it names: `kubectl -n {ns} get events`",
    "ErrImagePull": "correct the image's name, its registry or its pull secret: `kubectl -n {ns} describe pod {pod}`",
}
"""What would let pods run, by the reason they wait."""


def status_of(spec: Workload, state: State, now: datetime, uid: str, asked: datetime | None = None) -> Status:
    """Return the status for people and programs.

    Args:
        spec: The workload.
        state: Its memory.
        now: The time of the last decision on it.
        uid: The workload's uid.
        asked: The time of the query, if that is later: health changes in the meantime.
    """
    state = displayed(state)
    seen = shown(state)
    deadlines = _deadlines(spec, state, now)
    return Status(
        name=spec.name,
        namespace=spec.namespace,
        cluster=spec.cluster,
        uid=uid,
        phase=state.phase,
        reason=state.reason,
        message=state.message,
        since=state.since,
        attempt=state.attempt.number if state.attempt is not None else 0,
        executions=state.executions,
        restarts=state.restarts,
        requeues=state.requeues,
        sensitive=spec.sensitive,
        submitted_at=spec.submitted_at,
        by=state.creator,
        walltime_until=ends_at(state),
        budgets=budgets_of(state, asked or now),
        conditions=conditions(spec, state),
        pods=seen.pods if seen is not None else PodCounts(expected=expected_now(spec, state)),
        waiting=_waiting(spec, state),
        copy_restarts=state.copy_restarts,
        copies={name: one.copies for name, one in seen.components.items() if one.copies} if seen is not None else {},
        gang=_gang(spec),
        next=deadlines[0] if deadlines else None,
        later=deadlines[1:],
        unblock=_unblock(spec, state),
        avoided=_avoided(state, asked or now),
        failure=state.outcome_failure,
        checkpoint=state.checkpoint,
        saved=state.saved,
        steps=where(spec.progress, state.steps, state.attempt.number if state.attempt is not None else 0, asked or now),
        data=state.staging.sets if state.staging is not None else (),
        claims=state.claims,
        barrier=state.attempt.barrier if state.attempt is not None else None,
        resumed_from=state.attempt.resume_from if state.attempt is not None else "",
        causes=state.causes,
        causes_total=state.causes_total,
    )


def explain_of(spec: Workload, state: State, now: datetime, asked: datetime | None = None) -> Explanation:
    """Return the explanation (ux.md): why, now, next, budgets, causes, and what would unblock it (row U11).

    `asked` is as in `status_of`.
    """
    state = displayed(state)
    return Explanation(
        name=spec.name,
        phase=state.phase,
        reason=state.reason,
        since=state.since,
        attempt=state.attempt.number if state.attempt is not None else 0,
        next_attempt=_next_attempt(state),
        budgets=budgets_of(state, asked or now),
        gang=_gang(spec),
        why=_why(spec, state),
        now=_now(spec, state, asked or now),
        next=_deadlines(spec, state, now),
        kept="; ".join(filter(None, (_kept(spec, state), _kept_evidence(state)))),
        by=state.creator,
        unblock=_unblock(spec, state),
        causes=state.causes[-CAUSES_SHOWN:],
    )


def _gang(spec: Workload) -> GangSize | None:
    gang = spec.gang
    return GangSize(min=gang.min, max=gang.max, spares=gang.spares) if gang is not None else None


def _avoided(state: State, now: datetime) -> tuple[ExcludedNode, ...]:
    """Return the nodes that the living attempt avoids, or that the next one will avoid."""
    attempt = state.attempt
    if attempt is not None and attempt.stage in LIVE:
        return attempt.avoided
    return standing(state.excluded, state.policy.exclusion, now)


def _next_one(state: State, now: datetime, verb: str = "") -> str:
    """Name the next attempt, what happens to it, and the nodes it will avoid: `attempt 3 (must avoid node-7)`."""
    number = state.attempt.number + 1 if state.attempt is not None else 1
    avoided = without(standing(state.excluded, state.policy.exclusion, now))
    return f"attempt {number}{f' ({avoided})' if avoided else ''}{verb}"


def budgets_of(state: State, now: datetime) -> tuple[BudgetStatus, ...]:
    """Return the limit and the use of each budget, and the restart of a reset under way that will charge it."""
    promise = state.operation.restart if state.operation is not None else None
    charge = promise.charge if promise is not None else None
    return tuple(
        BudgetStatus(
            name=budget.name,
            limit=budget.limit,
            used=used_of(state, budget, now),
            under_way=int(budget.name == charge),
        )
        for budget in state.policy.budgets
    )


def _next_attempt(state: State) -> int | None:
    if state.phase is Phase.RESETTING and state.attempt is not None and not state.attempt.is_restarting:
        return state.attempt.number + 1
    return None


def _gives_up(state: State) -> str:
    """Say for how long a submission is retried while the cluster refuses it."""
    timeout = timings(state).submission_timeout
    if state.policy.refused_create is not RefusedCreate.WAIT:
        return f" (bears refusals that may pass for {format_duration(timings(state).admission_grace_period)})"
    return f" (gives up after {format_duration(timeout)} of refusals)" if timeout is not None else " (never gives up)"


def _bears_missing(spec: Workload, state: State) -> str:
    """Say for how long it waits for a kind that the cluster lacks."""
    if not spec.allow_missing_kinds:
        return ""
    timeout = timings(state).submission_timeout
    bound = f"up to {format_duration(timeout)}" if timeout is not None else "as long as it takes"
    return f" (waits {bound} for a kind that the cluster lacks)"


def _why(spec: Workload, state: State) -> str:
    if state.held is not None:
        return state.held.why
    unserved = _unserved(spec, state)
    if unserved:
        return unserved
    waits = "; ".join(one.sentence() for one in _waiting(spec, state)[:_WAITS_SHOWN])
    if state.unhealthy is not None:
        why = f"{state.unhealthy.failure.sentence()} ({title_of(state.unhealthy.rule)})"
        return f"{why}; {waits}" if waits and state.unhealthy.failure.reason in _REMEDIES else why
    if waits:
        return waits
    if _is_kueues(state):
        return f"it waits for Kueue to admit it to queue {spec.queue}"
    attempt = state.attempt
    if state.reason is Reason.SUFFICIENT_PODS_READY and attempt is not None and attempt.stage is Stage.SUBMITTED:
        unready = not_ready(spec, state)
        due = due_replacements(spec, state, current(state))
        if unready and due:
            return "; ".join(one.why for one in due)
        if unready:
            return f"{idle(unready, expected_now(spec, state))}, and no rule takes that for a failure"
    return state.message or state.reason.value


def _unserved(spec: Workload, state: State) -> str:
    """Name the versions of kinds that the cluster does not serve, and the components this leaves unknown (row D24)."""
    seen = current(state)
    if seen is None or state.outcome is not None:
        return ""
    found = [one for one in spec.components if (view := seen.components.get(one.name)) is not None and view.unserved]
    kinds = dict.fromkeys(f"{one.template['kind']} of {one.template['apiVersion']}" for one in found)
    titles = spec.titles([one.name for one in found])
    return f"the cluster does not serve {', '.join(kinds)}: nothing is known of {titles}" if found else ""


def _waiting(spec: Workload, state: State) -> tuple[Waiting, ...]:
    """Return what the pods that should run now wait for, the largest group first (row D34)."""
    attempt, seen = state.attempt, current(state)
    if attempt is None or attempt.stage is not Stage.SUBMITTED or attempt.suspended or state.outcome is not None:
        return ()
    return seen.waiting if seen is not None and not_ready(spec, state) else ()


def _now(spec: Workload, state: State, at: datetime) -> str:
    attempt, operation = state.attempt, state.operation
    if attempt is not None and attempt.stage in REMOVING:
        forcing = attempt.stage is Stage.FORCING
        text = (
            f"forcing out what is left of attempt {attempt.number}" if forcing else f"deleting attempt {attempt.number}"
        )
        if operation is not None and operation.settles:
            return f"finding out whether the removal of attempt {attempt.number} has begun"
        if operation is not None and operation.kind is OperationKind.RESET and not operation.interrupted:
            return f"taking a live look, then {text} if it confirms the failure"
        if attempt.remnants:
            left = "; ".join(each.sentence() for each in attempt.remnants[:3])
            total = attempt.remnants_total
            text += f": {counted(total, 'object')} left: {left}"
        return text
    if operation is not None and operation.interrupted:
        return f"breaking off {operation.kind.value} of attempt {operation.attempt}"
    if operation is not None and operation.kind is OperationKind.PREPARE and not operation.creates:
        return f"checking rights and making the owner of attempt {operation.attempt}{_bears_missing(spec, state)}"
    if operation is not None and operation.is_creating:
        count = len(spec.components) - (len(attempt.waiting) if attempt is not None else 0)
        what = "1 component" if count == 1 else f"the {count} components"
        checks = "checking rights and " if operation.creates else ""
        return f"{checks}creating {what} of attempt {operation.attempt}{_gives_up(state)}"
    if operation is not None and operation.kind is OperationKind.STAGE:
        kept = "its quota is kept" if state.phase is Phase.RESETTING else "nothing of it is in the cluster"
        what = ", ".join(f"{one.name} ({one.source})" for one in spec.mounts)
        return f"staging what attempt {operation.attempt + 1} reads: {what}; {kept}"
    if operation is not None and operation.kind is OperationKind.OBSERVE:
        return "taking a live look before anything is acted on"
    if state.held is not None:
        return "nothing is done to it until a person says what"
    if operation is not None and operation.kind is OperationKind.REPLACE and attempt is not None:
        again = any(operation.launches.values()) or operation.copies
        return f"{'making again' if again else 'creating'} {titles_again(spec, attempt)}"
    if attempt is not None and attempt.barrier is not None and not attempt.barrier.is_lifted and operation is not None:
        away, number = absent_at_barrier(state), attempt.barrier.attempt
        pods = sum(one.expected_pods for one in spec.components if one.name not in away)
        count = "its pod" if pods == 1 else f"all {pods} pods"
        doing = "restarting in place" if attempt.is_restarting else "starting its programs together"
        return f"{doing}: waiting for {count} to be at the barrier of in-place restart attempt {number}"
    if is_clearing(state):
        active = spec.titles(active_in(spec, state)) or "it"
        return f"deleting what is still active of {active}; what has ended is kept, and its quota until that is gone"
    if attempt is not None and attempt.parking is not None and state.outcome is None:
        return _parking(spec, state, attempt)
    request = checkpoint_request(state)
    if request is not None:
        answers, many = request.answers, request.savers
        so_far = f": {answers.done} of {many} had saved when last told" if answers is not None else ""
        more = ", with their extension" if request.extended_at is not None else ""
        return f"checkpoint {request.number}: {asked_to_save(many)}{more}{so_far}"
    if state.phase is Phase.SUSPENDED:
        return "nothing of it is in the cluster; its quota is released"
    if is_staging(state) and is_paused(state):
        return "waiting for the store; nothing of it is in the cluster, and nothing is charged"
    if is_queued(state):
        return "waiting in its queue; its quota is released"
    if state.reason is Reason.QUEUED and kept_out(state):
        since = f" since {spec.submitted_at:%Y-%m-%d %H:%M:%S} UTC" if spec.submitted_at is not None else ""
        return f"waiting in queue {spec.queue}{since}; nothing of it is in the cluster"
    if state.pause_until is not None:
        return "pausing before the next attempt; its quota is kept"
    if is_at_nothing(state):
        return "nothing of it is to run; its objects and its quota are kept"
    if attempt is not None and attempt.stage is Stage.SUBMITTED and state.outcome is None:
        unready, expected = not_ready(spec, state), expected_now(spec, state)
        over = "; ".join(filter(None, (overrun(spec, state), _foreign(state))))
        steps = where(spec.progress, state.steps, attempt.number, at)
        more = f"{f'; {steps}' if steps else ''}{f'; {over}' if over else ''}{_until(spec, state)}"
        if _unserved(spec, state):
            ready = counted(_ready_pods(state), "pod runs or has", "pods run or have")
            return f"nothing is decided by what cannot be read; {ready} succeeded{more}"
        if unready:
            avoided = f"; {in_full(attempt.avoided)}" if attempt.avoided else ""
            return f"{_running(state, expected - unready, expected)}{_stuck(state)}{avoided}{more}"
        return f"{expected:,} of {counted(expected, 'pod runs or has', 'pods run or have')} succeeded{more}"
    if state.outcome is not None and attempt is not None and attempt.stage is not Stage.GONE:
        until = "" if state.hold_until is not None else " until somebody cancels it"
        kept = ", and its quota is kept: pods of it run on" if still_runs(state) else ""
        return f"{_SETTLED.get(state.outcome, 'it is cancelled')}; its resources are kept{until}{kept}"
    return state.message


def _ready_pods(state: State) -> int:
    """Return how many pods were seen running or succeeded."""
    seen = current(state)
    return seen.pods.ready if seen is not None else 0


def _running(state: State, ready: int, expected: int) -> str:
    """Say how many of the expected pods run: `1 of 3 pods running`, or have succeeded if some have."""
    seen = current(state)
    how = "running or succeeded" if seen is not None and seen.pods.succeeded else "running"
    return f"{ready:,} of {counted(expected, 'pod')} {how}"


def _foreign(state: State) -> str:
    """Name pods that have the workload's labels but are not its own (row D26)."""
    seen = current(state)
    if seen is None or not seen.foreign:
        return ""
    return f"left alone, since it comes of another's object with labels copied from here: {', '.join(seen.foreign)}"


def _stuck(state: State) -> str:
    """Say why pods do not start, whether or not the policy treats that as a failure (row U11)."""
    seen = current(state)
    said = [one.sentence() for one in seen.stuck] if seen is not None else []
    if not said:
        return ""
    return f" ({said[0]}{f'; and {len(said) - 1} more' if len(said) > 1 else ''})"


def _parking(spec: Workload, state: State, attempt: Attempt) -> str:
    """Describe the progress of a suspension in place, or of the resume from it."""
    if attempt.parking is Parking.COMING:
        return f"resuming {spec.titles(attempt.resuming) or f'attempt {attempt.number}'} in place"
    if attempt.parking is Parking.PARKED:
        return f"{spec.titles(attempt.parked)}: suspended in place, no pod is left; its quota is released"
    seen = shown(state)
    left = f": {counted(seen.pods.going, 'pod')} left" if seen is not None and seen.pods.going else ""
    return f"suspending {spec.titles(attempt.parked)} in place{left}; its quota is kept until no pod is left"


def _until(spec: Workload, state: State) -> str:
    """Say what is still to be created, and which components success depends on, where that is not all of them."""
    success, attempt = state.policy.success, state.attempt
    waiting, parked = (attempt.waiting, attempt.parked) if attempt is not None else ((), ())
    said = filter(None, (waits(spec, waiting), waits_to_return(spec, parked)))
    later = "".join(f"; {each}" for each in said)
    return later + (f"; it succeeds once {wanted(spec, state)}" if success != Success() else "")


def _deadlines(spec: Workload, state: State, now: datetime) -> tuple[Deadline, ...]:
    """Return what happens next without intervention, in order; the later ones apply if nothing intervenes."""
    attempt = state.attempt
    if attempt is not None and attempt.stage in REMOVING:
        result: list[Deadline] = []
        if attempt.stage is Stage.REMOVING:
            at = removal_due(state, attempt, now)
            result.append(Deadline(at=at, what="forceful deletion, unless all is gone by then"))
        elif state.operation is not None and state.operation.until is not None:
            at = max(now, state.operation.until)
            result.append(Deadline(at=at, what="Holdfast looks for what is left, and forces its deletion again"))
        at = max(now, result[0].at if result else now)
        result.append(Deadline(at=at, what=f"once all is gone: {_once_gone(spec, state, attempt, at)}"))
        return tuple(result)
    if attempt is not None and attempt.parking is Parking.GOING and attempt.parking_at is not None:
        at = max(now, due(attempt.parking_at, timings(state).forceful_deletion_grace_period, state.blind))
        return (
            Deadline(at=at, what="pods that have not ended by then are deleted by force"),
            Deadline(
                at=at, what="once no pod is left: the workload's quota is released, and the workload waits for resume"
            ),
        )
    if attempt is not None and attempt.barrier is not None and attempt.barrier.until is not None:
        at = max(now, barrier_until(state, attempt.barrier, now))
        return (Deadline(at=at, what="recreation, unless all pods have restarted in place by then"),)
    if checkpoint_request(state) is not None:
        return _checkpoint_next(spec, state, now)
    decision, walltime = decide(spec, state, now), ends_at(state)
    ends = [Deadline(at=walltime, what=ENDS)] if walltime is not None else []
    if not isinstance(decision, Wait):
        return tuple(ends)
    result = [Deadline(at=decision.until, what=decision.why)]
    if state.outcome is not None:
        return (Deadline(at=decision.until, what=f"{decision.why} ends, then its resources are removed"),)
    if state.unhealthy is not None:
        then = _consequence(spec, state, state.unhealthy.failure, decision.until)
        result.append(Deadline(at=decision.until, what=f"if it is not healthy by then: {then}"))
    elif decision.why.startswith(_STARTS) and (late := _late_consequence(spec, state, decision.until)):
        result.append(Deadline(at=decision.until, what=f"if nothing has changed by then: {late}"))
    elif is_staging(state):
        result.append(Deadline(at=decision.until, what=f"once all lies ready: {_next_one(state, decision.until)}"))
    elif state.pause_until is not None:
        result.append(Deadline(at=decision.until, what=_next_one(state, decision.until, " is created")))
    # What is due first is listed first, directly followed by its consequence.
    return (*ends, *result) if ends and ends[0].at < decision.until else (*result, *ends)


def _checkpoint_next(spec: Workload, state: State, now: datetime) -> tuple[Deadline, ...]:
    """Return what follows once all pods have saved, or when the time for that is over."""
    request = checkpoint_request(state)
    assert request is not None
    assert spec.checkpoint is not None
    at = max(now, due_at(spec, state, request))
    if not state.intent.suspend:
        return (Deadline(at=at, what="unless all have saved by then, this checkpoint is given up; it runs on"),)
    kill = spec.checkpoint.on_unresponsive is OnUnresponsive.KILL
    how = "it is removed without grace" if kill else "it is suspended all the same"
    last = f", and resumes from {state.saved.uri}" if state.saved is not None else ", and resumes from the beginning"
    return (
        Deadline(at=at, what=f"unless all have saved by then: {how}{last}"),
        Deadline(at=at, what="once all have saved: it is suspended, and resumes from there"),
    )


def _once_gone(spec: Workload, state: State, attempt: Attempt, at: datetime) -> str:
    """Say what follows the proof that an attempt is gone, as things stand."""
    if state.outcome is not None:
        return f"the workload's quota is released, and the workload ends as {state.outcome.value}"
    if state.intent.suspend:
        return "the workload's quota is released, and the workload waits for resume"
    if attempt.requeue:
        pause = format_duration(paused(attempt, pause_of(state, attempt)))
        back = f"the workload's quota is released, and the workload goes back to queue {spec.queue}"
        return f"{back}; after {pause} {_next_one(state, at)}"
    if attempt.pause_after:
        pause = format_duration(pause_of(state, attempt))
        return f"retry pause {pause}, then {_next_one(state, at)}"
    return _next_one(state, at)


def _consequence(spec: Workload, state: State, failure: Failure, at: datetime) -> str:
    """Say what the failure that makes it unhealthy leads to, once its grace period is over."""
    ruling = rule_on(state.policy, failure)
    action = ruling.action
    if action.kind is not ActionKind.RESTART:
        return "the workload fails"
    if spec.sensitive and failure.cls is not FailureClass.LAUNCH:
        return "it is held until a person says retry or cancel, since it is sensitive"
    alone = Alone(failure.component, restarted_copy(spec, ruling)) if is_alone(state, ruling) else None
    death = state.unhealthy.death if state.unhealthy is not None else None
    found = None
    if alone is None or state.shows_waits:
        failed = with_death(spec, failure, current(state), death, of_nodes=state.shows_waits)
        found = hopeless(spec, state, failed, alone)
    if found is not None:
        return f"the workload fails, since {found.why}"
    if alone is not None:
        return _alone(spec, state, ruling)
    blame = blamed_for(state.policy, (failure,), at)
    excluded = remembered(state.excluded, blame, state.policy.exclusion, at)
    then = _next_one(edit(state, excluded=excluded), at)
    limit, acted = action.limit, state.acted.get(ruling.rule, 0)
    if limit is not None and acted >= limit:
        return f"the workload fails, since {title_of(ruling.rule)} has acted as often as it may ({acted} of {limit})"
    counted = f"{title_of(ruling.rule)} {acted + 1} of {limit}" if limit is not None else ""
    if action.charge is None:
        return f"reset, charged to no budget{f' ({counted})' if counted else ''}, then {then}"
    limit, used = state.policy.budget(action.charge).limit, state.used.get(action.charge, 0)
    if limit is not None and used >= limit:
        return f"the workload fails, since its {action.charge} budget is used up ({used} of {limit})"
    bound = f" of {limit}" if limit is not None else ""
    what = "requeue" if action.requeue else "reset"
    return f"{what} ({action.charge} {used + 1}{bound}{f', {counted}' if counted else ''}), then {then}"


def _late_consequence(spec: Workload, state: State, at: datetime) -> str:
    """Say what follows if pods are still missing, or do not run, when their grace ends; empty if no rule acts on it."""
    found = rulings(state.policy, failures(spec, state, at), of_nodes=state.shows_waits)
    late = [one for one in found if one.action.kind is not ActionKind.IGNORE]
    if not late:
        return ""
    grace = timings(state).failure_grace_period if late[0].action.grace else timedelta(0)
    then = _consequence(spec, state, late[0].failure, at + grace)
    return f"failure grace {format_duration(grace)}, then {then}" if grace else then


def _kept(spec: Workload, state: State) -> str:
    """Say which claims outlive an attempt, what they contain, and how to choose otherwise (row D25)."""
    keeping = spec.titles([one.name for one in spec.components if one.keeps_claims])
    there = state.claims.sentence() if state.claims is not None else ""
    claims = ", ".join(one.sentence() for one in spec.volume_claims)
    own = f"its own PersistentVolumeClaims: {claims}" if claims else ""
    if not keeping:
        return (own or there) if state.outcome is None else (there or own)
    if state.outcome is not None and there:
        return f"{keeping} has left {there}"
    what = there or "the PersistentVolumeClaims of its pods"
    remedy = "to have them go with it: spec.persistentVolumeClaimRetentionPolicy.whenDeleted: Delete"
    return f"{keeping} keeps {what}: the next attempt mounts what is in them; {remedy}"


def _kept_evidence(state: State) -> str:
    """Say where the evidence of an attempt is that is removed or cleared, until the next one begins (row P3)."""
    attempt = state.attempt
    return attempt.evidence.sentence() if attempt is not None and attempt.evidence is not None else ""


def _alone(spec: Workload, state: State, ruling: Ruling) -> str:
    """Say what restarting one component costs, or that the workload fails instead."""
    name, charge = ruling.failure.component, ruling.action.charge
    what = f"{Alone(name, restarted_copy(spec, ruling)).title(spec)} is made again alone"
    most, acted = ruling.action.limit, state.acted.get(ruling.rule, 0)
    if most is not None and acted >= most:
        return f"the workload fails, since {title_of(ruling.rule)} has acted as often as it may ({acted} of {most})"
    what += f" ({title_of(ruling.rule)} {acted + 1} of {most})" if most is not None else ""
    if charge is None or state.attempt is None:
        return f"{what}, charged to no budget"
    budget = state.policy.budget(charge)
    used = state.attempt.used.get(name, 0) if budget.scope is Scope.MEMBER else state.used.get(charge, 0)
    if budget.limit is not None and used >= budget.limit:
        return f"the workload fails, since its {charge} budget is used up ({used} of {budget.limit})"
    return f"{what} ({charge} {used + 1}" + (f" of {budget.limit})" if budget.limit is not None else ")")


def _is_kueues(state: State) -> bool:
    """Whether Kueue alone resumes it; what a signal suspended, first a person does (row F8)."""
    return state.phase is Phase.SUSPENDED and awaits_kueue(state) and not state.intent.by_hand


def _unblock(spec: Workload, state: State) -> str:
    attempt, retry, cancel = state.attempt, _command("retry", spec), _command("cancel", spec)
    if state.held is not None:
        return f"{retry} removes all that is there of it and begins a new attempt; {cancel} removes it and ends"
    if state.phase is Phase.FAILED and state.kueue_admits and state.shows_waits:
        return f"delete the {spec.source.kind}, and apply it again: Kueue counts it as finished; {cancel} removes it"
    if _unserved(spec, state):
        return f"whoever operates the cluster must serve that version again (its CustomResourceDefinition); or {cancel}"
    if is_at_nothing(state):
        return f"scale it up again (`kubectl scale`), or {cancel}"
    if _is_kueues(state):
        see = f"`kubectl -n {spec.namespace} describe workloads.kueue.x-k8s.io` says what it lacks"
        return f"free quota in Kueue's queue {spec.queue}, or wait: {see}"
    if state.phase is Phase.SUSPENDED and state.intent.suspend:
        return _command("resume", spec)
    if is_staging(state) and is_paused(state):
        return f"repair the store: `holdfast doctor` says what is wrong with it; {retry} skips the pause"
    if state.reason is Reason.QUEUED and kept_out(state):
        return f"free quota in queue {spec.queue}, or wait: `holdfast queue show {spec.queue}` shows who is before it"
    if state.phase is Phase.FAILED and state.reason is Reason.REFUSED:
        beside = next((remedy for words, remedy in _BESIDE_THE_FILE.items() if words in state.message), "")
        again = f"run {retry}" if beside else "run `holdfast submit FILE --again`"
        return f"{beside or 'correct the file'}, then {_anew(spec) or again}"
    kept = attempt is not None and attempt.stage is Stage.SUBMITTED and not counted_out(state)
    if state.phase is Phase.FAILED and kept:
        return f"{retry} begins anew with its budgets renewed; {cancel} removes what is held"
    if state.phase is Phase.FAILED:
        return _anew(spec) or f"{retry} starts it again once this run has ended"
    if attempt is not None and attempt.remnants:
        finalizers = ", ".join(sorted({name for each in attempt.remnants for name in each.finalizers}))
        if finalizers:
            return let_go(spec, state, attempt, finalizers)
        if any(each.unreachable for each in attempt.remnants):
            return "a node does not answer: power it off or repair it; a process may still run there"
    if is_queued(state) or (state.reason is Reason.RESETTING and state.pause_until is not None):
        return f"{retry} skips the pause"
    full = attempt is not None and attempt.stage is Stage.SUBMITTED and any(node.required for node in attempt.avoided)
    if attempt is not None and full and not_ready(spec, state):
        return room_needed(attempt.avoided)
    if state.phase is Phase.SUCCEEDED and attempt is not None and attempt.stage is Stage.SUBMITTED:
        return f"nothing has to be done; {cancel} removes its resources now"
    failure = state.unhealthy.failure if state.unhealthy is not None else None
    if failure is not None and failure.reason not in _REMEDIES:
        return ""
    waiting = _waiting(spec, state)
    if waiting:
        return _UNBLOCKS.get(waiting[0].reason, _DESCRIBE).format(pod=waiting[0].subject, ns=spec.namespace)
    return _REMEDIES[failure.reason] if failure is not None else ""


def _anew(spec: Workload) -> str:
    """Return what runs anew what has ended, where `holdfast retry` and `submit --again` do not; else empty."""
    if spec.source.generation is not None:
        return f"delete the {spec.source.kind}, and apply it again"
    return "submit its graph again, once that has ended" if spec.graph is not None else ""


def _command(verb: str, spec: Workload) -> str:
    """Return a command as a person pastes it; of two workloads of one name it names the one that is meant."""
    return f"`holdfast {verb} {spec.workflow_id.removeprefix(f'workload/{spec.cluster}/')}`"


def markdown(explanation: Explanation) -> str:
    """Return the explanation as the Temporal UI shows it (Markdown, current details)."""
    arrow = f" → {explanation.next_attempt}" if explanation.next_attempt is not None else ""
    budgets = ", ".join(each.sentence() for each in explanation.budgets)
    lines = [
        f"### {explanation.name}: {explanation.phase.value} ({explanation.reason.value})",
        *_last_cause(explanation),
        f"attempt {explanation.attempt}{arrow} · budgets: {budgets} · since {explanation.since:%Y-%m-%d %H:%M:%S} UTC",
        "",
        f"- **why** {escaped(explanation.why)}",
        f"- **now** {escaped(explanation.now)}",
    ]
    lines += [f"- **next** {each.at:%Y-%m-%d %H:%M:%S} UTC {escaped(each.sentence())}" for each in explanation.next]
    if explanation.kept:
        lines.append(f"- **kept** {escaped(explanation.kept)}")
    if explanation.unblock:
        lines.append(f"- **to unblock** {escaped(explanation.unblock)}")
    if explanation.causes:
        lines += ["", "| time (UTC) | attempt | reason | what happened |", "|---|---|---|---|"]
        lines += [
            f"| {each.time:%m-%d %H:%M:%S} | {each.attempt} | {each.reason.value} | {escaped(each.message)} |"
            for each in reversed(explanation.causes)
        ]
    return "\n".join(lines)


def _last_cause(explanation: Explanation) -> list[str]:
    """Return the line of what last went wrong, and an empty one; nothing if `why` says it already (row E9)."""
    last = next((cause for cause in reversed(explanation.causes) if cause.reason in WARNINGS), None)
    if last is None or last.message in explanation.why:
        return []
    when = f"{last.time:%Y-%m-%d %H:%M:%S} UTC, attempt {last.attempt}"
    return [f"**last cause** {last.reason.value}: {escaped(last.message)} ({when})", ""]
