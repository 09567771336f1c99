"""Workloads of the submission profile: pods and the ConfigMap they read; what holds their submission; what is told."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime
from typing import Any

import yaml
from temporalio.client import WorkflowHandle
from temporalio.service import RPCError

from holdfast import names
from holdfast.activities.kube.client import service_account_user
from holdfast.client.pending import activities_of
from holdfast.model import Status
from tests.e2e.ground.site import until
from tests.e2e.ground.space import Space
from tests.e2e.witness.truth import WORKER
from tests.quotas import limited

NAME = "pe-0"
"""What these workloads are called: as their first object with pods."""

_ROLES = "rbac.authorization.k8s.io/v1"


# --- documents


def streams(*objects: dict[str, Any], **settings: str) -> str:
    """Return plain manifests under the streams profile; keyword arguments are settings, `_` never needed in them."""
    annotations = {f"{names.GROUP}/{name}": value for name, value in {"profile": "streams", **settings}.items()}
    first = {**objects[0], "metadata": {**objects[0]["metadata"], "annotations": annotations}}
    return yaml.safe_dump_all([first, *objects[1:]])


def config_map(name: str = "adl", **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data or {"adl": "v1"}}


def pe(index: int, *, reads: str = "adl", **metadata: Any) -> dict[str, Any]:
    """Return a processing element: a pod on a fake node, which nothing but Holdfast makes again."""
    container: dict[str, Any] = {"name": "main", "image": "example.com/pe:1"}
    if reads:
        container["envFrom"] = [{"configMapRef": {"name": reads}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"pe-{index}", **metadata},
        "spec": {
            "restartPolicy": "Never",
            "nodeSelector": {"holdfast.dev/node": "fake"},
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        },
    }


def pes(count: int, **metadata: Any) -> list[dict[str, Any]]:
    return [pe(index, **metadata) for index in range(count)]


# --- what holds a submission open


async def let_pods(space: Space, count: int, *scopes: str) -> None:
    """Let this many pods be in the namespace, of these scopes if any, and no more; the API server refuses the next."""
    await limited(space.site.kube, space.namespace, {"pods": str(count)}, *scopes, name="pods")


async def let_config_maps(space: Space, allowed: bool) -> None:
    """Give the run-as account the right to handle ConfigMaps, or take it."""
    key = (_ROLES, "Role", names.RUN_AS_DEFAULT, space.namespace)
    role = await space.site.kube.get(*key)
    for rule in role["rules"]:
        if rule["apiGroups"] == [""]:
            others = [one for one in rule["resources"] if one != "configmaps"]
            rule["resources"] = [*others, "configmaps"] if allowed else others
    await space.site.kube.patch(*key, uid=role["metadata"]["uid"], patch={"rules": role["rules"]})
    resource = await space.site.kube.resource("v1", "ConfigMap")
    user = service_account_user(space.namespace, names.RUN_AS_DEFAULT)

    async def in_force() -> bool:
        may, _ = await space.site.kube.allowed("create", resource, space.namespace, impersonate=user)
        return may is allowed

    await until(in_force, 30, "the right is in force" if allowed else "the right is gone")


async def says(handle: WorkflowHandle[Any, Status], *words: str, seconds: float = 60) -> str:
    """Wait until what is under way says all of this of itself, as `holdfast explain` shows it, and return it."""
    heard: list[str] = []

    async def check() -> bool:
        with contextlib.suppress(RPCError):
            views = await activities_of(await handle.describe())
            heard[:] = [one.sentence(datetime.now(UTC)) for one in views]
        return any(all(word in text for word in words) for text in heard)

    try:
        await until(check, seconds, f"{handle.id} says {words}")
    except AssertionError as error:
        raise AssertionError(f"{error}; it says {heard}") from None
    return next(text for text in heard if all(word in text for word in words))


async def half_made(space: Space, count: int, made: int, **settings: str) -> WorkflowHandle[Any, Status]:
    """Submit a ConfigMap and pods of which only some are let be, and return once the next one is refused."""
    await let_pods(space, made)
    handle = await space.submit(streams(config_map(), *pes(count), **settings))
    await says(handle, f"pe-{made}", "exceeded quota")
    assert len(await space.pods()) == made
    return handle


async def cancelled(handle: WorkflowHandle[Any, Status]) -> Status:
    """Cancel a workload, and return the status it ends with."""
    await handle.signal(names.SIGNAL_CANCEL, "the test is over")
    return await asyncio.wait_for(handle.result(), 90)


# --- what is there, and what was told


async def uids(space: Space) -> dict[str, str]:
    """Return the pods' uids by name."""
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in await space.pods()}


async def everything(space: Space) -> dict[tuple[str, str], tuple[str, str]]:
    """Return uid and resource version of all that is in the namespace, of the kinds that are watched."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for api_version, kind in space.truth.kinds:
        for one in await space.site.objects(api_version, kind, space.namespace):
            metadata = one["metadata"]
            found[kind, metadata["name"]] = (metadata["uid"], metadata["resourceVersion"])
    return found


async def shows(space: Space, phase: str) -> None:
    """Wait until the anchor shows this phase, so that nothing more is written to it."""

    async def check() -> bool:
        return (await space.anchor(NAME)).get("status", {}).get("phase") == phase

    await until(check, 30, f"the anchor shows {phase}")


async def told(space: Space, *reasons: str) -> list[tuple[str, str]]:
    """Return reason and message of the anchor's Events, in the order in which they were reported."""
    events = await space.site.objects("v1", "Event", space.namespace)
    ours = [one for one in events if one["involvedObject"]["kind"] == names.ANCHOR_KIND]
    # An Event's name ends with the report's sequence and its own place in it.
    ours.sort(key=lambda one: [int(part) for part in one["metadata"]["name"].split(".")[-2:]])
    return [(one["reason"], one["message"]) for one in ours if not reasons or one["reason"] in reasons]


async def listed(space: Space, handle: WorkflowHandle[Any, Status], submitted: bool) -> None:
    """Wait until the list of workflows has it in this column of `HoldfastSubmitted`."""
    query = f"{names.SA_SUBMITTED} = {str(submitted).lower()} AND WorkflowId = '{handle.id}'"

    async def check() -> bool:
        return [one.id async for one in space.site.client.list_workflows(query)] == [handle.id]

    await until(check, 30, f"{handle.id} is listed with {query}")


async def submission_of(space: Space, attempt: int) -> str:
    """Return a submission's id: the uid of its attempt's owner."""
    owner = await space.site.kube.get(
        names.API_VERSION, names.ATTEMPT_KIND, names.attempt_name(NAME, attempt), space.namespace
    )
    return owner["metadata"]["uid"]


def conditions(status: Status) -> dict[str, bool]:
    return {one.type.value: one.status for one in status.conditions}


def creations(space: Space, since: datetime | None = None) -> list[tuple[datetime, str, str]]:
    """Return what Holdfast has created (since then), by the audit log: when, which resource, which name."""
    wanted = {"pods", "configmaps", names.ATTEMPT_PLURAL}
    ours = {WORKER, service_account_user(space.namespace, names.RUN_AS_DEFAULT)}
    return [
        (one.time, one.resource, one.name)
        for one in space.truth.requests()
        if one.verb == "create" and one.resource in wanted and not one.subresource and one.user in ours
        if since is None or one.time > since
    ]
