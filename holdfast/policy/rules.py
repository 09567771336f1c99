"""Rules: which one speaks of a failure, and which failure decides. Order decides; the default ends the list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from holdfast.model import Action, Failure, Match, Policy
from holdfast.model.pattern import compiled
from holdfast.model.policy import DEFAULT_RULE


class Ruling(NamedTuple):
    """What the policy says of one failure."""

    failure: Failure
    rule: str
    action: Action
    lost: str = ""
    """That success has come out of reach by it, and so the workload fails; empty for anything else."""


def matches(match: Match, failure: Failure) -> bool:
    """Whether a rule speaks of this failure. Empty fields match anything; patterns are unanchored."""
    if match.classes and failure.cls not in match.classes:
        return False
    if match.scopes and failure.scope not in match.scopes:
        return False
    if match.reasons and failure.reason not in match.reasons:
        return False
    if match.components and failure.component not in match.components:
        return False
    if match.exit_codes and failure.exit_code not in match.exit_codes:
        return False
    if match.exit_codes_except and (failure.exit_code is None or failure.exit_code in match.exit_codes_except):
        return False
    return match.message_pattern is None or compiled(match.message_pattern).search(failure.message) is not None


def rule_on(policy: Policy, failure: Failure) -> Ruling:
    """Return what the first matching rule says of a failure, or what the default says."""
    for rule in policy.rules:
        if matches(rule.match, failure):
            return Ruling(failure, rule.name, rule.action)
    return Ruling(failure, DEFAULT_RULE, policy.default)


def action_of(policy: Policy, rule: str) -> Action:
    """Return what a rule of this name does."""
    return next((one.action for one in policy.rules if one.name == rule), policy.default)


def rulings(policy: Policy, failures: Iterable[Failure]) -> list[Ruling]:
    """Return a ruling for each failure, the deciding one first.

    Those that are acted on at once come before those that may pass; among equals the earliest decides, ties by name.
    """
    found = [rule_on(policy, failure) for failure in failures]
    return sorted(found, key=lambda one: (one.action.grace or one.failure.stuck, one.failure.order()))
