"""How a submission ends, what is remembered of it, and from when on graces count (rows A4, A5, S4, S10, S12)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import names
from holdfast.model import (
    Failure,
    FailureClass,
    ObjectRef,
    Operation,
    OperationKind,
    Phase,
    Reason,
    RefusedCreate,
    Report,
    Scope,
    Stage,
)
from holdfast.model.calls.cluster import Created
from holdfast.model.life.state import STANDSTILL
from holdfast.policy.values.decision import Fail, Look, Resubmit, Wait
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import OperationRefused
from holdfast.policy.verdicts.decide import decide
from tests.policy.lives.life import START, Life, workload
from tests.policy.lives.moments import moment

ROW = pytest.mark.row
MADE = (ObjectRef(api_version="batch/v1", kind="Job", name="train", uid="u"),)
QUOTA = Failure(
    cls=FailureClass.LAUNCH, scope=Scope.COMPONENT, reason="QuotaExceeded", time=START, component="train", attempt=1
)


def creating(refused: RefusedCreate = RefusedCreate.FAIL) -> Life:
    policy = edit(workload().policy, refused_create=refused)
    return Life(spec=workload(policy=policy), hold={OperationKind.CREATE}).settle()


@ROW("A4", level="pure")
@pytest.mark.parametrize(("seen", "grace"), [({}, 60), ({"pending": 2}, 300)], ids=["admission", "warm-up"])
def test_A4_A5_graces_count_from_the_submission_and_not_from_the_attempt(seen: dict[str, Any], grace: int):
    life = creating()
    life.now += timedelta(minutes=20)
    life.finish()
    assert life.state.attempt is not None
    assert life.state.attempt.submitted_at == life.now
    life.settle().sees(**seen).after(seconds=grace - 1)
    assert life.state.unhealthy is None
    life.after(seconds=1)
    assert life.state.unhealthy is not None


def test_what_was_made_is_remembered_however_the_submission_ended():
    for event in (
        Created(objects=MADE),
        Created(objects=MADE, failure=QUOTA),
        Created(objects=MADE, interrupted="it was interrupted"),
    ):
        life = creating()
        life.tell_result(event)
        assert life.state.attempt is not None
        assert life.state.attempt.objects == MADE
    late = moment("resetting")
    late.state = edit(late.state, operation=moment("creating").state.operation)
    late.tell_result(Created(objects=MADE))
    assert late.state.attempt is not None
    assert (late.state.attempt.objects, late.state.attempt.stage) == (MADE, Stage.REMOVING)


@ROW("S10", level="pure")
@pytest.mark.parametrize(
    ("refused", "exhausted", "reason"),
    [
        (RefusedCreate.WAIT, True, Reason.SUBMISSION_TIMEOUT),
        (RefusedCreate.WAIT, False, "QuotaExceeded"),
        (RefusedCreate.FAIL, True, "QuotaExceeded"),
        (RefusedCreate.FAIL, False, "QuotaExceeded"),
    ],
)
def test_S10_only_a_workload_that_waits_in_submission_has_a_timeout_of_it(
    refused: RefusedCreate, exhausted: bool, reason: str
):
    life = creating(refused)
    life.tell_result(Created(failure=QUOTA, exhausted=exhausted))
    attempt = life.state.attempt
    assert attempt is not None
    assert attempt.launch_failure is not None
    assert attempt.launch_failure.reason == reason
    assert life.state.causes[-1].reason is Reason.SUBMISSION_FAILED


@ROW("S4", level="pure")
def test_S4_an_interrupted_submission_is_made_anew_for_the_reason_it_gave():
    life = creating()
    life.tell_result(Created(interrupted="its worker died"))
    assert decide(life.spec, life.state, life.now) == Resubmit("its worker died")
    life.hold = {OperationKind.REMOVE}
    life.settle()
    assert (life.state.phase, life.state.message) == (Phase.RESETTING, "submission owner-1: its worker died")
    assert life.state.attempt is not None
    assert (life.state.attempt.interrupted, life.state.attempt.pause_after) == ("", False)


def test_what_is_refused_for_good_fails_with_that_refusal():
    life = Life(hold={OperationKind.PREPARE}).settle()
    life.tell_result(OperationRefused(names.ERROR_REFUSED, "may not create jobs"))
    assert life.state.attempt is not None
    refusal = life.state.attempt.launch_failure
    assert refusal is not None
    assert decide(life.spec, life.state, life.now) == Fail(Reason.REFUSED, refusal, "may not create jobs")
    life.settle()
    assert (life.ended, life.state.outcome_failure) == (Phase.FAILED, refusal)


def test_the_next_attempt_begins_with_nothing_known_of_the_last():
    life = moment("pausing")
    life.hold = {OperationKind.PREPARE}
    life.after(seconds=60)
    state = life.state
    assert life.attempt == 2
    assert (state.observation, state.looked_at, state.unhealthy, state.pause_until) == (None, None, None, None)
    assert (state.executions, state.intent.retry) == (2, False)
    assert (state.reason, state.message) == (Reason.CREATING, "creating attempt 2")


def test_in_doubt_it_is_looked_at_whether_something_is_known_of_it_or_not():
    life = moment("running")
    doubt = edit(life.state, in_doubt=True)
    known = Look("a snapshot came that may be old or new: checking the cluster directly")
    assert decide(life.spec, doubt, life.now) == known
    unknown = Look("nothing is known yet of what has just been made: checking the cluster directly")
    assert decide(life.spec, edit(doubt, observation=None), life.now) == unknown


def test_while_something_is_made_again_of_which_nothing_is_known_it_is_looked_at_and_no_timer_is_in_the_past():
    life = moment("running")
    attempt = life.state.attempt
    assert attempt is not None
    report = Report(sequence=9, phase=Phase.RUNNING, reason=Reason.REPLACING, attempt=1)
    operation = Operation(kind=OperationKind.REPLACE, attempt=1, since=life.now, report=report)
    making = edit(attempt, replacing=(life.spec.components[0].name,))
    doubt = edit(life.state, in_doubt=True, observation=None, attempt=making, operation=operation, shows_waits=True)
    waits = decide(life.spec, doubt, life.now)
    assert isinstance(waits, Wait)
    assert waits.until == life.now + STANDSTILL
    assert isinstance(decide(life.spec, doubt, waits.until), Look)
