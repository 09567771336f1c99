"""Lattice's allocations as plain manifests, and how their nodes are lost."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import yaml

from holdfast import names
from holdfast.activities.kube.client import Conflict
from tests.e2e.crash.scene import pod
from tests.e2e.ground.space import Space

NAME = "train"
PAUSE = "1s"


def allocation(policy: str, *specs: dict[str, Any], pods: int = 1, **settings: str) -> str:
    """Return pods of a Lattice profile (`batch`, `interactive`, `service`), gone as soon as they have ended.

    Args:
        policy: The profile's kind.
        specs: Of each pod; none: pods on fake nodes.
        pods: How many, where no specs are given.
        settings: As annotations of the first one.
    """
    if specs:
        made = {"apiVersion": "v1", "kind": "Pod"}
        objects = [{**made, "metadata": {"generateName": f"{NAME}-"}, "spec": spec} for spec in specs]
    else:
        objects = [pod(NAME)["template"] for _ in range(pods)]
    given = {"profile": f"lattice-{policy}", "retryPausePeriod": PAUSE, "successTTL": "0s", **settings}
    annotations = objects[0]["metadata"].setdefault("annotations", {})
    annotations.update({f"{names.GROUP}/{key}": value for key, value in given.items()})
    return yaml.safe_dump_all(objects)


async def running(space: Space) -> list[dict[str, Any]]:
    """Return the pods that run."""
    return [one for one in await space.pods(NAME) if one["status"].get("phase") == "Running"]


async def loses_its_node(space: Space) -> str:
    """Say of one running pod that its node is lost, as whoever watches over nodes does; return the pod's name."""
    while True:
        (lost, *_) = await running(space)
        metadata = lost["metadata"]
        with contextlib.suppress(Conflict):
            await space.site.kube.patch(
                "v1",
                "Pod",
                metadata["name"],
                space.namespace,
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
                patch={"status": {"phase": "Failed", "reason": "NodeLost", "message": "its node does not answer"}},
                subresource="status",
            )
            return str(metadata["name"])


async def audited(space: Space) -> list[str]:
    """Return what the cluster's copy of the audit says, in order."""
    events = [one for one in await space.site.objects("v1", "Event", space.namespace) if one["reason"] == "Audited"]
    events.sort(key=lambda one: int(one["metadata"]["resourceVersion"]))
    return [one["message"].split(":")[0] for one in events]


async def stays(space: Space, seconds: float, *pods: str) -> None:
    """See that these pods and no others are there for a while."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while loop.time() < end:
        found = {one["metadata"]["name"] for one in await space.pods(NAME)}
        assert found == set(pods), f"expected {pods}, found {found}"
        await asyncio.sleep(0.2)
