"""One component restarted alone, at a rule's word (row U7), on virtual time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import ValidationError

from holdfast.model import (
    Action,
    ActionKind,
    Budget,
    Failure,
    FailureClass,
    Match,
    Observation,
    OperationKind,
    Phase,
    PodCounts,
    Policy,
    Progress,
    Reason,
    Rule,
    Scope,
    State,
    Timings,
    Workload,
)
from holdfast.model.calls.cluster import Replaced
from holdfast.policy.status.explain import explain_of, status_of
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Observed, Resumed, Suspended
from holdfast.policy.values.steps import Sleep
from tests.policy.lives.elements import Elements, streams
from tests.policy.lives.life import Life

ROW = pytest.mark.row
MEMBER = (Budget(name="restart", limit=3), Budget(name="member", limit=2, scope=Scope.MEMBER))


def alone(unit: Scope = Scope.COMPONENT, charge: str | None = "restart", *, grace: bool = True) -> Policy:
    """Return a policy that restarts single components, and the workload for what is of none."""
    match = Match(scopes=(Scope.MEMBER, Scope.COMPONENT))
    rule = Rule(name="alone", match=match, action=Action(unit=unit, charge=charge, grace=grace))
    return Policy(timings=Timings(), rules=(rule,), budgets=MEMBER)


def life(policy: Policy | None = None, elements: int = 3) -> Elements:
    return Elements(spec=streams(elements, policy or alone())).up()


def fails(one: Elements, *names: str, **span: float) -> Elements:
    """Let pods fail, and their grace pass."""
    one.pods(*names, failed=1)
    one.after(**(span or {"seconds": 60}))
    return one


def told(one: Life) -> str:
    explanation = explain_of(one.spec, one.state, one.now)
    return " | ".join([explanation.why, explanation.now, *(each.what for each in explanation.next)])


def removals(one: Elements) -> int:
    return one.kinds().count("remove")


@ROW("U7", level="pure")
@pytest.mark.parametrize("unit", [Scope.COMPONENT, Scope.MEMBER])
def test_U7_the_component_that_failed_is_made_again_and_no_other(unit: Scope):
    one = life(alone(unit))
    one.pods("pe-1", failed=1)
    assert "Pod pe-1 is made again alone (restart 1 of 3)" in told(one)
    one.after(seconds=59)
    assert one.launches() == {}
    one.after(seconds=1)
    assert one.kinds()[-3:] == ["observe", "replace", "observe"], "a live look comes before it"
    assert (one.launches(), one.attempt, removals(one)) == ({"pe-1": 1}, 1, 0)
    assert (one.state.executions, one.state.restarts, one.state.used) == (1, 1, {"restart": 1})
    (why,) = [each.message for each in one.state.causes if each.reason is Reason.REPLACING]
    assert why == "Pod pe-1: pe-1 exited 1 (rule alone)"
    assert why in told(one)
    one.pods("pe-1", running=1)
    assert (one.state.phase, one.state.reason) == (Phase.RUNNING, Reason.SUFFICIENT_PODS_READY)


@ROW("U7", level="pure")
def test_U7_what_heals_within_its_grace_is_left_alone():
    one = life()
    one.pods("pe-1", failed=1)
    one.after(seconds=30)
    one.pods("pe-1", running=1)
    one.after(hours=1)
    assert (one.launches(), one.state.restarts) == ({}, 0)


@ROW("U7", level="pure")
def test_U7_a_stale_report_restarts_nothing():
    one = life(alone(grace=False))
    well = one.views
    one.views = {
        **well,
        "pe-1": well["pe-1"].model_copy(update={"failed": True, "pods": PodCounts(expected=1, failed=1)}),
    }
    late = one.look()
    one.views = well
    one.tell(Observed(late))
    assert (one.launches(), one.kinds()[-1]) == ({}, "observe")


@ROW("U7", level="pure")
def test_U7_several_that_failed_go_together_and_each_is_charged_once():
    one = fails(life(), "pe-0", "pe-2")
    assert one.launches() == {"pe-0": 1, "pe-2": 1}
    assert one.kinds().count("replace") == 1
    assert (one.state.used, one.state.restarts) == ({"restart": 2}, 2)


@ROW("U7", level="pure")
def test_U7_its_budget_used_up_fails_the_workload_as_ever():
    one = life()
    for _ in range(3):
        fails(one, "pe-1").pods("pe-1", running=1)
    assert (one.state.phase, one.state.used, one.launches()) == (Phase.RUNNING, {"restart": 3}, {"pe-1": 3})
    one.pods("pe-1", failed=1)
    assert "the workload fails, since its restart budget is used up (3 of 3)" in told(one)
    one.after(minutes=1)
    assert (one.state.phase, one.state.reason) == (Phase.FAILED, Reason.RETRY_LIMIT_EXCEEDED)
    assert one.state.outcome_failure is not None
    assert one.state.outcome_failure.component == "pe-1"


@ROW("U7", level="pure")
def test_U7_each_member_has_a_budget_of_its_own():
    one = life(alone(Scope.MEMBER, "member"))
    for name in ("pe-0", "pe-1", "pe-2", "pe-0", "pe-1", "pe-2"):
        fails(one, name).pods(name, running=1)
    assert one.state.attempt is not None
    assert one.state.attempt.used == {"pe-0": 2, "pe-1": 2, "pe-2": 2}
    assert (one.state.phase, one.state.used, one.state.restarts) == (Phase.RUNNING, {}, 6)
    shown = {each.name: each.used for each in status_of(one.spec, one.state, one.now, "uid").budgets}
    assert shown == {"restart": 0, "member": 2}
    fails(one, "pe-1")
    assert (one.state.phase, one.state.reason) == (Phase.FAILED, Reason.RETRY_LIMIT_EXCEEDED)


@ROW("U7", level="pure")
def test_U7_uncharged_it_happens_as_often_as_it_takes_but_ever_later():
    one = life(alone(charge=None, grace=False))
    waits: list[float] = []
    for _ in range(6):
        one.pods("pe-1", failed=1)
        waits.append(0.0)
        while isinstance(one.step, Sleep) and one.step.until and one.state.unhealthy:
            waits[-1] += (one.step.until - one.now).total_seconds()
            one.after(seconds=(one.step.until - one.now).total_seconds())
        one.pods("pe-1", running=1)
    assert waits == [0, 10, 20, 40, 80, 160]
    assert (one.launches(), one.state.used) == ({"pe-1": 6}, {})


@ROW("U7", level="pure")
def test_U7_a_component_made_again_has_its_graces_anew():
    one = life()
    one.after(days=3)
    fails(one, "pe-1")
    assert one.state.unhealthy is None
    assert "warm-up grace: 1 pod of Pod pe-1 does not run yet" in told(one)
    one.after(minutes=4, seconds=59)
    assert (one.state.unhealthy, one.attempt) == (None, 1)
    one.pods("pe-1", running=1)
    one.after(hours=1)
    assert (one.attempt, one.state.restarts, one.launches()) == (1, 1, {"pe-1": 1})
    one.pods("pe-1", pending=1)
    assert one.state.unhealthy is not None, "it has run: from now on it is as any other"
    assert one.state.unhealthy.failure.reason == Reason.INSUFFICIENT_PODS_READY


@ROW("U7", level="pure")
def test_U7_one_that_does_not_come_back_in_time_is_its_own_failure():
    one = fails(life(), "pe-1")
    one.after(minutes=5)
    assert one.state.unhealthy is not None
    failure = one.state.unhealthy.failure
    assert (failure.reason, failure.component) == (Reason.PODS_NOT_RUNNING, "pe-1")
    one.after(minutes=1)
    assert (one.launches(), one.attempt, one.state.used) == ({"pe-1": 2}, 1, {"restart": 2})


@ROW("U7", level="pure")
def test_U7_its_graces_do_not_run_while_it_is_being_made():
    one = life()
    one.hold = {OperationKind.REPLACE}
    fails(one, "pe-1")
    one.after(hours=2)
    assert (one.kinds()[-1], one.state.phase, one.attempt) == ("replace", Phase.RUNNING, 1)
    one.hold.clear()
    one.finish()
    one.settle()
    one.after(minutes=4)
    assert one.state.unhealthy is None


@ROW("U7", level="pure")
def test_U7_the_others_are_watched_meanwhile():
    one = fails(life(), "pe-1")
    fails(one, "pe-2")
    assert one.launches() == {"pe-1": 1, "pe-2": 1}
    assert one.state.used == {"restart": 2}


@ROW("U7", level="pure")
def test_U7_one_that_fails_before_all_have_run_has_its_graces_anew_too():
    one = Elements(spec=streams(3, alone()))
    one.settle()
    one.pods("pe-0", "pe-2", running=1)
    one.after(minutes=3)
    fails(one, "pe-1")
    assert one.launches() == {"pe-1": 1}
    one.after(minutes=2)
    assert one.state.unhealthy is None, "the workload's own warm-up is over, its is not"
    one.pods("pe-1", running=1)
    assert one.state.phase is Phase.RUNNING


@ROW("U7", level="pure")
def test_U7_what_is_of_no_one_component_restarts_the_workload():
    one = life(Policy(default=Action(unit=Scope.COMPONENT, charge="member"), budgets=MEMBER))
    for attempt in (1, 2):
        one.pods("pe-1", pending=1)
        one.after(minutes=1)
        assert (one.state.phase, one.attempt) == (Phase.RESETTING, attempt)
        one.after(seconds=90)
        one.pods(running=1)
    assert (one.launches(), one.state.used) == ({}, {"member": 2})
    one.pods("pe-1", pending=1)
    one.after(minutes=1)
    assert (one.state.phase, one.state.reason) == (Phase.FAILED, Reason.RETRY_LIMIT_EXCEEDED)


@ROW("U7", level="pure")
@pytest.mark.parametrize(("whole", "phase"), [("pe-0", Phase.RESETTING), ("pe-2", Phase.RUNNING)])
def test_U7_of_failures_seen_together_the_first_by_name_decides(whole: str, phase: Phase):
    rule = Rule(name="whole", match=Match(components=(whole,)), action=Action())
    one = life(Policy(rules=(rule, *alone().rules), budgets=MEMBER))
    fails(one, "pe-1", whole)
    assert (one.state.phase, one.state.used) == (phase, {"restart": 1})
    assert one.launches() == ({"pe-1": 1} if phase is Phase.RUNNING else {})


@ROW("U7", level="pure")
def test_U7_a_restart_that_cannot_be_made_restarts_the_workload():
    one = life()
    one.hold = {OperationKind.REPLACE}
    fails(one, "pe-1")
    refused = Failure(
        cls=FailureClass.LAUNCH, scope=Scope.COMPONENT, reason="QuotaExceeded", time=one.now, component="pe-1"
    )
    one.ends(Replaced(failure=refused))
    assert one.state.unhealthy is not None
    one.after(minutes=1)
    assert (one.state.phase, one.state.used) == (Phase.RESETTING, {"restart": 2})


@ROW("U7", level="pure")
def test_U7_suspended_meanwhile_all_of_it_goes_and_begins_anew():
    one = life()
    one.hold = {OperationKind.REPLACE}
    fails(one, "pe-1")
    one.hold.clear()
    one.tell(Suspended())
    assert one.state.phase is Phase.SUSPENDED
    one.tell(Resumed())
    one.pods(running=1)
    assert (one.attempt, one.launches(), one.state.executions, one.state.restarts) == (2, {}, 2, 1)
    assert one.state.used == {"restart": 1}


@ROW("U7", level="pure")
def test_U7_it_survives_being_written_and_read_back():
    one = fails(life(), "pe-1")
    assert one.state.attempt is not None
    assert one.state.attempt.warming.keys() == {"pe-1"}
    assert State.model_validate_json(one.state.model_dump_json(by_alias=True)) == one.state


@dataclass
class Trained(Elements):
    """A life whose pods tell a step as they fail."""

    steps: dict[str, int] = field(default_factory=dict)

    def look(self, **fields: Any) -> Observation:
        seen = super().look(**fields)
        told = (
            edit(one, message=f"step {self.steps[one.component]}") if one.component in self.steps else one
            for one in seen.failures
        )
        return edit(seen, failures=tuple(told))


def trained(progress: Progress, steps: dict[str, int] | None = None, *, shows_waits: bool = True) -> Trained:
    policy = edit(alone(), budgets=(Budget(name="restart", limit=100),))
    one = Trained(spec=edit(streams(3, policy), progress=progress), steps=steps or {})
    one.state = edit(one.state, shows_waits=shows_waits)
    one.up()
    return one


def again(one: Elements, *names: str) -> None:
    """Let pods fail, and run once they are made again."""
    fails(one, *names)
    if one.state.outcome is None:
        one.pods(*names, running=1)
        one.after(minutes=10)


@ROW("P4", level="pure")
@ROW("U7", level="pure")
@pytest.mark.parametrize("names", [("pe-1",), ("pe-0", "pe-1"), ("pe-1", "pe-2")])
def test_P4_what_fails_alone_at_the_same_step_again_and_again_fails_the_workload(names: tuple[str, ...]):
    one = trained(Progress(), {"pe-0": 1234, "pe-1": 1234, "pe-2": 7})
    again(one, *names)
    again(one, *names)
    assert (one.state.phase, one.launches()) == (Phase.RUNNING, dict.fromkeys(names, 2))
    one.pods(*names, failed=1)
    why = f"Pod {names[0]} has failed at step 1,234 3 times in a row"
    assert f"the workload fails, since {why}" in told(one)
    one.after(minutes=1)
    assert (one.state.outcome, one.state.reason) == (Phase.FAILED, Reason.POISON_STEP)
    assert one.state.message.startswith(f"{why}: ")


@ROW("P4", level="pure")
def test_P4_several_that_fail_at_one_step_are_no_poison_and_neither_is_what_another_tells():
    one = trained(Progress(), {"pe-0": 1234, "pe-1": 1234, "pe-2": 1234})
    for name in ("pe-0", "pe-1", "pe-2", "pe-0"):
        again(one, name)
    assert (one.state.phase, one.state.restarts) == (Phase.RUNNING, 4)
    one = trained(Progress(), {"pe-1": 1234})
    for step in (5, 6, 7):
        one.steps["pe-0"] = step
        again(one, *(("pe-0", "pe-1") if step < 7 else ("pe-0",)))
    assert one.state.phase is Phase.RUNNING
    assert one.state.fall is not None
    assert one.state.fall.step == 7


@ROW("P4", level="pure")
def test_P4_what_is_restarted_alone_begins_no_more_often_than_executions_allows():
    one = trained(Progress(executions=4))
    for name in ("pe-0", "pe-1", "pe-2", "pe-0", "pe-1", "pe-2", "pe-1"):
        again(one, name)
    assert (one.state.phase, one.state.executions, one.state.restarts) == (Phase.RUNNING, 1, 7)
    again(one, "pe-1")
    assert (one.state.outcome, one.state.reason) == (Phase.FAILED, Reason.EXECUTIONS_EXCEEDED)
    begun = "it has begun 1 attempt and 3 restarts of Pod pe-1 alone, as many as progress.executions allows: "
    assert one.state.message.startswith(begun)


@ROW("P4", level="pure")
def test_P4_what_is_made_again_for_another_reason_than_a_rule_is_no_restart_of_it():
    one = trained(Progress(executions=3))
    for image in range(4):
        (before,) = (each for each in one.spec.components if each.name == "pe-1")
        labels = {"metadata": {"name": "pe-1", "labels": {"version": str(image)}}}
        one.configured(before.model_copy(update={"template": {**before.template, **labels}}))
        one.pods("pe-1", running=1)
        one.after(minutes=10)
    assert one.launches()["pe-1"] >= 3
    again(one, "pe-1")
    assert one.state.phase is Phase.RUNNING


@ROW("P4", level="pure")
def test_P4_a_run_of_an_earlier_release_restarts_alone_as_it_began():
    one = trained(Progress(executions=2), {"pe-1": 1234}, shows_waits=False)
    for _ in range(4):
        again(one, "pe-1")
    assert (one.state.phase, one.state.restarts, one.state.fall) == (Phase.RUNNING, 4, None)


# --- what is refused


def refused(policy: dict[str, Any]) -> str:
    spec = streams(2).model_dump(mode="json")
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": {}}
    spec["components"].append(
        {"name": "train", "template": job, "podSets": [{"path": "template.spec.template", "replicas": 2}]}
    )
    spec["policy"] = policy
    with pytest.raises(ValidationError) as caught:
        Workload.model_validate(spec)
    return str(caught.value)


@ROW("U7", level="pure")
@ROW("U14", level="pure")
@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"action": {"unit": "Gang"}}, "policy.rules.0.action.unit"),
        ({"action": {"unit": "Gang"}}, "expected Member, Component or Workload"),
        ({"action": {"unit": "Member"}}, "policy.rules[r].action.unit: Member: the pods of Job train"),
        ({"action": {"unit": "Member"}, "match": {"components": ["train"]}}, "expected Component or Workload"),
        ({"action": {"charge": "member"}}, "charge 'member': expected a budget of scope Workload"),
        ({"action": {"kind": "Fail", "unit": "Member", "charge": "member"}}, "expected a budget of scope"),
    ],
)
def test_U7_a_unit_that_cannot_be_is_refused(rule: dict[str, Any], words: str):
    budgets = [{"name": "restart", "limit": 1}, {"name": "member", "limit": 1, "scope": "Member"}]
    assert words in refused({"rules": [{"name": "r", **rule}], "budgets": budgets})


@ROW("U7", level="pure")
def test_U7_a_member_of_bare_pods_is_accepted_beside_a_job():
    rule = Rule(name="r", match=Match(components=("pe-0",)), action=Action(unit=Scope.MEMBER))
    assert streams(2, Policy(rules=(rule,))).policy.rules == (rule,)


@ROW("U7", level="pure")
def test_U7_two_budgets_of_members_are_refused():
    with pytest.raises(ValidationError, match="at most one of scope Member"):
        Policy(budgets=(*MEMBER, Budget(name="other", limit=1, scope=Scope.MEMBER)))


@ROW("U7", level="pure")
def test_U7_a_rule_that_fails_or_ignores_restarts_nothing():
    action = Action(kind=ActionKind.IGNORE, unit=Scope.COMPONENT, charge=None)
    one = life(Policy(rules=(Rule(name="r", match=Match(classes=(FailureClass.APP,)), action=action),)))
    one.pods("pe-1", failed=1)
    assert (one.launches(), one.state.used) == ({}, {})
