"""What is known of kinds that bring pods: where their pod templates are, how many pods come, how their status speaks.

A new kind is one entry in `KINDS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

from holdfast.errors import Problem
from holdfast.formats.text import Json, inside
from holdfast.model import StatusRule

_PATH = re.compile(r"^template(?:\.[A-Za-z0-9_-]+|\[[0-9]+\])*\Z")
PODS_MAXIMUM = 1_000_000
_STEP = re.compile(r"\.([A-Za-z0-9_-]+)|\[([0-9]+)\]")


class Inferred(NamedTuple):
    """A pod set as the object itself tells it: the path of its pod template, and how many pods come of it."""

    path: str
    replicas: int


class PathProblem(ValueError):
    """A path that leads nowhere, or to something of another shape; `path` is how far it is to be told."""

    def __init__(self, path: str, message: str, value: Any = None) -> None:
        super().__init__(message)
        self.path = path
        self.value = value


class KnownKind(NamedTuple):
    """What is known of a kind: its pod sets, and the condition types that settle it."""

    pod_sets: Callable[[Json], Iterator[Inferred]]
    status: StatusRule = StatusRule()


def resolve(template: Json, path: str) -> Any:
    """Return what stands at a path of a component, `template.spec.jobs[0].template`.

    Raises:
        PathProblem: naming the step that leads nowhere.
    """
    if not _PATH.match(path):
        raise PathProblem(path, "is no path: expected one that starts with template, as template.spec.template", path)
    value: Any = template
    done = "template"
    for step in _STEP.finditer(path.removeprefix("template")):
        name, index = step.groups()
        if name is not None:
            if not isinstance(value, dict) or name not in value:
                raise PathProblem(path, f"leads nowhere: {done} has no field {name}")
            value = cast("Json", value)[name]
        else:
            found = cast("list[Any]", value) if isinstance(value, list) else []
            if int(index) >= len(found):
                raise PathProblem(path, f"leads nowhere: {done} has {len(found)} items, and the first is [0]")
            value = found[int(index)]
        done += step.group()
    return value


def pod_template(template: Json, path: str) -> Json:
    """Return the pod template at a path: an object whose `spec` has containers.

    Raises:
        PathProblem: if there is none.
    """
    found = resolve(template, path)
    spec: Any = cast("Json", found).get("spec") if isinstance(found, dict) else None
    containers: Any = cast("Json", spec).get("containers") if isinstance(spec, dict) else None
    if not isinstance(containers, list) or not containers:
        raise PathProblem(path, "does not lead to a pod template: expected an object with spec.containers")
    return cast("Json", found)


def _count(template: Json, path: str, absent: int = 1) -> int:
    """Return the count at a path, or `absent` where none is given."""
    try:
        value = resolve(template, path)
    except PathProblem:
        return absent
    if value is None:
        return absent
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise PathProblem(path, "expected a whole number, at least 0", value)
    return value


def _items(template: Json, path: str) -> int:
    """Return how many items the list at a path has, 0 where there is none."""
    try:
        value = resolve(template, path)
    except PathProblem:
        return 0
    return len(cast("list[Any]", value)) if isinstance(value, list) else 0


def _has(template: Json, path: str) -> bool:
    try:
        return resolve(template, path) is not None
    except PathProblem:
        return False


def _job_pods(template: Json, spec: str) -> int:
    """Return how many pods of a Job are to run at a time: its parallelism, or its completions where they are fewer."""
    parallelism = _count(template, f"{spec}.parallelism")
    return min(parallelism, _count(template, f"{spec}.completions", absent=parallelism))


def _pod(_: Json) -> Iterator[Inferred]:
    yield Inferred("template", 1)


def _replicated(template: Json) -> Iterator[Inferred]:
    yield Inferred("template.spec.template", _count(template, "template.spec.replicas"))


def _job(template: Json) -> Iterator[Inferred]:
    yield Inferred("template.spec.template", _job_pods(template, "template.spec"))


def _job_set(template: Json) -> Iterator[Inferred]:
    for index in range(_items(template, "template.spec.replicatedJobs")):
        job = f"template.spec.replicatedJobs[{index}]"
        replicas = _count(template, f"{job}.replicas")
        yield Inferred(f"{job}.template.spec.template", replicas * _job_pods(template, f"{job}.template.spec"))


def _pytorch_job(template: Json) -> Iterator[Inferred]:
    for role in ("Master", "Worker"):
        replica = f"template.spec.pytorchReplicaSpecs.{role}"
        if _has(template, replica):
            yield Inferred(f"{replica}.template", _count(template, f"{replica}.replicas"))


def _ray(template: Json, spec: str) -> Iterator[Inferred]:
    yield Inferred(f"{spec}.headGroupSpec.template", 1)
    for index in range(_items(template, f"{spec}.workerGroupSpecs")):
        group = f"{spec}.workerGroupSpecs[{index}]"
        hosts = _count(template, f"{group}.numOfHosts")
        yield Inferred(f"{group}.template", _count(template, f"{group}.replicas") * hosts)


def _ray_cluster(template: Json) -> Iterator[Inferred]:
    yield from _ray(template, "template.spec")


def _ray_job(template: Json) -> Iterator[Inferred]:
    # A RayJob that selects an existing cluster brings no pods that are its own.
    if _has(template, "template.spec.rayClusterSpec") or not _has(template, "template.spec.clusterSelector"):
        yield from _ray(template, "template.spec.rayClusterSpec")


KINDS: dict[tuple[str, str], KnownKind] = {
    ("", "Pod"): KnownKind(_pod),
    ("apps", "Deployment"): KnownKind(_replicated),
    ("apps", "StatefulSet"): KnownKind(_replicated),
    ("batch", "Job"): KnownKind(_job, StatusRule(complete=("Complete",), failed=("Failed",))),
    ("jobset.x-k8s.io", "JobSet"): KnownKind(_job_set, StatusRule(complete=("Completed",), failed=("Failed",))),
    ("kubeflow.org", "PyTorchJob"): KnownKind(_pytorch_job, StatusRule(complete=("Succeeded",), failed=("Failed",))),
    # Ray tells its state by fields that are no conditions, and "failed" there may pass again: only its pods speak.
    ("ray.io", "RayCluster"): KnownKind(_ray_cluster),
    ("ray.io", "RayJob"): KnownKind(_ray_job),
}
"""Known kinds, by API group and kind."""

UNCOUNTED = frozenset(
    {("apps", "DaemonSet"), ("apps", "ReplicaSet"), ("", "ReplicationController"), ("batch", "CronJob")}
)
"""Kinds that bring pods whose number is not read here."""


def group_kind(template: Json) -> tuple[str, str]:
    """Return an object's API group (empty for the core group) and kind."""
    group, slash, _ = str(template.get("apiVersion", "")).rpartition("/")
    return (group if slash else "", str(template.get("kind", "")))


