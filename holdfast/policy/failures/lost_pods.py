"""Pods that their node loses or gives up, and that may be gone before anything is decided (rows L22, D14)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Final

from holdfast.model import Failure, FailureClass, Observation, Scope, State
from holdfast.policy.failures.avoided_nodes import is_loss
from holdfast.policy.failures.rules import Ruling, rule_on
from holdfast.policy.values.edit import edit

_DRAINED: Final = "EvictionByEvictionAPI"
"""The reason of a pod that a drain takes from its node."""


def first_lost(ruled: Iterable[Ruling]) -> Failure | None:
    """Return the first of these failures that is a pod's own, and its node's or a displacement's fault."""
    failures = (one.failure for one in ruled)
    own = (one for one in failures if one.scope is Scope.MEMBER and one.cls is FailureClass.NODE_LOST)
    return min((one for one in own if not is_loss(one)), key=Failure.order, default=None)


def still_lost(state: State, seen: Observation, found: Collection[Failure]) -> Failure | None:
    """Return the lost pod that made the workload unhealthy, if it is not visible and nothing has taken its place.

    A pod of a lost node may be gone a moment after it was seen, before the live look. What it leaves, such as its Job's
    verdict, says nothing of the node, so the loss still decides (row L22). After a rule with a grace what is missing
    decides, as ever: its controller has that time to replace the pod (row U13).
    """
    lost = state.unhealthy.lost if state.unhealthy is not None else None
    view = seen.components.get(lost.component) if lost is not None else None
    if lost is None or view is None or view.unserved or any(_is_of_pod(one, lost) for one in found):
        return None
    left = [one for one in found if one.scope is Scope.COMPONENT and one.component == lost.component]
    if view.copies is not None:
        left = [one for one in left if lost.subject.startswith(f"{one.subject}-")]
    if rule_on(state.policy, lost).action.grace or not (left or view.absent or view.unready):
        return None
    # It came first, whatever the clock of its node says.
    return edit(lost, time=min([lost.time, *(one.time for one in left)]))


def drained_until(ruled: Sequence[Ruling], seen: Observation | None) -> datetime | None:
    """Return until when the last of the drained pods may take to end; None if anything else has failed."""
    ends = [_drained_until(one, seen) for one in ruled]
    known = [one for one in ends if one is not None]
    return max(known) if len(known) == len(ends) else None


def _drained_until(ruling: Ruling, seen: Observation | None) -> datetime | None:
    """Return the same of one ruling; None if it is not of a drained pod, or its rule has no grace."""
    failure = ruling.failure
    if seen is None or failure.reason != _DRAINED or failure.scope is not Scope.MEMBER or not ruling.action.grace:
        return None
    view = seen.components.get(failure.component)
    return view.ending if view is not None else None


def _is_of_pod(failure: Failure, lost: Failure) -> bool:
    return failure.scope is Scope.MEMBER and (failure.component, failure.subject) == (lost.component, lost.subject)
