"""Which failures travel when there are more than a snapshot holds (row D16)."""

from __future__ import annotations

from datetime import timedelta
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.model import (
    Action,
    ActionKind,
    Failure,
    FailureClass,
    Match,
    Policy,
    Rule,
    Scope,
    Success,
    SuccessOperator,
)
from holdfast.policy.failures.rules import rulings
from holdfast.policy.failures.selection import select, selection_of
from holdfast.policy.values.edit import edit
from holdfast.worker.watch.seen import attempt_seen
from tests.activities.shapes import owner
from tests.policy.lives.life import START

pytestmark = pytest.mark.row("D16", level="pure")
IGNORE = Action(kind=ActionKind.IGNORE, charge=None, grace=False)
FAIL = Action(kind=ActionKind.FAIL, charge=None, grace=False)


def of_rule(name: str, action: Action, **match: Any) -> Rule:
    return Rule(name=name, match=Match(**match), action=action)


def pod_failure(number: int, *, message: str = "", component: str = "work", code: int = 1, second: int = 0) -> Failure:
    return Failure(
        cls=FailureClass.APP,
        scope=Scope.MEMBER,
        reason="Error",
        time=START + timedelta(seconds=second or number),
        component=component,
        subject=f"pod-{number:03}",
        exit_code=code,
        message=message,
    )


def verdict(component: str, second: int) -> Failure:
    return Failure(
        cls=FailureClass.APP,
        scope=Scope.COMPONENT,
        reason="BackoffLimitExceeded",
        time=START + timedelta(seconds=second),
        component=component,
        subject=component,
    )


def test_D16_rules_that_cannot_be_read_leave_the_failures_as_an_earlier_release_had_them():
    raw = owner() | {
        "spec": {
            "workloadUid": "uid",
            "workflowId": "workload/c/ns/w",
            "attempt": 2,
            "selection": {"rules": [{"x": 1}]},
        }
    }
    attempt = attempt_seen("c")(raw)
    assert attempt is not None
    assert attempt.selection is None


def chosen(policy: Policy, failures: list[Failure], most: int = 16) -> list[str]:
    return [one.subject for one in select(failures, most, selection_of(policy))]


def test_D16_of_two_that_decide_the_one_that_decides_first_travels_whatever_else_does():
    """As many rules as a policy may have, each with a failure: the ruling that is first travels in any case."""
    rules = tuple(
        of_rule(f"rule-{number}", FAIL if number == 63 else Action(), message_pattern=f"^number {number}$")
        for number in range(64)
    )
    failures = [pod_failure(number, message=f"number {number}") for number in range(64)]
    assert "pod-063" in chosen(Policy(rules=rules), failures)


@pytest.mark.parametrize("component", ["c03", "c30"])
def test_D16_the_first_failure_of_each_component_that_is_restarted_alone_travels(component: str):
    alone = of_rule("alone", Action(unit=Scope.COMPONENT))
    failures = [pod_failure(number, component="other") for number in range(40)]
    failures.append(pod_failure(50, component=component))
    assert "pod-050" in chosen(Policy(rules=(alone,)), failures)


def test_D16_the_verdict_that_puts_success_out_of_reach_travels():
    """Rules let thirty components be; success needs the last of them (row J19)."""
    let_be = of_rule("let-be", IGNORE, scopes=(Scope.COMPONENT,))
    policy = Policy(rules=(let_be,), success=Success(operator=SuccessOperator.ALL, components=("c29",)))
    assert "c29" in chosen(policy, [verdict(f"c{number:02}", number) for number in range(30)])


def test_D16_the_ruling_that_decides_is_the_same_as_if_all_failures_travelled():
    pool = (
        of_rule("fatal", FAIL, message_pattern="fatal"),
        of_rule("let-be", IGNORE, components=("work",)),
        of_rule("at-once", Action(grace=False), exit_codes=(7,)),
        of_rule("whatever", Action(), components=("late",)),
    )
    failures = [pod_failure(number, message=f"line {number}") for number in range(40)]
    failures += [pod_failure(number, message="fatal", component="late") for number in (60, 61)]
    failures += [pod_failure(number, code=7, component="late") for number in range(50, 53)]
    failures += [pod_failure(70, message="fatal"), pod_failure(71, code=7), verdict("work", 72)]
    cases = 0
    for count in range(1, 5):
        for rules in permutations(pool, count):
            for default in (IGNORE, FAIL, Action()):
                policy = Policy(rules=rules, default=default)
                # Of each action, since a decision may pass over one that is made again or not heeded.
                for most in (4, 16):
                    all_of_it, told = (
                        rulings(policy, failures),
                        rulings(policy, select(failures, most, selection_of(policy))),
                    )
                    first = next((one for one in all_of_it if one.action.kind is not ActionKind.IGNORE), None)
                    assert first == next((one for one in told if one.action.kind is not ActionKind.IGNORE), None)
                    cases += 1
    assert cases == (4 + 12 + 24 + 24) * 6


