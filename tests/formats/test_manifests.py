"""Plain manifests: all of a stream's objects as one workload, with its settings as annotations."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from holdfast.model import Kind, Source
from holdfast.profiles import PROFILES
from tests.formats.documents import PODS, Json, config_map, copy, custom, deployment, job, one, pod, refusal

POD_SETS = "holdfast.dev/pod-sets"


def annotated(document: Json, **annotations: Any) -> Json:
    document["metadata"]["annotations"] = {f"holdfast.dev/{key}": value for key, value in annotations.items()}
    return document


def with_pod_sets(document: Json, text: Any) -> Json:
    document["metadata"].setdefault("annotations", {})[POD_SETS] = text
    return document


def test_objects_become_one_workload_in_their_order() -> None:
    workload = one([config_map(), job(parallelism=3), deployment()])
    assert [each.name for each in workload.components] == ["0-configmap-settings", "1-job-train", "2-deployment-web"]
    assert [each.expected_pods for each in workload.components] == [0, 3, 1]
    assert (workload.name, workload.namespace, workload.kind) == ("train", "default", Kind.BATCH)
    assert workload.source == Source(api_version="v1", kind="List")
    assert workload.policy == PROFILES["manifests"]


@pytest.mark.parametrize(
    ("documents", "name"),
    [
        ([config_map("a"), pod("b"), job("c")], "b"),
        ([deployment("z", replicas=0), pod("b")], "b"),
        ([{**pod(), "metadata": {"generateName": "made-"}}], "made"),
    ],
)
def test_it_is_named_after_the_first_object_that_brings_pods(documents: list[Json], name: str) -> None:
    assert one(documents).name == name
    assert one(documents, name="other").name == "other"


@pytest.mark.parametrize(
    ("documents", "kind"),
    [
        ([deployment(), deployment("db", "StatefulSet")], Kind.SERVICE),
        ([deployment(), job()], Kind.BATCH),
        ([pod()], Kind.BATCH),
    ],
)
def test_what_runs_on_is_a_service(documents: list[Json], kind: Kind) -> None:
    assert one(documents).kind is kind


def test_the_namespace_is_that_of_the_objects() -> None:
    documents = [config_map(), pod(namespace="team")]
    assert one(documents).namespace == "team"
    assert one(documents, namespace="team").namespace == "team"
    (problem,) = refusal(documents, namespace="other")
    assert problem.path == "Pod p: metadata.namespace"
    assert "'team' is another namespace: expected 'other' or none" in problem.message


def test_an_unknown_kind_brings_the_pods_its_annotation_says() -> None:
    widget = custom(template=copy(PODS))
    declared = [{"path": "template.spec.template", "replicas": 3}]
    workload = one(with_pod_sets(widget, json.dumps(declared)))
    assert [(each.path, each.replicas) for each in workload.components[0].pod_sets] == [("template.spec.template", 3)]
    assert workload.name == "w"


def test_an_annotation_that_agrees_with_a_known_kind_is_accepted() -> None:
    text = '[{"path": "template.spec.template", "replicas": 2}]'
    assert one(with_pod_sets(job(parallelism=2), text)).expected_pods == 2


@pytest.mark.row("U14", level="pure")
@pytest.mark.parametrize(
    ("document", "says"),
    [
        (with_pod_sets(custom(), "3"), "expected a list (found 3)"),
        (with_pod_sets(custom(), "nonsense"), "expected JSON such as"),
        (with_pod_sets(custom(), "[" * 100_000), "expected JSON such as"),
        (with_pod_sets(custom(), 3), "expected JSON such as"),
        (with_pod_sets(custom(), '[{"path": "template.spec.x"}]'), "leads nowhere: template.spec has no field x"),
        (with_pod_sets(custom(), '[{"path": "spec.x"}]'), "[0].path: 'spec.x': expected a path that starts with"),
        (with_pod_sets(custom(), '[{"path": "template.spec", "replica": 1}]'), "[0].replica: is not a field here"),
        (
            with_pod_sets(job(), '[{"path": "template.spec.template", "replicas": 2}]'),
            'disagrees with the object: expected [{"path": "template.spec.template", "replicas": 1}]',
        ),
    ],
)
def test_a_malformed_pod_sets_annotation_is_refused(document: Json, says: str) -> None:
    problem = refusal(document)[0]
    assert f"{document['kind']} {document['metadata']['name']}: metadata.annotations[{POD_SETS}]" in problem.path
    assert says in str(problem)


def test_settings_are_annotations_on_any_of_the_objects() -> None:
    first = annotated(config_map(), failureGracePeriod="5s", successTTL="1h", queue="gpu")
    second = annotated(job(), retryLimit="7", priority="9", runAs="trainer", failureGracePeriod="5s", suspend="true")
    workload = one([first, second])
    assert workload.policy.timings.failure_grace_period == timedelta(seconds=5)
    assert workload.policy.timings.success_ttl == timedelta(hours=1)
    assert workload.policy.timings.warmup_grace_period == PROFILES["manifests"].timings.warmup_grace_period
    assert workload.policy.budget("restart").limit == 7
    assert (workload.queue, workload.priority, workload.run_as, workload.suspend) == ("gpu", 9, "trainer", True)


LABEL = "kueue.x-k8s.io/queue-name"


@pytest.mark.row("F10", level="pure")
def test_F10_the_label_of_a_queue_names_the_workloads_queue_and_is_taken_off_the_object() -> None:
    queued = job()
    queued["metadata"]["labels"] = {LABEL: "gpu", "team": "a"}
    workload = one([annotated(config_map(), queue="gpu"), queued])
    assert workload.queue == "gpu"
    assert workload.components[1].template["metadata"]["labels"] == {"team": "a"}
    bare = pod()
    bare["metadata"]["labels"] = {LABEL: "gpu"}
    workload = one(bare)
    assert (workload.queue, workload.components[0].template["metadata"]["labels"]) == ("gpu", {})
    assert bare["metadata"]["labels"] == {LABEL: "gpu"}, "what was given stays as it was"


@pytest.mark.row("U14", level="pure")
def test_a_label_that_names_another_queue_or_none_or_stands_in_a_pod_template_is_refused() -> None:
    queued = job()
    queued["metadata"]["labels"] = {LABEL: "gpu"}
    (problem,) = refusal([annotated(config_map(), queue="cpu"), queued])
    assert str(problem) == (
        f"Job train: metadata.labels[{LABEL}]: contradicts ConfigMap settings: metadata.annotations"
        "[holdfast.dev/queue], which is 'cpu' (found 'gpu')"
    )
    queued["metadata"]["labels"] = {LABEL: "no.dots"}
    (problem,) = refusal(queued)
    assert problem.path == f"Job train: metadata.labels[{LABEL}]"
    inside = job()
    inside["spec"]["template"]["metadata"] = {"labels": {LABEL: "gpu"}}
    (problem,) = refusal(inside)
    assert str(problem) == (
        f"Job train: spec.template.metadata.labels[{LABEL}]: expected none: "
        "give the object itself the queue (found 'gpu')"
    )


@pytest.mark.row("U14", level="pure")
@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("failureGracePeriod", "soon", "'soon' is not a duration: expected for example 90s, 1m30s, 1h or 7d"),
        ("failureGracePeriod", "-5s", "'-5s' is not a duration"),
        ("failureGracePeriod", 5, "expected text: write it in quotes (found 5)"),
        ("restartBudgetResetAfter", "0s", "expected more than 0s; leave it out for a budget that counts for ever"),
        ("restartBudgetResetAfter", "soon", "'soon' is not a duration"),
        ("launchBudgetResetAfter", "1h", "profile manifests has no launch budget (found '1h')"),
        ("checkpointPort", "1" * 4301, "is only for what sets checkpoint"),
        ("retryLimit", "-1", "expected a whole number from 0 to 1000000 (found '-1')"),
        ("priority", "11", "expected a whole number from 0 to 10 (found '11')"),
        ("priority", "high", "expected a whole number from 0 to 10 (found 'high')"),
        ("suspend", "maybe", "is not one of the allowed values; allowed: true, false (found 'maybe')"),
        ("failureGracePeriods", "5s", "is no setting; did you mean holdfast.dev/failureGracePeriod?"),
        ("retrylimit", "5", "is no setting; did you mean holdfast.dev/retryLimit?"),
    ],
)
def test_a_malformed_setting_is_refused(name: str, value: Any, says: str) -> None:
    (problem,) = refusal(annotated(job(), **{name: value}))
    assert problem.path == f"Job train: metadata.annotations[holdfast.dev/{name}]"
    assert says in str(problem)


@pytest.mark.parametrize(("name", "value"), [("queue", "No.Dots"), ("runAs", "Not_A_Name")])
def test_a_setting_the_model_refuses_is_refused_where_it_was_written(name: str, value: str) -> None:
    (problem,) = refusal(annotated(job(), **{name: value}))
    assert problem.path == f"Job train: metadata.annotations[holdfast.dev/{name}]"
    assert repr(value) in problem.message


def test_settings_that_contradict_each_other_are_refused() -> None:
    documents = [annotated(config_map(), retryLimit="1"), annotated(job(), retryLimit="2")]
    (problem,) = refusal(documents)
    assert problem.path == "Job train: metadata.annotations[holdfast.dev/retryLimit]"
    assert "contradicts ConfigMap settings: metadata.annotations[holdfast.dev/retryLimit], which is '1'" in str(problem)


def test_annotations_that_are_no_settings_are_let_be() -> None:
    document = annotated(pod(), **{"kwok-complete": "2s", "workload": "x", "sent-hash": "y"})
    assert one(document).policy == PROFILES["manifests"]


@pytest.mark.parametrize(
    ("document", "path", "says"),
    [
        (
            config_map(),
            "ConfigMap settings: kind",
            "these objects bring no pods: expected a Pod, Job or the like among them",
        ),
        (custom(template=PODS), "Widget w: kind", f"or the annotation {POD_SETS}"),
        (job(parallelism="2"), "Job train: spec.parallelism", "expected a whole number, at least 0 (found '2')"),
        (job(template=None), "Job train: spec.template", "does not lead to a pod template"),
        ({"apiVersion": "v1", "kind": "Pod", **PODS}, "Pod: metadata.name", "expected a name or a generateName"),
        (deployment(kind="DaemonSet"), "DaemonSet web: kind", "brings pods whose number is not known here"),
        (
            {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": {}},
            "CronJob c: kind",
            "give it in the annotation holdfast.dev/pod-sets",
        ),
    ],
)
def test_refused_with_the_object_and_the_path(document: Json, path: str, says: str) -> None:
    problem = refusal(document)[0]
    assert problem.path == path
    assert says in str(problem)


def test_the_manifests_profile_differs_from_appwrappers_as_documented() -> None:
    ours, theirs = PROFILES["manifests"], PROFILES["appwrapper"]
    assert (ours.rules, ours.default, ours.budgets) == (theirs.rules, theirs.default, theirs.budgets)
    differing = {
        name for name in type(ours.timings).model_fields if getattr(ours.timings, name) != getattr(theirs.timings, name)
    }
    assert differing == {"warmup_grace_period", "retry_pause_period"}
