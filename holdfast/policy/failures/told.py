"""The failure that was told of an attempt from outside: whether a rule acts on it (rows L25, L28, T4)."""

from __future__ import annotations

from holdfast.model import ActionKind, Attempt, Failure, Policy, State
from holdfast.policy.failures.avoided_nodes import heeded
from holdfast.policy.failures.rules import rule_on


def is_acted_on(policy: Policy, attempt: Attempt, failure: Failure) -> bool:
    """Whether a failure that is told of an attempt leads to anything: it counts, and its rule does not ignore it."""
    return bool(heeded(policy, attempt, (failure,))) and rule_on(policy, failure).action.kind is not ActionKind.IGNORE


def is_decided(state: State) -> bool:
    """Whether a failure was told of the living attempt on which a rule acts: what else is told of it comes too late.

    In a run that began under an earlier release, any failure that was told counts.
    """
    attempt = state.attempt
    if attempt is None or attempt.told is None:
        return False
    return not state.shows_waits or is_acted_on(state.policy, attempt, attempt.told)