@pytest.mark.parametrize("scope", Scope)
def test_D16_without_rules_the_first_of_each_kind_of_failure_travels(scope: Scope):
    failures = [edit(pod_failure(number, code=7 if number > 30 else 1), scope=scope) for number in range(40)]
    told = [one.subject for one in select(failures, 4)]
    assert told == ["pod-000", "pod-001", "pod-002", "pod-031"]


def test_D16_what_travels_stays_in_the_order_of_time_and_within_its_bound():
    failures = [pod_failure(number) for number in range(40)]
    assert chosen(Policy(), failures) == [f"pod-{number:03}" for number in range(16)]
    assert chosen(Policy(), failures[:3]) == ["pod-000", "pod-001", "pod-002"]


OOM = of_rule("oom", Action(grace=False), exit_codes=(137,))
JOB_FAILED = of_rule("job-failed", FAIL, scopes=(Scope.COMPONENT,))


@pytest.mark.row("D20", level="pure")
@pytest.mark.parametrize("others", [1, 14, 15, 16, 40, 4_000])
def test_D20_a_verdict_travels_with_its_pods_death_however_many_components_fail(others: int):
    """The last component's verdict is the earliest failure: it gives that component's death its place."""
    failures = [verdict("c99", 10), pod_failure(99, component="c99", code=137, second=11)]
    for number in range(others):
        component = f"c{number:04}"
        failures += [pod_failure(number, component=component, code=137, second=11), verdict(component, 12)]
    policy = Policy(rules=(OOM, JOB_FAILED))
    first = rulings(policy, failures)[0]
    assert (first.rule, first.failure.component) == ("oom", "c99")
    assert rulings(policy, select(failures, 16, selection_of(policy)))[0] == first


_POOL = (
    OOM,
    JOB_FAILED,
    of_rule("said", FAIL, scopes=(Scope.COMPONENT,), reasons=("BackoffLimitExceeded",)),
    of_rule("fatal", FAIL, message_pattern="fatal"),
    of_rule("let-be", IGNORE, components=("c1",)),
    of_rule("late", Action(), exit_codes=(1,), components=("c2",)),
    of_rule("whatever", Action(grace=False)),
)
_FAILURES = st.builds(
    lambda number, component, second, code, message, is_verdict: (
        edit(verdict(component, second), subject=f"{component}-{number}")
        if is_verdict
        else pod_failure(number, component=component, second=second, code=code, message=message)
    ),
    st.integers(0, 400),
    st.sampled_from([f"c{number}" for number in range(12)]),
    st.integers(1, 9),
    st.sampled_from([1, 3, 137]),
    st.sampled_from(["", "fatal"]),
    st.booleans(),
)


@pytest.mark.row("D20", level="pure")
@settings(max_examples=400, deadline=None)
@given(
    failures=st.lists(_FAILURES, min_size=5, max_size=60, unique_by=lambda one: one.subject),
    rules=st.permutations(_POOL).flatmap(lambda pool: st.integers(0, 5).map(lambda count: tuple(pool[:count]))),
    default=st.sampled_from([IGNORE, FAIL, Action(), Action(grace=False)]),
)
def test_D16_whatever_fails_the_selected_failures_decide_as_all_of_them_do(
    failures: list[Failure], rules: tuple[Rule, ...], default: Action
):
    policy = Policy(rules=rules, default=default)
    every, told = (
        next((one for one in rulings(policy, some) if one.action.kind is not ActionKind.IGNORE), None)
        for some in (failures, select(failures, 4, selection_of(policy)))
    )
    assert told == every
