"""What stands in a cluster for workloads, and its removal by their own workflows (rows F15, X11)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError, RPCStatusCode

from holdfast import formats, names
from holdfast.activities.kube.client import Conflict, NotFound, Object
from holdfast.activities.kube.errors import UnknownKind
from holdfast.activities.kube.raw import mapping
from holdfast.errors import HoldfastError
from holdfast.model.words import counted
from holdfast.worker.cleanup.disable import Say, unless_gone
from holdfast.worker.cleanup.sweep import cluster_of
from holdfast.worker.cleanup.sweep_lookup import Ground

LOOK: Final = 1.0
"""Seconds between two looks at what still exists."""
_TOLD: Final = 5


@dataclass(frozen=True)
class Thing:
    """A custom resource of a workload, or of one of its attempts."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    deleting: bool
    finalizers: tuple[str, ...]
    installation: str
    copied: bool = False
    """Whether it names a workflow of another namespace: a copy, for which no workflow is responsible (row X8)."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Identifies it to the API server."""
        return self.api_version, self.kind, self.name, self.namespace

    @property
    def own(self) -> bool:
        """Whether Holdfast made it: an anchor or an attempt, unlike what users applied (row F15)."""
        return _is_own(self.api_version, self.kind)

    @property
    def lives(self) -> bool:
        """Whether it still holds something: a custom resource that has ended, or was never started, does not."""
        return self.own or names.FINALIZER in self.finalizers

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


async def standing(ground: Ground, namespace: str | None = None) -> list[Thing]:
    """Return the custom resources of workloads in a cluster: attempts first, then anchors, then what users applied.

    What users applied counts if it names `ground.managed_by`, or has this installation's label. If a namespace is
    given, only what is there counts.

    Raises:
        HoldfastError: if one belongs to another installation, which uses the same kinds: two may have the same label.
        KubeError: if the cluster does not answer, or refuses.
    """
    own = ground.site.installation
    found: list[Thing] = []
    others: set[str] = set()
    for kind in (names.ATTEMPT_KIND, names.ANCHOR_KIND):
        async for one in resources(ground, names.API_VERSION, kind, namespace):
            found.append(thing_of(names.API_VERSION, kind, one))
            cluster = cluster_of(str(mapping(one.get("spec")).get("workflowId")))
            if cluster not in (ground.site.cluster, ""):
                others.add(f"the one that calls this cluster {cluster}")
    others |= {one.installation for one in found} - {own}
    for api_version, kind in formats.RESOURCES:
        async for one in resources(ground, api_version, kind, namespace):
            thing, manager = thing_of(api_version, kind, one), str(mapping(one.get("spec")).get("managedBy") or "")
            if manager != ground.managed_by and thing.lives and names.is_own_manager(manager):
                others.add(f"{thing.installation or 'the one'} that runs what is managedBy {manager}")
            elif thing.installation == own or manager == ground.managed_by:
                found.append(thing)
    if others:
        raise HoldfastError(
            f"installation: {', '.join(sorted(others))} also has workloads on this cluster, by the same kinds and "
            "rights: take that off first (--installation, --cluster, HOLDFAST_MANAGED_BY); custom resources that this "
            "one ran under an earlier managedBy have to be deleted first"
        )
    return found


async def open_workflows(client: Client, cluster: str, namespace: str | None = None) -> list[WorkflowExecution]:
    """Return the running workflows of the graphs and workloads of a cluster, or of one namespace; graphs first."""
    found: list[WorkflowExecution] = []
    place = f"{cluster}/{namespace}/" if namespace is not None else f"{cluster}/"
    for workflow_type, prefix in ((names.GRAPH_WORKFLOW, "graph/"), (names.WORKLOAD_WORKFLOW, "workload/")):
        query = f"WorkflowType = '{workflow_type}' AND WorkflowId STARTS_WITH '{prefix}{place}'"
        found += await running(client, query)
    return found


