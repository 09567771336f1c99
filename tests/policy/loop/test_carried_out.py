"""What is carried out at each moment, what is broken off for what, and how each operation's end is remembered."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import names
from holdfast.model import Failure, FailureClass, Limits, OperationKind, Phase, Reason, Scope, Stage
from holdfast.model.calls.cluster import Created, Prepared, Replaced
from holdfast.policy.loop.fold import fold
from holdfast.policy.loop.operations import begin
from holdfast.policy.loop.results import ended
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import (
    Cancelled,
    Event,
    Observed,
    OperationInterrupted,
    OperationRefused,
    Reconfigured,
    Resumed,
    Suspended,
)
from holdfast.policy.values.steps import End, Interrupt, Run, Sleep, Step
from holdfast.policy.verdicts.decide import decide
from holdfast.policy.verdicts.hold import hold
from tests.policy.lives.advanced import advance
from tests.policy.lives.elements import Elements, config
from tests.policy.lives.life import Life, workload
from tests.policy.lives.moments import moment

ROW = pytest.mark.row
ALL = set(OperationKind)


def next_of(life: Life) -> Step:
    """Return what would be carried out now, were nothing under way."""
    return advance(life.spec, edit(life.state, operation=None), life.now)[1]


GONE = timedelta(minutes=10)


@pytest.mark.parametrize(
    ("at", "kind", "why", "until"),
    [
        ("preparing", OperationKind.PREPARE, "checking rights and creating 1 component of attempt 1", None),
        ("preparing a stream", OperationKind.PREPARE, "checking rights and making the owner of attempt 1", None),
        ("creating", OperationKind.CREATE, "creating 1 component of attempt 1", None),
        ("creating a stream", OperationKind.CREATE, "creating 4 components of attempt 1", None),
        ("making again", OperationKind.REPLACE, "making again Pod pe-1 of attempt 1", None),
        ("looking", OperationKind.OBSERVE, "confirming before it is acted on: train-0 exited 1 on node-7", None),
        ("resetting", OperationKind.REMOVE, "deleting attempt 1 and proving it gone", GONE),
        ("forcing", OperationKind.FORCE_REMOVE, "forcing out what is left of attempt 1", timedelta(seconds=30)),
    ],
)
def test_what_is_carried_out_says_why_and_until_when(at: str, kind: OperationKind, why: str, until: timedelta | None):
    life = moment(at)
    step = next_of(life)
    assert step == Run(kind, why, life.now + until if until is not None else None, decides=at == "looking")
    under_way, wait = advance(life.spec, life.state, life.now)
    assert under_way.operation is not None
    assert (under_way.operation.kind, wait) == (kind, Sleep(None, why)), "once begun, it is waited for"


def test_a_settled_workload_lets_go_of_its_anchor_and_then_ends():
    gone = moment("suspended")
    gone.hold = {OperationKind.REMOVE}
    gone.tell(Cancelled())
    why = "proving that attempt 1 is gone and letting go of the anchor"
    assert next_of(gone) == Run(OperationKind.REMOVE, why, gone.now + timedelta(minutes=10))
    assert next_of(moment("cancelled")) == End(Phase.CANCELLED)


def test_a_status_that_has_changed_too_much_is_told_at_once():
    life = Life(hold={OperationKind.REPORT}).settle().sees(running=2)
    assert next_of(life) == Run(OperationKind.REPORT, "telling the cluster: Running")


@pytest.mark.parametrize(
    ("under_way", "event", "interrupt"),
    [
        (OperationKind.PREPARE, Cancelled(), "breaking off prepare: deleting attempt 1 and proving it gone"),
        (OperationKind.CREATE, Cancelled(), "breaking off create: deleting attempt 1 and proving it gone"),
        (OperationKind.CREATE, Suspended(), "breaking off create: deleting attempt 1 and proving it gone"),
    ],
)
def test_what_is_wished_breaks_off_what_is_under_way(under_way: OperationKind, event: Event, interrupt: str):
    life = Life(hold={under_way}).settle()
    state = fold(life.state, event, life.now)
    step = advance(life.spec, state, life.now)[1]
    assert step == Interrupt(interrupt)


def test_a_removal_is_begun_anew_only_where_something_else_is_to_follow_it():
    life = moment("suspending")
    state = fold(life.state, Resumed(), life.now)
    anew = "beginning remove anew, since something else is to follow it"
    assert advance(life.spec, state, life.now)[1] == Interrupt(anew)
    again = fold(life.state, Suspended("once more"), life.now)
    assert isinstance(advance(life.spec, again, life.now)[1], Sleep)


@ROW("S8", level="pure")
def test_S8_making_again_is_begun_anew_when_the_configuration_changes():
    life = moment("making again")
    spec = life.spec.with_components((config("v2"), *life.spec.components[1:]))
    state = fold(life.state, Reconfigured(("adl", "pe-0")), life.now)
    anew = "beginning anew with ConfigMap adl, Pod pe-0, Pod pe-1"
    assert advance(spec, state, life.now)[1] == Interrupt(anew)


def test_what_is_being_broken_off_is_waited_for():
    life = moment("breaking off")
    state = fold(life.state, Cancelled(), life.now)
    assert advance(life.spec, state, life.now)[1] == Sleep(None, "waiting for create to end")


def test_what_contradicts_the_memory_breaks_off_whatever_is_under_way_but_the_telling():
    life = moment("creating")
    state = hold(life.state, "attempt 7 is there", 7, life.now)
    assert advance(life.spec, state, life.now)[1] == Interrupt("breaking off create: attempt 7 is there")


@pytest.mark.parametrize(
    ("at", "why"),
    [
        ("running", "it is healthy"),
        ("suspended", "it is suspended"),
        ("pausing", "retry pause"),
        ("succeeded", "success TTL"),
        ("failed and kept", "deletion-on-failure grace"),
    ],
)
def test_what_rests_says_what_it_waits_for(at: str, why: str):
    assert moment(at).waits_for == why


@pytest.mark.parametrize(
    ("at", "why"),
    [
        ("cancelled", "its outcome is settled"),
        ("failed", "its outcome is settled"),
        ("resetting", "its removal is under way"),
        ("making again", "some of its components are being made again"),
        ("running", "it is healthy"),
    ],
)
def test_where_nothing_is_decided_it_is_said_why(at: str, why: str):
    life = moment(at)
    assert getattr(decide(life.spec, life.state, life.now), "why", "") == why


# --- how operations begin


def test_an_operation_bears_when_it_began_what_it_tells_and_how_many_causes_it_told():
    life = Life(hold={OperationKind.REMOVE}).runs().sees(failed=1, job_failed=True)
    operation = life.state.operation
    assert operation is not None
    assert (operation.kind, operation.attempt, operation.since, operation.until) == (
        OperationKind.REMOVE,
        1,
        life.now,
        life.now + GONE,
    )
    assert (operation.releases, operation.launches) == (False, {})
    assert operation.causes == life.state.causes_total
    assert operation.causes_done == life.state.causes_total + 1, "that it is proven gone"
    assert operation.report_done is not None
    assert operation.report_done.sequence == operation.report.sequence + 1 == life.state.sequence
    assert operation.report_done.events == (), "the status says so, an Event would be one more write"


def test_creation_does_not_write_again_what_preparation_wrote():
    life = moment("creating a stream")
    operation, told = life.state.operation, life.state.told
    assert operation is not None
    assert told is not None
    assert operation.kind is OperationKind.CREATE
    assert operation.report.repeats
    assert operation.report.sequence == told.sequence + 1
    assert operation.report.says_the_same_as(told)


@pytest.mark.parametrize("what", ["an operation was interrupted", "the resource has changed", "something is owed"])
def test_creation_writes_its_status_if_another_may_be_shown(what: str):
    life = moment("creating a stream")
    state = edit(life.state, operation=None)
    told = state.told
    assert told is not None
    match what:
        case "an operation was interrupted":
            state = edit(state, sequence=told.sequence + 1)
        case "the resource has changed":
            state = edit(state, told=edit(told, generation=1), sequence=told.sequence)
        case _:
            state = edit(state, owed=told, sequence=told.sequence)
    state = begin(life.spec, state, Run(OperationKind.CREATE, "because"), life.now)
    assert state.operation is not None
    assert not state.operation.report.repeats


def test_a_look_writes_what_was_told_before_so_that_another_hands_status_is_put_right():
    life = moment("running")
    state = edit(life.state, sequence=life.state.told.sequence if life.state.told is not None else 0)
    state = begin(life.spec, state, Run(OperationKind.OBSERVE, "because"), life.now)
    assert state.operation is not None
    assert state.operation.report.says_the_same_as(life.state.told)
    assert not state.operation.report.repeats


@pytest.mark.parametrize("kind", [OperationKind.PREPARE, OperationKind.OBSERVE, OperationKind.REPORT])
def test_an_operation_that_changes_no_status_promises_none(kind: OperationKind):
    life = Elements().up() if kind is OperationKind.PREPARE else moment("running")
    state = begin(life.spec, life.state, Run(kind, "because"), life.now)
    assert state.operation is not None
    assert (state.operation.report_done, state.operation.causes_done) == (None, 0)


# --- how they end


def prepared(**fields: Any) -> Life:
    life = Life(hold={OperationKind.PREPARE}).settle()
    life.tell_result(Prepared(**{"cluster_uid": "c", "owner_uid": "o", "limits": Limits(), **fields}))
    return life


def test_a_preparation_leaves_the_cluster_its_limits_the_owner_and_the_anchor():
    limits = Limits(grace_period_maximum=timedelta(hours=1))
    life = prepared(limits=limits)
    assert (life.state.cluster_uid, life.state.limits, life.state.anchored) == ("c", limits, True)
    attempt = life.state.attempt
    assert attempt is not None
    assert (attempt.stage, attempt.owner_uid) == (Stage.PREPARED, "o")


@pytest.mark.parametrize(("sequence", "now", "again"), [(0, 2, False), (1, 2, False), (2, 2, False), (40, 40, True)])
def test_what_an_anchor_bears_from_before_a_restoration_is_told_over(sequence: int, now: int, again: bool):
    life = prepared(sequence=sequence)
    assert life.state.sequence == now
    assert (life.state.told is None) is again


def test_a_preparation_that_was_broken_off_may_have_left_an_anchor():
    life = Life(hold={OperationKind.PREPARE}).settle()
    life.tell_result(OperationInterrupted())
    assert life.state.anchored
    create = moment("creating")
    create.state = edit(create.state, anchored=False)
    create.tell_result(OperationInterrupted())
    assert not create.state.anchored, "only a preparation makes one"


@pytest.mark.parametrize(
    ("type_", "reason"),
    [
        (names.ERROR_REFUSED, Reason.REFUSED),
        (names.ERROR_CONFLICT, Reason.REFUSED),
        (names.ERROR_SUBMISSION_TIMEOUT, Reason.SUBMISSION_TIMEOUT),
        ("SomethingElse", Reason.CREATE_FAILED),
    ],
)
def test_a_refusal_is_a_failure_to_launch_with_its_reason_and_words(type_: str, reason: Reason):
    life = Life(hold={OperationKind.PREPARE}).settle()
    life.tell_result(OperationRefused(type_, "may not create jobs"))
    attempt = life.state.attempt
    assert attempt is not None
    failure = attempt.launch_failure
    assert failure is not None
    assert (failure.reason, failure.message, failure.attempt, failure.time) == (
        reason,
        "may not create jobs",
        1,
        life.now,
    )
    assert life.state.causes[-1].reason is Reason.SUBMISSION_FAILED


@pytest.mark.row("X4", level="pure")
@pytest.mark.parametrize(
    ("view", "phase"), [({"succeeded": 2, "complete": True}, Phase.SUCCEEDED), ({"running": 2}, Phase.FAILED)]
)
def test_X4_what_has_succeeded_is_not_failed_by_a_refusal_in_its_middle(view: dict[str, Any], phase: Phase):
    life = Life().runs()
    attempt = life.state.attempt
    assert attempt is not None
    refusal = Failure(
        cls=FailureClass.LAUNCH,
        scope=Scope.COMPONENT,
        reason=names.ERROR_REFUSED,
        message="namespace team is not enabled for Holdfast",
        component="train",
        attempt=1,
        time=life.now,
    )
    life.state = edit(life.state, attempt=edit(attempt, launch_failure=refusal))
    life.sees(**view)
    assert life.state.phase is phase


@pytest.mark.parametrize("event", [OperationRefused("Refused", "no"), Created(), Replaced()])
def test_what_ends_after_its_attempt_began_to_go_brings_nothing_back(event: Event):
    life = moment("resetting")
    before = life.state.attempt
    life.state = edit(life.state, operation=moment("creating").state.operation)
    life.tell_result(event)
    attempt = life.state.attempt
    assert before is not None
    assert attempt is not None
    assert (attempt.stage, attempt.launch_failure) == (Stage.REMOVING, None)


def test_news_of_an_end_with_nothing_under_way_is_no_news():
    life = moment("running")
    assert ended(life.state, OperationInterrupted(), life.now) == life.state


def test_a_submission_seen_complete_before_all_of_it_was_made_is_looked_at_again():
    life = Life(hold={OperationKind.CREATE}).settle()
    life.view = {"succeeded": 2, "complete": True}
    life.state = edit(life.state, observation=life.look(), looked_at=life.now)
    life.tell_result(Created())
    assert (life.state.observation, life.state.looked_at, life.state.in_doubt) == (None, None, True)


def test_a_field_that_is_none_is_refused_by_its_name():
    with pytest.raises(AttributeError) as caught:
        edit(workload(), nome="x", pausd=1, name="y")
    assert str(caught.value) == "Workload has no field nome, pausd"
    assert edit(workload(), name="y").name == "y"


def test_a_look_that_is_answered_leaves_no_doubt():
    life = moment("looking")
    life.state = edit(life.state, in_doubt=True)
    assert life.state.operation is not None
    life.hold = {OperationKind.REMOVE}
    life.finish()
    assert not life.state.in_doubt
    late = edit(life.look(), revision=0)
    assert life.tell(Observed(late)).state.dropped == 1
