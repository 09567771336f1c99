"""What an object's own status says of it, by conditions or by fields: known kinds and others (D15)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.errors import InvalidWorkload
from holdfast.formats import read
from holdfast.formats.pods import status_rule
from holdfast.model import Observation, Scope
from tests.activities.facts.test_snapshot import look
from tests.activities.shapes import component, condition, owner, planned

pytestmark = pytest.mark.row("D15", level="pure")

RAY_JOB = ("ray.io/v1", "RayJob")
SPARK = ("sparkoperator.k8s.io/v1beta2", "SparkApplication")
TRAINING = [
    ("kubeflow.org/v1", kind) for kind in ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob", "MPIJob")
] + [("kubeflow.org/v2beta1", "MPIJob")]


def seen(kind: tuple[str, str], status: dict[str, Any], pods: int = 1, **metadata: Any) -> Observation:
    """Return what is seen of an object of a kind with this status, and with no pods left."""
    api_version, name = kind
    template = {"apiVersion": api_version, "kind": name, "metadata": {"name": "work-0", **metadata}}
    plan = planned(kind=name, api=api_version, pods=pods, status=status_rule(template))
    raw = component() | {"apiVersion": api_version, "kind": name, "status": status}
    return look(plan=(plan,), objects={"work": raw}, its_owner=owner())


def stands(kind: tuple[str, str], status: dict[str, Any], **more: Any) -> str:
    found = seen(kind, status, **more)
    view = found.components["work"]
    verdicts = [one for one in found.failures if one.scope is Scope.COMPONENT]
    assert view.failed is bool(verdicts)
    return "complete" if view.complete else "failed" if view.failed else "active"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete"}, "complete"),
        ({"jobStatus": "SUCCEEDED"}, "complete"),
        ({"jobStatus": "FAILED", "jobDeploymentStatus": "Failed"}, "failed"),
        ({"jobStatus": "FAILED"}, "failed"),
        ({"jobStatus": "STOPPED", "jobDeploymentStatus": "Complete"}, "failed"),
        ({"jobDeploymentStatus": "Failed", "reason": "DeadlineExceeded"}, "failed"),
        ({"jobStatus": "FAILED", "jobDeploymentStatus": "Retrying"}, "active"),
        ({"jobStatus": "RUNNING", "jobDeploymentStatus": "Running"}, "active"),
        ({"jobStatus": "PENDING"}, "active"),
        ({}, "active"),
    ],
)
def test_D15_a_ray_job_ends_as_its_status_says(status: dict[str, Any], expected: str):
    """With `shutdownAfterJobFinishes` its pods are gone by then: that is no failure."""
    assert stands(RAY_JOB, status) == expected


def test_D15_a_ray_job_that_failed_says_when_and_how():
    status = {"jobStatus": "FAILED", "endTime": "2026-01-01T11:00:40Z", "jobDeploymentStatus": "Failed"}
    (one,) = [one for one in seen(RAY_JOB, status).failures if one.scope is Scope.COMPONENT]
    assert one.sentence() == "work-0: FailedComponent: status.jobStatus is FAILED"
    assert one.time.isoformat() == "2026-01-01T11:00:40+00:00"


@pytest.mark.parametrize("kind", TRAINING)
def test_D15_training_jobs_end_by_their_conditions(kind: tuple[str, str]):
    assert stands(kind, {"conditions": [condition("Succeeded")]}) == "complete"
    assert stands(kind, {"conditions": [condition("Failed", reason="JobFailed")]}) == "failed"
    assert stands(kind, {"conditions": [condition("Running"), condition("Succeeded", "False")]}) == "active"


def test_D15_a_train_job_ends_by_its_conditions():
    kind = ("trainer.kubeflow.org/v1alpha1", "TrainJob")
    assert stands(kind, {"conditions": [condition("Complete")]}) == "complete"
    assert stands(kind, {"conditions": [condition("Failed")]}) == "failed"
    assert stands(kind, {"conditions": [condition("Suspended", "False")]}) == "active"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("COMPLETED", "complete"),
        ("FAILED", "failed"),
        *((state, "active") for state in ("", "SUBMITTED", "RUNNING", "SUBMISSION_FAILED", "FAILING", "PENDING_RERUN")),
    ],
)
def test_D15_a_spark_application_ends_by_its_state(state: str, expected: str):
    assert stands(SPARK, {"applicationState": {"state": state}}) == expected


@pytest.mark.parametrize(
    ("kind", "ready", "other"),
    [
        (("ray.io/v1", "RayCluster"), {"state": "ready"}, {"state": "failed"}),
        (("ray.io/v1", "RayService"), {"serviceStatus": "Running"}, {"serviceStatus": "WaitForServeDeploymentReady"}),
        (
            ("ray.io/v1", "RayService"),
            {"conditions": [condition("Ready")]},
            {"conditions": [condition("Ready", "False")]},
        ),
        (
            ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
            {"conditions": [condition("Available")]},
            {"conditions": [condition("Progressing")]},
        ),
    ],
)
def test_D15_what_does_not_end_is_ready_as_it_says(kind: tuple[str, str], ready: dict[str, Any], other: dict[str, Any]):
    for status, started in ((ready, True), (other, False)):
        view = seen(kind, status).components["work"]
        assert (view.started, view.complete, view.failed) == (started, False, False)


# --- any other kind

OTHER = ("example.com/v1", "Simulation")
RULES = {
    "succeeded": {"path": "status.result.phase", "equals": "Done"},
    "failed": [{"path": "status.result.phase", "equals": "Broken"}, {"path": "status.lost", "equals": True}],
    "ready": {"path": "status.workers", "equals": 3},
}
ANNOTATION = "holdfast.dev/status-rules"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"result": {"phase": "Done"}}, "complete"),
        ({"result": {"phase": "Broken"}}, "failed"),
        ({"lost": True}, "failed"),
        ({"lost": "true"}, "failed"),
        ({"lost": False, "result": {"phase": "Doing"}}, "active"),
        ({"result": "Done"}, "active"),
        ({"result": [{"phase": "Done"}]}, "active"),
    ],
)
def test_D15_another_kind_ends_as_its_rules_say(status: dict[str, Any], expected: str):
    annotations = {ANNOTATION: json.dumps(RULES)}
    assert stands(OTHER, status, annotations=annotations) == expected
    assert stands(OTHER, status) == "active", "without rules only its pods speak"
    assert seen(OTHER, {"workers": 3}, annotations=annotations).components["work"].started
    assert not seen(OTHER, {"workers": 2}, annotations=annotations).components["work"].started


def submitted(rules: Any, kind: tuple[str, str] = OTHER) -> str:
    """Submit an object of a kind with status rules; return what is wrong with it."""
    template = {"metadata": {"labels": {}}, "spec": {"containers": [{"name": "main", "image": "x"}]}}
    document = {
        "apiVersion": kind[0],
        "kind": kind[1],
        "metadata": {
            "name": "sim",
            "annotations": {
                ANNOTATION: rules if isinstance(rules, str) else json.dumps(rules),
                "holdfast.dev/pod-sets": json.dumps([{"path": "template.spec.template", "replicas": 3}]),
            },
        },
        "spec": {"template": template},
    }
    try:
        (workload,) = read(json.dumps(document), cluster="dev")
    except InvalidWorkload as error:
        return str(error)
    assert workload.components[0].status.model_dump(mode="json") == {
        "complete": [],
        "failed": [],
        "succeededWhen": [RULES["succeeded"]],
        "failedWhen": [{"path": "status.result.phase", "equals": "Broken"}, {"path": "status.lost", "equals": "true"}],
        "readyWhen": [{"path": "status.workers", "equals": "3"}],
    }
    return ""


@pytest.mark.parametrize(
    ("rules", "wrong"),
    [
        ("nonsense", "expected JSON such as"),
        ("[" * 100_000, "expected JSON such as"),
        ([], "expected some of succeeded, failed, ready"),
        ({}, "expected some of succeeded, failed, ready"),
        ({"suceeded": {"path": "status.a", "equals": "b"}}, "expected some of succeeded, failed, ready"),
        ({"succeeded": {"path": "spec.a", "equals": "b"}}, "expected a field of the status"),
        ({"succeeded": {"path": "status", "equals": "b"}}, "expected a field of the status"),
        ({"succeeded": {"path": "status.a[0]", "equals": "b"}}, "expected a field of the status"),
        ({"succeeded": {"path": "status.a\n", "equals": "b"}}, "expected a field of the status"),
        ({"succeeded": {"path": "status.a.b.c.d.e", "equals": "b"}}, "expected a field of the status"),
        ({"succeeded": {"path": "status.a"}}, "equals"),
        ({"succeeded": {"path": "status.a", "equals": ""}}, "equals"),
        ({"succeeded": {"path": "status.a", "equals": "b" * 65}}, "equals"),
        ({"succeeded": {"path": "status.a", "equals": {}}}, "equals"),
        ({"succeeded": {"path": "status.a", "equals": "b"}, "failed": {"path": "status.a", "equals": "b"}}, "both"),
    ],
)
def test_D15_rules_are_checked_at_submission(rules: Any, wrong: str):
    assert wrong in submitted(rules)
    assert ANNOTATION in submitted(rules)


def test_D15_rules_that_are_right_are_taken_in():
    assert submitted(RULES) == ""


def test_D15_rules_are_not_for_a_kind_that_is_known():
    assert "how its status speaks is known" in submitted(RULES, ("kubeflow.org/v1", "TFJob"))


def test_D15_a_large_status_does_not_hide_the_fields_near_its_root():
    status = {f"part{number:02}": {"noise": "x"} for number in range(60)} | {"jobStatus": "SUCCEEDED"}
    found = seen(RAY_JOB, status)
    assert found.components["work"].complete
