"""Decides which single components to recreate while their attempt lives on (rows S7 to S9)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from holdfast.model import Attempt, Component, ComponentView, Observation, Replacement, Stage, State, Workload
from holdfast.policy.failures.back_off import pause_after
from holdfast.policy.values.edit import edit

BACKOFF_MAXIMUM = timedelta(minutes=5)


class Due(NamedTuple):
    """A component to recreate, why, and when."""

    component: str
    why: str
    at: datetime | None
    """The earliest time; None: at once."""
    charge: str | None
    """The member budget to charge."""
    reconfigured: bool = False
    """Whether the reason is a changed configuration, and not an observation."""


def due_replacements(spec: Workload, state: State, seen: Observation | None) -> tuple[Due, ...]:
    """Return the components to recreate, in the order of the submission.

    Components that are already being recreated are left out: later observations decide on them anew.
    """
    attempt = state.attempt
    if attempt is None or attempt.stage is not Stage.SUBMITTED or attempt.launch_failure is not None:
        return ()
    if attempt.suspended:
        return ()
    found: list[Due] = []
    for component in spec.components:
        if component.name in attempt.making or component.name in attempt.later:
            continue
        # An earlier release recorded no digest. Then no change is known.
        current = spec.config_hashes[component.name]
        if attempt.config.get(component.name, current) != current:
            found.append(Due(component.name, f"the configuration of {component.title} has changed", None, None, True))
            continue
        view = seen.components.get(component.name) if seen is not None else None
        if view is not None:
            due = _by_rule(component, component.replacement or state.policy.replacement, view, attempt)
            if due is not None:
                found.append(due)
    return tuple(found)


def _by_rule(component: Component, rule: Replacement, view: ComponentView, attempt: Attempt) -> Due | None:
    what = component.title if component.copies is None else f"a copy of {component.title}"
    if not view.found:
        return Due(component.name, f"{what} was deleted", None, rule.charge) if rule.deleted else None
    at = backed_off(component.name, rule, attempt)
    if view.failed or (component.bare and view.pods.failed):
        return Due(component.name, f"{what} failed", at, rule.charge) if rule.failed else None
    if view.complete and component.expected_pods and rule.completed:
        return Due(component.name, f"{component.title} has completed", at, rule.charge)
    return None


def joined(attempt: Attempt, components: Iterable[str], copies: Iterable[tuple[str, int]] = ()) -> Attempt:
    """Return the attempt with these components being recreated, too: none waits for those before it (row D17).

    Args:
        attempt: the attempt.
        components: the components that are recreated whole.
        copies: single copies, each by its component and its index.
    """
    whole = {*components, *(name for name in attempt.replacing if name not in attempt.replacing_copies)}
    single = {name: set(indices) for name, indices in attempt.replacing_copies.items()}
    for name, index in copies:
        single.setdefault(name, set()).add(index)
    again = dict.fromkeys((*attempt.replacing, *components, *single))
    return edit(
        attempt,
        replacing=tuple(again),
        completed=tuple(name for name in attempt.completed if name not in again),
        replacing_copies={name: tuple(sorted(single[name])) for name in single if name not in whole},
    )


def replaced_at(attempt: Attempt, components: Iterable[str], now: datetime) -> dict[str, datetime]:
    """Return when each component was last recreated, with these recreated now.

    A component that an earlier release recreated keeps the time that was recorded then.
    """
    before = attempt.replaced_at
    known = dict.fromkeys(attempt.launches, before) if before is not None else {}
    return {**known, **attempt.replaced, **dict.fromkeys(components, now)}


def backed_off(name: str, rule: Replacement, attempt: Attempt) -> datetime | None:
    """Return when a component that keeps ending may be recreated; None if it was not recreated before."""
    launches = attempt.launches.get(name, 0)
    since = attempt.replaced.get(name, attempt.replaced_at)
    if not launches or since is None:
        return None
    return since + pause_after(launches, rule.backoff, BACKOFF_MAXIMUM)
