"""Checks of a JobSet: what the published admission refuses, and what it accepts but never runs; each with its path."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from holdfast import names
from holdfast.errors import Problem
from holdfast.formats.jobset.apart import LISTS, PLACED_BY
from holdfast.formats.jobset.claims import claim_problems
from holdfast.formats.jobset.document import (
    EXCLUSIVE,
    FAIL_ON,
    FAILED,
    FAILURE_TARGET,
    INT32_MAXIMUM,
    ReplicatedJobPart,
    RulePart,
    Shape,
    group_name,
    indexed,
    replicas,
)
from holdfast.formats.jobset.in_place import in_place_problems
from holdfast.formats.pods import infer
from holdfast.formats.published import queues_under
from holdfast.formats.text import inside
from holdfast.model.labels import check_label
from holdfast.model.pattern import compiled

RULE_NAME: Final = re.compile(r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
_DNS_1035: Final = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?$")
_LABEL: Final = "expected a DNS label: lower-case letters, digits and -, a letter first, at most 63 characters"
JOB_RESTARTS_MAXIMUM: Final = 1024
"""The published status lists the restarts of at most so many Jobs of a replicated job (row J23)."""
_ANY_BYTE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\C")
"""A part of RE2's syntax that the published syntax excludes."""


def problems(shape: Shape) -> Iterator[Problem]:
    """Yield all problems of a JobSet."""
    if not shape.jobs:
        yield Problem("spec.replicatedJobs", "expected at least one replicated job")
    for index, job in enumerate(shape.jobs):
        path = f"spec.replicatedJobs[{index}]"
        yield from _names(shape, job, index, path)
        yield from _counts(shape, job, path)
        yield from _dependencies(shape, job, index, path)
        yield from _queues(job, path)
        yield from _exclusive(shape, job, path)
        yield from in_place_problems(shape, job, path)
    yield from _network(shape)
    yield from _policies(shape)
    yield from _coordinator(shape)
    if shape.fail_on not in {FAILED, FAILURE_TARGET}:
        yield Problem(f"metadata.annotations[{FAIL_ON}]", f"expected {FAILED} or {FAILURE_TARGET}", shape.fail_on)
    yield from claim_problems(shape)


def rule_name(rule: RulePart, index: int) -> str:
    """Return a rule's name, or its default name."""
    return rule.name or f"failurePolicyRule{index}"


def _names(shape: Shape, job: ReplicatedJobPart, index: int, path: str) -> Iterator[Problem]:
    if not names.DNS_LABEL.fullmatch(job.name):
        yield Problem(f"{path}.name", "expected a DNS label, at most 63 characters of [-a-z0-9]", job.name)
        return
    if job.name in shape.names[:index]:
        earlier = shape.names.index(job.name)
        yield Problem(f"{path}.name", f"is the name of spec.replicatedJobs[{earlier}] too", job.name)
    last = max(replicas(job) - 1, 0)
    longest = shape.job_name(job, last)
    completions: Any = job.template.spec.get("completions")
    if len(longest) > 63:
        yield Problem(f"{path}.name", f"makes a Job name of {len(longest)} characters: expected at most 63", longest)
    elif not _DNS_1035.fullmatch(longest):
        yield Problem(f"{path}.name", f"makes a Job name that is none: {_LABEL}", longest)
    elif indexed(job) and isinstance(completions, int) and len(pod := f"{longest}-{completions - 1}-abcde") > 63:
        yield Problem(f"{path}.name", f"makes a pod name of {len(pod)} characters: expected at most 63", pod)
    group = group_name(job)
    if len(group) > 63 or not _DNS_1035.fullmatch(group):
        yield Problem(f"{path}.groupName", _LABEL, group)


