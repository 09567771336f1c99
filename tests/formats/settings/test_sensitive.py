"""Sensitive work is run again by nobody: what is set, and what is refused, of the fields that would do so (row D5)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from holdfast.errors import InvalidWorkload
from holdfast.formats import read
from holdfast.model import Workload
from tests.formats.corpus import appwrapper

ROW = pytest.mark.row
SILENT = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
STAYS = [{"key": key, "operator": "Exists", "effect": "NoExecute"} for key in SILENT]


def document(sensitive: str = "true", pod: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A Job as its author writes it."""
    template = {"containers": [{"name": "main", "image": "example.com/train:1"}], **(pod or {})}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "train",
            "annotations": {"holdfast.dev/profile": "lattice-batch", "holdfast.dev/sensitive": sensitive},
        },
        "spec": {"template": {"spec": template}, **spec},
    }


def one(given: Any, **options: Any) -> Workload:
    (workload,) = read(given if isinstance(given, list) else [given], cluster="dev", **options)
    return workload


def refused(given: Any, **options: Any) -> str:
    with pytest.raises(InvalidWorkload) as caught:
        one(given, **options)
    return "; ".join(str(problem) for problem in caught.value.problems)


def job_of(workload: Workload) -> dict[str, Any]:
    return workload.components[0].template["spec"]


def is_run_once(workload: Workload) -> bool:
    spec = job_of(workload)
    pod = spec["template"]["spec"]
    return (spec.get("backoffLimit"), spec.get("podReplacementPolicy"), pod.get("restartPolicy")) == (
        0,
        "Failed",
        "Never",
    ) and pod.get("tolerations") == STAYS


@ROW("D5", level="pure")
def test_D5_what_the_author_left_out_is_set_so_that_nobody_runs_it_again() -> None:
    given = document()
    before = copy.deepcopy(given)
    assert is_run_once(one(given))
    assert given == before, "the author's document is not changed"
    assert is_run_once(one(document(sensitive="false"), overrides={"sensitive": "true"}))
    plain = job_of(one(document(sensitive="false")))
    assert "backoffLimit" not in plain
    assert "tolerations" not in plain["template"]["spec"]


@ROW("D5", level="pure")
def test_D5_it_holds_for_every_form_and_is_the_same_when_it_is_read_again() -> None:
    job = {key: value for key, value in document().items() if key != "metadata"} | {"metadata": {"name": "train"}}
    wrapped = appwrapper("w", {"template": job})
    own = {"schemaVersion": 1, "name": "w", "sensitive": True, "components": [{"name": "a", "template": job}]}
    for workload in (one(wrapped, overrides={"sensitive": "true"}), one(own)):
        assert is_run_once(workload)
        again = Workload.model_validate(workload.model_dump(mode="json"))
        assert again == workload


@ROW("D5", level="pure")
def test_D5_what_the_author_wrote_to_the_same_end_stays() -> None:
    all_taints = [{"operator": "Exists"}]
    given = document(backoffLimit=0, podReplacementPolicy="Failed", pod={"tolerations": all_taints})
    assert job_of(one(given))["template"]["spec"]["tolerations"] == all_taints
    each = job_of(one(document(completionMode="Indexed", completions=4, backoffLimitPerIndex=0, backoffLimit=4)))
    assert each["backoffLimit"] == 4, "of other indexes: none is run again"
    assert "backoffLimit" not in job_of(one(document(completionMode="Indexed", completions=4, backoffLimitPerIndex=0)))
    sidecar = {"initContainers": [{"name": "log", "image": "example.com/log:1", "restartPolicy": "Always"}]}
    assert one(document(pod=sidecar)).sensitive


@ROW("D5", level="pure")
def test_D5_a_bare_pod_is_not_restarted_by_its_kubelet() -> None:
    pod = {"containers": [{"name": "main", "image": "example.com/train:1"}]}
    metadata = document()["metadata"]
    bare = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}
    assert one(bare).components[0].template["spec"] | pod == {**pod, "restartPolicy": "Never", "tolerations": STAYS}
    says = refused({**bare, "spec": {**pod, "restartPolicy": "Always"}})
    assert "spec.restartPolicy" in says
    assert "expected Never" in says


