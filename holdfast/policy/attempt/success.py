"""When a workload has succeeded, and when it no longer can (rows J12, J19)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from holdfast.model import (
    Action,
    ActionKind,
    Component,
    Failure,
    Observation,
    Scope,
    Stage,
    StartStatus,
    State,
    Success,
    SuccessOperator,
    Workload,
)
from holdfast.policy.failures.back_off import others_first
from holdfast.policy.failures.rules import Ruling, in_order, is_default, rulings, title_of

_FAIL_AT_ONCE = Action(kind=ActionKind.FAIL, charge=None, grace=False)


def targets(spec: Workload, state: State) -> tuple[str, ...]:
    """Return the components that success depends on."""
    success = state.policy.success
    if success.components:
        return success.components
    some = tuple(one.name for one in spec.components if _completes(state, one))
    if success.operator is SuccessOperator.ANY and some:
        return some  # A component that is complete as soon as it exists does not show success.
    return tuple(one.name for one in spec.components)


def _completes(state: State, one: Component) -> bool:
    """Whether a component can complete. In runs of earlier releases, only conditions of its status said so."""
    return one.completes and (state.shows_waits or bool(one.expected_pods or one.status.complete))


def _is_empty(one: Component) -> bool:
    """Whether a component is complete without anything of it having run: nothing else says that it is."""
    return one.copies == 0 or (one.is_empty and not one.status.tells_completion)


def wanted(spec: Workload, state: State) -> str:
    """Return a message on what must be complete: `any of Job driver, Job worker is complete`."""
    names, success = targets(spec, state), state.policy.success
    if success == Success():
        return "all components are complete"
    if len(names) == 1:
        return f"{spec.titles(names)} is complete"
    if success.operator is SuccessOperator.ANY:
        return f"any of {spec.titles(names)} is complete"
    return f"all of {spec.titles(names)} are complete"


def reached(spec: Workload, state: State, seen: Observation | None, due: Collection[str]) -> str:
    """Return a message on why the workload has succeeded; empty if it has not.

    A component that is being recreated, or is `due` for it, is not complete, whatever was seen of it.
    """
    attempt, success = state.attempt, state.policy.success
    if attempt is not None and attempt.meeting is not None and attempt.meeting.succeeded:
        return f"its gang has succeeded: {attempt.meeting.succeeded}"
    if attempt is None or attempt.stage is not Stage.SUBMITTED or seen is None:
        return ""
    names = targets(spec, state)
    again = {*due, *attempt.making}
    views = {name: seen.components.get(name) for name in names if name not in again}
    done = [name for name, view in views.items() if view is not None and view.found and view.complete]
    # Runs of earlier releases go on as they began: there, what has no pods is complete.
    empty = {one.name for one in spec.components if _is_empty(one) and state.shows_waits}
    if success.operator is SuccessOperator.ANY:
        done = [name for name in done if name not in empty]
    if len(done) == len(names) and (empty.isdisjoint(names) or _has_succeeded(spec, state, seen, again)):
        return wanted(spec, state)
    if success.operator is SuccessOperator.ALL:
        return ""
    # Any one of several copies is enough as well, also while other copies are made again.
    partly = attempt.replacing_copies if state.shows_waits else {}
    views |= {name: seen.components.get(name) for name in names if name in partly}
    some = [name for name, view in views.items() if view is not None and view.copies and view.copies.succeeded]
    first = [*done, *some][:1]
    what = "is" if done else "has a copy that is"
    return f"{spec.titles(first)} {what} complete, and any of {spec.titles(names)} is enough" if first else ""


def _has_succeeded(spec: Workload, state: State, seen: Observation, again: Collection[str]) -> bool:
    """Whether any object of the workload has succeeded: a component of no pods is complete without one."""
    for one in spec.components:
        view = seen.components.get(one.name)
        if view is None or not _completes(state, one) or _is_empty(one) or one.name in again:
            continue
        if (view.found and view.complete) or (view.copies is not None and view.copies.succeeded):
            return True
    return False


def judged(spec: Workload, state: State, seen: Observation | None, failures: Iterable[Failure]) -> list[Ruling]:
    """Return a ruling for each failure that has an effect, the deciding one first.

    A failure that a rule ignores has none, unless its component has failed for good and success needs it (row J19).
    """
    found = rulings(state.policy, failures, of_nodes=state.shows_waits)
    whole = state.policy.success.operator is SuccessOperator.ANY
    lost = {
        one.failure.component for one in found if _is_for_good(state, one, seen) and (not whole or _is_whole(one, seen))
    }
    held_up = _held_up(spec, state, {one.failure.component for one in found if _is_for_good(state, one, seen)})
    beyond = _beyond(spec, state, lost, held_up) if lost or held_up else ""
    if beyond:
        # Other components keep their rulings: those neither end the workload nor come before the ones that do.
        names = targets(spec, state)
        ending = lost.intersection(names).union(*(held_up[name] for name in names if name in held_up))
        found = [
            one._replace(action=_FAIL_AT_ONCE, lost=f"{beyond} ({title_of(one.rule)})")
            if one.failure.component in ending and _is_for_good(state, one, seen)
            else one
            for one in found
        ]
        found = in_order(state.policy.rules, found, of_nodes=state.shows_waits)
    return others_first(state, seen, [one for one in found if one.action.kind is not ActionKind.IGNORE])


def _is_for_good(state: State, ruling: Ruling, seen: Observation | None) -> bool:
    """Whether a rule other than the default ignores a component that reports its own failure.

    What the default ignores stays ignored: a workload whose policy ignores everything lives until a user ends it.
    """
    failure, rules = ruling.failure, state.policy.rules if state.shows_waits else ()
    if ruling.action.kind is not ActionKind.IGNORE or is_default(rules, ruling.rule) or seen is None:
        return False
    view = seen.components.get(failure.component)
    return failure.scope is Scope.COMPONENT and view is not None and view.failed


def _is_whole(ruling: Ruling, seen: Observation | None) -> bool:
    """Whether a failed component has no copy left that could still succeed."""
    view = seen.components.get(ruling.failure.component) if seen is not None else None
    return view is None or view.copies is None or view.copies.failed >= view.copies.expected


def _held_up(spec: Workload, state: State, failed: Collection[str]) -> dict[str, set[str]]:
    """Return the components that are never created, each with the failed ones that had to be complete before it.

    Runs of earlier releases go on as they began: there, such a component is waited for.
    """
    waiting = state.attempt.waiting if state.attempt is not None and state.shows_waits else ()
    found: dict[str, set[str]] = {}
    grows = bool(failed and waiting)
    while grows:
        before = len(found)
        for one in spec.components:
            if one.name not in waiting or one.name in found:
                continue
            complete = {after.component for after in one.after if after.status is StartStatus.COMPLETE}
            causes = complete.intersection(failed).union(*(found.get(after.component, ()) for after in one.after))
            if causes:
                found[one.name] = causes
        grows = len(found) > before
    return found


def _beyond(spec: Workload, state: State, lost: Collection[str], held_up: Mapping[str, Collection[str]]) -> str:
    """Return a message on why success is out of reach with these components lost; empty if it is not.

    Args:
        spec: The workload.
        state: Its state, with what its policy asks for.
        lost: The components that have failed for good.
        held_up: The components that are never created, each with the lost ones that it waits for.
    """
    names = targets(spec, state)
    missed = [name for name in names if name in lost or name in held_up]
    needs_all = state.policy.success.operator is SuccessOperator.ALL
    if not missed or (not needs_all and len(missed) < len(names)):
        return ""
    failed = [name for name in missed if name in lost]
    waits = [name for name in missed if name not in lost]
    told = [f"{spec.titles(failed)} {_have(failed)} failed for good"] if failed else []
    if waits:
        causes = {cause for name in waits for cause in held_up[name]}
        first = [one.name for one in spec.components if one.name in causes]
        waits_for = f"{spec.titles(waits)} {'waits' if len(waits) == 1 else 'wait'} for {spec.titles(first)}"
        told.append(f"{waits_for}, which {_have(first)} failed for good")
    return f"success is out of reach: success needs that {wanted(spec, state)}, and {', and '.join(told)}"


def _have(names: Collection[str]) -> str:
    return "has" if len(names) == 1 else "have"
