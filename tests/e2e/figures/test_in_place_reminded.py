"""A kubelet that does not pass a pod's orders on is reminded of them (row J24). The test is the kubelet of the pod."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import names
from holdfast.local import Stack
from tests.e2e.figures.in_place import in_place, pod_of, token, with_agent
from tests.e2e.ground.site import open_site, until
from tests.e2e.ground.space import Space, open_space

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

NAME = "train"


async def the_pod(space: Space) -> dict[str, Any]:
    (pod,) = await space.pods(NAME)
    return pod


async def orders_of(space: Space, key: str) -> str:
    return (await the_pod(space))["metadata"].get("annotations", {}).get(key, "")


async def shows(space: Space, *, started: bool) -> None:
    """Write the pod's status as a kubelet does: its agent runs, and holds the program back until it has `started`."""
    pod, running = await the_pod(space), {"running": {"startedAt": "2026-11-01T10:00:00Z"}}
    image = {"image": "example.com/train:1", "imageID": "", "restartCount": 0}
    agent = {**image, "name": "in-place-restart-agent", "ready": started, "started": started, "state": running}
    waiting = {"waiting": {"reason": "PodInitializing"}}
    worker = {**image, "name": "worker", "ready": started, "started": started, "state": running if started else waiting}
    status = {
        "phase": "Running" if started else "Pending",
        "conditions": [{"type": "Ready", "status": "True" if started else "False"}],
        "initContainerStatuses": [agent],
        "containerStatuses": [worker],
    }
    metadata = pod["metadata"]
    metadata = pod["metadata"]
    await space.site.kube.patch(
        *("v1", "Pod", metadata["name"], metadata["namespace"]),
        uid=metadata["uid"],
        resource_version=metadata["resourceVersion"],
        patch={"status": status},
        subresource="status",
    )


@pytest.mark.row("J24", level="e2e")
async def test_J24_a_kubelet_that_does_not_pass_the_orders_on_is_reminded(stack: Stack, tmp_path: Path):
    async with open_site(stack, tmp_path, prefix="i") as site:
        await site.start_worker()
        async with open_space(site) as space:
            await with_agent(space)
            document = in_place(NAME, token(), pods=1)
            pod_of(document)["nodeSelector"] = {"holdfast.dev/node": "nobody"}
            handle = await space.submit(document)

            async def is_there() -> bool:
                return len(await space.pods(NAME)) == 1

            await until(is_there, 30, "the pod is there")
            await shows(space, started=False)

            async def is_allowed() -> bool:
                return await orders_of(space, names.ANNOTATION_IN_PLACE_ATTEMPT) == "0"

            await until(is_allowed, 30, "its program may start")

            async def is_reminded() -> bool:
                return await orders_of(space, names.ANNOTATION_RESTART_REMINDER) == "1"

            await until(is_reminded, 60, "its kubelet is reminded")
            await shows(space, started=True)
            await space.reach(handle, "Running", 1, 60)
