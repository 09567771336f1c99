"""JobSets created for both controllers, and what of their objects must be the same."""

from __future__ import annotations

import copy
from typing import Any, Final

Json = dict[str, Any]
P: Final = "jobset.sigs.k8s.io/"

DEVIATIONS: Final[dict[str, str]] = {
    "metadata.labels[holdfast.dev/*]": "by which we know our own objects",
    "metadata.annotations[holdfast.dev/*]": "as the labels",
    "metadata.ownerReferences": "an attempt's owner object stands where the JobSet stands",
    "jobset.sigs.k8s.io/jobset-uid": "the workload's uid stands where the JobSet's stands",
    "spec.containers[].env HOLDFAST_*": "tells a container its attempt and its workload",
}
"""What differs on purpose, and why; everything else that is compared must be the same."""


def replicated(
    name: str, *, replicas: int | None = None, pods: int = 1, complete: str = "", fail: str = "", **more: Any
) -> Json:
    """Return a replicated job whose pods run on fake nodes; `complete` or `fail` ends them after that time."""
    annotations = {"holdfast.dev/kwok-complete": complete} if complete else {}
    annotations |= {"holdfast.dev/kwok-fail": fail, "holdfast.dev/kwok-exit-code": "1"} if fail else {}
    template: Json = {
        "metadata": {"annotations": annotations} if annotations else {},
        "spec": {
            "nodeSelector": {"holdfast.dev/node": "fake"},
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "example.com/train:1", "command": ["train"]}],
        },
    }
    job = {"parallelism": pods, "completions": pods, **more.pop("job", {}), "template": template}
    found = {"name": name, "template": {"spec": job}, **more}
    return found if replicas is None else {**found, "replicas": replicas}


def jobset(name: str, *jobs: Json, **spec: Any) -> Json:
    """Return a JobSet."""
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": list(jobs), **spec},
    }


def _labelled() -> Json:
    """Return a replicated job that has labels and annotations of its own, some of them in the published ones' place."""
    job = replicated("workers", replicas=2)
    own = {"labels": {"team": "a", f"{P}job-index": "9"}, "annotations": {"note": "b", f"{P}jobset-name": "other"}}
    job["template"]["metadata"] = copy.deepcopy(own)
    job["template"]["spec"]["template"]["metadata"] = copy.deepcopy(own)
    return job


def _failing() -> Json:
    """Return a replicated job whose pod fails, and which then gives up."""
    job = replicated("workers", fail="1s", job={"backoffLimit": 0})
    job["template"]["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    return job


def _depends(name: str, on: str, status: str) -> Json:
    return replicated(name, dependsOn=[{"name": on, "status": status}])


CASES: Final[tuple[Json, ...]] = (
    jobset("plain", replicated("workers")),
    jobset("copies", replicated("workers", replicas=3, pods=2)),
    jobset("several", replicated("driver"), replicated("workers", replicas=2), replicated("sink", replicas=2)),
    jobset(
        "groups",
        replicated("a", replicas=2, groupName="front"),
        replicated("b"),
        replicated("c", replicas=2, groupName="front"),
    ),
    jobset("subdomain", replicated("workers", replicas=2), network={"subdomain": "ring"}),
    jobset("unpublished", replicated("workers"), network={"publishNotReadyAddresses": False}),
    jobset("nodns", replicated("workers", replicas=2), network={"enableDNSHostnames": False, "subdomain": "x"}),
    jobset(
        "coordinator",
        replicated("driver"),
        replicated("workers", replicas=2, pods=2),
        coordinator={"replicatedJob": "workers", "jobIndex": 1, "podIndex": 1},
    ),
    jobset("labelled", _labelled()),
    jobset("loose", replicated("workers", pods=2, job={"completionMode": "NonIndexed", "backoffLimit": 0})),
    jobset("order", replicated("a"), replicated("b", replicas=2), startupPolicy={"startupPolicyOrder": "InOrder"}),
    jobset("depends", replicated("a", complete="1s"), _depends("b", "a", "Complete"), _depends("c", "b", "Ready")),
    jobset("zero", replicated("none", replicas=0), replicated("workers", replicas=2)),
    jobset(
        "policies",
        replicated("workers"),
        failurePolicy={"maxRestarts": 3, "restartStrategy": "BlockingRecreate", "rules": [{"action": "FailJobSet"}]},
        successPolicy={"operator": "Any", "targetReplicatedJobs": ["workers"]},
        ttlSecondsAfterFinished=600,
    ),
)
"""JobSets of which every Job is created once their pods run."""


FAILING: Final = _failing()
ENDS: Final[tuple[Json, ...]] = (
    jobset("done", replicated("workers", replicas=2, complete="1s")),
    jobset("unruled", FAILING),
    jobset("ruled", FAILING, failurePolicy={"maxRestarts": 3, "rules": [{"action": "FailJobSet"}]}),
    jobset("restarted", FAILING, failurePolicy={"maxRestarts": 1}),
)
"""JobSets that end by themselves, with one Job that fails where any does."""


def job_names(document: Json) -> set[str]:
    """Return the names of a JobSet's Jobs."""
    name = document["metadata"]["name"]
    return {
        f"{name}-{job['name']}-{index}"
        for job in document["spec"]["replicatedJobs"]
        for index in range(job.get("replicas", 1))
    }


def pod_count(document: Json) -> int:
    """Return how many pods come of a JobSet."""
    return sum(
        job.get("replicas", 1) * job["template"]["spec"]["parallelism"] for job in document["spec"]["replicatedJobs"]
    )


def told(kind: str, found: Json, uid: str) -> Json:
    """Return what of an object is compared, what differs on purpose left out; `uid` is what it is a part of."""
    metadata = {"name": _name(kind, found), **_metadata(found["metadata"], uid)}
    if kind == "Service":
        return {"metadata": metadata, "spec": _without(found["spec"], "clusterIPs", "ipFamilies", "ipFamilyPolicy")}
    if kind == "Pod":
        spec = found["spec"]
        return {"metadata": metadata, **{key: spec.get(key) for key in ("hostname", "subdomain", "restartPolicy")}}
    spec = copy.deepcopy(_without(found["spec"], "selector"))
    spec["template"]["metadata"] = _metadata(spec["template"]["metadata"], uid)
    for container in spec["template"]["spec"]["containers"]:
        kept = [each for each in container.pop("env", []) if not each["name"].startswith("HOLDFAST_")]
        container.update({"env": kept} if kept else {})
    return {"metadata": metadata, "spec": spec}


def _name(kind: str, found: Json) -> str:
    """Return an object's name; of a pod without what the Job controller draws by lot."""
    name: str = found["metadata"]["name"]
    return name.rpartition("-")[0] if kind == "Pod" else name


def _metadata(metadata: Json, uid: str) -> Json:
    """Return labels and annotations as both write them; what names the owner is named alike."""
    found: Json = {}
    for field in ("labels", "annotations"):
        values = {
            key: value
            for key, value in (metadata.get(field) or {}).items()
            if not key.startswith(("holdfast.dev/", "batch.kubernetes.io/"))
            and key not in {"controller-uid", "job-name"}
        }
        if f"{P}jobset-uid" in values:
            assert values[f"{P}jobset-uid"] == uid, "its uid is that of what it is a part of"
            values[f"{P}jobset-uid"] = "the owner's"
        found[field] = values
    return found


def _without(spec: Json, *fields: str) -> Json:
    return {key: value for key, value in spec.items() if key not in fields}
