"""The work that every system is given: AppWrappers around one Job or bare pods, and how their pods are steered."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from bench.seeing import Json, Life
from holdfast.activities.kube.client import Kube, NotFound
from tests.e2e.ground.site import PREFIX, job

IN_FLIGHT = 50
PODS = 2
PATIENT = {
    "admissionGracePeriodDuration": "20m",
    "warmupGracePeriodDuration": "20m",
    "successTTLDuration": "1h",
}
"""Waits long enough that a system under load does not fall into them. All others are at their defaults."""


def workload(name: str, waits: Mapping[str, str] | None = None, pods: int = PODS) -> Json:
    """Return the AppWrapper of a Job, with these waits as its annotations."""
    return _wrapper(name, waits, [job(name=name, pods=pods, backoffLimit=100)])


def bare(name: str, waits: Mapping[str, str], pods: int = PODS) -> Json:
    """Return the AppWrapper of pods that nobody replaces when they fail, as a Job would after 10 s."""
    template = job(pods=1)["template"]["spec"]["template"]
    made = [
        {**template, "apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{name}-{index}"}}
        for index in range(pods)
    ]
    return _wrapper(name, waits, [{"template": each} for each in made])


def _wrapper(name: str, waits: Mapping[str, str] | None, components: list[Json]) -> Json:
    annotations = {PREFIX + key: value for key, value in {**PATIENT, **(waits or {})}.items()}
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"components": components},
    }


def job_of(document: Json) -> Json:
    """Return the Job inside an AppWrapper."""
    return document["spec"]["components"][0]["template"]


def workload_of(pod: Life) -> str:
    """Return the name of the workload that a pod is of, with which the pod's begins."""
    return pod.name.rpartition("-")[0]


def placed(made: Json, namespace: str) -> Json:
    """Return an object with its namespace."""
    return {**made, "metadata": {**made["metadata"], "namespace": namespace}}


async def in_flight(calls: Iterable[Callable[[], Awaitable[Any]]], most: int = IN_FLIGHT) -> None:
    """Make calls, so many at once."""
    waiting = iter(list(calls))

    async def work() -> None:
        for call in waiting:
            await call()

    async with asyncio.TaskGroup() as group:
        for _ in range(most):
            group.create_task(work())


async def finish(kube: Kube, pods: Iterable[Life]) -> None:
    """Have pods succeed, at once."""
    await in_flight([lambda pod=pod: _annotate(kube, pod, {"holdfast.dev/kwok-complete": "0s"}) for pod in pods])


async def fail(kube: Kube, pod: Life) -> None:
    """Have a pod fail, at once."""
    await _annotate(kube, pod, {"holdfast.dev/kwok-fail": "0s", "holdfast.dev/kwok-exit-code": "1"})


async def _annotate(kube: Kube, pod: Life, annotations: dict[str, str]) -> None:
    metadata = pod.last["metadata"]
    patch = {"metadata": {"annotations": annotations}}
    await kube.patch("v1", "Pod", pod.name, metadata["namespace"], uid=metadata["uid"], patch=patch)


async def delete(kube: Kube, api_version: str, kind: str, name: str, namespace: str, propagation: str) -> None:
    """Delete an object, unless it is gone already."""
    found = await kube.find(api_version, kind, name, namespace)
    if found is not None:
        with contextlib.suppress(NotFound):
            uid = found["metadata"]["uid"]
            await kube.delete(api_version, kind, name, namespace, uid=uid, propagation=propagation)
