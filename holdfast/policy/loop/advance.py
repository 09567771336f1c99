"""One step of a workload's life: assess, decide, change the phase, and return what to carry out next."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from holdfast.model import (
    AtEnd,
    Attempt,
    Held,
    Operation,
    OperationKind,
    Parking,
    Phase,
    Reason,
    Report,
    Stage,
    State,
    Workload,
)
from holdfast.model.words import counted
from holdfast.policy.attempt import barrier
from holdfast.policy.attempt.checkpoint import ask, checkpoint_request, due_at, expire
from holdfast.policy.attempt.copies import forgiven, restarted, restarts_of_all, titles_again
from holdfast.policy.attempt.ending import is_clearing
from holdfast.policy.attempt.health import LIVE, REMOVING, current, removal_due, timings
from holdfast.policy.attempt.order import first_waiting
from holdfast.policy.attempt.park import asleep_from_the_first, is_unseen, park, unpark
from holdfast.policy.attempt.replace import joined, replaced_at
from holdfast.policy.attempt.requeue import next_cycle
from holdfast.policy.attempt.settle import enter
from holdfast.policy.failures.avoided_nodes import down_in, exclude, standing
from holdfast.policy.failures.rules import title_of
from holdfast.policy.loop.operations import creates_at_once, is_timed, patience, promise
from holdfast.policy.loop.promise import assessed, is_same, promised
from holdfast.policy.sides.gang import met
from holdfast.policy.sides.staging import fetching, skipped
from holdfast.policy.status.audit import audited
from holdfast.policy.status.report import landmarks, overrun_in, quota_in, report_of, shows_copies
from holdfast.policy.status.waits import anchored_at, says_another_reason
from holdfast.policy.values.decision import (
    Cancel,
    Checkpoint,
    Clear,
    Create,
    Decision,
    Expire,
    Fail,
    Fetch,
    Hold,
    Ignore,
    Look,
    Release,
    Replace,
    Restart,
    Resubmit,
    Retry,
    Start,
    Succeed,
    Suspend,
    Unpark,
    Wait,
)
from holdfast.policy.values.edit import edit
from holdfast.policy.values.record import cause
from holdfast.policy.values.steps import End, Interrupt, Run, Sleep, Step
from holdfast.policy.verdicts.budgets import charged
from holdfast.policy.verdicts.decide import decide
from holdfast.policy.verdicts.hold import hold
from holdfast.policy.verdicts.poison import after
from holdfast.policy.verdicts.walltime import ends_at

FIRST_FORCED_ROUND = timedelta(seconds=30)
LATER_FORCED_ROUND = timedelta(minutes=10)
_REMOVALS = {OperationKind.REMOVE, OperationKind.FORCE_REMOVE}
_KEEPS_PROMISE = {*_REMOVALS, OperationKind.PARK}


class Taken(NamedTuple):
    """One decision, the state it was taken in, and the state it leads to."""

    decision: Decision
    before: State
    after: State


def decisions(spec: Workload, state: State, now: datetime) -> Iterator[Taken]:
    """Yield the decisions to take now, in order; the last one leaves the state unchanged.

    A decision that changes the state can enable another. For example, the suspension of a workload that has nothing in
    the cluster completes at once. So the loop decides again until a decision no longer changes the state.
    """
    state = next_cycle(state, now)
    while True:
        before = state
        ready = assessed(spec, state, now)
        decision = decide(spec, ready, now)
        state = _apply(spec, ready, decision, now)
        yield Taken(decision, ready, state)
        if state is before or state == before:
            return


def _apply(spec: Workload, state: State, decision: Decision, now: datetime) -> State:
    """Return the state after a decision."""
    match decision:
        case Fetch():
            return fetching(state, decision, now)
        case Create():
            return _create(spec, state, now)
        case Restart():
            return restart(after(spec, state, decision.failure), decision, now)
        case Resubmit(why):
            why = f"{state.attempt.submission}: {why}" if state.attempt is not None else why
            state = cause(state, Reason.SUBMISSION_FAILED, why, now)
            state = enter(state, Phase.RESETTING, Reason.SUBMISSION_FAILED, why, now)
            return _begin_removal(state, now, pause_after=False)
        case Replace():
            return _replace(spec, state, decision, now)
        case Start(names, why):
            return _start(state, names, why, now)
        case Hold(why, rule):
            number = state.attempt.number if state.attempt is not None else 0
            if rule and state.held is None:
                state = hold(state, why, number, now, rule)
            elif state.held is None and state.reason is not Reason.HELD:
                state = cause(state, Reason.HELD, why, now)
            return enter(state, Phase.PENDING, Reason.HELD, why, now)
        case Checkpoint(reason, why):
            return enter(ask(spec, state, decision, now), Phase.CHECKPOINTING, reason, why, now)
        case Expire(_, why):
            state = expire(state, decision, now)
            state = enter(state, Phase.CHECKPOINTING, Reason.WALLTIME_EXCEEDED, why, now)
            return _begin_removal(state, now, pause_after=False)
        case Suspend(reason, why, True, kill):
            state = enter(edit(state, pause_until=None), Phase.SUSPENDING, reason, why, now)
            return park(spec, state, now, kills=kill)
        case Unpark(names, why):
            # The first components move a suspended workload to Resuming; others follow while it is Resuming or Running.
            phase = Phase.RESUMING if state.phase is not Phase.RUNNING else Phase.RUNNING
            return enter(unpark(spec, state, names), phase, Reason.RESUMED, why, now)
        case Suspend(reason, why):
            state = edit(state, pause_until=None)
            if state.attempt is None or state.attempt.stage is Stage.GONE:
                return enter(state, Phase.SUSPENDED, reason, why, now)
            state = enter(state, Phase.SUSPENDING, reason, why, now)
            state = _begin_removal(state, now, pause_after=False)
            return _forced(state, now) if decision.kill else state
        case Fail(reason, failure, why):
            state = edit(_answered(state), outcome=Phase.FAILED, outcome_failure=failure, unhealthy=None)
            state = cause(enter(state, Phase.FAILED, reason, why, now), reason, why, now)
            attempt = state.attempt
            if attempt is not None and (not state.anchored or _is_refused_first(spec, state, attempt)):
                # The attempt was refused before any of its objects was created.
                return edit(state, attempt=edit(attempt, stage=Stage.GONE, gone_at=now))
            if reason is Reason.WALLTIME_EXCEEDED and state.policy.deletion.at_end is AtEnd.ALL:
                return _begin_removal(state, now, pause_after=False)
            return _hold(state, timings(state).deletion_on_failure_grace_period, now)
        case Succeed(why):
            # It is removed after its TTL, and not for a preemption that was asked for meanwhile.
            state = edit(_answered(state), outcome=Phase.SUCCEEDED, unhealthy=None, preempted_at=None)
            state = cause(enter(state, Phase.SUCCEEDED, Reason.COMPLETED, why, now), Reason.COMPLETED, why, now)
            return _hold(state, timings(state).success_ttl, now)
        case Clear(components, why):
            return _clear(state, components, why, now)
        case Cancel(reason, why):
            state = edit(state, outcome=Phase.CANCELLED, pause_until=None)
            state = enter(state, Phase.TERMINATING, reason, why, now)
            return _begin_removal(state, now, pause_after=False)
        case Release(reason, why):
            state = edit(state, hold_until=None)
            state = cause(state, reason, why, now)
            if state.held is not None and state.outcome is not None:
                state = enter(state, state.outcome, reason, why, now)
            return _begin_removal(state, now, pause_after=False)
        case Retry(why):
            return _retry(state, why, now)
        case Ignore() | Wait() | Look():
            return state


def _is_refused_first(spec: Workload, state: State, attempt: Attempt) -> bool:
    """Whether a workload that had its Anchor already was refused at its first attempt: it ends as without one."""
    return (
        state.shows_waits
        and spec.source.generation is None
        and attempt.number == 1
        and attempt.launch_failure is not None
        and not attempt.owner_uid
    )


def _answered(state: State) -> State:
    """Return the state without a hold that was set because the workload is sensitive."""
    return edit(state, held=None) if state.held is not None and state.held.rule else state


def _hold(state: State, span: timedelta | None, now: datetime) -> State:
    """Keep a settled workload's resources for `span`: None keeps them forever, zero begins their removal now."""
    if span is None:
        return state
    if span <= timedelta(0):
        return _begin_removal(state, now, pause_after=False)
    return edit(state, hold_until=now + span)