async def remove_workloads(
    ground: Ground, namespace: str | None = None, *, because: str, limit: timedelta, say: Say, show: Say
) -> None:
    """Make each workload's own workflow remove it, and wait until all, or those of a namespace, are proven gone.

    Args:
        ground: the cluster and the Temporal namespace.
        namespace: the namespace; None for all.
        because: the reason, for the histories.
        limit: how long it may last.
        say: receives a line about each change.
        show: receives, once a second, how much is left and what that is.

    Raises:
        HoldfastError: if something still exists at the end of `limit`.
        RPCError: if Temporal does not answer.
        KubeError: if the cluster does not answer, or refuses.
    """
    asked, deadline, said = set[tuple[str, str]](), time.monotonic() + limit.total_seconds(), -1
    while True:
        things = await standing(ground, namespace)
        workflows = await open_workflows(ground.client, ground.site.cluster, namespace)
        if not things and not workflows:
            return
        for one in things:
            if one.copied:
                await _copy_goes(ground, one, say)
        applied = [one for one in things if not one.own]
        for one in applied:
            if not one.deleting:
                await unless_gone(ground.site.kube.delete(*one.key, uid=one.uid))
        own = {names.workflow_id(ground.site.cluster, one.namespace, one.name, one.kind) for one in applied}
        for one in workflows:
            if one.id not in own and (one.id, one.run_id) not in asked:
                await _cancelled(ground.client, one.id, because)
                asked.add((one.id, one.run_id))
        left = max(len(things), len(workflows))
        counts = counted(len(workflows), "workflow"), counted(len(things), "object")
        if left != said:
            say(f"being removed: {', '.join(counts)}")
            said = left
        show(f"{' and '.join(counts)} are left, {still_there(things, workflows)}")
        if time.monotonic() > deadline:
            raise HoldfastError(
                f"{still_there(things, workflows)}. Nothing new begins; no right was taken away. Is a worker running? "
                "`holdfast explain NAMESPACE/NAME` says "
                "what a workload waits for, `holdfast sweep` removes what no workflow is responsible for"
            )
        await asyncio.sleep(LOOK)


async def _copy_goes(ground: Ground, thing: Thing, say: Say) -> None:
    """Release and delete a copy: nobody else would, and it has nothing that is made of it."""
    await let_go(ground, thing)
    if not thing.deleting:
        await unless_gone(ground.site.kube.delete(*thing.key, uid=thing.uid))
        say(f"{thing} is removed: it is a copy of one of another namespace")


async def let_go(ground: Ground, thing: Thing) -> None:
    """Remove our finalizer from an object, and leave those of others.

    Raises:
        KubeError: if the cluster does not answer, or refuses.
    """
    kube = ground.site.kube
    while (found := await kube.find(*thing.key)) is not None and found["metadata"]["uid"] == thing.uid:
        now = thing_of(thing.api_version, thing.kind, found)
        if names.FINALIZER not in now.finalizers:
            return
        kept = [name for name in now.finalizers if name != names.FINALIZER]
        patch, version = {"metadata": {"finalizers": kept or None}}, found["metadata"]["resourceVersion"]
        try:
            await kube.patch(*thing.key, uid=thing.uid, patch=patch, resource_version=version)
        except (Conflict, NotFound):
            continue


async def running(client: Client, query: str) -> list[WorkflowExecution]:
    """Return the running workflows that a query selects."""
    return [one async for one in client.list_workflows(f"{query} AND ExecutionStatus = 'Running'")]


async def _cancelled(client: Client, workflow_id: str, because: str) -> None:
    try:
        await client.get_workflow_handle(workflow_id).signal(names.SIGNAL_CANCEL, because)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise


async def resources(ground: Ground, api_version: str, kind: str, namespace: str | None = None) -> AsyncIterator[Object]:
    """Yield the objects of a kind in the cluster or in one namespace; none if the cluster has no such kind."""
    try:
        items: Iterable[Object] = (await ground.site.kube.list(api_version, kind, namespace or ""))["items"]
    except (NotFound, UnknownKind):
        return
    for one in items:
        yield one


def thing_of(api_version: str, kind: str, found: Mapping[str, Any]) -> Thing:
    """Return what is known of a custom resource."""
    metadata = found["metadata"]
    labels, said = mapping(metadata.get("labels")), str(mapping(found.get("spec")).get("workflowId") or "")
    return Thing(
        api_version,
        kind,
        metadata["namespace"],
        metadata["name"],
        metadata["uid"],
        bool(metadata.get("deletionTimestamp")),
        tuple(map(str, metadata.get("finalizers") or ())),
        str(labels.get(names.LABEL_INSTALLATION) or ""),
        _is_own(api_version, kind) and _is_elsewhere(said, metadata["namespace"]),
    )


def _is_own(api_version: str, kind: str) -> bool:
    """Whether a kind is Holdfast's own: users' Workloads have the same API version."""
    return api_version == names.API_VERSION and kind in {names.ANCHOR_KIND, names.ATTEMPT_KIND}


def _is_elsewhere(workflow_id: str, namespace: str) -> bool:
    """Whether a workload's workflow id is of another namespace; not where it cannot be read."""
    try:
        return names.parse_workflow_id(workflow_id)[1] != namespace
    except ValueError:
        return False


def still_there(things: Sequence[Thing], workflows: Sequence[WorkflowExecution]) -> str:
    """Return the words that name what is left."""
    told = [*map(str, things), *(f"workflow {one.id}" for one in workflows)]
    more = f" and {len(told) - _TOLD} more" if len(told) > _TOLD else ""
    return f"still there: {', '.join(told[:_TOLD])}{more}"