def _counts(shape: Shape, job: ReplicatedJobPart, path: str) -> Iterator[Problem]:
    if replicas(job) < 0:
        yield Problem(f"{path}.replicas", "expected a whole number, at least 0", replicas(job))
    template = {"apiVersion": "batch/v1", "kind": "Job", "spec": job.template.spec}
    for one in infer(template)[1]:
        yield Problem(f"{path}.{one.path}", one.message, one.value)
    if shape.restarts_jobs and replicas(job) > JOB_RESTARTS_MAXIMUM:
        message = (
            f"expected at most {JOB_RESTARTS_MAXIMUM} beside the actions RestartJob and RestartJobAndIgnoreMaxRestarts"
        )
        yield Problem(f"{path}.replicas", message, replicas(job))
    parallelism = job.template.spec.get("parallelism")
    if isinstance(parallelism, int) and parallelism * replicas(job) > INT32_MAXIMUM:
        message = f"times the template's parallelism of {parallelism} is more than {INT32_MAXIMUM}"
        yield Problem(f"{path}.replicas", message, replicas(job))
    pods: Any = inside(job.template.spec, "template", "metadata")
    if pods is not None and not isinstance(pods, dict):
        yield Problem(f"{path}.template.spec.template.metadata", "expected an object", pods)
        return
    for field in ("labels", "annotations"):
        found: Any = inside(pods, field)
        if found is not None and not isinstance(found, dict):
            yield Problem(f"{path}.template.spec.template.metadata.{field}", "expected an object", found)


def _queues(job: ReplicatedJobPart, path: str) -> Iterator[Problem]:
    """Yield the label of a queue on Jobs or pods, each of which Kueue would admit by itself (row F10)."""
    metadata = job.template.metadata
    template = {"metadata": {"labels": metadata.labels if metadata else None}, "spec": job.template.spec}
    for one in queues_under(template, ("template", "template.spec.template"), "the JobSet"):
        yield replace(one, path=f"{path}.{one.path}")


def _dependencies(shape: Shape, job: ReplicatedJobPart, index: int, path: str) -> Iterator[Problem]:
    if job.dependsOn is None:
        return
    if shape.in_order:
        yield Problem(f"{path}.dependsOn", "cannot stand beside spec.startupPolicy InOrder: expected one of the two")
    earlier = shape.names[:index]
    if index == 0:
        yield Problem(f"{path}.dependsOn", "cannot be given for the first replicated job", job.dependsOn)
        return
    seen: set[str] = set()
    for place, one in enumerate(job.dependsOn):
        here = f"{path}.dependsOn[{place}].name"
        if one.name in seen:
            yield Problem(here, "is given twice", one.name)
        seen.add(one.name)
        if one.name in earlier:
            continue
        if one.name == job.name:
            yield Problem(here, "is the replicated job itself, which would never start", one.name, earlier)
        elif one.name in shape.names:
            back = _depends(shape, one.name, job.name)
            why = f"depends on {job.name} in turn: a cycle" if back else "comes later: expected an earlier one"
            yield Problem(here, why, one.name, earlier)
        else:
            yield Problem(here, "names no replicated job", one.name, earlier)


def _depends(shape: Shape, start: str, wanted: str) -> bool:
    """Whether a replicated job depends on another, directly or transitively."""
    named = {job.name: [one.name for one in job.dependsOn or ()] for job in shape.jobs}
    open_, seen = [start], set[str]()
    while open_:
        name = open_.pop()
        if name == wanted:
            return True
        if name not in seen:
            seen.add(name)
            open_.extend(named.get(name, ()))
    return False