def _clear(state: State, components: tuple[str, ...], why: str, now: datetime) -> State:
    """Begin to delete the active components of a settled workload, if there are any."""
    attempt = state.attempt
    assert attempt is not None
    if not components:
        return edit(state, attempt=edit(attempt, cleared=True))
    state = edit(
        state,
        attempt=edit(
            attempt, clearing_at=now, cleared=False, replacing=(), replacing_copies={}, parked=(), resuming=()
        ),
    )
    return cause(state, Reason.DELETION_INITIATED, why, now)


def _create(spec: Workload, state: State, now: datetime) -> State:
    number = state.attempt.number + 1 if state.attempt is not None else 1
    excluded = standing(state.excluded, state.policy.exclusion, now)
    saved = state.saved.uri if state.saved is not None else ""
    waiting = first_waiting(spec)
    asleep = state.intent.suspend
    attempt = Attempt(
        number=number,
        unlike_restarts=number - 1 - restarts_of_all(state),
        begun_at=now,
        avoided=excluded,
        waiting=waiting,
        resume_from=saved,
        meeting=met(spec),
        barrier=barrier.first(spec, state, now),
    )
    state = edit(
        state,
        attempt=asleep_from_the_first(spec, attempt) if asleep else attempt,
        excluded=excluded,
        executions=state.executions + 1,
        observation=None,
        looked_at=None,
        unhealthy=None,
        pause_until=None,
        intent=edit(state.intent, retry=False),
    )
    if asleep:
        return enter(state, Phase.SUSPENDING, state.intent.suspend_reason, f"creating attempt {number} suspended", now)
    why = f"creating attempt {number}" + (f", which goes on from {saved}" if saved else "")
    return enter(state, Phase.RESUMING, Reason.CREATING, why, now)


