"""Documents that the format tests read: small builders whose parts each test changes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.errors import InvalidWorkload, Problem
from holdfast.formats import read
from holdfast.model import Workload

Json = dict[str, Any]

PODS: Json = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}}
PREFIX = "workload.codeflare.dev.appwrapper/"
LABEL = "workload.codeflare.dev/appwrapper"


def pod(name: str = "p", **metadata: Any) -> Json:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, **copy(PODS)}


def job(name: str = "train", **spec: Any) -> Json:
    body = {"template": copy(PODS), **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": body}


def deployment(name: str = "web", kind: str = "Deployment", **spec: Any) -> Json:
    body = {"template": copy(PODS), **spec}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": body}


def config_map(name: str = "settings") -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}


def custom(**spec: Any) -> Json:
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec}


def appwrapper(*components: Json, annotations: Json | None = None, **spec: Any) -> Json:
    """Return an AppWrapper; each component is a template, or a mapping that has one."""
    listed = [each if "template" in each and "kind" not in each else {"template": each} for each in components]
    metadata: Json = {"name": "train-llm"}
    if annotations is not None:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": metadata,
        "spec": {"components": listed or [{"template": job()}], **spec},
    }


def copy(value: Any) -> Any:
    return json.loads(json.dumps(value))


def one(document: Any, **more: Any) -> Workload:
    (workload,) = read(document, cluster="dev", **more)
    return workload


def refusal(document: Any, **more: Any) -> tuple[Problem, ...]:
    """Return the problems for which a document is refused."""
    with pytest.raises(InvalidWorkload) as caught:
        read(document, cluster="dev", **more)
    assert all(str(problem) in str(caught.value) for problem in caught.value.problems)
    return caught.value.problems