def _exclusive(shape: Shape, job: ReplicatedJobPart, path: str) -> Iterator[Problem]:
    asked = shape.exclusive(job)
    if asked is None:
        return
    if not isinstance(asked.topology, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a pod template is any JSON
        path = f"{path}.template.spec.template.metadata.annotations[{EXCLUSIVE}]"
        yield Problem(path, "expected a text", asked.topology)
        return
    try:
        check_label(asked.topology, "")
    except ValueError as error:
        yield Problem(f"{path}.template.metadata.annotations[{EXCLUSIVE}]", str(error), asked.topology)
    longest = f"{shape.namespace}_{shape.job_name(job, max(replicas(job) - 1, 0))}"
    if asked.labelled and len(longest) > 63:
        message = f"makes a node's label of {len(longest)} characters: expected at most 63"
        yield Problem(f"{path}.name", message, longest)
    spec: Any = inside(job.template.spec, "template", "spec")
    for where in PLACED_BY:
        found: Any = inside(spec, *where)
        if found is not None and not isinstance(found, list if where[-1] in LISTS else dict):
            expected = "a list" if where[-1] in LISTS else "an object"
            yield Problem(f"{path}.template.spec.template.spec.{'.'.join(where)}", f"expected {expected}", found)


def _network(shape: Shape) -> Iterator[Problem]:
    subdomain = shape.spec.network.subdomain if shape.spec.network is not None else None
    if subdomain and (len(subdomain) > 63 or not _DNS_1035.fullmatch(subdomain)):
        yield Problem("spec.network.subdomain", f"is also a Service's name: {_LABEL}", subdomain)


def _policies(shape: Shape) -> Iterator[Problem]:
    success, failure = shape.spec.successPolicy, shape.spec.failurePolicy
    if success is not None:
        yield from _targets(shape, success.targetReplicatedJobs, "spec.successPolicy.targetReplicatedJobs")
    rules = failure.rules or [] if failure is not None else []
    known: dict[str, int] = {}
    for index, rule in enumerate(rules):
        path = f"spec.failurePolicy.rules[{index}]"
        name = rule_name(rule, index)
        if len(name) > 128 or not RULE_NAME.fullmatch(name):
            message = f"expected at most 128 characters and the pattern {RULE_NAME.pattern}"
            yield Problem(f"{path}.name", message, name)
        earlier = known.setdefault(name, index)
        if earlier != index:
            yield Problem(f"{path}.name", f"is the name of spec.failurePolicy.rules[{earlier}] too", name)
        yield from _twice(rule.onJobFailureReasons, f"{path}.onJobFailureReasons")
        yield from _patterns(rule.onJobFailureMessagePatterns or (), f"{path}.onJobFailureMessagePatterns")
        yield from _targets(shape, rule.targetReplicatedJobs, f"{path}.targetReplicatedJobs")


def _patterns(patterns: Sequence[str], path: str) -> Iterator[Problem]:
    yield from _twice(patterns, path)
    for index, pattern in enumerate(patterns):
        try:
            compiled(pattern)
        except ValueError as error:
            yield Problem(f"{path}[{index}]", str(error))
        else:
            if _ANY_BYTE.search(pattern):
                yield Problem(f"{path}[{index}]", r"holds \C, which is no part of the published syntax", pattern)


def _targets(shape: Shape, targets: Sequence[str] | None, path: str) -> Iterator[Problem]:
    yield from _twice(targets, path)
    for index, name in enumerate(targets or ()):
        if name not in shape.names:
            yield Problem(f"{path}[{index}]", "names no replicated job", name, shape.names)


def _twice(listed: Sequence[str] | None, path: str) -> Iterator[Problem]:
    for index, one in enumerate(listed or ()):
        if listed and one in listed[:index]:
            yield Problem(f"{path}[{index}]", "is given twice", one)


def _coordinator(shape: Shape) -> Iterator[Problem]:
    given = shape.spec.coordinator
    if given is None:
        return
    path = "spec.coordinator"
    job = next((one for one in shape.jobs if one.name == given.replicatedJob), None)
    if job is None:
        yield Problem(f"{path}.replicatedJob", "names no replicated job", given.replicatedJob, shape.names)
        return
    job_index, pod_index = given.jobIndex or 0, given.podIndex or 0
    if not 0 <= job_index < replicas(job):
        yield Problem(f"{path}.jobIndex", f"expected 0 to {replicas(job) - 1}, since {job.name} has so many", job_index)
    completions: Any = job.template.spec.get("completions")
    if not indexed(job) or not isinstance(completions, int):
        message = f"{job.name} has no indexed pods to choose from: expected completionMode Indexed and completions"
        yield Problem(f"{path}.replicatedJob", message, given.replicatedJob)
    elif not 0 <= pod_index < completions:
        yield Problem(f"{path}.podIndex", f"expected 0 to {completions - 1}, since a Job has so many", pod_index)
    endpoint = shape.coordinator() or ""
    if len(endpoint) > 63:
        message = f"makes a label of {len(endpoint)} characters, the pod's name and subdomain: expected at most 63"
        yield Problem(path, message, endpoint)