def restart(state: State, decision: Restart, now: datetime) -> State:
    """Return the state after the decision to remove an attempt and begin the next one."""
    charge, why = decision.charge, f"{decision.failure.sentence()} ({title_of(decision.rule)})"
    state, avoided = exclude(state, decision.exclude, now)
    if avoided:
        why += f"; the next attempt {avoided}"
    if decision.recreated:
        why += f"; it is recreated, since {decision.recreated}"
    state = charged(state, charge, now, requeue=decision.requeue)
    if decision.limited:
        state = edit(state, acted={**state.acted, decision.rule: state.acted.get(decision.rule, 0) + 1})
    reason = Reason.REQUEUED if decision.requeue else Reason.RESETTING
    if decision.requeue:
        state = edit(state, requeues=state.requeues + 1)
    state = cause(edit(state, restarts=state.restarts + 1), reason, why, now)
    state = enter(state, Phase.RESETTING, reason, why, now)
    if decision.in_place:
        return barrier.restart(state, now)
    return _begin_removal(state, now, pause_after=True, pause=decision.pause, requeue=decision.requeue)


def _replace(spec: Workload, state: State, decision: Replace, now: datetime) -> State:
    attempt = state.attempt
    assert attempt is not None
    whole = tuple(name for name in decision.components if name not in {one.component for one in decision.copies})
    launches = {name: attempt.launches.get(name, 0) + 1 for name in whole}
    missed = {name: attempt.missed.get(name, 0) + 1 for name in decision.missed}
    again = [name for name in whole if name in decision.ruled and name not in decision.missed]
    ruled = {name: attempt.ruled.get(name, 0) + 1 for name in again}
    used = {name: attempt.used.get(name, 0) + decision.charged.count(name) for name in decision.charged}
    state, avoided = exclude(state, decision.exclude, now)
    attempt = edit(
        joined(attempt, whole, ((one.component, one.index) for one in decision.copies)),
        told=None if attempt.told is not None and attempt.told.component in decision.components else attempt.told,
        avoided=state.excluded,
        replaced_at=now,
        replaced=replaced_at(attempt, decision.components, now),
        launches={**attempt.launches, **launches},
        missed={**attempt.missed, **missed},
        ruled={**attempt.ruled, **ruled},
        used={**attempt.used, **used},
        warming={**attempt.warming, **dict.fromkeys(decision.components, now)},
        resume_from=state.saved.uri if state.saved is not None else attempt.resume_from,
    )
    charged = dict(state.used)
    for charge in decision.charges:
        charged[charge] = charged.get(charge, 0) + 1
    acted = dict(state.acted)
    for rule in decision.limited:
        acted[rule] = acted.get(rule, 0) + 1
    if decision.ruled:
        # Other failures are assessed again, after a new live look.
        restarts = state.restarts + len(decision.ruled) - len(decision.missed)
        state = edit(state, used=charged, acted=acted, restarts=restarts)
        state = edit(state, looked_at=None, unhealthy=None, fall=decision.fall or state.fall)
    if decision.copies:
        state = edit(state, copy_restarts=restarted(state, decision.copies, now))
    state = edit(state, attempt=attempt)
    why = f"{decision.why}; what is made again {avoided}" if avoided else decision.why
    state = cause(state, Reason.REPLACING, why, now)
    return enter(state, state.phase, Reason.REPLACING, why, now)


