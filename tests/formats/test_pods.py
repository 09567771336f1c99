"""Pod sets that objects of known kinds tell of themselves."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.formats.pods import KINDS, PathProblem, component_name, infer, pods_wanted, resolve, status_rule
from holdfast.model import Component
from tests.formats.documents import PODS, Json, copy, custom, deployment, job, pod


def job_set(*jobs: Json) -> Json:
    spec = {"replicatedJobs": [*jobs]}
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "s"}, "spec": spec}


def replicated(**fields: Any) -> Json:
    inner = fields.pop("job", {})
    return {"name": "w", "template": {"spec": {"template": copy(PODS), **inner}}, **fields}


def pytorch(**roles: Json) -> Json:
    spec = {"pytorchReplicaSpecs": roles}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "t"}, "spec": spec}


def ray(kind: str, cluster: Json | None, **spec: Any) -> Json:
    body = cluster if kind == "RayCluster" else ({"rayClusterSpec": cluster} if cluster else {})
    return {"apiVersion": "ray.io/v1", "kind": kind, "metadata": {"name": "r"}, "spec": {**(body or {}), **spec}}


RAY = {
    "headGroupSpec": {"template": PODS},
    "workerGroupSpecs": [{"template": PODS, "replicas": 3}, {"template": PODS}, {"template": PODS, "numOfHosts": 4}],
}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (pod(), [("template", 1)]),
        (deployment(), [("template.spec.template", 1)]),
        (deployment(replicas=3), [("template.spec.template", 3)]),
        (deployment(replicas=0), [("template.spec.template", 0)]),
        (deployment(kind="StatefulSet", replicas=2), [("template.spec.template", 2)]),
        (job(), [("template.spec.template", 1)]),
        (job(parallelism=4), [("template.spec.template", 4)]),
        (job(completions=4), [("template.spec.template", 1)]),
        (job(parallelism=4, completions=2), [("template.spec.template", 2)]),
        (job(parallelism=2, completions=9), [("template.spec.template", 2)]),
        (job(parallelism=None, completions=None), [("template.spec.template", 1)]),
        (
            job_set(replicated(), replicated(replicas=3, job={"parallelism": 2, "completions": 2})),
            [
                ("template.spec.replicatedJobs[0].template.spec.template", 1),
                ("template.spec.replicatedJobs[1].template.spec.template", 6),
            ],
        ),
        (
            pytorch(Master={"template": PODS}, Worker={"template": PODS, "replicas": 7}),
            [
                ("template.spec.pytorchReplicaSpecs.Master.template", 1),
                ("template.spec.pytorchReplicaSpecs.Worker.template", 7),
            ],
        ),
        (pytorch(Worker={"template": PODS}), [("template.spec.pytorchReplicaSpecs.Worker.template", 1)]),
        (
            ray("RayCluster", RAY),
            [
                ("template.spec.headGroupSpec.template", 1),
                ("template.spec.workerGroupSpecs[0].template", 3),
                ("template.spec.workerGroupSpecs[1].template", 1),
                ("template.spec.workerGroupSpecs[2].template", 4),
            ],
        ),
        (
            ray("RayJob", {"headGroupSpec": {"template": PODS}}),
            [("template.spec.rayClusterSpec.headGroupSpec.template", 1)],
        ),
        (ray("RayJob", None, clusterSelector={"a": "b"}), []),
        (custom(replicas=3), []),
    ],
)
def test_pod_sets_are_inferred(template: Json, expected: list[tuple[str, int]]) -> None:
    found, problems = infer(template)
    assert ([tuple(each) for each in found], problems) == (expected, [])


@pytest.mark.parametrize(
    ("template", "path", "message"),
    [
        (job(parallelism="2"), "template.spec.parallelism", "expected a whole number, at least 0"),
        (job(parallelism=True), "template.spec.parallelism", "expected a whole number, at least 0"),
        (deployment(replicas=10**7), "template.spec.template", "brings too many pods: expected at most 1000000"),
        (deployment(replicas=-1), "template.spec.replicas", "expected a whole number, at least 0"),
        (job(template={}), "template.spec.template", "does not lead to a pod template"),
        (job(template={"spec": {"containers": []}}), "template.spec.template", "does not lead to a pod template"),
        ({"apiVersion": "batch/v1", "kind": "Job"}, "template.spec.template", "template has no field spec"),
        (ray("RayJob", None), "template.spec.rayClusterSpec.headGroupSpec.template", "has no field rayClusterSpec"),
        (pytorch(Worker={"replicas": 2}), "template.spec.pytorchReplicaSpecs.Worker.template", "has no field template"),
    ],
)
def test_what_a_known_kind_may_not_be(template: Json, path: str, message: str) -> None:
    (problem,) = infer(template)[1]
    assert problem.path == path
    assert message in problem.message


@pytest.mark.parametrize(
    ("template", "complete", "failed"),
    [
        (job(), ("Complete",), ("Failed",)),
        (pytorch(), ("Succeeded",), ("Failed",)),
        (job_set(), ("Completed",), ("Failed",)),
        (ray("RayJob", RAY), (), ()),
        (pod(), (), ()),
        (deployment(), (), ()),
        (custom(), (), ()),
    ],
)
def test_how_a_kinds_own_status_settles_it(template: Json, complete: tuple[str, ...], failed: tuple[str, ...]) -> None:
    rule = status_rule(template)
    assert (rule.complete, rule.failed) == (complete, failed)


def test_a_path_is_followed_through_names_and_places() -> None:
    template = {"spec": {"jobs": [{"a": 1}, {"a": 2}]}}
    assert resolve(template, "template.spec.jobs[1].a") == 2
    assert resolve(template, "template") is template


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("template.spec.jobs[2]", "template.spec.jobs has 2 items"),
        ("template.spec[0]", "template.spec has 0 items"),
        ("template.spec.jobs.a", "template.spec.jobs has no field a"),
        ("template.nowhere.x", "template has no field nowhere"),
        ("spec.jobs", "expected one that starts with template"),
        ("template..spec", "expected one that starts with template"),
        ("", "expected one that starts with template"),
    ],
)
def test_a_path_that_leads_nowhere_says_where_it_ends(path: str, message: str) -> None:
    with pytest.raises(PathProblem, match=message.replace("[", r"\[")):
        resolve({"spec": {"jobs": [{"a": 1}, {"a": 2}]}}, path)


@pytest.mark.parametrize(
    ("index", "template", "name"),
    [
        (0, job("train"), "0-job-train"),
        (12, {"kind": "Pod", "metadata": {"generateName": "a.b-"}}, "12-pod-a-b"),
        (1, job("x" * 100), "1-job-" + "x" * 57),
        (3, {"kind": "Widget"}, "3-widget"),
    ],
)
def test_component_names_are_labels_and_always_the_same(index: int, template: Json, name: str) -> None:
    assert component_name(index, template) == component_name(index, copy(template)) == name
    assert Component(name=name, template=job()).name == name


@pytest.mark.parametrize(("group", "kind"), [one for one in KINDS if one[1] in {"TFJob", "MPIJob"}])
def test_D14_an_object_whose_pods_its_document_declares_wants_no_number_of_its_own(group: str, kind: str) -> None:
    thing = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": "t"}, "spec": {"size": 4}}
    assert pods_wanted(thing, f"{group}/v1", kind) is None
