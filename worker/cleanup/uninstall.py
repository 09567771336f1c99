"""Uninstalls Holdfast from a cluster, in an order in which nothing hangs (row F15).

Workloads go first, while there are still workers, rights and kinds. Then go the workflows that decide, the marks on
nodes, the policies, the rights, and at last the kinds. It may be repeated: each step checks what exists.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError, RPCStatusCode

from holdfast import formats, names
from holdfast.activities.facts.node_annotations import is_marked, patch_of, with_fault_label
from holdfast.activities.facts.node_taints import HELD, power_off, quarantined
from holdfast.activities.kube.client import Conflict, NotFound, Object
from holdfast.errors import HoldfastError
from holdfast.model import NodeWish, NodeWord
from holdfast.policy.entities.health import ENTITIES
from holdfast.worker.cleanup.disable import Say, close, delete_own, revoke, unless_gone
from holdfast.worker.cleanup.namespace import LABELS
from holdfast.worker.cleanup.sweep_lookup import Ground
from holdfast.worker.cleanup.workloads import (
    LOOK,
    let_go,
    open_workflows,
    resources,
    running,
    standing,
    still_there,
    thing_of,
)
from holdfast.worker.runtime.pollers import ACTIVITY, polled
from holdfast.workflows.entities.cluster_watch import MEMO_CLUSTER_UID

_CRD: Final = "CustomResourceDefinition"
_WORKERS: Final = f"{LABELS},app.kubernetes.io/component in (workflows, cluster)"
"""Selects what runs workers: not the pod of `helm test`, which stays after its end, nor the chart's own Temporal."""
_PODS_GO: Final = 120.0
"""Seconds allowed for the pods of workers in the cluster to go."""
_LET_GO: Final = 60.0
"""Seconds allowed for the cluster's garbage collector to orphan the dependents of an object."""
BECAUSE: Final = "Holdfast is taken off this cluster"
"""The reason that workloads and their workflows are given."""


async def check_ground(ground: Ground) -> None:
    """Check that this Temporal namespace decides for this cluster, and that no other installation watches it.

    Raises:
        HoldfastError: if either is not certain.
        RPCError: if Temporal does not answer.
        KubeError: if the cluster does not answer, or refuses.
    """
    client, site = ground.client, ground.site
    kinds = [(names.API_VERSION, names.ATTEMPT_KIND), (names.API_VERSION, names.ANCHOR_KIND), *formats.RESOURCES]
    for kind in () if ground.watched else kinds:
        async for one in resources(ground, *kind):
            if not thing_of(*kind, one).lives:
                continue
            raise HoldfastError(
                f"cluster: no watch of this cluster is known as {site.cluster} in Temporal namespace "
                f"{client.namespace}, and there are workloads on it: nothing is touched; check --cluster, --address "
                "and --temporal-namespace"
            )
    own = names.watch_workflow_id(site.cluster)
    watches = f"WorkflowType = '{names.CLUSTER_WATCH_WORKFLOW}' AND ExecutionStatus = 'Running'"
    async for one in client.list_workflows(watches):
        if one.id != own and (await one.memo()).get(MEMO_CLUSTER_UID) == site.cluster_uid:
            raise HoldfastError(
                f"cluster: another installation watches this cluster too (workflow {one.id}), by the same kinds and "
                "rights: nothing is touched; take that off first (--installation, --cluster)"
            )


async def leave_workloads(ground: Ground, *, say: Say) -> None:
    """Terminate every workload's workflow and release its objects as they are: nothing manages them or their pods then.

    Raises:
        HoldfastError: if the cluster's garbage collector does not release them.
        RPCError: if Temporal does not answer.
        KubeError: if the cluster does not answer, or refuses.
    """
    client, cluster, kube = ground.client, ground.site.cluster, ground.site.kube
    await _terminate(client, lambda: open_workflows(client, cluster))
    for one in await standing(ground):
        await let_go(ground, one)
        if one.own and not one.deleting:
            await unless_gone(kube.delete(*one.key, uid=one.uid, propagation="Orphan"))
            if one.kind == names.ATTEMPT_KIND:
                say(f"{one} is let go: what it was made of runs on")
    deadline = time.monotonic() + _LET_GO
    while left := [one for one in await standing(ground) if one.own]:
        if time.monotonic() > deadline:
            raise HoldfastError(
                f"{still_there(left, ())}. All workflows are ended, and what is left is let go of by the cluster's "
                "garbage collector alone: is it running? Run this again with --workloads leave"
            )
        await asyncio.sleep(LOOK)


async def check_stopped(ground: Ground, say: Say) -> None:
    """Wait until no worker of the cluster is running: one would create again what is removed.

    Temporal holds a worker's poll open for a minute: it may take that long until a stopped worker is known to be gone.

    Raises:
        HoldfastError: if one keeps running.
        RPCError: if Temporal does not answer.
    """
    client, cluster = ground.client, ground.site.cluster
    queues = [queue(cluster) for queue in (names.queue_watch, names.queue_cluster, names.queue_wait)]
    first: list[datetime | None] | None = None
    while True:
        found = [await polled(client, queue, ACTIVITY) for queue in queues]
        if not any(one.served for one in found):
            return
        if first is None:
            first = [one.last for one in found]
            say("waiting until workers that were stopped are known to be gone: about a minute")
        again = [one.identity for one, before in zip(found, first, strict=True) if one.last not in (None, before)]
        if again:
            raise HoldfastError(
                f"a worker is running ({again[0]}), and would create again what is removed: stop all workers (in the "
                f"cluster: kubectl --namespace {names.WORKER_NAMESPACE} scale deployment --all --replicas=0), and run "
                "this again"
            )
        await asyncio.sleep(LOOK)


