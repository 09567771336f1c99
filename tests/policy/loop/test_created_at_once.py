"""A preparation that also creates: what it is given, what it tells, and what comes of each way in which it ends."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.model import (
    Failure,
    FailureClass,
    InterruptedCreate,
    Limits,
    ObjectRef,
    OperationKind,
    Phase,
    Policy,
    Reason,
    Scope,
    Source,
    Stage,
)
from holdfast.model.calls.cluster import Created, Prepared, PrepareInput
from holdfast.model.spec.policy import RefusedCreate
from holdfast.policy.loop.fold import fold
from holdfast.policy.loop.turn import landed
from holdfast.policy.values.events import (
    Cancelled,
    OperationInterrupted,
    Reconfigured,
    Resumed,
    Suspended,
)
from holdfast.policy.values.steps import Interrupt
from holdfast.workflows.operations.dispatch import call_of
from tests.policy.lives.advanced import advance
from tests.policy.lives.elements import Elements
from tests.policy.lives.life import RULES, Life, workload
from tests.policy.lives.moments import moment

JOB = ObjectRef(api_version="batch/v1", kind="Job", name="train", uid="job-1")
REFUSED = Failure(
    cls=FailureClass.LAUNCH,
    scope=Scope.COMPONENT,
    reason="Invalid",
    time=Life().now,
    component="train",
    message="spec.template: Required value",
    attempt=1,
)


def given_to(life: Life) -> PrepareInput:
    argument = call_of(life.spec, life.state, "uid", life.now).argument
    assert isinstance(argument, PrepareInput)
    return argument


def ends(created: Created | None = None, **fields: Any) -> Life:
    life = moment("preparing")
    done = {"cluster_uid": "c", "owner_uid": "owner-1", "limits": Limits(), "sequence": 1, **fields}
    life.hold = {OperationKind.CREATE, OperationKind.REMOVE}
    life.state = landed(life.state, Prepared(**done, created=created), life.now)
    return life.settle()


def test_it_is_given_the_components_once_and_reports_each_status_once():
    given = given_to(moment("preparing"))
    assert given.create is not None
    assert ([one.name for one in given.components], given.create.components) == (["train"], ())
    assert given.create.report.repeats, "the preparation has just written the same"
    assert given.create.report_submitted.sequence == given.report.sequence + 1
    assert given.create.report_submitted.events == (), "the status says it"


def test_a_later_attempt_is_given_the_components_to_create_alone():
    life = Life().runs().sees(failed=1, job_failed=True)
    life.hold = {OperationKind.PREPARE}
    life.after(seconds=120)
    given = given_to(life)
    assert given.create is not None
    assert (given.attempt, given.components) == (2, ())
    assert [one.name for one in given.create.components] == ["train"]


@pytest.mark.parametrize(
    "spec",
    [
        workload(policy=Policy(rules=RULES, refused_create=RefusedCreate.WAIT)),
        workload(policy=Policy(rules=RULES, interrupted_create=InterruptedCreate.REPLACE)),
        workload(allow_missing_kinds=True),
        workload(sensitive=True),
        workload(source=Source(api_version="workload.codeflare.dev/v1beta2", kind="AppWrapper", generation=1)),
    ],
    ids=["waits", "replaces", "missing-kinds", "sensitive", "custom-resource"],
)
def test_where_something_must_be_decided_in_between_it_only_prepares(spec: Any):
    life = Life(spec=spec, hold={OperationKind.PREPARE}).settle()
    assert life.state.operation is not None
    assert not life.state.operation.creates
    assert given_to(life).create is None


def test_all_that_it_made_is_submitted_with_its_result():
    life = ends(Created(objects=(JOB,)))
    attempt = life.state.attempt
    assert attempt is not None
    assert (attempt.stage, attempt.owner_uid, attempt.objects) == (Stage.SUBMITTED, "owner-1", (JOB,))
    assert OperationKind.CREATE not in {kind for kind, *_ in life.ran}
    assert life.state.causes[-1].message == "attempt 1 is created (submission owner-1)"
    assert life.state.told is not None
    assert life.state.told.sequence == 2
    assert life.state.told_causes == life.state.causes_total, "the activity has written the Event"


def test_without_a_result_its_creation_follows():
    life = ends(None, sequence=2)
    assert life.state.operation is not None
    assert life.state.operation.kind is OperationKind.CREATE
    assert life.state.told is not None
    assert not life.state.operation.report.repeats, "what the anchor shows now is not known so exactly"


def test_where_a_later_report_kept_it_from_making_an_owner_it_is_prepared_again_above_that():
    life = moment("preparing")
    prepared = Prepared(cluster_uid="c", owner_uid="", limits=Limits(), sequence=7)
    life.state = landed(life.state, prepared, life.now)
    operation = life.settle().state.operation
    assert operation is not None
    assert (operation.kind, operation.report.sequence) == (OperationKind.PREPARE, 8)


def test_a_refused_component_is_a_failure_to_launch():
    life = ends(Created(objects=(JOB,), failure=REFUSED))
    assert (life.state.phase, life.state.outcome) == (Phase.FAILED, Phase.FAILED)
    assert "spec.template: Required value" in life.state.message


def test_news_of_its_pods_counts_before_its_result():
    life = moment("preparing")
    seen = life.sees(running=2).state.observation
    assert seen is not None
    assert seen.pods.running == 2
    stream = Elements(hold={OperationKind.PREPARE}).settle()
    assert stream.sees(running=2).state.observation is None, "nothing of it exists yet"


def test_what_is_wished_breaks_it_off_and_what_it_made_is_removed():
    life = moment("preparing")
    life.state = fold(life.state, Cancelled(), life.now)
    life.state, step = advance(life.spec, life.state, life.now)
    assert step == Interrupt("breaking off prepare: deleting attempt 1 and proving it gone")
    broken = Prepared(cluster_uid="", owner_uid="", broken_off=True, created=Created(objects=(JOB,), broken_off=True))
    life.state = landed(life.state, broken, life.now)
    assert life.state.attempt is not None
    assert (life.state.anchored, life.state.attempt.objects) == (True, (JOB,))
    life.hold = {OperationKind.REMOVE}
    assert life.settle().ran[-1][0] is OperationKind.REMOVE


@pytest.mark.parametrize("spec", [workload(), workload(policy=Policy(rules=RULES, refused_create=RefusedCreate.WAIT))])
def test_what_the_api_server_never_accepted_is_checked_as_strictly_by_the_next_attempt(spec: Any):
    """The first preparation was broken off: nothing was accepted yet that could stay accepted."""
    life = Life(spec=spec, hold={OperationKind.PREPARE}).settle()
    life.tell(Suspended())
    life.tell(Resumed())
    given = given_to(life)
    assert (given.attempt, [one.name for one in given.components]) == (2, ["train"])
    assert given.create is None or (given.create.components, given.create.strict) == ((), True)
    life.finish().settle()
    life.tell(Suspended())
    life.tell(Resumed())
    later = given_to(life)
    assert (later.attempt, later.components) == (3, ()), "what was accepted once stays accepted"


@pytest.mark.parametrize("event", [OperationInterrupted(), Reconfigured(components=("train",))])
def test_where_it_is_to_go_on_though_it_was_broken_off_it_is_replaced_whole(event: Any):
    """Its owner may be gone and its pods not, and the next preparation would not know."""
    life = moment("preparing")
    life.hold = {OperationKind.REMOVE}
    life.state = fold(life.state, event, life.now)
    life.state = fold(life.state, OperationInterrupted(), life.now)
    life.settle()
    assert (life.state.phase, life.ran[-1][0]) == (Phase.RESETTING, OperationKind.REMOVE)
    assert life.state.used == {}, "charged to nothing"
    assert life.state.reason is Reason.SUBMISSION_FAILED


def test_an_id_that_is_not_known_yet_stands_nowhere():
    state = moment("preparing").state
    assert state.operation is not None
    assert state.operation.report_done is not None
    assert "{owner}" not in state.model_dump_json()
