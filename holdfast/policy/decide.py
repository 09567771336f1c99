"""The one decision: what should become of this workload now?

Precedence: user delete > suspend and preempt > failure rules > membership (DESIGN.md, the one decision function).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.model import ActionKind, Failure, FailureClass, Phase, Reason, Scope, Stage, State, Workload
from holdfast.policy.decision import (
    Cancel,
    Create,
    Decision,
    Fail,
    Ignore,
    Look,
    Release,
    Restart,
    Retry,
    Succeed,
    Suspend,
    Wait,
)
from holdfast.policy.health import admission_due, current, failures, shortfall, timings, warmup_due
from holdfast.policy.rules import Ruling, rulings
from holdfast.policy.sight import due


def decide(spec: Workload, state: State, now: datetime) -> Decision:
    """Return what is to be done now. Pure: the same spec, state and time always give the same decision."""
    if state.outcome is not None:
        return _settled(state, now)
    if state.intent.cancel:
        return Cancel(state.intent.cancel_reason, _said("its deletion was asked for", state.intent.note))
    attempt = state.attempt
    removing = attempt is not None and attempt.stage in {Stage.REMOVING, Stage.FORCING}
    if state.intent.suspend and state.phase not in {Phase.SUSPENDED, Phase.SUSPENDING}:
        preempted = state.intent.suspend_reason is Reason.PREEMPTED
        return Suspend(state.intent.suspend_reason, _said("preempted" if preempted else "suspended", state.intent.note))
    if removing:
        return Ignore("its removal is under way")
    if attempt is None or attempt.stage is Stage.GONE:
        return _absent(state, now)
    return _living(spec, state, now)


def _said(what: str, note: str) -> str:
    return f"{what}: {note}" if note else what


def _settled(state: State, now: datetime) -> Decision:
    """Decide for a workload whose outcome stands: hold its resources, or let them go (rows A12, A13, A16)."""
    attempt = state.attempt
    if attempt is None or attempt.stage in {Stage.REMOVING, Stage.FORCING, Stage.GONE}:
        return Ignore("its outcome is settled")
    if state.intent.retry and state.outcome is Phase.FAILED:
        return Retry(state.intent.note or "a person asked for another try")
    if state.intent.cancel:
        return Release(Reason.CANCEL_REQUESTED, "its deletion was asked for")
    if state.intent.suspend and state.outcome is Phase.FAILED:
        return Release(state.intent.suspend_reason, "its suspension was asked for")
    if state.hold_until is not None and now < state.hold_until:
        what = "success TTL" if state.outcome is Phase.SUCCEEDED else "deletion on failure grace"
        return Wait(state.hold_until, what)
    return Release(Reason.TTL_EXPIRED, "the time its resources were held for is over")


def _absent(state: State, now: datetime) -> Decision:
    """Decide for a workload of which nothing is in the cluster."""
    if state.intent.suspend:
        return Ignore("it is suspended")
    if state.pause_until is not None and now < state.pause_until:
        if state.intent.retry:
            return Retry(state.intent.note or "a person asked not to wait")
        return Wait(state.pause_until, "retry pause")
    return Create("nothing of it is in the cluster")


def _living(spec: Workload, state: State, now: datetime) -> Decision:
    """Decide for an attempt that is being created or has been submitted."""
    attempt = state.attempt
    assert attempt is not None
    refusal = attempt.launch_failure
    if refusal is not None and refusal.reason == Reason.REFUSED:
        return Fail(Reason.REFUSED, refusal, refusal.message)
    seen = current(state)
    if attempt.stage is Stage.SUBMITTED and seen is not None and seen.complete:
        return Succeed("all components are complete")
    found = [
        one for one in rulings(state.policy, failures(spec, state, now)) if one.action.kind is not ActionKind.IGNORE
    ]
    if found:
        return _ruled(state, found[0], now)
    if attempt.stage is Stage.SUBMITTED and state.in_doubt:
        return Look("a snapshot came that may be old or new: looking for itself")
    if attempt.ready_at is None and attempt.stage is Stage.SUBMITTED:
        absent, unready = shortfall(seen, spec.expected_pods)
        admission, warmup = admission_due(state, attempt), warmup_due(state, attempt)
        # A deadline that has passed is a failure, and if a rule ignores that there is nothing left to wait for.
        if absent and now < admission:
            return Wait(admission, f"admission grace: {absent} pods are not created yet")
        if unready and now < warmup:
            return Wait(warmup, f"warm-up grace: {unready} pods do not run yet")
    return Ignore("it is healthy")


def _ruled(state: State, ruling: Ruling, now: datetime) -> Decision:
    """Carry a ruling through grace, confirmation and budget to what it comes to."""
    unhealthy = state.unhealthy
    since = unhealthy.since if unhealthy is not None else now
    grace = timings(state).failure_grace_period if ruling.action.grace else timedelta(0)
    when = due(since, grace, state.blind)
    if now < when:
        return Wait(when, f"failure grace: {ruling.failure.sentence()}")
    # A creation that failed needs no look: it was our own operation that said so.
    submitted = state.attempt is not None and state.attempt.stage is Stage.SUBMITTED
    if submitted and (state.looked_at is None or state.looked_at < when):
        return Look(f"confirming before it is acted on: {ruling.failure.sentence()}")
    if ruling.action.kind is ActionKind.FAIL:
        return Fail(failure_reason(ruling.failure), ruling.failure, f"rule {ruling.rule}: {ruling.failure.sentence()}")
    charge = ruling.action.charge
    if charge is not None:
        limit, used = state.policy.budget(charge).limit, state.used.get(charge, 0)
        if used >= limit:
            why = f"{charge} budget is used up ({used} of {limit}): {ruling.failure.sentence()}"
            return Fail(Reason.RETRY_LIMIT_EXCEEDED, ruling.failure, why)
    return Restart(ruling.failure, ruling.rule, charge)


def failure_reason(failure: Failure) -> Reason:
    """Return the closed reason that stands for a failure, whose own word may be anything."""
    try:
        return Reason(failure.reason)
    except ValueError:
        if failure.cls is FailureClass.LAUNCH and failure.scope is not Scope.MEMBER:
            return Reason.CREATE_FAILED
        return Reason.FOUND_FAILED_PODS if failure.scope is Scope.MEMBER else Reason.FAILED_COMPONENT
