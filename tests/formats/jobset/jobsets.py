"""JobSets that the tests read: small builders whose parts each test changes."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import InvalidWorkload, Problem
from holdfast.formats.jobset import reader
from holdfast.formats.registry import Context
from holdfast.formats.text import Document
from holdfast.model import Component, Workload
from holdfast.profiles import PROFILES
from tests.formats.documents import PODS, Json, copy

P = "jobset.sigs.k8s.io/"


def replicated(name: str = "workers", *, job: Json | None = None, metadata: Json | None = None, **more: Any) -> Json:
    """Return a replicated job of one pod; `job` adds to its Job's spec, `metadata` is that of its Job template."""
    template = {"spec": {"template": {"spec": {"containers": copy(PODS["spec"]["containers"])}}, **(job or {})}}
    if metadata is not None:
        template["metadata"] = metadata
    return {"name": name, "template": template, **more}


def jobset_of(*jobs: Json, name: str = "train", annotations: Json | None = None, **spec: Any) -> Json:
    """Return a JobSet of these replicated jobs, or of one."""
    metadata: Json = {"name": name}
    if annotations is not None:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {"replicatedJobs": list(jobs) or [replicated()], **spec},
    }


def one(document: Json, **more: Any) -> Workload:
    """Read one JobSet."""
    return reader.read(copy(document), cluster="dev", **more)


def read(document: Json, *, namespace: str | None = None, name: str | None = None) -> list[Workload]:
    """Read a JobSet as the format's entry does."""
    profiles = {**PROFILES, reader.POLICY.profile: reader.POLICY}
    context = Context(cluster="dev", namespace=namespace, name=name, profiles=profiles)
    return reader.FORMAT.read([Document(copy(document))], context)


def component(workload: Workload, name: str) -> Component:
    """Return a component by its name."""
    return next(each for each in workload.components if each.name == name)


def refusal(document: Json, **more: Any) -> tuple[Problem, ...]:
    """Return the problems for which a JobSet is refused."""
    with pytest.raises(InvalidWorkload) as caught:
        one(document, **more)
    return caught.value.problems
