"""Which components are to be made again, alone, while their attempt lives on (rows S7 to S9)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from holdfast.model import Attempt, Component, ComponentView, Observation, Replacement, Stage, State, Workload
from holdfast.policy.failures.back_off import pause_after

BACKOFF_MAXIMUM = timedelta(minutes=5)


class Due(NamedTuple):
    """A component that is to be made again, why, and from when on."""

    component: str
    why: str
    at: datetime | None
    """None: at once."""
    charge: str | None
    """The member budget it is charged to."""
    reconfigured: bool = False
    """Whether a changed configuration is why, and not what was seen of it."""


def due_replacements(spec: Workload, state: State, seen: Observation | None) -> tuple[Due, ...]:
    """Return the components that are to be made again, in the order in which they were submitted.

    What is being made again already is left out: it is judged anew by what is seen afterwards.
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
        # What an earlier release made has left no digest: nothing is known to have changed.
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


def joined(attempt: Attempt, components: Iterable[str]) -> tuple[str, ...]:
    """Return what is being made again once these are, too: none waits for those before it (row D17)."""
    return tuple(dict.fromkeys((*attempt.replacing, *components)))


def replaced_at(attempt: Attempt, components: Iterable[str], now: datetime) -> dict[str, datetime]:
    """Return when each component was last made again, once these are.

    What an earlier release has made again keeps the time that it was remembered with.
    """
    before = attempt.replaced_at
    known = dict.fromkeys(attempt.launches, before) if before is not None else {}
    return {**known, **attempt.replaced, **dict.fromkeys(components, now)}


def backed_off(name: str, rule: Replacement, attempt: Attempt) -> datetime | None:
    """Return when a component may be made again that ends again and again; None where it has not been made again."""
    launches = attempt.launches.get(name, 0)
    since = attempt.replaced.get(name, attempt.replaced_at)
    if not launches or since is None:
        return None
    return since + pause_after(launches, rule.backoff, BACKOFF_MAXIMUM)
