"""Which conditions hold at each moment, why, and which Events are written: what Kueue and kubectl read (row A10)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.model import Cause, ConditionType, InterruptedCreate, OperationKind, Phase, Reason, RefusedCreate
from holdfast.model import Event as Written
from holdfast.model.observation import Asked
from holdfast.policy.status.report import EVENTS_MAXIMUM, conditions, events_of, report_of
from holdfast.policy.values.edit import edit
from tests.policy.lives.life import START, Life, workload
from tests.policy.lives.moments import MOMENTS, moment

ROW = pytest.mark.row

QUOTA = "QuotaReserved"
THERE = "QuotaReserved ResourcesDeployed"
SUBMITTED = "QuotaReserved ResourcesDeployed Submitted"
READY = "QuotaReserved ResourcesDeployed Submitted PodsReady"
UNHEALTHY = "QuotaReserved ResourcesDeployed Submitted Unhealthy"
GOING = "QuotaReserved ResourcesDeployed DeletingResources"
LATE = "PodsNotRunning: 1 of 2 pods did not run in time"
HOLDS = {
    "submitted": "",
    "preparing": THERE,
    "preparing a stream": QUOTA,
    "creating": THERE,
    "creating a stream": THERE,
    "creating a stream with a timeout": THERE,
    "breaking off": THERE,
    "no news yet": SUBMITTED,
    "pods are not there": SUBMITTED,
    "pods are pending": SUBMITTED,
    "pods were not created": UNHEALTHY,
    "pods did not run": UNHEALTHY,
    "running": READY,
    "saving": READY,
    "its kind is not served": READY,
    "scaled to nothing": READY,
    "a pod has gone": UNHEALTHY,
    "a pod has gone and may": SUBMITTED,
    "a pod has failed": UNHEALTHY,
    "a pod has failed for good": UNHEALTHY,
    "a pod has failed, uncharged": UNHEALTHY,
    "a pod has failed, unlimited": UNHEALTHY,
    "a pod is to be made again": UNHEALTHY,
    "a pod is to be made again, unlimited": UNHEALTHY,
    "a pod is to be made again, uncharged": UNHEALTHY,
    "a pod is to be made again, member": UNHEALTHY,
    "a pod has used up its own": UNHEALTHY,
    "looking": UNHEALTHY,
    "making again": SUBMITTED,
    "resetting": GOING,
    "pausing": QUOTA,
    "suspending": GOING,
    "preempted": GOING,
    "suspended": "",
    "forcing": GOING,
    "forcing by a finalizer": GOING,
    "forcing on a dead node": GOING,
    "cancelling": GOING,
    "cancelled": "",
    "succeeded": "ResourcesDeployed Submitted PodsReady",
    "failed": "",
    "failed and kept": SUBMITTED,
    "held": READY,
}


@ROW("A10", level="pure")
@pytest.mark.parametrize("name", MOMENTS)
def test_A10_at_each_moment_the_conditions_that_hold_are_told_and_no_other(name: str):
    life = moment(name)
    assert " ".join(each.type.value for each in conditions(life.spec, life.state) if each.status) == HOLDS[name]


def words(life: Life) -> dict[str, str]:
    return {each.type.value: f"{each.reason.value}: {each.message}" for each in conditions(life.spec, life.state)}


@pytest.mark.parametrize(
    ("name", "type_", "said"),
    [
        ("creating", "Submitted", "Creating: "),
        ("no news yet", "Submitted", "Submitted: "),
        ("pods are pending", "PodsReady", "InsufficientPodsReady: 2 of 2 pods do not run"),
        ("running", "PodsReady", "SufficientPodsReady: "),
        ("suspending", "PodsReady", "InsufficientPodsReady: "),  # they do still run, but are no longer counted on
        ("running", "Unhealthy", "Healed: "),
        ("a pod has failed", "Unhealthy", "FoundFailedPods: train-0 exited 1 on node-7"),
        (
            "a pod has gone",
            "Unhealthy",
            "InsufficientPodsReady: InsufficientPodsReady: 1 of 2 pods do not run",
        ),
        (
            "pods did not run",
            "Unhealthy",
            f"PodsNotRunning: {LATE}",
        ),
        ("resetting", "DeletingResources", "DeletionInitiated: "),
        ("forcing", "DeletingResources", "DeletionForced: Pod train-0"),
        ("pausing", "DeletingResources", "DeletionComplete: "),
        ("pausing", "QuotaReserved", "Resetting: "),
        ("pausing", "ResourcesDeployed", "Resetting: "),
    ],
)
def test_a_condition_says_why(name: str, type_: str, said: str):
    assert words(moment(name))[type_] == said


def test_a_condition_names_the_first_three_that_are_left():
    left = words(moment("forcing by a finalizer"))["DeletingResources"]
    assert [f"train-{n}" in left for n in range(4)] == [True, True, True, False]
    assert left.count("; ") == 2


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        ({"failed": 1, "job_failed": True}, Reason.FAILED_COMPONENT),
        ({"found": False}, Reason.MISSING_COMPONENT),
        ({"running": 1, "failed": 1}, Reason.FOUND_FAILED_PODS),
    ],
)
def test_unhealthy_says_in_appwrappers_words_what_was_found(view: dict[str, Any], reason: Reason):
    life = Life(hold={OperationKind.OBSERVE}).runs().sees(**view)
    (told,) = [each for each in conditions(life.spec, life.state) if each.type is ConditionType.UNHEALTHY]
    assert (told.status, told.reason) == (True, reason)


def test_before_an_attempt_nothing_is_being_deleted():
    life = Life(spec=workload(suspend=True)).settle()
    assert ConditionType.DELETING_RESOURCES.value not in words(life)


def test_a_report_bears_what_its_readers_count():
    life = moment("pausing")
    told = report_of(life.spec, life.state, 7)
    assert (told.sequence, told.phase, told.reason) == (7, Phase.RESETTING, Reason.RESETTING)
    assert (told.attempt, told.executions, told.restarts) == (1, 1, 1)
    assert told.message == ("train: BackoffLimitExceeded; pod train-0 exited 1 on node-7 (rule component)")
    assert told.conditions == conditions(life.spec, life.state)
    assert report_of(life.spec, Life().state).attempt == 0


def caused(*reasons: Reason, told: int = 0) -> Life:
    life = Life()
    causes = tuple(
        Cause(time=START, attempt=2, phase=Phase.RUNNING, reason=each, message=f"message {number}")
        for number, each in enumerate(reasons)
    )
    life.state = edit(life.state, causes=causes, causes_total=len(causes), told_causes=told)
    return life


@pytest.mark.parametrize(
    ("reason", "type_"),
    [
        (Reason.RESETTING, "Warning"),
        (Reason.FOUND_FAILED_PODS, "Warning"),
        (Reason.RETRY_LIMIT_EXCEEDED, "Warning"),
        (Reason.DELETION_FORCED, "Warning"),
        (Reason.HELD, "Warning"),
        (Reason.SUSPEND_REQUESTED, "Normal"),
        (Reason.COMPLETED, "Normal"),
    ],
)
def test_an_event_is_a_warning_where_somebody_may_have_to_act(reason: Reason, type_: str):
    (event,) = events_of(caused(reason).state)
    assert event == Written.model_validate({"type": type_, "reason": reason, "message": "message 0", "attempt": 2})


@pytest.mark.parametrize(
    ("total", "told", "written"),
    [
        (3, 3, []),
        (3, 4, []),
        (3, 2, [2]),
        (3, 0, [0, 1, 2]),
        (EVENTS_MAXIMUM, 0, list(range(EVENTS_MAXIMUM))),
        (EVENTS_MAXIMUM + 2, 0, list(range(2, EVENTS_MAXIMUM + 2))),
    ],
)
def test_each_cause_is_written_once_and_the_latest_ten_at_most(total: int, told: int, written: list[int]):
    life = caused(*[Reason.RESETTING] * total, told=told)
    assert [each.message for each in events_of(life.state)] == [f"message {number}" for number in written]


@pytest.mark.parametrize(
    ("policy", "asked", "told"),
    [
        ({}, None, False),
        ({"refused_create": RefusedCreate.WAIT}, None, True),
        ({"interrupted_create": InterruptedCreate.REPLACE}, None, True),
        ({}, Asked(kind="AppWrapper", generation=1), True),
    ],
    ids=["created at once", "waits for refusals", "replaced whole", "a custom resource"],
)
def test_S12_a_submission_has_an_event_where_it_may_last_or_a_custom_resource_stands_for_it(
    policy: dict[str, Any], asked: Asked | None, told: bool
):
    life = caused(Reason.SUBMISSION_SUCCEEDED)
    state = edit(life.state, policy=edit(life.state.policy, **policy), asked=asked)
    assert bool(events_of(state)) is told


def test_two_causes_that_say_the_same_have_one_event():
    """A person asks for the deletion of a workload that has ended: the request is a cause, and so is what follows."""
    life = caused(Reason.CANCEL_REQUESTED, Reason.CANCEL_REQUESTED)
    same = tuple(edit(each, message="its deletion was asked for") for each in life.state.causes)
    assert [each.message for each in events_of(edit(life.state, causes=same))] == ["its deletion was asked for"]


def test_long_messages_are_cut_to_what_the_api_server_takes():
    life = Life()
    cause = Cause(time=START, attempt=1, phase=Phase.RUNNING, reason=Reason.RESETTING, message="x" * 2000)
    life.state = edit(life.state, causes=(cause,), causes_total=1, message="y" * 2000)
    assert [len(each.message) for each in events_of(life.state)] == [1024]
    assert len(report_of(life.spec, life.state).message) == 1024


def test_what_the_status_of_a_healthy_life_says_anyway_is_no_event():
    quiet = (Reason.SUFFICIENT_PODS_READY, Reason.DELETION_INITIATED, Reason.DELETION_COMPLETE)
    events = events_of(caused(Reason.RESETTING, *quiet, Reason.COMPLETED).state)
    assert [each.reason for each in events] == [Reason.RESETTING, Reason.COMPLETED]


def test_a_proof_that_does_not_cover_a_lost_node_is_an_event():
    life = caused(Reason.DELETION_COMPLETE)
    attempt = moment("pausing").state.attempt
    assert attempt is not None
    life.state = edit(life.state, attempt=edit(attempt, stranded=("node-2",)))
    assert [each.reason for each in events_of(life.state)] == [Reason.DELETION_COMPLETE]
