"""The one decision function: what happens to this workload now.

Precedence: user delete > held, unless it is retried > walltime > success > suspend and preempt > failure rules >
membership.
"""

from __future__ import annotations

from datetime import datetime

from holdfast.model import (
    DEADLINE_EXCEEDED,
    ActionKind,
    AtEnd,
    Attempt,
    Failure,
    FailureClass,
    Held,
    Observation,
    OperationKind,
    Phase,
    Reason,
    RestartMode,
    Scope,
    Stage,
    State,
    Workload,
)
from holdfast.model.life.state import STANDSTILL
from holdfast.model.words import counted, with_note
from holdfast.policy.attempt.barrier import recreates
from holdfast.policy.attempt.checkpoint import before_suspension, checkpoint_request, expired, kills, may_ask
from holdfast.policy.attempt.ending import clearing
from holdfast.policy.attempt.health import (
    REMOVING,
    admission_due,
    awaited,
    coming_back,
    current,
    failures,
    insufficiency,
    lateness,
    warmup_due,
)
from holdfast.policy.attempt.order import met, returning, turn
from holdfast.policy.attempt.park import begins_suspended, parked, parks
from holdfast.policy.attempt.replace import Due, due_replacements
from holdfast.policy.attempt.requeue import CYCLE, is_queued, kept_out, place
from holdfast.policy.attempt.scale import at_nothing
from holdfast.policy.attempt.success import judged, reached
from holdfast.policy.failures.avoided_nodes import blamed, blamed_for, heeded
from holdfast.policy.failures.back_off import own_until
from holdfast.policy.failures.first_cause import as_recorded, with_death
from holdfast.policy.failures.rules import Ruling, rule_on, title_of
from holdfast.policy.sides.staging import stage
from holdfast.policy.values.decision import (
    Cancel,
    Checkpoint,
    Create,
    Decision,
    Expire,
    Fail,
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
from holdfast.policy.verdicts.fate import open_fate
from holdfast.policy.verdicts.poison import pointless
from holdfast.policy.verdicts.restart import backs_off, due_at, is_alone, over_limit, restarted_alone
from holdfast.policy.verdicts.walltime import over, walltime


def decide(spec: Workload, state: State, now: datetime) -> Decision:
    """Return what to do now. Pure: the same spec, state and time always give the same decision."""
    resets = state.operation is not None and state.operation.kind is OperationKind.RESET
    if resets or state.unsettled is not None:
        return Ignore("its reset is under way: what else is to be decided is decided at its end")
    if state.held is not None and not (state.intent.cancel or state.intent.retry):
        return _held(spec, state, state.held, now)
    if state.outcome is not None:
        return _settled(spec, state, now)
    if state.held is not None and state.intent.retry and not state.intent.cancel:
        return Retry(state.intent.note or "a person asked to remove what is there and begin anew")
    if state.intent.cancel:
        return Cancel(state.intent.cancel_reason, with_note("its deletion was asked for", state.intent.note))
    unsaved = expired(state)
    if unsaved is not None:
        return Fail(Reason.WALLTIME_EXCEEDED, *unsaved)
    exceeded = over(spec, state, now)
    if isinstance(exceeded, Fail) and checkpoint_request(state) is not None:
        return Expire(exceeded.failure, exceeded.why)
    if exceeded is not None:
        return exceeded
    attempt = state.attempt
    removing = attempt is not None and attempt.stage in REMOVING
    if state.intent.suspend and state.phase not in {Phase.SUSPENDED, Phase.SUSPENDING}:
        why = state.intent.why_suspended
        # A workload that has succeeded has freed its place: there is nothing to save or suspend, and what is complete
        # would be deleted and run again (rows L32, J14). Runs of earlier releases go on as they began.
        done = _succeeded(spec, state) if state.shows_waits or spec.checkpoint is not None else ""
        if done:
            return Succeed(done)
        first = before_suspension(spec, state, now, why)
        if first is not None:
            return first
        return Suspend(state.intent.suspend_reason, why, in_place=parks(spec, state), kill=kills(spec, state))
    if removing:
        return Ignore("its removal is under way")
    if attempt is None or attempt.stage is Stage.GONE:
        return _absent(spec, state, now)
    if attempt.suspended:
        return parked(spec, state)
    return _living(spec, state, now)


def _succeeded(spec: Workload, state: State) -> str:
    seen = current(state)
    return reached(spec, state, seen, {one.component for one in due_replacements(spec, state, seen)})


def _held(spec: Workload, state: State, held: Held, now: datetime) -> Decision:
    """Decide for a workload held for a user: one held for a contradiction is never touched, not even by its walltime.

    A workload held because it is sensitive may still succeed, and its walltime runs on.
    """
    if not held.rule:
        return Hold(held.why)
    succeeded = _succeeded(spec, state)
    return Succeed(succeeded) if succeeded else over(spec, state, now) or Hold(held.why, held.rule)


def _settled(spec: Workload, state: State, now: datetime) -> Decision:
    """Decide for a workload whose outcome is settled: keep its resources or release them (rows A12, A13, A16)."""
    attempt = state.attempt
    if state.held is not None:
        if state.intent.retry and not state.intent.cancel and state.outcome is Phase.FAILED:
            return Retry(state.intent.note or "a person asked to remove what is there and begin anew")
        return Release(Reason.CANCEL_REQUESTED, state.intent.note or "a person asked to remove what is there")
    if attempt is None or attempt.stage in {Stage.REMOVING, Stage.FORCING, Stage.GONE}:
        return Ignore("its outcome is settled")
    if state.intent.retry and state.outcome is Phase.FAILED:
        return Retry(state.intent.note or "a person asked for another try")
    if state.intent.cancel:
        return Release(Reason.CANCEL_REQUESTED, "its deletion was asked for")
    # What a JobSet keeps stays, as after its success (row J12). Runs of earlier releases go on as they began.
    keeps = state.shows_waits and state.policy.deletion.at_end is AtEnd.ACTIVE
    if state.intent.suspend and state.outcome is Phase.FAILED and not keeps:
        return Release(state.intent.suspend_reason, "its suspension was asked for")
    if state.hold_until is None or now < state.hold_until:
        active = clearing(spec, state)
        if active is not None:
            return active
    if state.hold_until is not None and now < state.hold_until:
        return Wait(state.hold_until, _held_for(state))
    if state.hold_until is None:
        return Ignore("its resources stay until somebody cancels it")
    return Release(Reason.TTL_EXPIRED, f"{_held_for(state)} is over: its resources are removed")


def _held_for(state: State) -> str:
    """Name the time for which the resources of a settled workload are held."""
    return "success TTL" if state.outcome is Phase.SUCCEEDED else "deletion-on-failure grace"


def _absent(spec: Workload, state: State, now: datetime) -> Decision:
    """Decide for a workload that has nothing in the cluster."""
    if state.intent.suspend:
        if state.in_doubt and state.phase is Phase.SUSPENDED:
            return Look("news came of an attempt that was proven gone: checking the cluster directly")
        if begins_suspended(spec, state):
            return Create("nothing of it is in the cluster: it is created suspended")
        return Ignore("it is suspended")
    if state.blocked:
        return Ignore(state.blocked)
    if state.pause_until is not None and now < state.pause_until:
        if state.intent.retry:
            return Retry(state.intent.note or "a person asked not to wait")
        return Wait(state.pause_until, place(spec, state) if is_queued(state) else "retry pause")
    if is_queued(state):
        return Wait(now + CYCLE, place(spec, state))
    staged = stage(spec, state, now)
    if staged is not None:
        return staged
    waits = kept_out(state)
    if waits:
        return Ignore(waits)
    return Create("nothing of it is in the cluster")


def _living(spec: Workload, state: State, now: datetime) -> Decision:
    """Decide for an attempt that is being created or has been submitted."""
    attempt = state.attempt
    assert attempt is not None
    if attempt.interrupted:
        return Resubmit(attempt.interrupted)
    if attempt.is_restarting:
        return Ignore("its pods restart in place")
    seen = current(state)
    due = due_replacements(spec, state, seen)
    succeeded = reached(spec, state, seen, {one.component for one in due})
    if succeeded:
        return Succeed(succeeded)
    refusal = attempt.launch_failure
    if refusal is not None and refusal.reason in {Reason.REFUSED, Reason.SUBMISSION_TIMEOUT}:
        return Fail(Reason(refusal.reason), refusal, refusal.message)
    found = judged(spec, state, seen, failures(spec, state, now))
    ruled = _ruled(spec, state, found, now) if found else None
    if isinstance(ruled, Restart | Fail):
        return ruled
    if attempt.resuming or attempt.parking is not None:
        return Ignore("its components are being resumed")
    if isinstance(ruled, Replace):
        return ruled
    begun = turn(spec, state, seen, {one.component for one in due})
    if begun and not isinstance(ruled, Look):
        return Start(begun, met(spec, begun))
    back = returning(spec, state, seen, {one.component for one in due})
    if back and not attempt.replacing and not isinstance(ruled, Look):
        return Unpark(back, met(spec, back, "resuming"))
    replaced = _replaced(spec, state, due, now) if due else None
    if replaced is not None and not (isinstance(replaced, Wait) and ruled is not None):
        return replaced
    if ruled is not None:
        return ruled
    # A replacement may wait forever while other components run. A live look for a doubt comes only after STANDSTILL.
    making, doubt = bool(attempt.replacing), attempt.stage is Stage.SUBMITTED and state.in_doubt
    patient = state.operation.since + STANDSTILL if state.operation is not None else now
    late = now >= patient and (seen is not None or (state.shows_waits and state.operation is not None))
    if doubt and (not making or late or (seen is None and attempt.parted)):
        if seen is None:
            return Look("nothing is known yet of what has just been made: checking the cluster directly")
        return Look("a snapshot came that may be old or new: checking the cluster directly")
    idle = at_nothing(spec, state, seen) if state.operation is None and not making else ""
    if idle:
        return Hold(idle)
    waiting = _waiting(spec, state, seen, now)
    if making and doubt and (waiting is None or patient < waiting.until):
        return Wait(patient, "the cluster is checked then, if some are still being made again")
    if making:
        return waiting or Ignore("some of its components are being made again")
    if waiting is None and state.intent.checkpoint and checkpoint_request(state) is None and may_ask(spec, state):
        return Checkpoint(Reason.CHECKPOINT_REQUESTED, with_note("a checkpoint was asked for", state.intent.note))
    return waiting or Ignore("it is healthy")


def _has_run(state: State, failure: Failure) -> bool:
    """Whether anything of the attempt has run: else a pod that its node could not start is tried elsewhere (row D5).

    An init container that fails has run. Runs of earlier releases go on as they began.
    """
    attempt, seen = state.attempt, current(state)
    if not state.shows_waits or attempt is None:
        return False
    ran = any(view.pods.running or view.pods.succeeded for view in seen.components.values()) if seen else False
    return ran or attempt.ready_at is not None or bool(failure.exit_code)


def _waiting(spec: Workload, state: State, seen: Observation | None, now: datetime) -> Wait | None:
    """Return the next deadline of pods that do not exist or run yet; a deadline that has passed is a failure instead.

    If a rule ignores that failure, nothing is left to wait for; a component recreated alone then has no wait at all.
    """
    attempt, waits = state.attempt, list[Wait]()
    assert attempt is not None
    for one in awaited(spec, state, seen):
        of = f" of {spec.titles([one.component])}" if one.component else ""
        admission, warmup = admission_due(state, attempt, one.component), warmup_due(state, attempt, one.component)
        if one.component and all(
            rule_on(state.policy, lateness(attempt, one, reason, now)).action.kind is ActionKind.IGNORE
            for reason in (Reason.PODS_NOT_ADMITTED, Reason.PODS_NOT_RUNNING)
        ):
            continue
        if one.absent and now < admission and not now < warmup < admission:
            news = f"no news yet of its {counted(one.absent, 'pod')}"
            if seen is not None:
                news = f"{counted(one.absent, f'pod{of} is', f'pods{of} are')} not created yet"
            waits.append(Wait(admission, f"admission grace: {news}"))
        elif one.unready and now < warmup:
            waits.append(
                Wait(warmup, f"warm-up grace: {counted(one.unready, f'pod{of} does', f'pods{of} do')} not run yet")
            )
    back = coming_back(spec, state, seen)
    if back is not None and back.until is not None and now < back.until:
        ruling = rule_on(state.policy, insufficiency(attempt, back, now))
        if ruling.action.kind is not ActionKind.IGNORE:
            which = f"{back.unready:,} of {counted(back.expected, 'pod is', 'pods are')}"
            what = (
                f"termination grace: {which} ending first" if back.ending else f"warm-up grace: {which} starting again"
            )
            waits.append(Wait(back.until, what))
    return min(waits, key=lambda wait: wait.until, default=None)


def _ruled(spec: Workload, state: State, found: list[Ruling], now: datetime) -> Decision:
    """Return the decision that the first ruling leads to, after its grace, a confirming look and its budget."""
    unhealthy = state.unhealthy
    death = unhealthy.death if unhealthy is not None else None
    found = sorted(found, key=lambda one: backs_off(spec, state, one, now))
    # The rule was chosen by the failure itself. The pod's death is only added for the report.
    failure = with_death(spec, found[0].failure, current(state), death, of_nodes=state.shows_waits)
    ruling = found[0]._replace(failure=failure)
    found = [ruling, *found[1:]]
    since = unhealthy.since if unhealthy is not None else now
    when = due_at(spec, state, ruling, since)
    if now < when:
        paused = is_alone(state, ruling) and ruling.action.pause is not None
        grace = "launch grace" if ruling.failure.stuck else "failure grace"
        if own_until(state, current(state), ruling) is not None:
            grace = "its Job's own back-off, then failure grace"
        waits = f"{grace} and pause of {title_of(ruling.rule)}" if paused else grace
        return Wait(when, f"{waits}: {ruling.failure.sentence()}")
    # A failed creation needs no live look: the workflow's own operation reported it.
    submitted = state.attempt is not None and state.attempt.stage is Stage.SUBMITTED
    if submitted and (state.looked_at is None or state.looked_at < when):
        return Look(f"confirming before it is acted on: {ruling.failure.sentence()}", decides=True)
    held = open_fate(spec, state, ruling, now)
    if held is not None:
        return held
    if ruling.action.kind is ActionKind.FAIL:
        if ruling.lost:
            return Fail(
                Reason.SUCCESS_UNREACHABLE, as_recorded(ruling.failure), f"{ruling.lost}: {ruling.failure.sentence()}"
            )
        reason = failure_reason(ruling.failure)
        ended = ruling.failure.cls is FailureClass.DEADLINE or ruling.failure.reason == DEADLINE_EXCEEDED
        if ended and walltime(spec, state) is not None:
            reason = Reason.WALLTIME_EXCEEDED
        return Fail(reason, as_recorded(ruling.failure), f"{title_of(ruling.rule)}: {ruling.failure.sentence()}")
    if spec.sensitive and (ruling.failure.cls is not FailureClass.LAUNCH or _has_run(state, ruling.failure)):
        why = f"{ruling.failure.sentence()} ({title_of(ruling.rule)})"
        return Hold(f"{why}; it is sensitive: see first that nothing of it still runs", ruling.rule)
    if is_alone(state, ruling):
        return restarted_alone(spec, state, found, since, now)
    hopeless = pointless(spec, state, as_recorded(ruling.failure))
    if hopeless is not None:
        return hopeless
    acted = state.acted.get(ruling.rule, 0)
    if ruling.action.limit is not None and acted >= ruling.action.limit:
        return Fail(Reason.RULE_LIMIT_EXCEEDED, as_recorded(ruling.failure), over_limit(ruling, acted))
    charge = ruling.action.charge
    if charge is not None:
        budget, used = state.policy.budget(charge), state.used.get(charge, 0)
        if budget.limit is not None and used >= budget.limit:
            why = f"{charge} budget is used up ({used} of {budget.limit}): {ruling.failure.sentence()}"
            return Fail(budget.exceeded, as_recorded(ruling.failure), why)
    exclude = blamed(state.policy.exclusion, found, now)
    action, recreated = ruling.action, recreates(state)
    if not recreated and (exclude or action.pause is not None or action.requeue):
        recreated = "its rule pauses, avoids the node, or queues it again"
    return Restart(
        as_recorded(ruling.failure),
        ruling.rule,
        charge,
        exclude,
        limited=ruling.action.limit is not None,
        pause=ruling.action.pause,
        requeue=ruling.action.requeue,
        in_place=not recreated,
        recreated=recreated if state.policy.restart_mode is RestartMode.IN_PLACE else "",
    )


def _replaced(spec: Workload, state: State, due: tuple[Due, ...], now: datetime) -> Decision:
    """Decide on components to recreate alone: replace those whose back-off is over, once a live look confirmed it."""
    attempt = state.attempt
    assert attempt is not None
    ready = [one for one in due if one.at is None or one.at <= now]
    if not ready:
        at, name = min((one.at, one.component) for one in due if one.at is not None)
        return Wait(at, f"back-off before {name} is made again")
    # The workflow itself received a configuration change. Anything else came from the watch, and may be old.
    why = "; ".join(one.why for one in ready)
    if state.looked_at is None and not all(one.reconfigured for one in ready):
        return Look(f"confirming before it is made again: {why}")
    charged = [one for one in ready if one.charge is not None]
    for one in charged:
        assert one.charge is not None
        limit, used = state.policy.budget(one.charge).limit, attempt.used.get(one.component, 0)
        if limit is not None and used >= limit:
            failure = _exhausted(spec, state, attempt, one, now)
            return Fail(Reason.LAUNCH_LIMIT_EXCEEDED, failure, f"{one.charge} budget is used up ({used}): {one.why}")
    names = tuple(one.component for one in ready)
    failed = [one for one in _seen_failures(spec, state, attempt) if one.component in names]
    exclude = blamed_for(state.policy, failed, now)
    return Replace(names, tuple(one.component for one in charged), why, exclude=exclude)


def _exhausted(spec: Workload, state: State, attempt: Attempt, due: Due, now: datetime) -> Failure:
    """Return the failure of a member whose budget is used up: the one that was seen, else a generic one."""
    for one in _seen_failures(spec, state, attempt):
        if one.component == due.component:
            return one
    return Failure(
        cls=FailureClass.APP,
        scope=Scope.COMPONENT,
        reason=Reason.LAUNCH_LIMIT_EXCEEDED,
        time=now,
        component=due.component,
        message=due.why,
        attempt=attempt.number,
    )


def _seen_failures(spec: Workload, state: State, attempt: Attempt) -> list[Failure]:
    seen = current(state)
    return heeded(state.policy, attempt, seen.failures, sensitive=spec.sensitive) if seen is not None else []


def failure_reason(failure: Failure) -> Reason:
    """Return the `Reason` of a failure, whose own reason may be any string."""
    try:
        return Reason(failure.reason)
    except ValueError:
        if failure.cls is FailureClass.LAUNCH and failure.scope is not Scope.MEMBER:
            return Reason.CREATE_FAILED
        return Reason.FOUND_FAILED_PODS if failure.scope is Scope.MEMBER else Reason.FAILED_COMPONENT
