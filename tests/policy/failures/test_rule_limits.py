"""How often a rule may act, and how long what follows it waits (row J19), on virtual time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from holdfast.model import Action, ActionKind, Budget, Limits, Match, Phase, Policy, Reason, Rule, Scope, State, Timings
from holdfast.policy.status.explain import explain_of
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Resumed, Retried, Suspended
from tests.policy.lives.elements import Elements, jobs, streams
from tests.policy.lives.life import Life, workload

ROW = pytest.mark.row
HOUR = timedelta(hours=1)


def policy(action: Action, *budgets: Budget, **timings: Any) -> Policy:
    rule = Rule(name="oom", match=Match(exit_codes=(137,)), action=action)
    return Policy(
        timings=Timings(**timings),
        rules=(rule,),
        default=Action(grace=False),
        budgets=budgets or (Budget(name="restart", limit=3),),
    )


def life(action: Action, *budgets: Budget, **timings: Any) -> Life:
    return Life(spec=workload(policy=policy(action, *budgets, **timings))).runs()


def fails(one: Life, code: int = 137, **span: float) -> Life:
    """Let a pod fail, and where it comes back let it run."""
    one.sees(running=1, failed=1, exit_code=code)
    one.after(**(span or {"seconds": 90}))
    return one.sees(running=2) if one.state.outcome is None else one


def told(one: Life) -> str:
    explanation = explain_of(one.spec, one.state, one.now)
    return " | ".join([explanation.why, explanation.now, *(each.what for each in explanation.next)])


def often(limit: int, **fields: Any) -> Action:
    return Action(limit=limit, **{"grace": False, **fields})


@ROW("J19", level="pure")
@pytest.mark.parametrize("limit", [0, 1, 2])
@pytest.mark.parametrize("charge", ["restart", None])
def test_J19_a_rule_acts_as_often_as_it_may_and_then_the_workload_fails(limit: int, charge: str | None):
    one = life(often(limit, charge=charge))
    for _ in range(limit):
        fails(one)
    assert (one.state.phase, one.state.restarts, one.state.acted.get("oom", 0)) == (Phase.RUNNING, limit, limit)
    fails(one)
    assert (one.state.phase, one.state.reason) == (Phase.FAILED, Reason.RULE_LIMIT_EXCEEDED)
    assert (
        one.state.message == f"rule oom has acted as often as it may ({limit} of {limit}): train-0 exited 137 on node-7"
    )
    assert one.state.used == ({"restart": limit} if charge and limit else {}), "the last failure is charged to nothing"


@ROW("J19", level="pure")
def test_J19_each_rule_counts_for_itself_and_the_budget_for_all():
    one = life(often(1))
    fails(one)
    fails(one, code=1)
    assert (one.state.acted, one.state.used) == ({"oom": 1}, {"restart": 2}), "a rule without a limit is not counted"
    fails(one, code=1)
    fails(one, code=1)
    assert (one.state.phase, one.state.reason) == (Phase.FAILED, Reason.RETRY_LIMIT_EXCEEDED)


@ROW("J19", level="pure")
def test_J19_where_both_are_used_up_the_rule_is_named():
    one = fails(fails(life(often(1), Budget(name="restart", limit=1))))
    assert one.state.reason is Reason.RULE_LIMIT_EXCEEDED


@ROW("J19", level="pure")
def test_J19_the_default_action_may_be_limited_too():
    given = Policy(default=Action(limit=1, grace=False))
    one = fails(fails(Life(spec=workload(policy=given)).runs()))
    assert (one.state.reason, one.state.acted) == (Reason.RULE_LIMIT_EXCEEDED, {"default": 1})


@ROW("J19", level="pure")
@ROW("J20", level="pure")
def test_J19_what_was_counted_survives_suspension_and_a_new_run():
    one = fails(life(often(1)))
    one.tell(Suspended()).tell(Resumed())
    one.state = State.model_validate_json(one.state.model_dump_json(by_alias=True))
    one.sees(running=2)
    assert one.state.acted == {"oom": 1}
    assert fails(one).state.reason is Reason.RULE_LIMIT_EXCEEDED


@ROW("J19", level="pure")
def test_J19_a_person_who_asks_for_another_try_gives_the_limit_back():
    one = fails(fails(life(often(1), deletion_on_failure_grace_period=HOUR)))
    assert one.state.phase is Phase.FAILED
    one.tell(Retried())
    assert one.state.acted == {}


@ROW("J19", level="pure")
@pytest.mark.parametrize(("charge", "kept"), [("restart", {}), ("other", {"oom": 1}), (None, {"oom": 1})])
def test_J19_health_forgives_a_rule_with_the_budget_that_it_charges(charge: str | None, kept: dict[str, int]):
    budgets = (Budget(name="restart", limit=3, reset_after=HOUR), Budget(name="other", limit=3))
    one = fails(life(often(1, charge=charge), *budgets))
    one.after(hours=2)
    one.tell(Suspended()).tell(Resumed())
    assert one.state.acted == kept


@ROW("J19", level="pure")
def test_J19_explain_says_how_often_and_how_long():
    one = life(often(1, grace=True, pause=timedelta(minutes=7)))
    one.sees(running=1, failed=1, exit_code=137)
    assert "reset (restart 1 of 3, rule oom 1 of 1), then attempt 2" in told(one)
    one.after(seconds=60)
    assert one.state.pause_until == one.now + timedelta(minutes=7)
    one.after(minutes=7)
    one.sees(running=2).sees(running=1, failed=1, exit_code=137)
    assert "the workload fails, since rule oom has acted as often as it may (1 of 1)" in told(one)


@ROW("J19", level="pure")
def test_J19_a_rules_pause_takes_the_place_of_the_policys():
    one = life(Action(grace=False, pause=timedelta(minutes=7)))
    for code, pause in ((137, 7 * 60), (1, 90)):
        one.sees(running=1, failed=1, exit_code=code)
        assert one.state.pause_until == one.now + timedelta(seconds=pause)
        assert f"retry pause {'7m' if code == 137 else '1m30s'}" in " ".join(_removing(one))
        one.after(seconds=pause - 1)
        assert one.state.phase is Phase.RESETTING
        one.after(seconds=1)
        one.sees(running=2)
    assert one.attempt == 3


def _removing(one: Life) -> list[str]:
    """Return what explain said was to come while the attempt was being removed."""
    removing = [state for state in one.states if state.attempt and state.attempt.stage.value == "Removing"]
    return [each.what for each in explain_of(one.spec, removing[-1], one.now).next]


@ROW("J19", level="pure")
def test_J19_a_pause_is_capped_as_any_other():
    one = Life(spec=workload(policy=policy(Action(grace=False, pause=HOUR))))
    one.limits = Limits(grace_period_maximum=timedelta(minutes=2))
    one.runs().sees(running=1, failed=1, exit_code=137)
    assert one.state.pause_until == one.now + timedelta(minutes=2)


@ROW("A14", level="pure")
@ROW("J19", level="pure")
def test_A14_the_pause_of_a_component_restarted_alone_is_capped():
    action = Action(grace=False, pause=HOUR, unit=Scope.COMPONENT, charge=None)
    rule = Rule(name="alone", match=Match(scopes=(Scope.MEMBER,)), action=action)
    one = Elements(spec=streams(3, Policy(rules=(rule,))))
    one.state = edit(one.state, shows_waits=True)  # As every run does that begins now.
    one.limits = Limits(grace_period_maximum=timedelta(minutes=2))
    one.up().pods("pe-1", failed=1)
    one.after(seconds=119)
    assert one.launches() == {}
    one.after(seconds=1)
    assert one.launches() == {"pe-1": 1}


@ROW("J19", level="pure")
def test_J19_components_restarted_alone_are_each_an_act_of_the_rule():
    rule = Rule(name="alone", match=Match(scopes=(Scope.MEMBER,)), action=often(2, unit=Scope.COMPONENT, charge=None))
    one = Elements(spec=streams(3, Policy(rules=(rule,)))).up()
    one.pods("pe-0", "pe-1", failed=1)
    assert (one.launches(), one.state.acted, one.state.restarts) == ({"pe-0": 1, "pe-1": 1}, {"alone": 2}, 2)
    one.pods("pe-0", "pe-1", running=1).pods("pe-2", failed=1)
    assert one.state.reason is Reason.RULE_LIMIT_EXCEEDED


@ROW("J19", level="pure")
def test_J19_more_components_at_once_than_a_rule_may_restart_fail_the_workload():
    rule = Rule(name="alone", match=Match(scopes=(Scope.MEMBER,)), action=often(1, unit=Scope.COMPONENT))
    one = Elements(spec=streams(3, Policy(rules=(rule,)))).up()
    one.pods("pe-0", "pe-1", failed=1)
    assert (one.state.reason, one.launches(), one.state.used) == (Reason.RULE_LIMIT_EXCEEDED, {}, {})


@ROW("J19", level="pure")
def test_J19_a_component_restarted_alone_waits_for_its_rules_pause():
    action = Action(unit=Scope.COMPONENT, pause=timedelta(minutes=2))
    rule = Rule(name="alone", match=Match(scopes=(Scope.COMPONENT,)), action=action)
    one = Elements(spec=jobs("driver", "worker", policy=Policy(rules=(rule,)))).up().says(worker="Failed")
    assert "failure grace and pause of rule alone" in one.waits_for
    one.after(seconds=179)
    assert one.launches() == {}
    one.after(seconds=1)
    assert one.launches() == {"worker": 1}


@ROW("J19", level="pure")
@pytest.mark.parametrize(
    ("action", "text"),
    [
        ({"kind": ActionKind.FAIL, "limit": 1}, "limit: expected only where kind is Restart, found Fail"),
        ({"kind": ActionKind.IGNORE, "pause": "1m"}, "pause: expected only where kind is Restart, found Ignore"),
        ({"limit": -1}, "greater than or equal to 0"),
    ],
)
def test_J19_a_limit_where_nothing_restarts_is_refused(action: dict[str, Any], text: str):
    with pytest.raises(ValidationError, match=text):
        Action(**{"charge": None, **action})


def test_a_rule_by_the_name_of_a_limited_default_is_refused():
    with pytest.raises(ValidationError, match="rule name 'default' is the default's own, which has a limit"):
        Policy(rules=(Rule(name="default"),), default=Action(limit=1))


def test_an_action_that_says_nothing_of_it_is_written_as_before():
    assert Action().model_dump(mode="json").keys() == {"kind", "unit", "charge", "grace", "avoid"}
    given = Action(limit=2, pause=HOUR)
    assert Action.model_validate_json(given.model_dump_json(by_alias=True)) == given
