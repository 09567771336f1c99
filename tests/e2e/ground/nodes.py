"""Fake nodes of a test's own: nobody else's pods land on them, and they are gone at its end."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from holdfast.activities.kube.client import Conflict, Kube, NotFound
from tests.e2e.ground.site import until

GROUP = "test.holdfast.dev/nodes"
AGENT = "test.holdfast.dev/agent"
CAPACITY = {"cpu": "64", "memory": "64Gi", "pods": "100"}


@dataclass(frozen=True)
class Nodes:
    """Some nodes, marked and unmarked as an operator's tools would."""

    kube: Kube
    group: str
    names: tuple[str, ...]

    def places(self, component: dict[str, Any]) -> dict[str, Any]:
        """Have a component's pods run on these nodes, and on no others."""
        spec = component["template"]["spec"]
        spec = spec["template"]["spec"] if "template" in spec else spec
        spec["nodeSelector"] = {GROUP: self.group}
        spec["tolerations"] = [{"key": GROUP, "operator": "Exists"}]
        return component

    async def patch(self, name: str, patch: dict[str, Any]) -> None:
        found = await self.kube.get("v1", "Node", name)
        await self.kube.patch("v1", "Node", name, uid=found["metadata"]["uid"], patch=patch)

    async def label(self, name: str, key: str, value: str | None) -> None:
        """Set a label of a node, or take it away."""
        await self.patch(name, {"metadata": {"labels": {key: value}}})

    async def join(self, group: str) -> None:
        """Let pods that may run in another group run on these nodes too, and no others."""
        taint = {"key": GROUP, "value": group, "effect": "NoSchedule"}
        for name in self.names:
            await self.patch(name, {"metadata": {"labels": {GROUP: group}}, "spec": {"taints": [taint]}})

    async def identify(self, uuids: Mapping[str, str]) -> None:
        """Have each node's status name its machine by a UUID, as its kubelet would."""
        for name, uuid in uuids.items():
            await self._status(name, lambda _, uuid=uuid: {"nodeInfo": {"systemUUID": uuid}})

    async def condition(self, name: str, kind: str, status: str) -> None:
        """Set a condition of a node's status, as whatever watches over its hardware would."""
        new = {"type": kind, "status": status, "reason": "Tested", "lastTransitionTime": "2026-01-01T00:00:00Z"}

        def change(before: dict[str, Any]) -> dict[str, Any]:
            return {"conditions": [*(one for one in before.get("conditions") or () if one["type"] != kind), new]}

        await self._status(name, change)

    async def _status(self, name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        while True:
            found = await self.kube.get("v1", "Node", name)
            version = found["metadata"]["resourceVersion"]
            with contextlib.suppress(Conflict):
                await self.kube.patch(
                    "v1",
                    "Node",
                    name,
                    uid=found["metadata"]["uid"],
                    patch={"status": change(found["status"])},
                    resource_version=version,
                    subresource="status",
                )
                return


@asynccontextmanager
async def open_nodes(kube: Kube, count: int, *, agent: str = "fake", group: str = "") -> AsyncIterator[Nodes]:
    """Make some nodes, and wait until pods can run on them.

    Args:
        kube: with an administrator's rights.
        count: how many.
        agent: the value of the annotation by which whoever plays their kubelet knows them.
        group: of nodes that a test's pods may run on; empty: one of their own.
    """
    group = group or f"g{secrets.token_hex(3)}"  # A letter first: 51e845 would be read as a number.
    own = group if agent == "fake" else agent
    nodes = Nodes(kube, group, tuple(f"own-{own}-{number}" for number in range(count)))
    try:
        await each(lambda name: kube.create(_node(name, agent, group)), nodes.names)

        async def ready() -> bool:
            found = (await kube.list("v1", "Node", labels=f"{GROUP}={group}"))["items"]
            wanted = set(nodes.names)
            ours = [node for node in found if node["metadata"]["name"] in wanted]
            return len(ours) == count and all(map(_ready, ours))

        await until(ready, 60 + count / 20, f"{count} nodes are ready", pause=0.05 + count / 2000)
        yield nodes
    finally:

        async def remove(name: str) -> None:
            with contextlib.suppress(NotFound):
                found = await kube.get("v1", "Node", name)
                await kube.delete("v1", "Node", name, uid=found["metadata"]["uid"])

        await each(remove, nodes.names)


async def each(call: Callable[[str], Awaitable[Any]], names: Sequence[str]) -> None:
    """Make a call for each name, some at once."""
    slots = asyncio.Semaphore(20)

    async def one(name: str) -> None:
        async with slots:
            await call(name)

    await asyncio.gather(*map(one, names))


def _node(name: str, agent: str, group: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {GROUP: group, AGENT: agent, "kubernetes.io/hostname": name},
            "annotations": {"kwok.x-k8s.io/node": agent, "node.alpha.kubernetes.io/ttl": "0"},
        },
        "spec": {"taints": [{"key": GROUP, "value": group, "effect": "NoSchedule"}]},
        "status": {"capacity": CAPACITY, "allocatable": CAPACITY},
    }


def _ready(node: dict[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions") or ()
    keys = {taint["key"] for taint in node["spec"].get("taints") or ()}
    return keys == {GROUP} and any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