async def take_off(ground: Ground, manifests: Sequence[Object], *, accounts: bool, say: Say) -> None:
    """Remove the rest of Holdfast once it manages no workload any more.

    Args:
        ground: the cluster.
        manifests: the objects of `deploy/`, in the order in which they are applied.
        accounts: whether to delete the accounts that `namespace enable` created: not if pods may keep running.
        say: receives a line about each thing that is left for a person to handle.

    Raises:
        HoldfastError: if workers outside of the cluster keep running, or workloads were added meanwhile.
        RPCError: if Temporal does not answer.
        KubeError: if the cluster does not answer, or refuses.
    """
    kube, cluster = ground.site.kube, ground.site.cluster
    for one in (await kube.list("apps/v1", "Deployment", names.WORKER_NAMESPACE, labels=_WORKERS))["items"]:
        await delete_own(kube, {**one, "apiVersion": "apps/v1", "kind": "Deployment"}, say)
    await _pods_are_gone(ground)
    await check_stopped(ground, say)
    things = [one for one in await standing(ground) if one.lives]
    workflows = await open_workflows(ground.client, cluster)
    if things or workflows:
        raise HoldfastError(
            f"{still_there(things, workflows)}: it came while workers were being stopped. Run this again with "
            "--workloads leave, or start a worker and run it with --workloads remove"
        )
    await _terminate(ground.client, lambda: _entities(ground.client, cluster))
    for node in (await kube.list("v1", "Node"))["items"]:
        await _clean(ground, node["metadata"]["name"], say)
    kinds = [one for one in manifests if one["kind"] == _CRD]
    apart = [one for one in manifests if one["kind"] == "Namespace"]
    for one in reversed([one for one in manifests if one not in kinds and one not in apart]):
        await delete_own(kube, one, say)
    await revoke(kube, None, accounts=accounts, say=say)
    await close(kube, None)
    for one in kinds:
        own = one["spec"]["names"]["kind"] in {names.ANCHOR_KIND, names.ATTEMPT_KIND}
        if own or not await _is_used(ground, one, say):  # What a person applied stays theirs.
            await delete_own(kube, one, say)
    for one in apart:
        await delete_own(kube, one, say)


async def _pods_are_gone(ground: Ground) -> None:
    """Wait until the cluster has no pod of a worker."""
    deadline = time.monotonic() + _PODS_GO
    while (await ground.site.kube.list("v1", "Pod", names.WORKER_NAMESPACE, labels=_WORKERS))["items"]:
        if time.monotonic() > deadline:
            raise HoldfastError(
                f"workers: their pods in {names.WORKER_NAMESPACE} do not go: see to them, and run this again"
            )
        await asyncio.sleep(LOOK)


async def _is_used(ground: Ground, definition: Object, say: Say) -> bool:
    """Whether objects of a kind exist, which would be deleted with it."""
    spec = definition["spec"]
    api_version, kind = f"{spec['group']}/{spec['versions'][0]['name']}", spec["names"]["kind"]
    async for _ in resources(ground, api_version, kind):
        say(f"{_CRD} {definition['metadata']['name']} stays: there are still {spec['names']['plural']}")
        return True
    return False


async def _clean(ground: Ground, name: str, say: Say) -> None:
    """Remove this installation's marks from a node, except those that keep pods off a machine that must have none."""
    kube, installation = ground.site.kube, ground.site.installation
    while (node := await kube.find("v1", "Node", name)) is not None:
        off = power_off(node, installation)
        if off is not None:
            say(f"Node {name} stays marked: its power is off ({off[1]}); once it is on, take {names.GROUP} off it")
            return
        if (value := quarantined(node, installation)) is not None:
            why = "its drives may hold data that was to be wiped" if value == HELD else "it was to be wiped"
            say(f"Node {name} stays quarantined: {why}; once it is, remove that taint")
            return
        metadata = node["metadata"]
        wish = NodeWish(name=name, uid=metadata["uid"], word=NodeWord.NONE, since=datetime.now(UTC))
        patch = patch_of(node, wish, installation) if is_marked(node, installation) else None
        patch = with_fault_label(node, wish, installation, patch)
        if patch is None:
            return
        key, version = ("v1", "Node", name), metadata["resourceVersion"]
        try:
            await kube.patch(*key, uid=metadata["uid"], patch=patch, resource_version=version)
        except (Conflict, NotFound):
            continue
        return


async def _entities(client: Client, cluster: str) -> list[WorkflowExecution]:
    found: list[WorkflowExecution] = []
    for entity in ENTITIES:
        found += await running(client, entity.query(cluster))
    return found


async def _terminate(client: Client, listed: Callable[[], Awaitable[list[WorkflowExecution]]]) -> None:
    """Terminate workflows until no new one is listed: the list is a moment behind."""
    ended = set[str]()
    while True:
        found = {one.id for one in await listed()}
        for workflow_id in found:
            try:
                await client.get_workflow_handle(workflow_id).terminate(reason=BECAUSE)
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
        if not found - ended:
            return
        ended |= found
        await asyncio.sleep(LOOK)
