"""Renews budgets: by health that lasted long enough (row U10), and by a checkpoint beyond the best one (row P4).

No timer fires for it: the state records `healthy_since`, which is evaluated when health ends or a budget is read.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.model import Budget, Reason, Renewal, Scope, Stage, State, Workload, format_duration
from holdfast.policy.attempt.copies import forgiven
from holdfast.policy.attempt.health import current, declared_now, shortfall
from holdfast.policy.attempt.replace import due_replacements
from holdfast.policy.failures.avoided_nodes import renewed
from holdfast.policy.failures.blindness import due
from holdfast.policy.failures.rules import action_of
from holdfast.policy.values.edit import edit
from holdfast.policy.values.record import cause


def follow(spec: Workload, state: State, now: datetime) -> State:
    """Return the state with `healthy_since` up to date; when health ends, renew the budgets it was long enough for.

    This runs before the decision on what ended the health, be it a failure or a suspension.
    """
    state = _saved_on(state, now)
    attempt = state.attempt
    if attempt is None:
        return state
    if _is_healthy(spec, state):
        return state if attempt.healthy_since else edit(state, attempt=edit(attempt, healthy_since=now))
    if attempt.healthy_since is None:
        return state
    state = _renewed(state, attempt.healthy_since, _ended_at(spec, state, now), now)
    assert state.attempt is not None
    return edit(state, attempt=edit(state.attempt, healthy_since=None))


def used_of(state: State, budget: Budget, now: datetime) -> int:
    """Return how much of a budget is used now; for a budget per member, the use of the member that used most."""
    since = state.attempt.healthy_since if state.attempt is not None else None
    if since is not None and _is_earned(state, budget, since, now):
        return 0
    return _spent(state, budget)


def charged(state: State, charge: str | None, now: datetime, *, requeue: bool) -> State:
    """Return the state with a restart charged; a requeue also resets the other budgets that renew on one (row L16)."""
    for budget in state.policy.budgets if requeue else ():
        if budget.renewal is Renewal.REQUEUE and budget.name != charge and state.used.get(budget.name):
            state = edit(state, used={name: used for name, used in state.used.items() if name != budget.name})
            state = edit(state, excluded=renewed(state.excluded, budget.name))
            why = f"{budget.name} budget renewed: it is requeued for another cause"
            state = cause(state, Reason.BUDGET_RENEWED, why, now)
    if charge is None:
        return state
    return edit(state, used={**state.used, charge: state.used.get(charge, 0) + 1})


def _spent(state: State, budget: Budget) -> int:
    # The workload itself also uses a member budget, for failures that belong to no single component.
    used = state.used.get(budget.name, 0)
    if budget.scope is Scope.MEMBER and state.attempt is not None:
        return max(used, *state.attempt.used.values(), 0)
    return used


def _is_healthy(spec: Workload, state: State) -> bool:
    attempt, seen = state.attempt, current(state)
    if attempt is None or seen is None or attempt.stage is not Stage.SUBMITTED or attempt.ready_at is None:
        return False
    if state.outcome is not None or state.held is not None or state.unhealthy is not None or attempt.making:
        return False
    _, unready = shortfall(seen, declared_now(spec, state))
    return not unready and not due_replacements(spec, state, seen)


def _ended_at(spec: Workload, state: State, now: datetime) -> datetime:
    """Return when health ended: the time of the present failure, which may have been reported late."""
    times = [now]
    if state.unhealthy is not None:
        times.append(state.unhealthy.failure.time)
    seen = current(state)
    if seen is not None:
        again = {each.component for each in due_replacements(spec, state, seen)}
        times += [each.time for each in seen.failures if each.component in again]
    return min(times)


def _is_earned(state: State, budget: Budget, since: datetime, until: datetime) -> bool:
    return budget.reset_after is not None and due(since, budget.reset_after, state.blind) <= until


def _saved_on(state: State, now: datetime) -> State:
    """Renew all budgets if a complete checkpoint is beyond the best one: what failed before has been overcome."""
    step, best = state.saved.step if state.saved is not None else None, state.best_saved
    if step is None or (best is not None and step <= best):
        return state
    beyond = f"step {step:,} is saved" + (f", beyond {best:,}" if best is not None else "")
    state = edit(state, best_saved=step)
    for budget in state.policy.budgets:
        state = _reset(state, budget, beyond, now)
    return state


def _renewed(state: State, since: datetime, until: datetime, now: datetime) -> State:
    lived = format_duration(timedelta(seconds=int((until - since).total_seconds())))
    for budget in state.policy.budgets:
        if _is_earned(state, budget, since, until):
            state = _reset(state, budget, f"healthy for {lived}", now)
    return state


def _reset(state: State, budget: Budget, why: str, now: datetime) -> State:
    """Return the state with a budget unused, and with the limits of the rules that charge it; recorded if it was."""
    acted = {rule for rule in state.acted if action_of(state.policy, rule).charge == budget.name}
    if not (_spent(state, budget) or acted):
        return state
    attempt = state.attempt
    state = edit(state, acted={rule: count for rule, count in state.acted.items() if rule not in acted})
    if budget.scope is Scope.MEMBER and attempt is not None:
        state = edit(state, attempt=edit(attempt, used={}))
    state = edit(state, used={name: used for name, used in state.used.items() if name != budget.name})
    state = edit(state, excluded=renewed(state.excluded, budget.name))
    if budget.scope is Scope.WORKLOAD:
        state = edit(state, copy_restarts=forgiven(state.copy_restarts))
    return cause(state, Reason.BUDGET_RENEWED, f"{budget.name} budget renewed: {why}", now)
