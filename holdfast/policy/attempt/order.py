"""The start order of an attempt's components: whose turn has come, and what the others wait for (row J13)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from holdfast.model import After, Observation, Stage, StartStatus, State, Success, Workload
from holdfast.policy.attempt.success import targets
from holdfast.policy.values.edit import edit

_WORDS = {StartStatus.READY: "ready", StartStatus.COMPLETE: "complete"}


def first_waiting(spec: Workload) -> tuple[str, ...]:
    """Return the components that an attempt does not start with."""
    return tuple(one.name for one in spec.components if one.after)


def without(observation: Observation, waiting: Collection[str]) -> Observation:
    """Return the snapshot without the components in `waiting`: their absence is expected."""
    if not waiting:
        return observation
    components = {name: view for name, view in observation.components.items() if name not in waiting}
    failures = tuple(one for one in observation.failures if one.component not in waiting)
    left = observation.failures_total - len(observation.failures) + len(failures)
    stuck = tuple(one for one in observation.stuck if one.component not in waiting)
    return edit(observation, components=components, failures=failures, failures_total=left, stuck=stuck)


def turn(spec: Workload, state: State, seen: Observation | None, due: Collection[str]) -> tuple[str, ...]:
    """Return the components whose turn has come.

    A component that is being recreated, or is `due` for it, is neither ready nor complete.
    """
    attempt = state.attempt
    if attempt is None or attempt.stage is not Stage.SUBMITTED or seen is None or not attempt.waiting:
        return ()
    if attempt.launch_failure is not None or state.outcome is not None:
        return ()
    again = {*due, *attempt.making}
    return tuple(
        one.name
        for one in spec.components
        if one.name in attempt.waiting and all(_is_met(after, seen, again) for after in one.after)
    )


def first_returning(spec: Workload, state: State, seen: Observation | None) -> tuple[str, ...]:
    """Return the components suspended in place to resume first: complete ones, and those that wait for nothing more.

    A suspended component is not ready, whatever was seen of it. A complete one needs no resumption and counts at once.
    """
    attempt = state.attempt
    parked = attempt.parked if attempt is not None else ()
    views = seen.components if seen is not None else {}
    done = {name for name, view in views.items() if view.found and view.complete}
    again = set(parked) - done
    return tuple(
        one.name
        for one in spec.components
        if one.name in parked
        and (one.name in done or all(seen is not None and _is_met(after, seen, again) for after in one.after))
    )


def returning(spec: Workload, state: State, seen: Observation | None, due: Collection[str]) -> tuple[str, ...]:
    """Return the components whose turn to be resumed has come, after others were resumed."""
    attempt = state.attempt
    if attempt is None or attempt.stage is not Stage.SUBMITTED or seen is None or not attempt.parked:
        return ()
    again = {*due, *attempt.making}
    return tuple(
        one.name
        for one in spec.components
        if one.name in attempt.parked and all(_is_met(after, seen, again) for after in one.after)
    )


def _is_met(after: After, seen: Observation, again: Collection[str]) -> bool:
    view = seen.components.get(after.component)
    if view is None or not view.found or after.component in again:
        return False
    return view.complete or (after.status is StartStatus.READY and view.started)


def is_to_come(spec: Workload, state: State, seen: Observation) -> bool:
    """Whether a component waits only for others to be ready: then its pods are expected, and not all run yet."""
    waiting = state.attempt.later if state.attempt is not None else ()
    afters = {one.name: one.after for one in spec.components}

    def is_expected(name: str) -> bool:
        return name not in waiting or all(
            is_expected(after.component) if after.status is StartStatus.READY else _is_met(after, seen, set())
            for after in afters[name]
        )

    return any(is_expected(name) for name in waiting)


def awaited(spec: Workload, state: State) -> set[str]:
    """Return the components whose readiness or completion must be reported at once."""
    looked_at = targets(spec, state) if state.policy.success != Success() else ()
    return {*looked_at, *(after.component for one in spec.components for after in one.after)}


def met(spec: Workload, names: Iterable[str], doing: str = "creating") -> str:
    """Return a message on why these are created now: `Job driver is ready: creating Job worker`."""
    names = tuple(names)
    waits = [after for one in spec.components if one.name in names for after in one.after]
    seen = dict.fromkeys(told_of(spec, after) for after in waits)
    return f"{', '.join(seen)}: {doing} {spec.titles(names)}"


def told_of(spec: Workload, after: After) -> str:
    """Return a message on what a component must be before another is created: `Job driver is ready`."""
    return f"{spec.titles([after.component])} is {_WORDS[after.status]}"


def waits(spec: Workload, waiting: Collection[str]) -> str:
    """Return a message on what waits for what: `Job worker is created once Job driver is ready`; empty if nothing."""
    said = [
        f"{one.title} is created once {' and '.join(told_of(spec, after) for after in one.after)}"
        for one in spec.components
        if one.name in waiting
    ]
    more = len(said) - 3
    return "; ".join(said[:3]) + (f"; and {more} more wait" if more > 0 else "")
