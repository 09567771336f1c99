"""Decides whether an attempt's removal or clearing first keeps evidence, and of which pods (row P3). Pure."""

from __future__ import annotations

from typing import Final

from holdfast.model import Phase, Reason, State, Workload
from holdfast.model.life.evidence import StacksRequest

PODS_MAXIMUM: Final = 8
"""Of how many pods evidence is taken: those that decided first."""
_FOR_A_FAILURE: Final = frozenset({Reason.RESETTING, Reason.REQUEUED, Reason.RETRY_REQUESTED})
"""Reasons of a removal that a failure has caused."""


def evidence_of(state: State) -> tuple[str, ...] | None:
    """Return the pods whose evidence is kept before the attempt is removed or cleared: those that decided, at most 8.

    None if none is kept: no failure has ended the attempt, or its evidence has been taken. The activity adds other pods
    of the attempt if these are fewer than 8: of a failure that no pod has, each may tell something.
    """
    attempt = state.attempt
    if attempt is None or attempt.evidence is not None or attempt.everything:
        return None
    if state.outcome is not Phase.FAILED and state.reason not in _FOR_A_FAILURE:
        return None
    seen = state.observation
    # A stall, a failed probe and a gang's failure are told: no observation has them.
    failures = (state.outcome_failure, attempt.told, *((*seen.failures, *seen.stuck) if seen is not None else ()))
    pods = dict.fromkeys(one.pod for one in failures if one is not None and one.attempt in {0, attempt.number})
    return tuple(name for name in pods if name)[:PODS_MAXIMUM]


def stacks_of(spec: Workload, state: State) -> StacksRequest | None:
    """Return which pods a removal that keeps evidence asks for the stacks of their programs; None: none.

    The failure need not be a stall: a program that waits for one that has failed shows where it waits.
    """
    progress = spec.progress
    if progress is None or progress.port is None or evidence_of(state) is None:
        return None
    return StacksRequest(port=progress.port, components=progress.components)
