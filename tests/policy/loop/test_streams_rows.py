"""The Streams instance operator's rows, as decisions (contract: S1 to S12)."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from holdfast import names
from holdfast.model import (
    ConditionType,
    Failure,
    FailureClass,
    InterruptedCreate,
    OperationKind,
    Phase,
    Reason,
    RefusedCreate,
    Scope,
    Stage,
)
from holdfast.model.calls.cluster import Created, Replaced
from holdfast.policy.status.explain import explain_of, status_of
from holdfast.policy.status.report import conditions
from holdfast.policy.values.events import Cancelled, Observed, Reconfigured, Suspended
from holdfast.policy.values.steps import Interrupt, Sleep
from holdfast.profiles.streams import POLICY
from tests.policy.lives.elements import Elements, config, element, replacing, streams
from tests.policy.lives.life import Life, workload

ROW = pytest.mark.row
QUOTA = Failure(
    cls=FailureClass.LAUNCH,
    scope=Scope.COMPONENT,
    reason="QuotaExceeded",
    time=Life().now,
    component="pe-0",
    message="pods=0",
)


def held(life: Elements, kind: ConditionType) -> bool:
    return next(each.status for each in conditions(life.spec, life.state) if each.type is kind)


def interrupted(life: Elements) -> Elements:
    """Let the worker die in the middle of creation: its next try says so."""
    return life.ends(Created(interrupted="the submission of attempt 1 was interrupted: it is replaced whole"))


def creating(**changes: Any) -> Elements:
    life = Elements(spec=streams(**changes), hold={OperationKind.CREATE})
    life.settle()
    return life


# --- submission


@ROW("S2", level="pure")
def test_S2_submitted_once_all_exists_and_not_running_before_all_run():
    life = creating()
    assert (held(life, ConditionType.SUBMITTED), life.state.phase) == (False, Phase.RESUMING)
    life.hold.clear()
    life.finish()
    life.settle()
    assert held(life, ConditionType.SUBMITTED)
    assert not held(life, ConditionType.PODS_READY)
    assert (life.state.phase, life.state.reason) == (Phase.RESUMING, Reason.SUBMITTED)
    life.after(days=30)
    assert life.state.phase is Phase.RESUMING, "no pod that waits is a failure here"
    assert explain_of(life.spec, life.state, life.now).now == "0 of 3 pods running"
    life.pods(running=1)
    assert (life.state.phase, held(life, ConditionType.PODS_READY)) == (Phase.RUNNING, True)


@ROW("S2", level="pure")
@ROW("S12", level="pure")
def test_S2_the_word_that_it_is_submitted_comes_with_the_end_of_its_creation():
    life = creating()
    operation = life.state.operation
    assert operation is not None
    assert operation.report_done is not None
    assert [event.reason for event in operation.report_done.events] == [Reason.SUBMISSION_SUCCEEDED]
    life.hold.clear()
    life.finish()
    life.settle()
    assert life.state.told_causes == life.state.causes_total, "and is not told a second time"


@ROW("S3", level="pure")
def test_S3_a_submitted_workload_is_left_as_it_is():
    life = Elements().up()
    ran = len(life.ran)
    for _ in range(5):
        life.tell(Observed(life.look()))
    life.after(days=30)
    assert (len(life.ran), life.attempt, life.launches()) == (ran, 1, {})


@ROW("S4", level="pure")
@ROW("S12", level="pure")
def test_S4_an_interrupted_submission_is_replaced_whole_as_often_as_it_takes_and_charged_to_nothing():
    life = creating()
    for attempt in (1, 2):
        assert life.attempt == attempt
        life.tell_result(Created(interrupted=f"the submission of attempt {attempt} was interrupted"))
        life.settle()
    life.hold.clear()
    life.finish()
    life.settle()
    life.pods(running=1)
    state = life.state
    assert (life.attempt, state.executions, state.restarts, state.used) == (3, 3, 0, {})
    assert state.attempt is not None
    assert (state.attempt.used, state.attempt.launches) == ({}, {})
    assert life.reasons().count("SubmissionFailed") == 2
    assert life.reasons().count("SubmissionSucceeded") == 1
    removed = [number for kind, number, _ in life.ran if kind is OperationKind.REMOVE]
    assert removed == [1, 2], "each is proven gone before the next begins"


@ROW("S4", level="pure")
def test_S4_every_submission_has_an_id_of_its_own():
    life = creating()
    interrupted(life)
    said = [one.message for one in life.state.causes if one.reason is Reason.SUBMISSION_SUCCEEDED]
    assert said == ["attempt 2 is created (submission owner-2)"]


@ROW("S4", level="pure")
def test_S4_adopting_profiles_go_on_where_they_were():
    assert workload().policy.interrupted_create is InterruptedCreate.ADOPT
    assert POLICY.interrupted_create is InterruptedCreate.REPLACE


@ROW("S5", level="pure")
def test_S5_nothing_is_created_before_the_interrupted_attempt_is_proven_gone():
    life = creating()
    life.hold = {OperationKind.REMOVE}
    life.tell_result(Created(interrupted="interrupted"))
    life.settle()
    assert life.kinds()[-1] == "remove"
    life.after(minutes=9)
    assert life.attempt == 1
    life.hold.clear()
    life.finish()
    life.settle()
    assert life.attempt == 2


@ROW("S6", level="pure")
def test_S6_between_gone_and_made_again_nothing_is_forgotten():
    life = creating()
    life.hold = {OperationKind.PREPARE}
    life.tell_result(Created(interrupted="interrupted"))
    life.settle()
    assert life.state.attempt is not None
    assert (life.attempt, life.state.attempt.stage) == (2, Stage.PLANNED)
    carried = type(life.state).model_validate_json(life.state.model_dump_json())
    assert carried == life.state, "what is to be done stands in memory, not in the cluster"
    life.hold.clear()
    life.finish()
    life.settle()
    assert life.attempt == 2
    assert held(life, ConditionType.SUBMITTED)


# --- pods made again alone


@ROW("S7", level="pure")
def test_S7_a_deleted_pod_is_made_again_alone_after_a_look():
    life = Elements().up()
    life.deleted("pe-1")
    assert life.kinds()[-3:] == ["observe", "replace", "observe"]
    assert (life.attempt, life.launches(), life.state.restarts) == (1, {"pe-1": 1}, 0)
    assert life.state.phase is Phase.RUNNING
    assert not held(life, ConditionType.PODS_READY)
    life.pods(running=1)
    assert held(life, ConditionType.PODS_READY)
    assert life.state.reason is Reason.SUFFICIENT_PODS_READY
    life.deleted("pe-1")
    assert life.launches() == {"pe-1": 2}


@ROW("S7", level="pure")
def test_S7_old_news_of_a_pod_that_was_made_again_makes_it_no_second_time():
    life = Elements().up()
    late = life.look().model_copy(update={"components": {**life.views}})
    life.deleted("pe-1")
    life.tell(Observed(late))
    assert life.launches() == {"pe-1": 1}


@ROW("S7", level="pure")
@ROW("S11", level="pure")
@pytest.mark.parametrize("event", [Suspended(), Cancelled()])
def test_S7_nothing_is_made_again_while_the_workload_is_being_removed(event: Suspended | Cancelled):
    life = Elements().up()
    life.hold = {OperationKind.REMOVE}
    life.tell(event)
    life.deleted("pe-0", "pe-1")
    life.hold.clear()
    life.finish()
    life.settle()
    assert "replace" not in life.kinds()


@ROW("S7", level="pure")
@pytest.mark.parametrize("event", [Suspended(), Cancelled()])
def test_S7_a_removal_that_is_asked_for_breaks_a_replacement_off(event: Suspended | Cancelled):
    life = Elements().up()
    life.hold = {OperationKind.REPLACE, OperationKind.REMOVE}
    life.deleted("pe-1")
    assert life.state.operation is not None
    assert life.state.operation.kind is OperationKind.REPLACE
    life.tell(event)
    assert life.kinds()[-1] == "remove"
    assert life.state.attempt is not None
    assert life.state.attempt.replacing == ()


# --- configuration


@ROW("S8", level="pure")
def test_S8_a_changed_configuration_makes_its_readers_again_and_nobody_else():
    life = Elements().up()
    life.configured(config("v2"))
    assert life.launches() == {"adl": 1, "pe-0": 1}
    assert life.state.attempt is not None
    assert life.state.attempt.used == {}, "no launch budget is used by it"
    life.pods(running=1)
    assert (life.state.phase, life.state.reason) == (Phase.RUNNING, Reason.SUFFICIENT_PODS_READY)
    life.configured(element(2, image="pe:2"))
    assert life.launches() == {"adl": 1, "pe-0": 1, "pe-2": 1}


@ROW("S8", level="pure")
def test_S8_a_configuration_that_changes_during_creation_gives_the_submission_up():
    life = creating()
    life.configured(config("v2"))
    assert life.attempt == 2
    life.hold.clear()
    life.finish()
    life.settle()
    assert held(life, ConditionType.SUBMITTED)
    assert life.state.attempt is not None
    assert life.state.attempt.config == life.spec.config_hashes


@ROW("S8", level="pure")
def test_S8_a_configuration_that_changes_while_pods_are_made_again_begins_that_anew():
    life = Elements().up()
    life.hold = {OperationKind.REPLACE}
    life.configured(config("v2"))
    first = life.state.operation
    life.configured(config("v3"))
    second = life.state.operation
    assert first is not None
    assert second is not None
    assert (first.launches, second.launches) == ({"adl": 1, "pe-0": 1}, {"adl": 2, "pe-0": 2})
    life.hold.clear()
    life.finish()
    life.settle()
    assert life.state.attempt is not None
    assert life.state.attempt.config == life.spec.config_hashes
    assert life.launches() == {"adl": 2, "pe-0": 2}


@ROW("S8", level="pure")
def test_S8_what_reads_a_configuration_that_changes_is_made_again_with_it_though_it_was_being_made_again():
    life = Elements(hold={OperationKind.REPLACE}).up()
    life.deleted("pe-0")
    life.configured(config("v2"))
    operation = life.state.operation
    assert operation is not None
    assert operation.launches == {"pe-0": 2, "adl": 1}, "not before what it reads is the new one"
    life.hold.clear()
    life.finish()
    life.settle()
    assert life.state.attempt is not None
    assert life.state.attempt.config == life.spec.config_hashes


@ROW("S8", level="pure")
def test_S8_a_change_that_comes_with_the_end_of_the_creation_only_replaces_what_differs():
    life = creating()
    before = life.spec
    life.spec = before.with_components([config("v2"), *before.components[1:]])
    life.tell_result(Reconfigured(("adl", "pe-0")))
    life.hold.clear()
    life.finish()
    life.settle()
    assert life.attempt == 1
    assert life.state.attempt is not None
    assert life.state.attempt.config == life.spec.config_hashes


# --- the replacement rule


@ROW("S9", level="pure")
@pytest.mark.parametrize(("failed", "completed", "deleted"), list(product((True, False), repeat=3)))
def test_S9_each_rule_on_or_off(failed: bool, completed: bool, deleted: bool):
    rule = replacing(failed=failed, completed=completed, deleted=deleted)
    for what, wanted in (("failed", failed), ("completed", completed), ("deleted", deleted)):
        life = Elements(spec=streams(replacement=rule)).up()
        match what:
            case "failed":
                life.pods("pe-1", failed=1)
            case "completed":
                life.pods("pe-1", succeeded=1)
            case _:
                life.deleted("pe-1")
        assert life.launches() == ({"pe-1": 1} if wanted else {}), (what, wanted)
        assert (life.attempt, life.state.restarts, life.state.outcome) == (1, 0, None)


@ROW("S9", level="pure")
def test_S9_a_component_has_its_own_rule_before_the_profiles():
    spec = streams()
    own = spec.components[1].model_copy(update={"replacement": replacing(failed=False)})
    life = Elements(spec=spec.model_copy(update={"components": (spec.components[0], own, *spec.components[2:])})).up()
    life.pods("pe-0", failed=1)
    assert life.launches() == {}
    life.pods("pe-1", failed=1)
    assert life.launches() == {"pe-1": 1}


@ROW("S9", level="pure")
def test_S9_a_pod_that_fails_again_and_again_is_made_again_ever_later():
    life = Elements().up()
    waits: list[float] = []
    for _ in range(8):
        since = life.now
        life.pods("pe-1", failed=1)
        while isinstance(life.step, Sleep) and life.step.until is not None and "back-off" in life.step.why:
            life.after(seconds=(life.step.until - life.now).total_seconds())
        waits.append((life.now - since).total_seconds())
        life.pods("pe-1", running=1)
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300]
    assert life.launches() == {"pe-1": 8}


@ROW("S9", level="pure")
def test_S9_with_all_elements_done_and_none_to_be_made_again_it_has_succeeded():
    life = Elements().up()
    life.pods(succeeded=1)
    assert life.state.outcome is Phase.SUCCEEDED
    again = Elements(spec=streams(replacement=replacing(completed=True))).up()
    again.pods(succeeded=1)
    assert again.state.outcome is None
    assert again.launches() == {"pe-0": 1, "pe-1": 1, "pe-2": 1}


# --- timeout and launch budget


@ROW("S10", level="pure")
def test_S10_a_refusal_that_may_pass_is_waited_for_and_ends_only_by_the_submission_timeout():
    assert (POLICY.refused_create, POLICY.timings.submission_timeout) == (RefusedCreate.WAIT, None)
    life = creating()
    life.ends(Created(failure=QUOTA, exhausted=True))
    assert life.state.outcome is Phase.FAILED
    assert life.state.reason is Reason.SUBMISSION_TIMEOUT
    assert "SubmissionFailed" in life.reasons()


@ROW("S10", level="pure")
def test_S10_waiting_for_a_right_ends_by_the_submission_timeout_too():
    life = Elements(hold={OperationKind.PREPARE})
    life.settle()
    life.refused(names.ERROR_SUBMISSION_TIMEOUT, "not submitted in time: may not create configmaps")
    assert (life.state.outcome, life.state.reason) == (Phase.FAILED, Reason.SUBMISSION_TIMEOUT)


@ROW("S10", level="pure")
def test_S10_each_member_has_a_launch_budget_of_its_own():
    budgets = (POLICY.budgets[0].model_copy(update={"limit": 2}),)
    life = Elements(spec=streams(budgets=budgets)).up()
    for name in ("pe-0", "pe-1", "pe-0", "pe-1"):
        life.deleted(name)
        life.pods(running=1)
    assert life.launches() == {"pe-0": 2, "pe-1": 2}
    assert status_of(life.spec, life.state, life.now, "uid").budgets[0].used == 2
    life.deleted("pe-1")
    assert (life.state.outcome, life.state.reason) == (Phase.FAILED, Reason.LAUNCH_LIMIT_EXCEEDED)


@ROW("S10", level="pure")
def test_S10_without_a_limit_the_launch_budget_is_never_used_up():
    life = Elements().up()
    for _ in range(60):
        life.deleted("pe-1")
        life.pods(running=1)
    assert life.launches() == {"pe-1": 60}
    assert life.state.outcome is None


# --- the user's own deletions


@ROW("S11", level="pure")
def test_S11_cancelled_during_submission_nothing_is_made_again():
    life = creating()
    life.tell(Cancelled("no longer wanted"))
    assert life.ended is Phase.CANCELLED
    assert (life.attempt, life.kinds().count("create")) == (1, 1)


@ROW("S11", level="pure")
def test_S11_cancelled_while_an_interrupted_submission_is_removed_nothing_is_made_again():
    life = creating()
    life.hold = {OperationKind.REMOVE}
    life.tell_result(Created(interrupted="interrupted"))
    life.settle()
    life.tell(Cancelled("no longer wanted"))
    life.hold.clear()
    life.finish()
    life.settle()
    assert life.ended is Phase.CANCELLED
    assert life.attempt == 1


# --- what none of this may do to the others


def test_a_replacement_that_fails_is_a_failure_of_the_workload():
    life = Elements(hold={OperationKind.REPLACE}).up()
    life.deleted("pe-1")
    invalid = QUOTA.model_copy(update={"reason": "Invalid", "message": "the name is taken"})
    life.ends(Replaced(failure=invalid))
    assert life.state.outcome is Phase.FAILED


def test_a_missing_component_without_a_rule_is_ruled_as_ever():
    life = Life().runs().sees(running=2, found=False)
    assert (life.attempt, life.state.restarts) == (1, 1)
    life.after(seconds=90)
    assert life.attempt == 2


def test_while_something_is_made_again_no_clock_of_the_whole_runs():
    spec = streams(timings=POLICY.timings.model_copy(update={"warmup_grace_period": timedelta(seconds=1)}))
    life = Elements(spec=spec).up()
    life.hold = {OperationKind.REPLACE}
    life.deleted("pe-1")
    life.after(hours=1)
    assert not isinstance(life.step, Interrupt)
    assert (life.state.restarts, life.state.outcome) == (0, None)
