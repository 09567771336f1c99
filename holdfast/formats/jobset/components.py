"""A JobSet's components: one for each replicated job, and the headless Service, with the published labels."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Final

from pydantic import ValidationError

from holdfast.errors import Problem, problems_of
from holdfast.formats.jobset.apart import apart_labels, apart_selectors, keep_apart
from holdfast.formats.jobset.claims import add_volumes
from holdfast.formats.jobset.document import (
    EXCLUSIVE,
    FAILED,
    JOBSET_NAME,
    NODE_SELECTOR,
    PREFIX,
    ReplicatedJobPart,
    Shape,
    group_name,
    replicas,
)
from holdfast.formats.pods import infer, status_rule
from holdfast.formats.references import with_config
from holdfast.formats.settings import relocated
from holdfast.formats.text import Json
from holdfast.model import Component, CopyLabel, CopyWord, PodSet

JOBSET_UID: Final = f"{PREFIX}jobset-uid"
REPLICATED_JOB: Final = f"{PREFIX}replicatedjob-name"
REPLICATED_JOB_REPLICAS: Final = f"{PREFIX}replicatedjob-replicas"
GLOBAL_REPLICAS: Final = f"{PREFIX}global-replicas"
RESTART_ATTEMPT: Final = f"{PREFIX}restart-attempt"
JOB_RESTART_ATTEMPT: Final = f"{PREFIX}job-restart-attempt"
JOB_INDEX: Final = f"{PREFIX}job-index"
JOB_GLOBAL_INDEX: Final = f"{PREFIX}job-global-index"
JOB_KEY: Final = f"{PREFIX}job-key"
GROUP_NAME: Final = f"{PREFIX}group-name"
GROUP_REPLICAS: Final = f"{PREFIX}group-replicas"
JOB_GROUP_INDEX: Final = f"{PREFIX}job-group-index"
COORDINATOR: Final = f"{PREFIX}coordinator"

_SERVICE: Final = "network"


def read_components(shape: Shape, problems: list[Problem]) -> tuple[tuple[Component, ...], dict[str, str]]:
    """Return a JobSet's components, and the document path of each.

    Args:
        shape: The JobSet, checked.
        problems: List to which problems of the components are added.
    """
    fail_on = tuple(dict.fromkeys((shape.fail_on, FAILED)))
    found: list[Component] = []
    places: dict[str, str] = {}
    if shape.dns:
        name = _SERVICE
        while name in shape.names:
            name += "-service"
        places[f"components[{len(found)}]"] = "spec.network"
        found.append(Component(name=name, template=service(shape)))
    for index, job in enumerate(shape.jobs):
        path = f"spec.replicatedJobs[{index}]"
        places[f"components[{len(found)}]"] = path
        template = job_template(shape, job)
        values: dict[str, Any] = {
            "name": job.name,
            "template": template,
            "pod_sets": [PodSet(path=one.path, replicas=one.replicas) for one in infer(template)[0]],
            "status": status_rule(template).model_copy(update={"failed": fail_on}),
            "copies": replicas(job),
            "copy_labels": copy_labels(shape, job),
            "copy_selectors": apart_selectors(shape.exclusive(job)),
            "after": _after(shape, job, index),
        }
        try:
            found.append(Component(**values))
        except ValidationError as error:
            problems.extend(relocated(problems_of(error, Component, path), {f"{path}.copies": f"{path}.replicas"}))
    return with_config(found), places


def place(copies: Sequence[int | None], index: int, path: str) -> str:
    """Return the document path of a component's field: a replicated job has copies, and the Service has none."""
    name = path == "template.metadata.name"
    if copies[index] is None:
        return "spec.network.subdomain" if name else "spec.network"
    job = f"spec.replicatedJobs[{sum(one is not None for one in copies[:index])}]"
    return f"{job}.{'name' if name else path}"