@ROW("D5", level="pure")
@pytest.mark.parametrize(
    ("given", "field", "allowed"),
    [
        (document(backoffLimit=6), "spec.backoffLimit", "6: expected 0"),
        (document(backoffLimitPerIndex=1, completionMode="Indexed"), "spec.backoffLimitPerIndex", "1: expected 0"),
        (document(podReplacementPolicy="TerminatingOrFailed"), "spec.podReplacementPolicy", "expected Failed"),
        (
            document(podFailurePolicy={"rules": [{"action": "Count"}, {"action": "Ignore"}]}),
            "spec.podFailurePolicy.rules[1].action",
            "expected FailJob, FailIndex or Count",
        ),
        (document(managedBy="example.com/other"), "spec.managedBy", "expected kubernetes.io/job-controller"),
        (document(pod={"restartPolicy": "OnFailure"}), "spec.template.spec.restartPolicy", "expected Never"),
        (
            document(pod={"containers": [{"name": "a", "image": "i", "restartPolicy": "Always"}]}),
            "spec.template.spec.containers[0].restartPolicy",
            "expected Never",
        ),
        (
            document(pod={"containers": [{"name": "a", "image": "i", "restartPolicyRules": [{"action": "Restart"}]}]}),
            "spec.template.spec.containers[0].restartPolicyRules",
            "expected none",
        ),
        (
            document(pod={"initContainers": [{"name": "a", "image": "i", "restartPolicy": "OnFailure"}]}),
            "spec.template.spec.initContainers[0].restartPolicy",
            "expected Never or Always",
        ),
        (
            document(
                pod={"initContainers": [{"name": "a", "image": "i", "restartPolicyRules": [{"action": "Restart"}]}]}
            ),
            "spec.template.spec.initContainers[0].restartPolicyRules",
            "expected none",
        ),
        (document(podReplacementPolicy={}), "spec.podReplacementPolicy", "{}: expected Failed"),
        (document(managedBy=[1]), "spec.managedBy", "[1]: expected kubernetes.io/job-controller"),
        (document(pod={"restartPolicy": ["Never"]}), "spec.template.spec.restartPolicy", "expected Never"),
        (
            document(pod={"initContainers": [{"name": "a", "image": "i", "restartPolicy": {"a": 1}}]}),
            "spec.template.spec.initContainers[0].restartPolicy",
            "expected Never or Always",
        ),
        (
            document(pod={"tolerations": [{"key": SILENT[1], "operator": "Exists", "tolerationSeconds": 60}]}),
            "spec.template.spec.tolerations[0].tolerationSeconds",
            "60: expected none",
        ),
        (
            document(pod={"tolerations": [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9}]}),
            "spec.template.spec.tolerations[0].tolerationSeconds",
            "9: expected none",
        ),
    ],
)
def test_D5_what_the_author_asked_for_to_the_contrary_is_refused(given: Any, field: str, allowed: str) -> None:
    says = refused(given)
    assert field in says
    assert allowed in says
    assert "sensitive work is not run again without a person's word" in says
    plain = copy.deepcopy(given)
    plain["metadata"]["annotations"]["holdfast.dev/sensitive"] = "false"
    assert one(plain).name == "train", "it is nothing but the word sensitive"


@ROW("D5", level="pure")
@pytest.mark.parametrize("field", ["key", "effect", "operator", "value"])
def test_D5_a_toleration_of_a_wrong_type_is_left_to_the_api_server(field: str) -> None:
    given = {"key": SILENT[0], "operator": "Exists", "effect": "NoExecute", field: ["a"]}
    kept = job_of(one(document(pod={"tolerations": [given]})))["template"]["spec"]["tolerations"]
    assert given in kept


@ROW("D5", level="pure")
@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_D5_a_kind_whose_controller_makes_failed_pods_again_is_refused(kind: str) -> None:
    labels = {"app": "a"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "i"}]}}
    given = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": document()["metadata"],
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }
    says = refused(given)
    assert kind in says
    assert "expected Job or Pod" in says


@ROW("D5", level="pure")
def test_D5_a_gang_restarts_no_worker() -> None:
    spec = {"completionMode": "Indexed", "template": {"spec": {"containers": [{"name": "main", "image": "i"}]}}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": spec}

    def gang(**fields: Any) -> dict[str, Any]:
        component = {"name": "a", "template": job}
        return {"schemaVersion": 1, "name": "w", "sensitive": True, "gang": fields, "components": [component]}

    workload = one(gang(min=2, max=2))
    assert workload.gang is not None
    assert workload.gang.max_restarts == 0
    assert "gang.maxRestarts: 3: expected 0" in refused(gang(min=2, max=2, maxRestarts=3))
    assert "gang.min: 1: expected gang.max, 2" in refused(gang(min=1, max=2))
    assert one({**gang(min=1, max=2), "sensitive": False}).gang is not None
