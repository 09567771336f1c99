"""Single components made again: which, when, what it costs, and what is remembered of it (rows S7 to S10, U7)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.model import (
    Action,
    Budget,
    Failure,
    FailureClass,
    Match,
    ObjectRef,
    OperationKind,
    Phase,
    Policy,
    Reason,
    Rule,
    Scope,
    Timings,
)
from holdfast.policy.decide import decide
from holdfast.policy.decision import Look, Replace, Wait
from holdfast.policy.edit import edit
from holdfast.policy.events import ReplaceDone
from holdfast.policy.explain import status_of
from holdfast.policy.replace import backed_off
from holdfast.policy.restart import due_at
from holdfast.policy.rules import rule_on
from holdfast.profiles.streams import LAUNCH, POLICY
from tests.policy.elements import Elements, config, element, replacing, streams
from tests.policy.life import Life, workload
from tests.policy.moments import moment
from tests.policy.test_restart import fails
from tests.policy.test_restart import life as restarted

ROW = pytest.mark.row


def limited(limit: int, **rule: Any) -> Elements:
    """Elements of which each may be made again so often."""
    budgets = (edit(POLICY.budgets[0], limit=limit),)
    return Elements(spec=streams(budgets=budgets, replacement=replacing(**rule))).up()


def seen(life: Elements, *looks: OperationKind) -> Elements:
    """Hold what would be carried out, so that what is decided can be asked."""
    life.hold = set(looks or (OperationKind.OBSERVE, OperationKind.REPLACE))
    return life


@ROW("S7", level="pure")
def test_S7_all_that_is_due_is_made_again_together_after_one_look_that_names_it():
    life = seen(Elements().up()).deleted("pe-0", "pe-2")
    why = "Pod pe-0 was deleted; Pod pe-2 was deleted"
    assert decide(life.spec, life.state, life.now) == Look(f"confirming before it is made again: {why}")
    life.state = edit(life.state, looked_at=life.now)
    assert decide(life.spec, life.state, life.now) == Replace(("pe-0", "pe-2"), ("pe-0", "pe-2"), why)


@ROW("S8", level="pure")
def test_S8_a_changed_configuration_needs_no_look_and_charges_nothing():
    life = seen(Elements().up())
    life.spec = life.spec.with_components((config("v2"), *life.spec.components[1:]))
    why = "the configuration of ConfigMap adl has changed; the configuration of Pod pe-0 has changed"
    assert decide(life.spec, life.state, life.now) == Replace(("adl", "pe-0"), (), why)


def test_what_one_is_made_again_for_does_not_keep_the_next_from_it():
    life = seen(Elements().up())
    life.hold = {OperationKind.REPLACE}
    life.deleted("pe-0")
    life.deleted("pe-1")
    life.hold.clear()
    life.finish()
    life.settle()
    assert life.launches() == {"pe-0": 1, "pe-1": 1}


@ROW("S9", level="pure")
@pytest.mark.parametrize(
    ("launches", "seconds"), [(1, 10), (2, 20), (3, 40), (5, 160), (6, 300), (10, 300), (12, 300), (5000, 300)]
)
def test_S9_the_pause_doubles_up_to_five_minutes_whatever_the_number(launches: int, seconds: int):
    life = Elements().up()
    attempt = life.state.attempt
    assert attempt is not None
    again = edit(attempt, launches={"pe-1": launches}, replaced_at=life.now)
    assert backed_off("pe-1", POLICY.replacement, again) == life.now + timedelta(seconds=seconds)
    assert backed_off("pe-0", POLICY.replacement, again) is None


@ROW("S9", level="pure")
def test_S9_the_first_whose_pause_ends_is_waited_for():
    life = Elements().up()
    life.pods("pe-1", failed=1)
    life.pods("pe-1", running=1)
    life.after(seconds=3)
    life.pods("pe-1", "pe-2", failed=1)
    assert life.launches() == {"pe-1": 1, "pe-2": 1}, "the first time there is no pause"
    life.pods("pe-2", running=1)
    decided = decide(life.spec, life.state, life.now)
    assert isinstance(decided, Wait)
    assert decided.why == "back-off before pe-1 is made again"


@ROW("S10", level="pure")
@pytest.mark.parametrize(
    ("counts", "rule", "failure"),
    [
        (
            {"failed": 1},
            {},
            Failure(cls=FailureClass.APP, scope=Scope.MEMBER, reason="Error", time=Life().now, exit_code=1),
        ),
        (
            {"succeeded": 1},
            {"completed": True},
            Failure(
                cls=FailureClass.APP,
                scope=Scope.COMPONENT,
                reason=Reason.LAUNCH_LIMIT_EXCEEDED,
                time=Life().now,
                message="Pod pe-1 has completed",
            ),
        ),
    ],
    ids=["failed", "completed"],
)
def test_S10_a_launch_budget_used_up_ends_it_with_what_was_seen(
    counts: dict[str, int], rule: dict[str, Any], failure: Failure
):
    life = limited(0, **rule)
    life.pods("pe-1", **counts)
    what = "failed" if "failed" in counts else "has completed"
    assert (life.state.phase, life.state.reason) == (Phase.FAILED, Reason.LAUNCH_LIMIT_EXCEEDED)
    assert life.state.message == f"{LAUNCH} budget is used up (0): Pod pe-1 {what}"
    told = life.state.outcome_failure
    assert told is not None
    assert edit(told, subject="") == edit(failure, component="pe-1", attempt=1)


@ROW("S10", level="pure")
@pytest.mark.parametrize("limit", [1, 2])
def test_S10_it_may_be_made_again_as_often_as_its_budget_says_and_no_more(limit: int):
    life = limited(limit)
    for _ in range(limit):
        life.deleted("pe-1").pods(running=1)
    assert (life.launches(), life.state.phase) == ({"pe-1": limit}, Phase.RUNNING)
    life.deleted("pe-1")
    assert (life.launches(), life.state.phase) == ({"pe-1": limit}, Phase.FAILED)


def test_what_was_made_is_remembered_beside_what_was_not_made_again():
    life = Elements(hold={OperationKind.REPLACE}).up()
    ref = {"api_version": "v1", "kind": "Pod"}
    old = tuple(ObjectRef(name=f"pe-{n}", uid=f"old-{n}", **ref) for n in range(2))
    assert life.state.attempt is not None
    life.state = edit(life.state, attempt=edit(life.state.attempt, objects=old))
    life.deleted("pe-1")
    life.hold = {OperationKind.OBSERVE}
    life.tell_result(ReplaceDone((ObjectRef(name="pe-1", uid="new-1", **ref),), None))
    state, attempt = life.state, life.state.attempt
    assert attempt is not None
    assert [one.uid for one in attempt.objects] == ["old-0", "new-1"]
    assert attempt.replacing == ()
    assert (state.observation, state.looked_at, state.in_doubt) == (None, None, True), "nothing is known of it yet"


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
    own = element(1, replacement=replacing(backoff=timedelta(seconds=70), charge=None))
    rule = Rule(name="alone", action=Action(unit=Scope.COMPONENT))
    policy = Policy(timings=Timings(), rules=(rule,))
    life = Elements(spec=streams(3, policy).with_components((config(), element(0), own, element(2)))).up()
    life.pods("pe-1", failed=1).pods("pe-1", running=1)
    fails(life, "pe-0").pods("pe-0", running=1)
    assert life.launches() == {"pe-1": 1, "pe-0": 1}
    for name, seconds in (("pe-1", 70), ("pe-0", 60), ("pe-2", 60)):
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


@ROW("S8", level="pure")
def test_S8_what_an_earlier_release_made_without_a_digest_is_made_again_when_it_changes():
    life = Elements().up()
    assert life.state.attempt is not None
    life.state = edit(life.state, attempt=edit(life.state.attempt, config={}))
    life.settle()
    assert life.launches() == {}, "nothing is known to have changed"
    life.configured(element(1, "pe:2"))
    assert life.launches() == {"pe-1": 1}


def test_a_member_budget_that_nobody_has_used_is_shown_unused():
    life = Elements().up()
    assert [(one.name, one.used) for one in status_of(life.spec, life.state, life.now, "uid").budgets] == [(LAUNCH, 0)]


@ROW("S8", level="pure")
def test_S8_a_changed_configuration_is_acted_on_before_anything_is_seen_of_what_was_made_before():
    life = Elements(hold={OperationKind.REPLACE}).up()
    life.deleted("pe-1")
    life.hold = {OperationKind.OBSERVE}
    life.finish()
    assert life.state.observation is None
    spec = life.spec.with_components((config("v2"), *life.spec.components[1:]))
    decided = decide(spec, life.state, life.now)
    assert isinstance(decided, Replace)
    assert (decided.components, decided.exclude) == (("adl", "pe-0"), ())