def _start(state: State, names: tuple[str, ...], why: str, now: datetime) -> State:
    """Have components created whose turn has come: the replace operation creates them, as their launch 0."""
    attempt = state.attempt
    assert attempt is not None
    left = tuple(name for name in attempt.waiting if name not in names)
    state = edit(state, attempt=edit(joined(attempt, names), waiting=left))
    state = cause(state, Reason.STARTING, why, now)
    return enter(state, state.phase, Reason.STARTING, why, now)


def _retry(state: State, why: str, now: datetime) -> State:
    """Start over: end a pause early; for a failed workload, also reset its budgets and its excluded nodes."""
    state = skipped(edit(state, intent=edit(state.intent, retry=False), pause_until=None))
    if state.held is not None and state.outcome is None:
        state = enter(state, Phase.RESETTING, Reason.RETRY_REQUESTED, why, now)
        return _begin_removal(state, now, pause_after=False)
    if state.outcome is not Phase.FAILED:
        return state
    state = edit(state, outcome=None, outcome_failure=None, hold_until=None, used={}, acted={}, excluded=(), fall=None)
    state = edit(state, copy_restarts=forgiven(state.copy_restarts))
    state = enter(state, Phase.RESETTING, Reason.RETRY_REQUESTED, why, now)
    return _begin_removal(state, now, pause_after=False)


def _begin_removal(
    state: State, now: datetime, *, pause_after: bool, pause: timedelta | None = None, requeue: bool = False
) -> State:
    state = _answered(state)
    if state.held is not None:
        state = _unhold(state, state.held, now)
    attempt = state.attempt
    if attempt is None or attempt.stage is Stage.GONE:
        return state
    if attempt.stage in LIVE:
        attempt = edit(attempt, stage=Stage.REMOVING, removing_at=now, stranded=down_in(current(state)))
    attempt = edit(attempt, pause_after=pause_after, pause=pause, requeue=requeue, replacing=(), interrupted="")
    attempt = edit(attempt, parking=None, parking_at=None, parked=(), resuming=(), barrier=None)
    return edit(state, attempt=attempt, unhealthy=None)