def infer(template: Json) -> tuple[list[Inferred], list[Problem]]:
    """Return the pod sets of an object of a known kind, and what is wrong with it; of other kinds neither is known."""
    known = KINDS.get(group_kind(template))
    if known is None:
        return [], []
    found: list[Inferred] = []
    try:
        for pod_set in known.pod_sets(template):
            pod_template(template, pod_set.path)
            if pod_set.replicas > PODS_MAXIMUM:
                raise PathProblem(
                    pod_set.path, f"brings too many pods: expected at most {PODS_MAXIMUM}", pod_set.replicas
                )
            found.append(pod_set)
    except PathProblem as problem:
        if problem.value is not None:
            return found, [Problem(problem.path, str(problem), problem.value)]
        return found, [Problem(problem.path, str(problem))]
    return found, []


def status_rule(template: Json) -> StatusRule:
    """Return which conditions of an object settle it; of an unknown kind only its pods speak."""
    known = KINDS.get(group_kind(template))
    return known.status if known is not None else StatusRule()


def component_name(index: int, template: Json) -> str:
    """Return a component's name: its place, kind and object's name, as a DNS label (`0-job-train`).

    The same document gives the same names; the place makes them differ, however much of the rest is cut off.
    """
    name = str(inside(template, "metadata", "name") or inside(template, "metadata", "generateName") or "")
    text = re.sub(r"[^a-z0-9]+", "-", f"{index}-{template.get('kind', '')}-{name}".lower())
    return text[:63].strip("-")
