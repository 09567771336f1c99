"""Kubelets that cannot start what is placed on their nodes, played by a test: for pods with the label `PENDING`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from holdfast.activities.kube.client import KubeError
from tests.e2e.ground.space import PENDING, Space

PULL = {"waiting": {"reason": "ErrImagePull", "message": "example.com/train:1: not found"}}


def init_exits(pod: dict[str, Any], exit_code: int = 3) -> dict[str, Any]:
    """Return the status of a pod whose only init container has failed."""
    (init,) = pod["spec"]["initContainers"]
    ended = {"exitCode": exit_code, "reason": "Error", "finishedAt": pod["metadata"]["creationTimestamp"]}
    waits = {"waiting": {"reason": "PodInitializing"}}
    return {
        "phase": "Failed",
        "initContainerStatuses": [_container(init["name"], {"terminated": ended})],
        "containerStatuses": [_container("main", waits)],
    }


def no_image(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the status of a pod whose image cannot be pulled."""
    begun = pod["metadata"]["creationTimestamp"]
    return {"phase": "Pending", "startTime": begun, "containerStatuses": [_container("main", PULL)]}


def _container(name: str, state: dict[str, Any]) -> dict[str, Any]:
    image = f"example.com/{name}:1"
    return {"name": name, "image": image, "imageID": "", "ready": False, "restartCount": 0, "state": state}


@asynccontextmanager
async def kubelets(space: Space, status: Callable[[dict[str, Any]], dict[str, Any]]) -> AsyncIterator[None]:
    """Play the kubelets of the pods that wait: say this of each, once."""

    async def play() -> None:
        said: set[str] = set()
        while True:
            for pod in await space.pods():
                uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
                waits = pod["spec"].get("nodeName") and pod["status"].get("phase") == "Pending"
                if waits and uid not in said and PENDING.items() <= pod["metadata"]["labels"].items():
                    with contextlib.suppress(KubeError):
                        patch = {"status": status(pod)}
                        key = ("v1", "Pod", name, space.namespace)
                        version = pod["metadata"]["resourceVersion"]
                        await space.site.kube.patch(
                            *key, uid=uid, patch=patch, resource_version=version, subresource="status"
                        )
                        said.add(uid)
            await asyncio.sleep(0.2)

    task = asyncio.create_task(play())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