def _forced(state: State, now: datetime) -> State:
    """Force the removal under way, so that its pods get no grace."""
    attempt = state.attempt
    if attempt is None or attempt.stage is not Stage.REMOVING:
        return state
    state = edit(state, attempt=edit(attempt, stage=Stage.FORCING))
    why = f"its pods have not saved their state: attempt {attempt.number} is removed without grace"
    return cause(state, Reason.DELETION_FORCED, why, now)


def _unhold(state: State, held: Held, now: datetime) -> State:
    """End a hold at a user's request, and prepare to remove every attempt of the workload, also unknown ones.

    The attempt takes the highest number found in the cluster, so that the next attempt has a higher one than all.
    """
    attempt = state.attempt or Attempt(number=max(1, held.newest), begun_at=now)
    attempt = Attempt(number=max(attempt.number, held.newest), begun_at=attempt.begun_at, everything=True)
    return edit(state, held=None, attempt=attempt, anchored=True, in_doubt=False, observation=None, looked_at=None)


def step_of(spec: Workload, state: State, decision: Decision, now: datetime) -> Step:
    """Return what to carry out, given the operation that is already under way."""
    step, until = _step(spec, state, decision, now), ends_at(state)
    if isinstance(step, Sleep) and until is not None and now < until and (step.until is None or until < step.until):
        # The walltime runs on during every wait. It does not apply to a workload held for a contradiction.
        return (
            Sleep(until, f"walltime: it is stopped then; now: {step.why}")
            if state.held is None or state.held.rule
            else step
        )
    return step


def _step(spec: Workload, state: State, decision: Decision, now: datetime) -> Step:
    if state.operation is not None and state.operation.kind is OperationKind.RESET:
        return _resetting(spec, state, state.operation, now)
    if state.unsettled is not None:
        number = state.unsettled.attempt
        return Run(OperationKind.RESET, f"settling whether the removal of attempt {number} has begun, looking if not")
    wanted = audited(spec, state, _wanted(spec, state, decision, now))
    running = state.operation
    if running is None:
        return wanted
    if isinstance(decision, Hold) and not running.interrupted and running.kind is not OperationKind.REPORT:
        return Interrupt(f"breaking off {running.kind.value}: {decision.why}")
    if running.kind is OperationKind.CHECKPOINT and not running.interrupted and checkpoint_request(state) is None:
        return Interrupt("interrupting checkpoint: it is no longer needed")
    if running.kind is OperationKind.STAGE and not running.interrupted and not isinstance(decision, Fetch):
        return Interrupt("breaking off stage: nobody waits for it any more")
    match wanted:
        case Run(kind) if kind is running.kind and not running.interrupted:
            if kind is OperationKind.CHECKPOINT and wanted.until != running.until:
                return Interrupt("beginning checkpoint anew, since its deadline has changed")
            if kind is OperationKind.CHECKPOINT and isinstance(decision, Wait):
                return Sleep(decision.until, decision.why)
            if kind is OperationKind.REPLACE and _launches(state) != (running.launches, running.copies):
                return Interrupt(f"beginning anew with {titles_again(spec, state.attempt) if state.attempt else ''}")
            if kind in {OperationKind.REPLACE, OperationKind.BARRIER} and isinstance(decision, Wait):
                return Sleep(decision.until, wanted.why)
            anew = kind is OperationKind.CLEAR and state.shows_waits
            if anew and isinstance(decision, Wait) and decision.until != running.until:
                return Sleep(decision.until, wanted.why)
            if is_timed(spec, state, kind) and patience(state) != running.patience:
                return Interrupt(f"beginning {kind.value} anew, since the submission timeout has changed")
            if kind is OperationKind.FORCE_REMOVE and _strips(state) and not running.strips:
                return Interrupt("beginning the forced removal anew, since finalizers are to be taken off")
            if kind in _KEEPS_PROMISE and not is_promise_kept(promise(spec, state, now), running.report_done):
                # The state that follows the operation has changed. At its end it must not report an outdated status.
                return Interrupt(f"beginning {kind.value} anew, since something else is to follow it")
            return Sleep(None, wanted.why)
        case Run() | End() if running.kind not in _REMOVALS and not running.interrupted:
            return Interrupt(f"breaking off {running.kind.value}: {_why(wanted)}")
        case Sleep():
            return wanted
        case _:
            return Sleep(None, f"waiting for {running.kind.value} to end")


