"""AppWrappers in a cluster, for tests: how they are applied, read and waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from holdfast import names
from holdfast.formats.appwrapper.reader import RESOURCE
from holdfast.formats.condition import CONDITION
from holdfast.model import Status
from tests.e2e.ground.site import until
from tests.e2e.ground.space import Handle, Space, pod_template

KIND = (RESOURCE.api_version, RESOURCE.kind)


def job(name: str = "work", pods: int = 1, **spec: Any) -> dict[str, Any]:
    """Return a component that is a Job, on fake nodes."""
    counted = {"parallelism": pods, "completions": pods, "backoffLimit": 0}
    return {
        "template": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {**counted, **spec, "template": pod_template()},
        }
    }


def appwrapper(
    space: Space, *components: dict[str, Any], name: str = "train", suspend: Any = None, **annotations: Any
) -> dict[str, Any]:
    """Return an AppWrapper that this site's workers are to run."""
    prefix = "workload.codeflare.dev.appwrapper/"
    spec: dict[str, Any] = {"managedBy": space.site.managed_by, "components": list(components or [job()])}
    return {
        "apiVersion": KIND[0],
        "kind": KIND[1],
        "metadata": {
            "name": name,
            "namespace": space.namespace,
            "annotations": {f"{prefix}{key}": value for key, value in annotations.items()},
        },
        "spec": spec if suspend is None else {**spec, "suspend": suspend},
    }


async def applied(space: Space, document: dict[str, Any]) -> Handle:
    """Apply a custom resource, and return the workflow that is to be its life."""
    made = await space.site.kube.create(document)
    workflow_id = names.workflow_id(space.site.cluster, space.namespace, made["metadata"]["name"], document["kind"])
    handle: Handle = space.site.client.get_workflow_handle(workflow_id, result_type=Status)
    space.handles.append(handle)
    return handle


async def read(space: Space, name: str = "train", kind: tuple[str, str] = KIND) -> dict[str, Any] | None:
    return await space.site.kube.find(*kind, name, space.namespace)


def conditions(found: dict[str, Any]) -> dict[str, str]:
    return {one["type"]: one["status"] for one in found.get("status", {}).get("conditions", ())}


async def shows(
    space: Space,
    what: Callable[[dict[str, Any]], object],
    why: str,
    seconds: float = 60,
    name: str = "train",
    kind: tuple[str, str] = KIND,
) -> dict[str, Any]:
    """Wait until a custom resource's own status is so, and return it."""
    found: dict[str, Any] | None = None

    async def so() -> bool:
        nonlocal found
        found = await read(space, name, kind)
        return found is not None and bool(what(found))

    try:
        await until(so, seconds, why)
    except AssertionError:
        raise AssertionError(f"{why}: {found and found.get('status')}") from None
    assert found is not None
    return found


async def followed(
    space: Space, seen: list[dict[str, Any]], kind: tuple[str, str] = KIND, begun: asyncio.Event | None = None
) -> None:
    """Note each status that custom resources of a namespace show, in order, from when it has `begun`."""
    version = (await space.site.kube.list(*kind, space.namespace))["metadata"]["resourceVersion"]
    if begun is not None:
        begun.set()
    async for event in space.site.kube.watch(*kind, space.namespace, resource_version=version):
        if event["type"] != "BOOKMARK":
            seen.append(event["object"].get("status", {}))


def in_phase(phase: str) -> Callable[[dict[str, Any]], bool]:
    return lambda found: found.get("status", {}).get("phase") == phase


async def runs(space: Space, name: str = "train") -> dict[str, Any]:
    """Wait until all pods of an AppWrapper run."""
    return await shows(space, lambda one: conditions(one).get("PodsReady") == "True", "its pods are ready", name=name)


async def gone(space: Space, seconds: float = 60, kind: tuple[str, str] = KIND) -> None:
    async def is_gone() -> bool:
        return await read(space, kind=kind) is None

    await until(is_gone, seconds, f"the {kind[1]} is gone")


def said(found: dict[str, Any]) -> str:
    """Return what an AppWrapper's status says of its life."""
    return next(
        (one["message"] for one in found.get("status", {}).get("conditions", ()) if one["type"] == CONDITION), ""
    )