def service(shape: Shape) -> Json:
    """Return the headless Service through which pods are found by name."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": shape.subdomain},
        "spec": {
            "clusterIP": "None",
            "selector": {JOBSET_NAME: shape.name},
            "publishNotReadyAddresses": shape.publish_not_ready,
        },
    }


def job_template(shape: Shape, job: ReplicatedJobPart) -> Json:
    """Return the Job template of the copies: its own fields, the published defaults, the labels that all copies share.

    A Job is always created running, even if its template is suspended: a suspended JobSet is created when resumed.
    """
    spec: Json = copy.deepcopy(job.template.spec)
    if spec.get("completionMode") is None:
        spec["completionMode"] = "Indexed"
    spec["suspend"] = False
    pods: Json = spec["template"]
    pod_spec: Json = pods["spec"]
    if not pod_spec.get("restartPolicy"):
        pod_spec["restartPolicy"] = "OnFailure"
    if shape.dns:
        pod_spec["subdomain"] = shape.subdomain
    add_volumes(shape, job, pod_spec)
    metadata = job.template.metadata
    own: Json = {"labels": metadata.labels, "annotations": metadata.annotations} if metadata is not None else {}
    pods["metadata"] = _labelled(shape, job, pods.get("metadata") or {})
    labelled = _labelled(shape, job, own)
    asked = shape.exclusive(job)
    if asked is not None:
        keep_apart(pods, asked, JOBSET_NAME, JOB_KEY)
        labelled["annotations"][EXCLUSIVE] = asked.topology
        if asked.marked is not None:
            labelled["annotations"][NODE_SELECTOR] = asked.marked
            pods["metadata"]["annotations"][NODE_SELECTOR] = asked.marked
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"{shape.name}-{job.name}", **labelled},
        "spec": spec,
    }


def copy_labels(shape: Shape, job: ReplicatedJobPart) -> dict[str, CopyLabel]:
    """Return the labels that differ between copies, or are known only once the copy is created."""
    group = group_name(job)
    return {
        JOBSET_UID: CopyLabel(word=CopyWord.WORKLOAD_UID),
        RESTART_ATTEMPT: CopyLabel(word=CopyWord.ATTEMPT),
        JOB_INDEX: CopyLabel(word=CopyWord.INDEX),
        JOB_GLOBAL_INDEX: CopyLabel(word=CopyWord.INDEX, offset=shape.before(job)),
        JOB_GROUP_INDEX: CopyLabel(word=CopyWord.INDEX, offset=shape.before(job, group)),
        JOB_KEY: CopyLabel(word=CopyWord.KEY),
        **({JOB_RESTART_ATTEMPT: CopyLabel(word=CopyWord.RESTARTS)} if shape.restarts_jobs else {}),
        **apart_labels(shape.exclusive(job)),
    }


def _labelled(shape: Shape, job: ReplicatedJobPart, metadata: Json) -> Json:
    """Return metadata with the labels and annotations that all copies of a replicated job carry."""
    group = group_name(job)
    added = {
        JOBSET_NAME: shape.name,
        REPLICATED_JOB: job.name,
        REPLICATED_JOB_REPLICAS: str(replicas(job)),
        GLOBAL_REPLICAS: str(shape.total()),
        GROUP_NAME: group,
        GROUP_REPLICAS: str(shape.total(group)),
    }
    coordinator = shape.coordinator()
    if coordinator is not None:
        added[COORDINATOR] = coordinator
    # The template's values of these labels are replaced, as JobSet does, and never count as a contradiction.
    copied = copy_labels(shape, job)
    found: Json = dict(metadata)
    for field in ("labels", "annotations"):
        own: dict[str, str] = metadata.get(field) or {}
        found[field] = {key: value for key, value in own.items() if key not in copied} | added
    return found


def _after(shape: Shape, job: ReplicatedJobPart, index: int) -> list[Json]:
    """Return which components must have which status before a replicated job is created (row J13)."""
    if shape.in_order:
        return [{"component": shape.jobs[index - 1].name, "status": "Ready"}] if index else []
    return [{"component": one.name, "status": one.status, "createdSuspended": False} for one in job.dependsOn or ()]
