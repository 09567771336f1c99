"""Checks of a JobSet that restarts in place: what the published admission refuses, and what Holdfast cannot do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, cast

from holdfast import names
from holdfast.errors import Problem
from holdfast.formats.jobset.document import (
    INT32_MAXIMUM,
    ReplicatedJobPart,
    Shape,
    listed,
    objects,
    pod_annotations,
)
from holdfast.formats.text import Json, inside
from holdfast.model.spec.restart_agent import restart_agent

WORKER_COMMAND: Final = "WORKER_COMMAND"
"""The variable of JobSet's agent that names the program to run, where the agent is the main container."""


def in_place_problems(shape: Shape, job: ReplicatedJobPart, path: str) -> Iterator[Problem]:
    """Yield the problems of a replicated job beside the strategy InPlaceRestart (rows J24, J25).

    Args:
        shape: The JobSet.
        job: One of its replicated jobs.
        path: The path of the replicated job.
    """
    if shape.in_place:
        yield from _counts(job, f"{path}.template.spec")
    if shape.may_restart_in_place:
        yield from _agent(job, f"{path}.template.spec.template")


def _counts(job: ReplicatedJobPart, path: str) -> Iterator[Problem]:
    spec, beside = job.template.spec, "beside restartStrategy InPlaceRestart"
    for field, expected in (("backoffLimit", INT32_MAXIMUM), ("podReplacementPolicy", "Failed")):
        if spec.get(field) != expected:
            yield Problem(f"{path}.{field}", f"expected {expected} {beside}", spec.get(field))
    completions, parallelism = spec.get("completions"), spec.get("parallelism")
    if completions is None or completions != parallelism:
        message = f"expected completions and parallelism, both the same, {beside}"
        yield Problem(f"{path}.completions", message, completions)


def _agent(job: ReplicatedJobPart, path: str) -> Iterator[Problem]:
    """Yield what only JobSet's own agent can do: it waits for a status that Holdfast does not write."""
    key = names.ANNOTATION_IN_PLACE_ATTEMPT
    annotations = pod_annotations(job) or {}
    if key in annotations:
        message = "expected none: Holdfast writes it, to let programs start once all pods are there"
        yield Problem(f"{path}.metadata.annotations[{key}]", message, annotations[key])
    spec: Any = inside(job.template.spec, "template", "spec")
    sidecar = restart_agent(cast("Json", spec)) if isinstance(spec, dict) else ""
    for field in ("initContainers", "containers"):
        for index, container in enumerate(listed(job, field)):
            # Beside a sidecar, a program may have a variable of that name.
            if sidecar and container.get("name") != sidecar:
                continue
            for place, variable in enumerate(objects(container.get("env"))):
                if variable.get("name") == WORKER_COMMAND:
                    message = "the agent runs beside the program: expected `holdfast agent in-place` as a sidecar"
                    yield Problem(f"{path}.spec.{field}[{index}].env[{place}].name", message, WORKER_COMMAND)
