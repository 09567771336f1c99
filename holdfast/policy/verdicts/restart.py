"""Restarts of single components by a rule: which components, when, and which budgets are charged (row U7)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from holdfast.model import FailureClass, Reason, Scope, Stage, State, Workload
from holdfast.model.life.progress import Fall
from holdfast.policy.attempt.copies import copy_backed_off, restarted_copy
from holdfast.policy.attempt.health import current, timings
from holdfast.policy.attempt.replace import backed_off
from holdfast.policy.failures.avoided_nodes import blamed
from holdfast.policy.failures.back_off import own_until
from holdfast.policy.failures.blindness import due
from holdfast.policy.failures.first_cause import as_recorded
from holdfast.policy.failures.rules import Ruling, title_of
from holdfast.policy.values.decision import CopyAgain, Fail, Replace
from holdfast.policy.verdicts.poison import Alone, fallen, pointless


def is_alone(state: State, ruling: Ruling) -> bool:
    """Whether a ruling restarts one component alone: the failure is of one, and the whole attempt was created."""
    attempt = state.attempt
    whole = attempt is not None and attempt.stage is Stage.SUBMITTED and attempt.launch_failure is None
    return whole and ruling.action.alone and bool(ruling.failure.component)


def due_at(spec: Workload, state: State, ruling: Ruling, since: datetime) -> datetime:
    """Return when a ruling takes effect: after its grace, and after a growing back-off for repeated failures.

    While the Job's own back-off has retries left, the grace begins once that back-off is over (row D22).
    """
    grace = timings(state).failure_grace_period if ruling.action.grace else timedelta(0)
    if ruling.failure.stuck:
        grace = timings(state).launch_grace_period or timedelta(0)
    own = own_until(state, current(state), ruling)
    since = max(since, own) if own is not None else since
    at = due(since, grace, state.blind)
    if not is_alone(state, ruling) or state.attempt is None:
        return at
    if ruling.action.pause:
        most = state.limits.grace_period_maximum if state.shows_waits else ruling.action.pause
        at = due(since, grace + min(ruling.action.pause, most), state.blind)
    name, index = ruling.failure.component, restarted_copy(spec, ruling)
    rule = next((one.replacement for one in spec.components if one.name == name), None) or state.policy.replacement
    if index is not None:
        return max(at, copy_backed_off(state, name, index, rule) or at)
    return max(at, backed_off(name, rule, state.attempt) or at)


def backs_off(spec: Workload, state: State, ruling: Ruling, now: datetime) -> bool:
    """Whether a ruling restarts one copy, which still waits for its own back-off: it holds up no other failure."""
    name, index = ruling.failure.component, restarted_copy(spec, ruling)
    rule = next((one.replacement for one in spec.components if one.name == name), None) or state.policy.replacement
    until = copy_backed_off(state, name, index, rule) if index is not None else None
    return until is not None and now < until


def over_limit(ruling: Ruling, acted: int) -> str:
    """Return a message that a rule has reached its limit."""
    return f"{title_of(ruling.rule)} has acted as often as it may ({acted} of {ruling.action.limit}): " + (
        ruling.failure.sentence()
    )


def restarted_alone(
    spec: Workload, state: State, found: Iterable[Ruling], since: datetime, now: datetime
) -> Replace | Fail:
    """Return the restart of each component, or copy of one, whose ruling is due.

    Each is charged once, however many failures it has. Of one component, the first ruling decides whether it is
    restarted whole, or by the copy.
    """
    attempt = state.attempt
    assert attempt is not None
    used, members, charges = dict(state.used), list[str](), list[str]()
    limited = list[str]()
    found = list(found)
    first: dict[Alone, Ruling] = {}
    whole: dict[str, bool] = {}
    for ruling in found:
        if is_alone(state, ruling) and due_at(spec, state, ruling, since) <= now:
            name, index = ruling.failure.component, restarted_copy(spec, ruling)
            if whole.setdefault(name, index is None) == (index is None):
                first.setdefault(Alone(name, index), ruling)
    copies, falls = list[CopyAgain](), list[Fall]()
    for one, ruling in first.items():
        name, index = one
        if state.shows_waits:  # Runs of earlier releases go on as they began.
            hopeless = pointless(spec, state, as_recorded(ruling.failure), one)
            if hopeless is not None:
                return hopeless
            fall = fallen(spec, state, ruling.failure, one)
            falls += [fall] if fall is not None else []
        if ruling.action.limit is not None:
            acted = state.acted.get(ruling.rule, 0) + limited.count(ruling.rule)
            if acted >= ruling.action.limit:
                return Fail(Reason.RULE_LIMIT_EXCEEDED, ruling.failure, over_limit(ruling, acted))
            limited.append(ruling.rule)
        charge = ruling.action.charge
        of_workload = charge is not None and state.policy.budget(charge).scope is not Scope.MEMBER
        if index is not None:
            copies.append(CopyAgain(name, index, of_workload))
        if charge is None:
            continue
        budget = state.policy.budget(charge)
        of_member = attempt.used.get(name, 0) + members.count(name)
        spent = of_member if budget.scope is Scope.MEMBER else used.get(charge, 0)
        if budget.limit is not None and spent >= budget.limit:
            why = f"{charge} budget is used up ({spent} of {budget.limit}): {ruling.failure.sentence()}"
            return Fail(budget.exceeded, ruling.failure, why)
        if budget.scope is Scope.MEMBER:
            members.append(name)
        else:
            used[charge] = spent + 1
            charges.append(charge)
    why = "; ".join(
        f"{spec.titles([name])}: {ruling.failure.sentence()} ({title_of(ruling.rule)})"
        for (name, _), ruling in first.items()
    )
    # Runs of earlier releases count what is made again since it was missing, and number restarts in place by that.
    missed = tuple(name for (name, index), one in first.items() if index is None and _is_missed(one))
    exclude = blamed(state.policy.exclusion, (one for one in found if one.failure.component in whole), now)
    return Replace(
        tuple(whole),
        tuple(members),
        why,
        ruled=tuple(name for name, _ in first),
        missed=missed if state.shows_waits else (),
        copies=tuple(copies),
        charges=tuple(charges),
        limited=tuple(limited),
        exclude=exclude,
        fall=max(falls, key=lambda fall: fall.times, default=None),
    )


def _is_missed(ruling: Ruling) -> bool:
    """Whether a ruling only makes again what somebody has deleted."""
    return ruling.failure.cls is FailureClass.MISSING and ruling.action.charge is None
