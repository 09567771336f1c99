"""A pod's death and its Job's word of it are one failure, though two clocks tell their times (row D20)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.model import Action, ActionKind, Failure, FailureClass, Match, Observation, Phase, Policy, Rule, Scope
from holdfast.policy.failures.rules import rulings
from holdfast.policy.values.edit import edit
from holdfast.profiles import PROFILES
from holdfast.profiles.appwrapper import POLICY
from holdfast.profiles.rules import with_exit_codes
from tests.policy.lives.life import START, Life, workload

pytestmark = pytest.mark.row("D20", level="pure")
APPWRAPPER = with_exit_codes(POLICY, terminal=(3,))
AT_ONCE = Action(grace=False)
FAIL = Action(kind=ActionKind.FAIL, charge=None, grace=False)


def death(seconds: float = 0, code: int = 3, component: str = "train", subject: str = "train-x7k2p") -> Failure:
    return Failure(
        cls=FailureClass.APP,
        scope=Scope.MEMBER,
        reason="Error",
        time=START + timedelta(seconds=seconds),
        component=component,
        subject=subject,
        exit_code=code,
    )


def verdict(seconds: float = 0, component: str = "train", reason: str = "BackoffLimitExceeded") -> Failure:
    return Failure(
        cls=FailureClass.APP,
        scope=Scope.COMPONENT,
        reason=reason,
        time=START + timedelta(seconds=seconds),
        component=component,
        subject=component,
    )


def decides(policy: Policy, *failures: Failure) -> str:
    return rulings(policy, failures)[0].rule


@pytest.mark.parametrize("ahead", [0, 0.5, 1, 2])
def test_D20_a_nodes_clock_that_is_ahead_does_not_hide_the_exit_code(ahead: float):
    assert decides(APPWRAPPER, death(ahead), verdict(0)) == "terminal-exit-codes"
    assert decides(APPWRAPPER, verdict(0), death(ahead)) == "terminal-exit-codes"


@pytest.mark.parametrize("behind", [1, 2, 40])
def test_D20_a_nodes_clock_that_is_behind_changes_nothing(behind: float):
    assert decides(APPWRAPPER, death(-behind), verdict(0)) == "terminal-exit-codes"


def test_D20_beyond_the_skew_they_are_two_failures_and_the_earlier_decides():
    assert decides(APPWRAPPER, death(3), verdict(0)) == "failed-component"


def test_D20_of_another_component_it_is_another_failure():
    other = death(1, component="other", subject="other-x7k2p")
    assert decides(APPWRAPPER, other, verdict(0)) == "failed-component"


def test_D20_a_pods_failure_that_has_a_grace_does_not_hold_its_jobs_word_back():
    assert decides(APPWRAPPER, death(1, code=1), verdict(0)) == "failed-component"
    assert decides(APPWRAPPER, death(0, code=1), verdict(0)) == "failed-component"


@pytest.mark.parametrize("skew", [-1, 0, 1])
def test_D20_the_more_specific_rule_decides_whichever_of_the_two_it_speaks_of(skew: float):
    said = Rule(name="said", match=Match(scopes=(Scope.COMPONENT,), reasons=("PodFailurePolicy",)), action=FAIL)
    policy = Policy(rules=(said,), default=AT_ONCE)
    assert decides(policy, death(skew), verdict(0, reason="PodFailurePolicy")) == "said"
    assert decides(policy, death(skew), verdict(0)) == "default"
    code = Rule(name="code", match=Match(exit_codes=(3,), components=("train",)), action=AT_ONCE)
    policy = Policy(rules=(said, code), default=AT_ONCE)
    assert decides(policy, death(skew), verdict(0, reason="PodFailurePolicy")) == "code"


def test_D20_between_equals_the_pods_own_death_decides():
    failures = (verdict(0), death(1))
    found = rulings(Policy(default=AT_ONCE), failures)
    assert [one.failure.scope for one in found] == [Scope.MEMBER, Scope.COMPONENT]


def test_D20_a_death_that_a_rule_ignores_joins_nothing():
    let_be = Rule(
        name="let-be",
        match=Match(exit_codes=(3,)),
        action=Action(kind=ActionKind.IGNORE, charge=None, grace=False),
    )
    policy = Policy(rules=(let_be, *APPWRAPPER.rules))
    first = death(0.5, component="other", subject="other-1", code=4)
    rule = Rule(name="other", match=Match(exit_codes=(4,)), action=FAIL)
    policy = policy.model_copy(update={"rules": (rule, *policy.rules)})
    found = [one.rule for one in rulings(policy, (death(0), verdict(1), first))]
    assert found == ["let-be", "other", "failed-component"]


def test_D20_every_failure_is_ruled_once():
    failures = [death(second, subject=f"train-{second}", code=code) for second in range(4) for code in (1, 3)]
    failures += [verdict(1), verdict(2, "other"), death(2, component="other", subject="other-1")]
    found = rulings(APPWRAPPER, failures)
    assert sorted(one.failure.order() for one in found) == sorted(one.order() for one in failures)


NODES = [
    (FailureClass.NODE_LOST, "Evicted", "node-lost"),
    (FailureClass.NODE_LOST, "Terminated", "node-lost"),
    (FailureClass.LAUNCH, "StartError", "prologue"),
]


@pytest.mark.parametrize("ahead", [-1, 0, 1, 2])
@pytest.mark.parametrize(("cls", "reason", "rule"), NODES)
@pytest.mark.parametrize("profile", ["lattice-batch", "lattice-interactive", "lattice-service"])
def test_D20_a_nodes_clock_that_is_ahead_does_not_hide_its_loss_or_a_failed_launch(
    profile: str, cls: FailureClass, reason: str, rule: str, ahead: float
):
    pod = edit(death(ahead), cls=cls, reason=reason, exit_code=None, node="node-7")
    assert decides(PROFILES[profile], verdict(0), pod) == rule
    late = edit(verdict(0), reason="DeadlineExceeded")
    assert decides(PROFILES[profile], late, pod) == "job-deadline", "its rule asks for more"


@pytest.mark.parametrize(
    ("cls", "reason", "budget"), [(*one[:2], "launch" if "St" in one[1] else "restart") for one in NODES]
)
def test_D20_decided_end_to_end_it_is_tried_again(cls: FailureClass, reason: str, budget: str):
    class Ahead(Life):
        def look(self, **kind: Any) -> Observation:
            seen = super().look(**kind)
            later = timedelta(seconds=1)
            return edit(
                seen, failures=tuple(edit(one, time=one.time + later) if one.node else one for one in seen.failures)
            )

    for new in (True, False):
        one = Ahead(spec=workload(policy=PROFILES["lattice-batch"]))
        one.state = edit(one.state, shows_waits=new)
        one.runs().sees(running=1, failed=1, cls=cls, why=reason, job_failed=True)
        assert one.state.used == ({budget: 1} if new else {})
        assert one.state.phase is not Phase.FAILED or not new, "runs of earlier releases go on as they began"


def test_D20_a_pod_that_cannot_start_so_far_has_not_died():
    stuck = edit(death(1), cls=FailureClass.LAUNCH, reason="ErrImagePull", exit_code=None, stuck=True)
    assert decides(PROFILES["lattice-batch"], verdict(0), stuck) == "default"