def _resetting(spec: Workload, state: State, running: Operation, now: datetime) -> Step:
    """Break a reset off if what it promised no longer holds; decide only once it has ended."""
    if not (running.interrupted or running.settles):
        wanted = promised(spec, edit(state, operation=None), now)
        if wanted is None or running.restart is None or not is_same(wanted, running.restart):
            return Interrupt("breaking off reset: something else is to be decided")
    return Sleep(None, "waiting for reset to end")


def _launches(state: State) -> tuple[dict[str, int], dict[str, tuple[int, ...]]]:
    """Return the launch number to make next of each component that is being replaced, and of which copies alone."""
    attempt = state.attempt
    if attempt is None:
        return {}, {}
    return {name: attempt.launches.get(name, 0) for name in attempt.replacing}, attempt.replacing_copies


def _strips(state: State) -> bool:
    return state.attempt is not None and state.attempt.strip


def is_promise_kept(now: Report | None, then: Report | None) -> bool:
    """Whether the status promised when an operation began is still the one that its success would lead to."""
    return now is not None and now.says_the_same_as(then)


def _why(step: Step) -> str:
    return step.why if not isinstance(step, End) else step.outcome.value


def _wanted(spec: Workload, state: State, decision: Decision, now: datetime) -> Step:
    """Return what to carry out if no operation is under way."""
    attempt = state.attempt
    if isinstance(decision, Hold):
        until = "a person says retry or cancel" if state.held is not None else "it is scaled up again"
        return _report(spec, state, decision, now) or Sleep(None, f"held until {until}: {decision.why}")
    if attempt is not None and attempt.stage in REMOVING:
        return _removal(state, attempt, now)
    if state.outcome is not None and (attempt is None or attempt.stage is Stage.GONE):
        if state.anchored:
            number = attempt.number if attempt is not None else 0
            why = f"proving that attempt {number} is gone and letting go of the anchor"
            return Run(OperationKind.REMOVE, why, now + LATER_FORCED_ROUND)
        return End(state.outcome)
    if attempt is not None and is_clearing(state):
        why = f"deleting what is still active of attempt {attempt.number}; what has ended is kept"
        return Run(OperationKind.CLEAR, why, state.hold_until)
    if attempt is not None and state.outcome is None and attempt.launch_failure is None:
        count = len(spec.components) - len(attempt.waiting)
        what = counted(count, "component")
        if attempt.stage is Stage.PLANNED or (attempt.stage is Stage.PREPARED and not attempt.owner_uid):
            then = f"creating {what}" if creates_at_once(spec, state) else "making the owner"
            return Run(OperationKind.PREPARE, f"checking rights and {then} of attempt {attempt.number}")
        if attempt.stage is Stage.PREPARED:
            return Run(OperationKind.CREATE, f"creating {what} of attempt {attempt.number}")
        if attempt.parking is Parking.GOING and not is_unseen(state):
            what = spec.titles(attempt.parked)
            return Run(OperationKind.PARK, f"suspending {what} of attempt {attempt.number} in place")
        if attempt.parking is Parking.COMING or attempt.resuming:
            what = spec.titles(attempt.resuming) or "what is left"
            return Run(OperationKind.UNPARK, f"resuming {what} of attempt {attempt.number} in place")
        if attempt.suspended:
            return _idle(spec, state, decision, now)
        request = checkpoint_request(state)
        first = state.intent.suspend or not attempt.replacing
        if request is not None and first and not isinstance(decision, Look):
            why = f"checkpoint {request.number}: asking the pods of attempt {attempt.number} to save their state"
            # It also returns when the walltime ends. Otherwise only another event would make the workflow notice that.
            until = min(filter(None, (due_at(spec, state, request), ends_at(state))))
            return Run(OperationKind.CHECKPOINT, why, until)
        if attempt.replacing and not isinstance(decision, Look):
            what, (launches, copies) = titles_again(spec, attempt), _launches(state)
            doing = "making again" if copies or any(launches.values()) else "creating"
            return Run(OperationKind.REPLACE, f"{doing} {what} of attempt {attempt.number}")
        gate = attempt.barrier
        if gate is not None and not gate.is_lifted and not isinstance(decision, Look):
            doing = "restarting" if attempt.is_restarting else "starting"
            return Run(OperationKind.BARRIER, f"{doing} the programs of attempt {attempt.number} together", gate.until)
    return _idle(spec, state, decision, now)


