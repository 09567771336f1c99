"""A rule that restarts components alone: what it costs, when it is due, and the graces of each (row U7)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.model import (
    Action,
    Budget,
    Failure,
    FailureClass,
    Match,
    OperationKind,
    Phase,
    Policy,
    Reason,
    Rule,
    Scope,
    Timings,
)
from holdfast.policy.failures.rules import rule_on
from holdfast.policy.values.edit import edit
from holdfast.policy.verdicts.restart import due_at
from tests.policy.lives.elements import Elements, config, element, replacing, streams
from tests.policy.lives.life import Life, workload
from tests.policy.lives.moments import moment
from tests.policy.verdicts.test_restart import fails
from tests.policy.verdicts.test_restart import life as restarted

ROW = pytest.mark.row


@ROW("U7", level="pure")
def test_U7_the_graces_of_one_made_again_count_from_when_it_was_made():
    one = restarted()
    one.hold = {OperationKind.REPLACE}
    one.pods("pe-1", failed=1)
    one.after(seconds=60)
    asked = one.now
    assert one.state.attempt is not None
    assert one.state.attempt.warming == {"pe-1": asked}
    one.after(minutes=3)
    one.finish()
    assert one.state.attempt.warming == {"pe-1": asked + timedelta(minutes=3)}


@ROW("U7", level="pure")
def test_U7_charges_of_the_workload_and_of_members_are_each_counted_once():
    """Of one component two pods failed: it is one restart."""
    rules = (
        Rule(name="first", action=Action(unit=Scope.COMPONENT, charge="restart")),
        Rule(name="second", action=Action(unit=Scope.COMPONENT, charge="member")),
    )
    budgets = (Budget(name="restart", limit=1), Budget(name="member", limit=1, scope=Scope.MEMBER))
    first = edit(rules[0], match=edit(rules[0].match, components=("pe-0", "pe-2")))
    policy = Policy(timings=Timings(), rules=(first, rules[1]), budgets=budgets)
    one = Elements(spec=streams(4, policy)).up()
    fails(one, "pe-0", "pe-1", "pe-3")
    assert one.state.attempt is not None
    assert (one.state.used, one.state.attempt.used) == ({"restart": 1}, {"pe-1": 1, "pe-3": 1})
    (why,) = [each.message for each in one.state.causes if each.reason is Reason.REPLACING]
    assert why == "; ".join(
        [
            "Pod pe-0: pe-0 exited 1 (rule first)",
            "Pod pe-1: pe-1 exited 1 (rule second)",
            "Pod pe-3: pe-3 exited 1 (rule second)",
        ]
    )
    one.pods(running=1)
    fails(one, "pe-2")
    assert one.state.message == "restart budget is used up (1 of 1): pe-2 exited 1"


@ROW("U7", level="pure")
def test_U7_two_at_once_need_two_of_the_budget():
    budgets = (Budget(name="restart", limit=1),)
    rule = Rule(name="alone", action=Action(unit=Scope.COMPONENT))
    one = Elements(spec=streams(3, Policy(timings=Timings(), rules=(rule,), budgets=budgets))).up()
    fails(one, "pe-0", "pe-1")
    assert (one.state.phase, one.launches()) == (Phase.FAILED, {})
    assert one.state.message == "restart budget is used up (1 of 1): pe-1 exited 1"


@ROW("U7", level="pure")
def test_U7_a_components_own_back_off_goes_before_the_policys():
    own = element(1, replacement=replacing(backoff=timedelta(seconds=140), charge=None))
    rule = Rule(name="alone", action=Action(unit=Scope.COMPONENT))
    policy = Policy(timings=Timings(), rules=(rule,))
    life = Elements(spec=streams(3, policy).with_components((config(), element(0), own, element(2)))).up()
    life.pods("pe-1", failed=1).pods("pe-1", running=1)
    fails(life, "pe-0").pods("pe-0", running=1)
    assert life.launches() == {"pe-1": 1, "pe-0": 1}
    # It was made again a minute ago: its back-off counts from there.
    for name, seconds in (("pe-1", 80), ("pe-0", 60), ("pe-2", 60)):
        failure = Failure(cls=FailureClass.APP, scope=Scope.MEMBER, reason="Error", time=life.now, component=name)
        at = due_at(life.spec, life.state, rule_on(policy, failure), life.now)
        assert at == life.now + timedelta(seconds=seconds)


def test_a_failure_of_the_whole_has_no_back_off():
    life = Life(spec=workload()).runs()
    ruling = rule_on(
        life.state.policy, Failure(cls=FailureClass.TIMEOUT, scope=Scope.WORKLOAD, reason="Late", time=life.now)
    )
    assert due_at(life.spec, life.state, ruling, life.now) == life.now + timedelta(minutes=1)


def test_a_failure_of_a_component_whose_rule_restarts_the_whole_waits_for_no_back_off():
    life = Elements().up()
    life.deleted("pe-1").pods(running=1)
    whole = Policy(timings=Timings(), default=Action(grace=False))
    failure = Failure(cls=FailureClass.APP, scope=Scope.MEMBER, reason="Error", time=life.now, component="pe-1")
    assert due_at(life.spec, life.state, rule_on(whole, failure), life.now) == life.now


def test_a_failure_that_a_rule_ends_the_workload_for_is_its_failure():
    life = moment("a pod has failed for good").after(minutes=1)
    assert life.state.outcome_failure is not None
    assert life.state.outcome_failure.subject == "train-0"
    assert (life.state.phase, life.state.message) == (Phase.FAILED, "rule mine: train-0 exited 1 on node-7")


@ROW("U7", level="pure")
def test_U7_the_graces_of_one_are_its_own_and_do_not_begin_anew_with_anothers():
    one = fails(restarted(), "pe-0")
    first = one.now
    one.after(seconds=20)
    fails(one, "pe-1")
    assert one.state.attempt is not None
    assert one.state.attempt.warming == {"pe-0": first, "pe-1": one.now}


@ROW("U7", level="pure")
def test_U7_one_that_is_restarted_for_nothing_does_not_keep_the_next_from_being_charged():
    rules = (
        Rule(name="free", match=Match(components=("pe-0",)), action=Action(unit=Scope.COMPONENT, charge=None)),
        Rule(name="charged", action=Action(unit=Scope.COMPONENT)),
    )
    one = Elements(spec=streams(3, Policy(timings=Timings(), rules=rules))).up()
    fails(one, "pe-0", "pe-1")
    assert (one.launches(), one.state.used) == ({"pe-0": 1, "pe-1": 1}, {"restart": 1})


@ROW("D18", level="pure")
def test_D18_a_components_back_off_is_not_pushed_out_by_anothers_restart():
    """Two components that fail again: each waits from when it was made again itself."""
    rule = Rule(name="alone", action=Action(unit=Scope.COMPONENT, grace=False, charge=None))
    policy = Policy(
        timings=Timings(), rules=(rule,), replacement=replacing(backoff=timedelta(seconds=200), charge=None)
    )
    life = Elements(spec=streams(3, policy)).up()
    life.pods("pe-0", failed=1).pods("pe-0", running=1)
    first = life.now
    life.after(seconds=90)
    life.pods("pe-1", failed=1).pods("pe-1", running=1)
    second = life.now
    assert (life.launches(), second - first) == ({"pe-0": 1, "pe-1": 1}, timedelta(seconds=90))
    life.after(seconds=10)
    for name, since in (("pe-0", first), ("pe-1", second)):
        failure = Failure(cls=FailureClass.APP, scope=Scope.MEMBER, reason="Error", time=life.now, component=name)
        assert due_at(life.spec, life.state, rule_on(policy, failure), life.now) == since + timedelta(seconds=200)


@ROW("D18", level="pure")
@pytest.mark.parametrize("other", [0, 30, 59])
def test_D18_one_that_fails_is_made_again_when_its_own_back_off_ends(other: int):
    """The other is made again in the meantime, whenever that is."""
    rule = Rule(name="alone", action=Action(unit=Scope.COMPONENT, grace=False, charge=None))
    policy = Policy(timings=Timings(), rules=(rule,), replacement=replacing(backoff=timedelta(seconds=60), charge=None))
    life = Elements(spec=streams(3, policy)).up()
    life.pods("pe-0", failed=1).pods("pe-0", running=1)
    life.after(seconds=other)
    life.pods("pe-1", failed=1).pods("pe-1", running=1)
    life.pods("pe-0", failed=1)
    life.after(seconds=59 - other)
    assert life.launches() == {"pe-0": 1, "pe-1": 1}
    life.after(seconds=1)
    assert life.launches() == {"pe-0": 2, "pe-1": 1}


@ROW("D18", level="pure")
def test_D18_what_an_earlier_release_remembers_is_not_pushed_out_either():
    rule = Rule(name="alone", action=Action(unit=Scope.COMPONENT, grace=False, charge=None))
    policy = Policy(timings=Timings(), rules=(rule,), replacement=replacing(backoff=timedelta(seconds=60), charge=None))
    life = Elements(spec=streams(3, policy)).up()
    life.pods("pe-0", failed=1).pods("pe-0", running=1)
    assert life.state.attempt is not None
    life.state = edit(life.state, attempt=edit(life.state.attempt, replaced={}))
    life.after(seconds=30)
    life.pods("pe-1", failed=1).pods("pe-1", running=1)
    life.pods("pe-0", failed=1)
    life.after(seconds=29)
    assert life.launches() == {"pe-0": 1, "pe-1": 1}
    life.after(seconds=1)
    assert life.launches() == {"pe-0": 2, "pe-1": 1}
