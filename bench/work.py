"""The work that every system is given: AppWrapper documents around one Job, and how its pods are steered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from bench.seeing import Json, Life
from holdfast.activities.kube import Kube, NotFound
from tests.e2e.site import PREFIX, job

IN_FLIGHT = 50
PODS = 2
PATIENT = {
    "admissionGracePeriodDuration": "20m",
    "warmupGracePeriodDuration": "20m",
    "successTTLDuration": "1h",
}
"""Waits long enough that a system under load does not fall into them. All others are at their defaults."""


def workload(name: str, pods: int = PODS, **waits: str) -> Json:
    """Return the AppWrapper of a Job; keyword arguments are its annotations."""
    annotations = {PREFIX + key: value for key, value in (PATIENT | waits).items()}
    return {
        "apiVersion": "workload.codeflare.dev/v1beta2",
        "kind": "AppWrapper",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"components": [job(name=name, pods=pods, backoffLimit=100)]},
    }


def job_of(document: Json) -> Json:
    """Return the Job inside an AppWrapper."""
    return document["spec"]["components"][0]["template"]


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


async def delete(kube: Kube, api_version: str, kind: str, name: str, namespace: str) -> None:
    """Delete an object in the foreground, unless it is gone already."""
    found = await kube.find(api_version, kind, name, namespace)
    if found is not None:
        try:
            await kube.delete(
                api_version, kind, name, namespace, uid=found["metadata"]["uid"], propagation="Foreground"
            )
        except NotFound:
            return
