"""How a JobSet in the cluster requests a workload: what its admission adds, and the status it shows (row F16)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, cast

from pydantic import ValidationError

from holdfast.errors import DocumentWarning, HoldfastError, InvalidWorkload, problems_of
from holdfast.formats.condition import condition, timed
from holdfast.formats.jobset.document import API_VERSION, FAILED, KIND
from holdfast.formats.jobset.reader import read, read_accepted
from holdfast.formats.jobset.status import (
    COMPLETED,
    RESTARTING,
    RESUMED,
    RETRIED,
    STARTED,
    STARTING,
    SUSPENDED,
    restarting,
    status,
)
from holdfast.formats.published import LABEL_QUEUE
from holdfast.formats.registry import Resource
from holdfast.formats.text import Json, inside
from holdfast.model import BudgetStatus, Component, ConditionType, Phase, PodSet, Reason, Report, Status, Workload

_PLACING: Final = ("nodeSelector", "tolerations", "schedulingGates")
"""The fields of a pod spec that an admission controller fills in."""
_LABELLING: Final = ("labels", "annotations")
_TOPOLOGY: Final = "alpha.jobset.sigs.k8s.io/"
"""Prefix of annotations on a pod template that JobSet itself reads (row J21)."""


def _bare(document: Json) -> Json:
    """Return a JobSet without what places its pods, which may change while it is suspended.

    Kueue changes the templates themselves. So what a template says there cannot be told from what Kueue has added, and
    each attempt takes all of it from the JobSet as it is then.
    """
    jobs = document["spec"].get("replicatedJobs")
    if not isinstance(jobs, list):
        return document
    bare = [_without(one) if isinstance(_template(one), dict) else one for one in cast("list[Any]", jobs)]
    return {**document, "spec": {**document["spec"], "replicatedJobs": bare}}


def _template(job: Any) -> Any:
    return inside(job, "template", "spec", "template")


def _without(job: Json) -> Json:
    template: Json = _template(job)
    own, spec = template.get("metadata"), template.get("spec")
    left: Json = dict(template)
    if isinstance(spec, dict):
        pod = cast("Json", spec)
        left["spec"] = {key: pod[key] for key in pod if key not in _PLACING}
    if isinstance(own, dict):
        metadata = cast("Json", own)
        left["metadata"] = {key: metadata[key] for key in metadata if key not in _LABELLING}
        annotations = inside(metadata, "annotations")
        if isinstance(annotations, dict):
            of_jobset = {key: value for key, value in cast("Json", annotations).items() if key.startswith(_TOPOLOGY)}
            left["metadata"] |= {"annotations": of_jobset} if of_jobset else {}
    return {**job, "template": {**job["template"], "spec": {**job["template"]["spec"], "template": left}}}


def _pod_sets(document: Json) -> dict[str, tuple[PodSet, ...]]:
    components = {one.name: one for one in read_accepted(_unsaid(_bare(document)))}
    found: dict[str, tuple[PodSet, ...]] = {}
    for index, job in enumerate(document["spec"]["replicatedJobs"]):
        component = components[job["name"]]
        added = _added(_template(job), component)
        if not added:
            continue
        path = f"spec.replicatedJobs[{index}].template.spec.template"
        try:
            found[job["name"]] = tuple(PodSet(**{**dict(one), **added}) for one in component.pod_sets)
        except ValidationError as error:
            raise InvalidWorkload(problems_of(error, PodSet, path), f"{KIND} {document['metadata']['name']}") from None
    return found


def _added(template: Json, component: Component) -> Json:
    """Return what a pod template says of where its pods run, as fields of a pod set.

    The annotations that JobSet itself reads are left out: they are part of the component already.
    """
    spec: Json = template.get("spec") or {}
    metadata: Json = template.get("metadata") or {}
    annotations = _others(metadata, "annotations", component)
    given: Json = {
        "labels": _others(metadata, "labels", component),
        "annotations": {key: annotations[key] for key in annotations if not key.startswith(_TOPOLOGY)},
        "node_selector": spec.get("nodeSelector"),
        "tolerations": spec.get("tolerations"),
        "scheduling_gates": spec.get("schedulingGates"),
    }
    return {key: value for key, value in given.items() if value}


def _others(metadata: Json, field: str, component: Component) -> Json:
    """Return the labels or annotations of a pod template without those that Holdfast writes."""
    given: Json = metadata.get(field) or {}
    written: Json = component.template["spec"]["template"]["metadata"][field]
    return {key: given[key] for key in given if key not in written and key not in component.copy_labels}


def _unsaid(document: Json) -> Json:
    return {**document, "status": None}


def _managed_by(document: Json) -> str | None:
    return document["spec"].get("managedBy")


def _is_suspended(document: Json) -> bool:
    return document["spec"].get("suspend") is True


def _is_deployed(status: Mapping[str, Any]) -> bool:
    jobs = cast("list[Json]", status.get("replicatedJobsStatus") or [])
    return any(one.get("suspended") for one in jobs)


def _status_suffices(status: Mapping[str, Any]) -> bool:
    return False  # Each status is counted by the replicated jobs of the document.


def reported(document: Json, report: Report, now: datetime) -> Json:
    """Return the status of a JobSet in the cluster for a report that is about to be written to it.

    Kueue takes `active` above 0 as pods that still use quota, and Completed or Failed as quota that is free. So for a
    JobSet with a queue name `active` stays above 0, and these two conditions are withheld, until it is proven that no
    pod is left. Without a queue name nobody counts quota by them: they say what they say of JobSet's own controller.
    """
    previous: Json = document.get("status") or {}
    reserved = any(one.status for one in report.conditions if one.type is ConditionType.QUOTA_RESERVED)
    holds = reserved and LABEL_QUEUE in (inside(document, "metadata", "labels") or {})
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DocumentWarning)
            workload = read(_unsaid(_bare(document)), cluster="cluster")
    except HoldfastError:
        # It is refused, or was changed after admission so that it cannot be read: its own Jobs are not known.
        told = _unread(previous, report, holds=holds, reserved=reserved)
        conditions = _conditions(told.pop("conditions"), previous, report, holds=holds)
    else:
        told = status(workload, _status(workload, report, now))
        conditions = _conditions(told.pop("conditions", []), previous, report, holds=holds)
        conditions = [_of_restart(one, previous, report, workload, told["restarts"]) for one in conditions]
        if holds or not reserved:
            _count(told["replicatedJobsStatus"], workload, holds=holds)
        # A merge leaves alone what it does not name.
        told.setdefault("restartsCountTowardsMax", 0)
    if holds:
        told.pop("terminalState", None)
    if not (report.phase.ended or report.reason is Reason.HELD) and previous.get("terminalState"):
        told["terminalState"] = None  # It is tried again.
    return {**told, "conditions": timed([*conditions, condition(report)], previous, report.generation, now)}


def _unread(previous: Json, report: Report, *, holds: bool, reserved: bool) -> Json:
    """Return what a report alone says of a JobSet that cannot be read, with the Jobs its status names (row F16)."""
    told: Json = {"conditions": []}
    if report.phase in {Phase.SUSPENDING, Phase.SUSPENDED}:
        told["conditions"] = [_shown(SUSPENDED)]
    elif report.phase is Phase.SUCCEEDED:
        told |= {"conditions": [_shown(COMPLETED)], "terminalState": "Completed"}
    elif report.phase is Phase.FAILED:
        ended = _shown((FAILED, report.reason.value, report.message))
        told |= {"conditions": [ended], "terminalState": "Failed"}
    known = cast("list[Json]", previous.get("replicatedJobsStatus") or [])
    if known:
        jobs = [one | _seen(report, one["name"]) for one in known]
        if not reserved:
            jobs = [one | {"active": 0, "ready": 0} for one in jobs]
        elif holds and not any(one.get("active") for one in jobs):
            jobs[0]["active"] = 1
        told["replicatedJobsStatus"] = jobs
    return told


def _seen(report: Report, name: str) -> Json:
    """Return the counts of a replicated job that a report has; empty if it has none."""
    counts = report.copies.get(name)
    return {} if counts is None else counts.model_dump(include={"ready", "succeeded", "failed", "active", "suspended"})


def _status(workload: Workload, report: Report, now: datetime) -> Status:
    return Status(
        name=workload.name,
        namespace=workload.namespace,
        cluster=workload.cluster,
        uid=workload.uid,
        phase=report.phase,
        reason=report.reason,
        message=report.message,
        since=now,
        attempt=report.attempt,
        restarts=report.restarts,
        budgets=tuple(BudgetStatus(name=name, limit=None, used=used) for name, used in report.used.items()),
        copies=report.copies,
        copy_restarts=report.copy_restarts,
        failure=report.failure,
        barrier=report.barrier,
    )


def _conditions(told: list[Json], previous: Json, report: Report, *, holds: bool) -> list[Json]:
    """Return the conditions: without those that say too early that it has ended, with those that are over now."""
    found = {one["type"]: {key: one[key] for key in one if key != "lastTransitionTime"} for one in told}
    if holds:
        for kind in (COMPLETED[0], FAILED):
            found.pop(kind, None)
    before = {one.get("type"): one.get("status") for one in cast("list[Json]", previous.get("conditions") or [])}
    if SUSPENDED[0] in before and SUSPENDED[0] not in found:
        found[SUSPENDED[0]] = _shown(RESUMED, is_true=False)
    if before.get(FAILED) == "True" and report.phase is not Phase.FAILED and report.reason is not Reason.HELD:
        found[FAILED] = _shown(RETRIED, is_true=False)
    if STARTED[0] in before and STARTED[0] not in found and STARTING[0] in found:
        found[STARTED[0]] = _shown(STARTED, is_true=False)
    return list(found.values())


def _of_restart(shown: Json, previous: Json, report: Report, workload: Workload, restarts: int) -> Json:
    """Return a condition; RestartingJobSet with the reason of its restart, and as it was after a resumption (J17)."""
    if shown["type"] != RESTARTING[0] or shown["status"] != "True":
        return shown
    if report.phase is Phase.RESETTING:
        return _shown(restarting(workload, report.message))
    before = cast("list[Json]", previous.get("conditions") or [])
    was = next((one for one in before if one.get("type") == RESTARTING[0]), shown)
    # A resumption is no restart.
    kept = was["status"] == "True" or previous.get("restarts") == restarts
    return {key: was[key] for key in ("type", "status", "reason", "message")} if kept else shown


def _shown(told: tuple[str, str, str], *, is_true: bool = True) -> Json:
    kind, reason, message = told
    return {"type": kind, "status": "True" if is_true else "False", "reason": reason, "message": message}


def _count(jobs: list[Json], workload: Workload, *, holds: bool) -> None:
    """Correct the counts: Jobs are active while it holds quota, and none is once it holds none."""
    expected = {one.name: one.copies or 0 for one in workload.components}
    for one in jobs:
        if not holds:
            one.update(active=0, ready=0)
    if not holds or any(one["active"] for one in jobs):
        return
    left = [one for one in jobs if expected[one["name"]] > one["succeeded"] + one["failed"]]
    for one in left or jobs[:1]:
        one["active"] = max(1, expected[one["name"]] - one["succeeded"] - one["failed"])


RESOURCE: Final = Resource(
    API_VERSION,
    KIND,
    managed_by=_managed_by,
    is_suspended=_is_suspended,
    bare=_bare,
    pod_sets=_pod_sets,
    status=reported,
    is_deployed=_is_deployed,
    status_suffices=_status_suffices,
    folder="jobset",
    framework="jobset.x-k8s.io/jobset",
)
"""How a JobSet in the cluster requests a workload."""
