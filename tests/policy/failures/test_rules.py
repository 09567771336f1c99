"""Which rule speaks of a failure, and which failure decides: the table of a match (rows A15, U3)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.model import Action, ActionKind, Failure, FailureClass, Match, Policy, Rule, Scope
from holdfast.policy.failures.rules import DEFAULT_RULE, matches, rule_on, rulings
from tests.policy.lives.life import START


def failure(**fields: Any) -> Failure:
    given: dict[str, Any] = {
        "cls": FailureClass.APP,
        "scope": Scope.MEMBER,
        "reason": "Error",
        "time": START,
        "component": "train",
        "exit_code": 137,
        "message": "CUDA error: device lost",
    }
    return Failure(**{**given, **fields})


@pytest.mark.parametrize(
    ("match", "speaks"),
    [
        ({}, True),
        ({"classes": (FailureClass.APP,)}, True),
        ({"classes": (FailureClass.MISSING, FailureClass.APP)}, True),
        ({"classes": (FailureClass.MISSING,)}, False),
        ({"scopes": (Scope.MEMBER,)}, True),
        ({"scopes": (Scope.COMPONENT,)}, False),
        ({"reasons": ("OOMKilled", "Error")}, True),
        ({"reasons": ("OOMKilled",)}, False),
        ({"components": ("train",)}, True),
        ({"components": ("serve",)}, False),
        ({"exit_codes": (1, 137)}, True),
        ({"exit_codes": (1,)}, False),
        ({"exit_codes_except": (1,)}, True),
        ({"exit_codes_except": (1, 137)}, False),
        ({"message_pattern": "device"}, True),
        ({"message_pattern": "^CUDA .* lost$"}, True),
        ({"message_pattern": "^device"}, False),
        ({"classes": (FailureClass.APP,), "scopes": (Scope.COMPONENT,)}, False),
        ({"exit_codes": (137,), "message_pattern": "nothing"}, False),
    ],
)
def test_a_rule_speaks_of_what_all_its_fields_match(match: dict[str, Any], speaks: bool):
    assert matches(Match(**match), failure()) is speaks


@pytest.mark.parametrize("match", [{"exit_codes": (0,)}, {"exit_codes_except": (1,)}])
def test_a_rule_on_exit_codes_says_nothing_of_what_has_none(match: dict[str, Any]):
    assert matches(Match(**match), failure(exit_code=None)) is False


def rule(name: str, *, grace: bool = True, **match: Any) -> Rule:
    return Rule(name=name, match=Match(**match), action=Action(grace=grace))


def test_the_first_rule_that_matches_decides_and_the_default_ends_the_list():
    fail = Action(kind=ActionKind.FAIL, charge=None)
    policy = Policy(
        rules=(rule("lost", components=("serve",)), rule("code", exit_codes=(137,)), rule("any")), default=fail
    )
    ruling = rule_on(policy, failure())
    assert (ruling.failure, ruling.rule, ruling.action) == (failure(), "code", policy.rules[1].action)
    assert rule_on(policy, failure(exit_code=1)).rule == "any"
    ruling = rule_on(Policy(default=fail), failure())
    assert (ruling.failure, ruling.rule, ruling.action) == (failure(), DEFAULT_RULE, fail)
    assert DEFAULT_RULE == "default"


def test_what_waits_for_no_grace_decides_before_what_does_then_the_earliest_then_by_name():
    policy = Policy(rules=(rule("at-once", grace=False, exit_codes=(3,)),))
    later, sooner = START + timedelta(seconds=2), START + timedelta(seconds=1)
    seen = [
        failure(subject="b", time=sooner),
        failure(subject="late", time=later),
        failure(subject="a", time=sooner),
        failure(subject="urgent", time=later, exit_code=3),
    ]
    assert [each.failure.subject for each in rulings(policy, seen)] == ["urgent", "a", "b", "late"]
