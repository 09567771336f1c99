"""Valid AppWrappers of every kind whose pod sets are inferred: the API server and Holdfast accept them as they are."""

from __future__ import annotations

from typing import Any

from tests.formats.documents import PREFIX, Json, copy

API = "workload.codeflare.dev/v1beta2"
INFO: Json = {
    "labels": {"example.com/flavor": "spot"},
    "annotations": {"example.com/admitted-by": "queue"},
    "nodeSelector": {"kubernetes.io/arch": "amd64"},
    "tolerations": [{"key": "example.com/spot", "operator": "Exists", "effect": "NoSchedule"}],
    "schedulingGates": [{"name": "example.com/topology"}],
}
"""All that Kueue may add to a pod set."""


def pods(**metadata: Any) -> Json:
    """A pod template with as many kinds of fields as a mutation may want to spoil."""
    return {
        "metadata": metadata,
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": {"holdfast.dev/node": "fake"},
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"key": "example.com/own", "operator": "Equal", "value": "yes", "effect": "NoExecute"}],
            "volumes": [
                {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}},
                {"name": "settings", "configMap": {"name": "settings", "optional": True}},
            ],
            "initContainers": [{"name": "fetch", "image": "example.com/fetch:1"}],
            "containers": [
                {
                    "name": "main",
                    "image": "example.com/train:1",
                    "command": ["train", "--fast"],
                    "env": [{"name": "EPOCHS", "value": "3"}],
                    "ports": [{"name": "http", "containerPort": 8080}],
                    "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
                    "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
                    "livenessProbe": {"httpGet": {"path": "/live", "port": 8080}, "periodSeconds": 30},
                }
            ],
        },
    }


def pod(name: str = "coordinator") -> Json:
    template = pods(name=name, labels={"app": name}, annotations={"example.com/why": "a test"})
    return {"apiVersion": "v1", "kind": "Pod", **template}


def job(name: str = "train") -> Json:
    spec = {"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": pods()}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def serving(kind: str) -> Json:
    template = pods(labels={"app": "web"})
    template["spec"]["restartPolicy"] = "Always"
    spec: Json = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    if kind == "StatefulSet":
        spec["serviceName"] = "web"
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"}, "spec": spec}


def job_set() -> Json:
    def replicated(name: str, replicas: int, **of_job: int) -> Json:
        return {"name": name, "replicas": replicas, "template": {"spec": {**of_job, "template": pods()}}}

    jobs = [replicated("leader", 1), replicated("workers", 2, parallelism=2, completions=2)]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set"},
        "spec": {"replicatedJobs": jobs},
    }


def pytorch_job() -> Json:
    roles = {"Master": {"replicas": 1, "template": pods()}, "Worker": {"replicas": 3, "template": pods()}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "torch"},
        "spec": {"pytorchReplicaSpecs": roles},
    }


def ray(kind: str) -> Json:
    cluster: Json = {
        "headGroupSpec": {"rayStartParams": {"num-cpus": "0"}, "template": pods()},
        "workerGroupSpecs": [{"groupName": "small", "replicas": 2, "rayStartParams": {}, "template": pods()}],
    }
    spec = cluster if kind == "RayCluster" else {"entrypoint": "python train.py", "rayClusterSpec": cluster}
    return {"apiVersion": "ray.io/v1", "kind": kind, "metadata": {"name": "ray"}, "spec": spec}


def config_map(name: str = "settings") -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"epochs": "3"}}


def service() -> Json:
    spec = {"clusterIP": "None", "selector": {"app": "web"}, "ports": [{"port": 80}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": spec}


def appwrapper(name: str, *components: Json, **annotations: str) -> Json:
    """Return an AppWrapper; keyword arguments are annotations of its own."""
    metadata: Json = {"name": name}
    if annotations:
        metadata["annotations"] = {PREFIX + key: value for key, value in annotations.items()}
    return {"apiVersion": API, "kind": "AppWrapper", "metadata": metadata, "spec": {"components": list(components)}}


def declared(template: Json, *pod_sets: tuple[str, int], infos: bool = True) -> Json:
    """Return a component whose pod sets are given, each with all that may be added to it."""
    component: Json = {"podSets": [{"path": path, "replicas": count} for path, count in pod_sets], "template": template}
    if infos:
        component["podSetInfos"] = [copy(INFO) for _ in pod_sets]
    return component


KINDS: dict[str, Json] = {
    "pod": declared(pod(), ("template", 1)),
    "deployment": declared(serving("Deployment"), ("template.spec.template", 2)),
    "statefulset": declared(serving("StatefulSet"), ("template.spec.template", 2)),
    "job": declared(job(), ("template.spec.template", 2)),
    "jobset": declared(
        job_set(),
        ("template.spec.replicatedJobs[0].template.spec.template", 1),
        ("template.spec.replicatedJobs[1].template.spec.template", 4),
    ),
    "pytorchjob": declared(
        pytorch_job(),
        ("template.spec.pytorchReplicaSpecs.Master.template", 1),
        ("template.spec.pytorchReplicaSpecs.Worker.template", 3),
    ),
    "raycluster": declared(
        ray("RayCluster"),
        ("template.spec.headGroupSpec.template", 1),
        ("template.spec.workerGroupSpecs[0].template", 2),
    ),
    "rayjob": declared(
        ray("RayJob"),
        ("template.spec.rayClusterSpec.headGroupSpec.template", 1),
        ("template.spec.rayClusterSpec.workerGroupSpecs[0].template", 2),
    ),
}
"""A component of each inferred kind, with all its pod sets declared and added to."""


def corpus() -> dict[str, Json]:
    """Return the valid AppWrappers by name: each kind inferred, each kind declared, several components, annotations."""
    found = {f"{name}-declared": appwrapper(f"{name}-declared", copy(one)) for name, one in KINDS.items()}
    for name, one in KINDS.items():
        found[name] = appwrapper(name, {"template": copy(one["template"])})
    found["several"] = appwrapper(
        "several",
        {"template": config_map()},
        {"template": service()},
        {"template": pod()},
        declared(job(), ("template.spec.template", 2)),
        failureGracePeriodDuration="30s",
        retryLimit="5",
        terminalExitCodes="1, 2",
        retryableExitCodes="137",
        successTTLDuration="1h",
    )
    found["eight"] = appwrapper("eight", *({"template": pod(f"p{number}")} for number in range(8)))
    suspended = appwrapper("suspended", {"template": job()}, admissionGracePeriodDuration="-1s")
    suspended["spec"]["suspend"] = True
    suspended["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "gpu"}
    found["suspended"] = suspended
    return found
