"""Known kinds with pods: where their pod templates are, how many pods they have, how their status is read.

A new kind is one entry in `KINDS`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, cast

from pydantic import ValidationError

from holdfast import names
from holdfast.errors import Problem, problems_of
from holdfast.formats.text import Json, inside
from holdfast.model import StatusRule
from holdfast.model.spec.component import FieldRule

_PATH = re.compile(r"^template(?:\.[A-Za-z0-9_-]+|\[[0-9]+\])*\Z")
PODS_MAXIMUM = 1_000_000
ANNOTATION_STATUS: Final = f"{names.GROUP}/status-rules"
"""Annotation on an object of an unknown kind: which status fields report success, failure and readiness."""
_STATUS_WORDS: Final = {"succeeded": "succeeded_when", "failed": "failed_when", "ready": "ready_when"}
_STEP = re.compile(r"\.([A-Za-z0-9_-]+)|\[([0-9]+)\]")


class Inferred(NamedTuple):
    """A pod set inferred from the object: the path of its pod template, and its number of pods."""

    path: str
    replicas: int


class PathProblem(ValueError):
    """A path that leads nowhere, or to a value of another shape; `path` is the path to report."""

    def __init__(self, path: str, message: str, value: Any = None) -> None:
        super().__init__(message)
        self.path = path
        self.value = value


class KnownKind(NamedTuple):
    """A known kind: its pod sets, and how its status is read."""

    pod_sets: Callable[[Json], Iterator[Inferred]]
    status: StatusRule = StatusRule()
    wanted: Callable[[Json], int] | None = None
    """How many pods its spec asks for now, of a kind whose pods the document declares; None: that is not read."""


def resolve(template: Json, path: str) -> Any:
    """Return the value at a path of a component, `template.spec.jobs[0].template`.

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
        PathProblem: if there is no pod template.
    """
    found = resolve(template, path)
    spec: Any = cast("Json", found).get("spec") if isinstance(found, dict) else None
    containers: Any = cast("Json", spec).get("containers") if isinstance(spec, dict) else None
    if not isinstance(containers, list) or not containers:
        raise PathProblem(path, "does not lead to a pod template: expected an object with spec.containers")
    return cast("Json", found)


def _count(template: Json, path: str, absent: int = 1) -> int:
    """Return the count at a path, or `absent` if there is none."""
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
    """Return how many items the list at a path has, 0 if there is none."""
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
    """Return how many pods a Job runs at a time: its parallelism, or its completions if they are fewer."""
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
    # A RayJob that selects an existing cluster has no pods of its own.
    if _has(template, "template.spec.rayClusterSpec") or not _has(template, "template.spec.clusterSelector"):
        yield from _ray(template, "template.spec.rayClusterSpec")


def _declared(_: Json) -> Iterator[Inferred]:
    """Yield nothing, for a kind whose pods the document declares."""
    yield from ()


def _of_leader_worker_set(template: Json) -> int:
    size = _count(template, "template.spec.leaderWorkerTemplate.size")
    return _count(template, "template.spec.replicas") * size


def _is(path: str, equals: str, unless: FieldRule | None = None) -> FieldRule:
    return FieldRule(path=path, equals=equals, unless=unless)


_TRAINING: Final = StatusRule(complete=("Succeeded",), failed=("Failed",))
"""Kubeflow's training jobs of version 1, and MPIJobs."""
_RAY_RETRIES: Final = _is("status.jobDeploymentStatus", "Retrying")

KINDS: dict[tuple[str, str], KnownKind] = {
    ("", "Pod"): KnownKind(_pod),
    ("apps", "Deployment"): KnownKind(_replicated),
    ("apps", "StatefulSet"): KnownKind(_replicated),
    ("batch", "Job"): KnownKind(_job, StatusRule(complete=("Complete",), failed=("Failed",))),
    ("jobset.x-k8s.io", "JobSet"): KnownKind(_job_set, StatusRule(complete=("Completed",), failed=("Failed",))),
    ("kubeflow.org", "PyTorchJob"): KnownKind(_pytorch_job, _TRAINING),
    ("kubeflow.org", "TFJob"): KnownKind(_declared, _TRAINING),
    ("kubeflow.org", "XGBoostJob"): KnownKind(_declared, _TRAINING),
    ("kubeflow.org", "PaddleJob"): KnownKind(_declared, _TRAINING),
    ("kubeflow.org", "JAXJob"): KnownKind(_declared, _TRAINING),
    ("kubeflow.org", "MXJob"): KnownKind(_declared, _TRAINING),
    ("kubeflow.org", "MPIJob"): KnownKind(_declared, _TRAINING),
    ("trainer.kubeflow.org", "TrainJob"): KnownKind(_declared, StatusRule(complete=("Complete",), failed=("Failed",))),
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): KnownKind(
        _declared, StatusRule(ready=("Available",)), _of_leader_worker_set
    ),
    # A cluster may recover from the state "failed", so it is not final.
    ("ray.io", "RayCluster"): KnownKind(_ray_cluster, StatusRule(ready_when=(_is("status.state", "ready"),))),
    ("ray.io", "RayService"): KnownKind(
        _declared, StatusRule(ready=("Ready",), ready_when=(_is("status.serviceStatus", "Running"),))
    ),
    ("ray.io", "RayJob"): KnownKind(
        _ray_job,
        StatusRule(
            succeeded_when=(_is("status.jobStatus", "SUCCEEDED"),),
            failed_when=(
                # While its controller retries within its backoffLimit, it shows that next to the last result.
                _is("status.jobStatus", "FAILED", unless=_RAY_RETRIES),
                _is("status.jobStatus", "STOPPED", unless=_RAY_RETRIES),
                _is("status.jobDeploymentStatus", "Failed"),
            ),
            ready_when=(_is("status.jobDeploymentStatus", "Running"),),
        ),
    ),
    ("sparkoperator.k8s.io", "SparkApplication"): KnownKind(
        _declared,
        StatusRule(
            succeeded_when=(_is("status.applicationState.state", "COMPLETED"),),
            failed_when=(_is("status.applicationState.state", "FAILED"),),
            ready_when=(_is("status.applicationState.state", "RUNNING"),),
        ),
    ),
}
"""Known kinds, by API group and kind."""

