"""The status that AppWrapper's users and Kueue read, given back in AppWrapper's terms."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.formats import status_in_source_form
from holdfast.formats.appwrapper.status import phase, reason, status
from holdfast.model import BudgetStatus, Condition, ConditionType, Phase, Reason, Status
from tests.formats.documents import appwrapper, config_map, job, one, pod

SINCE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PHASES = {"", "Suspended", "Resuming", "Running", "Resetting", "Suspending", "Succeeded", "Failed", "Terminating"}
REASONS = {
    "Resuming",
    "Suspended",
    "Resetting",
    "Succeeded",
    "Failed",
    "Terminating",
    "SufficientPodsReady",
    "InsufficientPodsReady",
    "CreateFailed",
    "MissingComponent",
    "FailedComponent",
    "FoundFailedPods",
    "FoundNoFailedPods",
    "DeletionInitiated",
    "DeletionComplete",
    "PolicyChanged",
}


def told(phase: Phase = Phase.RUNNING, *conditions: Condition, **fields: Any) -> Status:
    values = {"name": "train-llm", "namespace": "default", "cluster": "dev", "uid": "u", "reason": Reason.RESUMED}
    return Status(**{**values, "since": SINCE, "phase": phase, "conditions": conditions, **fields})


def condition(type_: ConditionType, value: bool, reason: Reason = Reason.RESUMED, message: str = "") -> Condition:
    return Condition(type=type_, status=value, reason=reason, message=message)


SUBMITTED = condition(ConditionType.SUBMITTED, True)
NOT_SUBMITTED = condition(ConditionType.SUBMITTED, False)
QUOTA = condition(ConditionType.QUOTA_RESERVED, False)


@pytest.mark.parametrize(
    ("ours", "conditions", "theirs"),
    [
        (Phase.PENDING, (), ""),
        (Phase.PENDING, (QUOTA,), "Suspended"),
        (Phase.RESUMING, (), "Resuming"),
        (Phase.RESUMING, (NOT_SUBMITTED,), "Resuming"),
        (Phase.RESUMING, (SUBMITTED,), "Running"),
        (Phase.RUNNING, (), "Running"),
        (Phase.FINISHING, (), "Running"),
        (Phase.CHECKPOINTING, (), "Running"),
        (Phase.RESETTING, (SUBMITTED,), "Resetting"),
        (Phase.SUSPENDING, (), "Suspending"),
        (Phase.SUSPENDED, (), "Suspended"),
        (Phase.TERMINATING, (), "Terminating"),
        (Phase.CANCELLED, (), "Terminating"),
        (Phase.SUCCEEDED, (), "Succeeded"),
        (Phase.FAILED, (), "Failed"),
    ],
)
def test_phases(ours: Phase, conditions: tuple[Condition, ...], theirs: str) -> None:
    assert phase(told(ours, *conditions)) == theirs


@pytest.mark.parametrize("ours", Phase)
def test_every_phase_has_a_name_of_theirs(ours: Phase) -> None:
    assert phase(told(ours)) in PHASES


@pytest.mark.parametrize("ours", Reason)
def test_every_reason_has_a_word_of_theirs(ours: Reason) -> None:
    assert reason(ours) in REASONS


def test_pods_that_are_still_starting_are_told_by_pods_ready() -> None:
    ready = condition(ConditionType.PODS_READY, False, Reason.INSUFFICIENT_PODS_READY, "1 of 2 pods run")
    found = status(one(appwrapper()), told(Phase.RESUMING, SUBMITTED, ready))
    assert found["phase"] == "Running"
    assert found["conditions"] == [
        {
            "type": "PodsReady",
            "status": "False",
            "reason": "InsufficientPodsReady",
            "message": "1 of 2 pods run",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }
    ]


def test_the_count_of_resets_is_that_of_charged_ones() -> None:
    budgets = (BudgetStatus(name="restart", limit=3, used=2),)
    assert status(one(appwrapper()), told(restarts=5, budgets=budgets))["resettingCount"] == 2
    assert status(one(appwrapper()), told())["resettingCount"] == 0


def test_components_are_told_with_their_pod_sets() -> None:
    generated = pod()
    generated["metadata"] = {"generateName": "worker-"}
    workload = one(appwrapper(config_map(), job(parallelism=2), generated))
    assert status(workload, told())["componentStatus"] == [
        {"name": "settings", "kind": "ConfigMap", "apiVersion": "v1", "podSets": []},
        {
            "name": "train",
            "kind": "Job",
            "apiVersion": "batch/v1",
            "podSets": [{"path": "template.spec.template", "replicas": 2}],
        },
        {"name": "worker-", "kind": "Pod", "apiVersion": "v1", "podSets": [{"path": "template", "replicas": 1}]},
    ]


@pytest.mark.row("A10", level="pure")
def test_a_condition_keeps_its_time_until_it_turns() -> None:
    workload = one(appwrapper())
    deployed, quota = ConditionType.RESOURCES_DEPLOYED, ConditionType.QUOTA_RESERVED
    first = status(workload, told(Phase.RUNNING, condition(quota, True), condition(deployed, True)), now=SINCE)
    later = SINCE + timedelta(minutes=5)
    resetting = told(Phase.RESETTING, condition(quota, True), condition(deployed, False, Reason.RESETTING))
    second = status(workload, resetting, previous=first, now=later)
    times = {each["type"]: (each["status"], each["lastTransitionTime"]) for each in second["conditions"]}
    assert times == {
        "QuotaReserved": ("True", "2026-01-02T03:04:05Z"),
        "ResourcesDeployed": ("False", "2026-01-02T03:09:05Z"),
    }
    assert second["conditions"][1]["reason"] == "Resetting"


def test_deletion_is_told_as_a_condition() -> None:
    deleting = condition(ConditionType.DELETING_RESOURCES, True, Reason.DELETION_FORCED)
    (found,) = status(one(appwrapper()), told(Phase.RESETTING, deleting))["conditions"]
    assert (found["type"], found["status"], found["reason"]) == ("DeletingResources", "True", "DeletionInitiated")


def test_a_status_is_given_back_in_the_form_the_workload_came_in() -> None:
    assert status_in_source_form(one(appwrapper()), told())["phase"] == "Running"
    plain = status_in_source_form(one(job()), told())
    assert (plain["phase"], plain["name"], "resettingCount" in plain) == ("Running", "train-llm", False)
    own = one({"schemaVersion": 1, "name": "x", "components": [{"name": "a", "template": job()}]})
    assert status_in_source_form(own, told())["phase"] == "Running"