def _idle(spec: Workload, state: State, decision: Decision, now: datetime) -> Step:
    """Return what to do when nothing is to change in the cluster: look, report, stage data sets, or wait."""
    if isinstance(decision, Look):
        restarts = promised(spec, state, now) if decision.decides else None
        if restarts is not None:
            return Run(OperationKind.RESET, decision.why, decides=True, restart=restarts)
        return Run(OperationKind.OBSERVE, decision.why, decides=decision.decides)
    telling = _report(spec, state, decision, now)
    if telling is not None:
        return telling
    if isinstance(decision, Fetch):
        return Run(OperationKind.STAGE, decision.why)
    match decision:
        case Wait(until, why):
            return Sleep(until, why)
        case Ignore(why):
            return Sleep(anchored_at(state, decision), why)
        case _:
            return Sleep(None, "nothing is left to decide")


_PASSING = frozenset({Reason.REPLACING, Reason.STARTING})
"""Reasons that pass within a phase: once another reason follows, the status is reported again."""


def _report(spec: Workload, state: State, decision: Decision, now: datetime) -> Step | None:
    """Return a report operation if the status changed too much to wait for the next operation, else None."""
    if not state.anchored:
        due = anchored_at(state, decision)
        what = f"{state.phase.value} ({state.reason.value})"
        return Run(OperationKind.REPORT, f"showing it in the cluster: {what}") if due and due <= now else None
    if state.owed is not None:
        return Run(OperationKind.REPORT, "telling the cluster what was found, since nothing follows from it yet")
    told, last = report_of(spec, state), state.told
    if last is not None and told.phase is last.phase and not says_another_reason(state, told, last):
        if state.outcome is Phase.SUCCEEDED and quota_in(last) and not quota_in(told):
            return Run(OperationKind.REPORT, "telling the cluster: its last pod has ended, and it holds no quota")
        begun = state.shows_waits
        if shows_copies(spec) and landmarks(told, all_active=begun) != landmarks(last, all_active=begun):
            return Run(OperationKind.REPORT, "telling the cluster how its Jobs stand")
        if overrun_in(told) != overrun_in(last):
            return Run(OperationKind.REPORT, "telling the cluster whether it asks for more pods than its quota is for")
        if last.reason not in _PASSING or told.reason in _PASSING:
            return None
    return Run(OperationKind.REPORT, f"telling the cluster: {state.phase.value}")


def _removal(state: State, attempt: Attempt, now: datetime) -> Step:
    if attempt.stage is Stage.FORCING:
        span = FIRST_FORCED_ROUND if attempt.forced_rounds == 0 else LATER_FORCED_ROUND
        return Run(OperationKind.FORCE_REMOVE, f"forcing out what is left of attempt {attempt.number}", now + span)
    until = removal_due(state, attempt, now)
    return Run(OperationKind.REMOVE, f"deleting attempt {attempt.number} and proving it gone", until)
