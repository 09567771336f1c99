"""Restarts of single copies of a component: which copy a failure is of, and how often each was restarted (row J23)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from holdfast.model import Attempt, CopyRestarts, Failure, Replacement, Scope, State, Workload
from holdfast.policy.attempt.replace import BACKOFF_MAXIMUM
from holdfast.policy.failures.back_off import pause_after
from holdfast.policy.failures.rules import Ruling
from holdfast.policy.values.decision import CopyAgain
from holdfast.policy.values.edit import edit

_NAMED: Final = 8
"""How many copies are named."""


def copy_of(spec: Workload, failure: Failure) -> int | None:
    """Return which copy of its component a failure is of; None if it is of none."""
    component = next((one for one in spec.components if one.name == failure.component), None)
    return component.copy_index(failure.subject) if component is not None else None


def restarted_copy(spec: Workload, ruling: Ruling) -> int | None:
    """Return which copy a ruling restarts alone; None if it restarts its whole component, or the workload."""
    alone = ruling.action.alone and ruling.action.unit is Scope.MEMBER
    return copy_of(spec, ruling.failure) if alone else None


def stays(spec: Workload, attempt: Attempt, failure: Failure) -> bool:
    """Whether a failure is of a copy that is not recreated now, although other copies of its component are."""
    again = attempt.replacing_copies.get(failure.component)
    index = copy_of(spec, failure) if again is not None else None
    return again is not None and index is not None and index not in again


def titles_again(spec: Workload, attempt: Attempt) -> str:
    """Return the display names of what is recreated: components, and the copies of which only some are."""
    titles: list[str] = []
    for component in spec.components:
        copies = attempt.replacing_copies.get(component.name)
        if copies is not None:
            titles.append(
                f"copies {', '.join(map(str, copies[:_NAMED]))}{', ...' * (len(copies) > _NAMED)} of {component.title}"
            )
        elif component.name in attempt.replacing:
            titles.append(component.title)
    return ", ".join(titles)


def copy_backed_off(state: State, component: str, index: int, rule: Replacement) -> datetime | None:
    """Return when a copy that keeps failing may be recreated; None if it was not recreated before in this attempt."""
    known = state.copy_restarts.get(component, {}).get(index)
    launches = known.launches_in(state.attempt.number) if known is not None and state.attempt is not None else 0
    return known.at + pause_after(launches, rule.backoff, BACKOFF_MAXIMUM) if known is not None and launches else None


def restarted(state: State, copies: Iterable[CopyAgain], now: datetime) -> dict[str, dict[int, CopyRestarts]]:
    """Return how often each copy was restarted, with these restarted now."""
    number = state.attempt.number if state.attempt is not None else 0
    found = {name: dict(known) for name, known in state.copy_restarts.items()}
    for one in copies:
        known = found.setdefault(one.component, {}).get(one.index)
        found[one.component][one.index] = CopyRestarts(
            restarts=(known.restarts if known is not None else 0) + 1,
            charged=(known.charged if known is not None else 0) + one.charged,
            attempt=number,
            launches=(known.launches_in(number) if known is not None else 0) + 1,
            at=now,
        )
    return found


def restarts_of_all(state: State) -> int:
    """Return how often more than single copies were restarted."""
    return state.restarts - sum(one.restarts for known in state.copy_restarts.values() for one in known.values())


def told_restarts(spec: Workload, attempt: Attempt | None) -> dict[str, int]:
    """Return for components how often all of their copies were restarted before, as labels of the copies tell it.

    Left out are those of which that is the number of attempts and launches before (row J11).
    """
    if attempt is None:
        return {}
    found: dict[str, int] = {}
    for one in spec.components:
        launches, missed = attempt.launches.get(one.name, 0), attempt.missed.get(one.name, 0)
        if one.copies is not None and (attempt.unlike_restarts or missed):
            found[one.name] = attempt.number - 1 - attempt.unlike_restarts + launches - missed
    return found


def forgiven(found: dict[str, dict[int, CopyRestarts]]) -> dict[str, dict[int, CopyRestarts]]:
    """Return how often each copy was restarted, with nothing charged any more."""
    return {name: {index: edit(one, charged=0) for index, one in known.items()} for name, known in found.items()}