UNCOUNTED = frozenset(
    {("apps", "DaemonSet"), ("apps", "ReplicaSet"), ("", "ReplicationController"), ("batch", "CronJob")}
)
"""Kinds with pods whose number is not inferred."""


def group_kind(template: Json) -> tuple[str, str]:
    """Return an object's API group (empty for the core group) and kind."""
    group, slash, _ = str(template.get("apiVersion", "")).rpartition("/")
    return (group if slash else "", str(template.get("kind", "")))


def twin_problem(template: Json, place: str, path: str, seen: dict[tuple[str, ...], str]) -> Problem | None:
    """Return the problem of a name that an earlier object of the same kind has; remember where the first of them is.

    Other namespaces are refused as such.

    Args:
        template: The object.
        place: Where it is, for the problems of later objects.
        path: Its own path, for its problem.
        seen: The place of the first object of each name; changed.
    """
    name = inside(template, "metadata", "name")
    if not name or not isinstance(name, str):
        return None
    key = (*group_kind(template), name, str(inside(template, "metadata", "namespace") or ""))
    earlier = seen.setdefault(key, place)
    if earlier == place:
        return None
    return Problem(f"{path}.metadata.name", f"is the name of another {key[1]} here, that of {earlier}", name)


def infer(template: Json) -> tuple[list[Inferred], list[Problem]]:
    """Return the pod sets and the problems of an object of a known kind; for other kinds, two empty lists."""
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


def pods_wanted(thing: Mapping[str, Any], api_version: str, kind: str) -> int | None:
    """Return how many pods an object's spec requests now; None if that cannot be read for its kind.

    It is read as at submission, so that the two can be compared. Items of a list response lack version and kind.
    """
    known = KINDS.get(group_kind({"apiVersion": api_version, "kind": kind}))
    if known is None or (known.pod_sets is _declared and known.wanted is None):
        return None
    try:
        if known.wanted is not None:
            return known.wanted(cast("Json", thing))
        return sum(pod_set.replicas for pod_set in known.pod_sets(cast("Json", thing)))
    except PathProblem:
        return None


def status_rule(template: Json) -> StatusRule:
    """Return how to read an object's status: from its kind, if known, or from its annotation (row D15).

    For an unknown kind without the annotation only its pods count. An invalid annotation is ignored here:
    `status_problems` reports its problems.
    """
    known = KINDS.get(group_kind(template))
    if known is not None and known.status.speaks:
        return known.status
    try:
        return _annotated(template) or StatusRule()
    except ValueError:
        return StatusRule()


def status_problems(template: Json) -> list[Problem]:
    """Return the problems of the status rules in an object's annotation, if it has one."""
    path = f"template.metadata.annotations[{ANNOTATION_STATUS}]"
    try:
        rule = _annotated(template)
    except ValidationError as error:
        # Use the author's field name: `succeeded`, not `succeededWhen`.
        found = problems_of(error, StatusRule, path)
        return [Problem(one.path.replace("When[", "[", 1), one.message, one.value, one.allowed) for one in found]
    except ValueError as error:
        return [Problem(path, str(error), inside(template, "metadata", "annotations", ANNOTATION_STATUS))]
    known = KINDS.get(group_kind(template))
    if rule is not None and known is not None and known.status.speaks:
        return [Problem(path, f"is not for a {template.get('kind')}: how its status speaks is known")]
    return []


def _annotated(template: Json) -> StatusRule | None:
    """Return the status rules of an object's annotation; None if it has none.

    Raises:
        ValueError: if it cannot be read; a ValidationError if it is JSON with valid keys but invalid rules.
    """
    text = inside(template, "metadata", "annotations", ANNOTATION_STATUS)
    if text is None:
        return None
    example = '{"succeeded": {"path": "status.phase", "equals": "Done"}}'
    try:
        given: Any = json.loads(text)
    except (TypeError, ValueError, RecursionError):
        raise ValueError(f"expected JSON such as {example}") from None
    fields = cast("Json", given) if isinstance(given, dict) else {}
    if not fields or not set(fields) <= _STATUS_WORDS.keys():
        raise ValueError(f"expected some of {', '.join(_STATUS_WORDS)}, as in {example}")
    return StatusRule.model_validate(
        {_STATUS_WORDS[name]: one if isinstance(one, list) else [one] for name, one in fields.items()}
    )


def component_name(index: int, template: Json) -> str:
    """Return a component's name: its index, kind and object's name, as a DNS label (`0-job-train`).

    The same document gives the same names; the index keeps them unique even if the rest is cut off.
    """
    name = str(inside(template, "metadata", "name") or inside(template, "metadata", "generateName") or "")
    text = re.sub(r"[^a-z0-9]+", "-", f"{index}-{template.get('kind', '')}-{name}".lower())
    return text[:63].strip("-")
