"""Starts the entities that a worker's settings want: the cluster's watch, its node monitor, its provisioner."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy

from holdfast import names
from holdfast.activities.facts.node_taints import WIPE, quarantined
from holdfast.activities.kube.client import Kube
from holdfast.model.entities.provisioner import NodeAction, NodeRequest, ProvisionerState, Quarantine
from holdfast.policy.entities.health import MARK
from holdfast.worker.runtime.settings import Settings
from holdfast.workflows.entities.cluster_watch import (
    MEMO_CLUSTER_UID,
    MEMO_INSTALLATION,
    MEMO_SHARD_SETS,
    ClusterWatchInput,
)
from holdfast.workflows.entities.node_monitor import MEMO_TIMINGS, NodeMonitorInput
from holdfast.workflows.entities.provisioner import ProvisionerInput

TASK_TIMEOUT: Final = timedelta(seconds=5)
_FOUND: Final = "its node was found in quarantine as the provisioner was begun anew"


async def begin_watch(client: Client, settings: Settings, uid: str, installation: str) -> None:
    """Start the cluster's watch; a running watch stays as it is."""
    payload = ClusterWatchInput(cluster=settings.cluster, cluster_uid=uid, shard_sets=settings.shard_sets)
    await client.start_workflow(
        names.CLUSTER_WATCH_WORKFLOW,
        payload,
        id=names.watch_workflow_id(settings.cluster),
        task_queue=names.QUEUE_WORKFLOWS,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        task_timeout=TASK_TIMEOUT,
        memo={
            MEMO_CLUSTER_UID: uid,
            MEMO_INSTALLATION: installation,
            MEMO_SHARD_SETS: len(payload.shard_sets),
        },
        static_summary=f"Watch of cluster {settings.cluster}",
        static_details="Keeps one activity per set of shards alive, which wakes workloads at what happens.",
    )


async def begin_monitor(client: Client, settings: Settings, uid: str) -> None:
    """Start the cluster's node monitor; a running monitor stays as it is."""
    timings = settings.node_timings
    await client.start_workflow(
        names.NODE_MONITOR_WORKFLOW,
        NodeMonitorInput(cluster=settings.cluster, cluster_uid=uid, timings=timings),
        id=names.node_monitor_id(settings.cluster),
        task_queue=names.QUEUE_WORKFLOWS,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        task_timeout=TASK_TIMEOUT,
        memo={MEMO_TIMINGS: timings.model_dump_json()},
        static_summary=f"Nodes of cluster {settings.cluster}",
        static_details="Finds out which nodes are Down, by their leases and their hardware, and says so on them.",
    )


async def begin_provisioner(client: Client, settings: Settings, uid: str, state: ProvisionerState | None) -> None:
    """Start the cluster's provisioner, which boots, wipes and powers off nodes; a running one stays as it is.

    Args:
        client: the Temporal client.
        settings: the worker's settings.
        uid: the cluster's own identity.
        state: the pending work of an earlier provisioner, read from the cluster (`provisioner_state`).
    """
    await client.start_workflow(
        names.PROVISIONER_WORKFLOW,
        ProvisionerInput(cluster=settings.cluster, cluster_uid=uid, at_once=settings.provisioner_at_once, state=state),
        id=names.provisioner_id(settings.cluster),
        task_queue=names.QUEUE_WORKFLOWS,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        task_timeout=TASK_TIMEOUT,
        memo={names.MEMO_REBUILT: True} if state is not None else None,
        static_summary=f"Machines of the nodes of cluster {settings.cluster}",
        static_details="Boots, wipes and powers off nodes, in the order in which it was asked.",
    )


async def provisioner_state(kube: Kube, cluster: str, uid: str, installation: str) -> ProvisionerState | None:
    """Return the initial state of a provisioner: the wipes that the nodes' quarantine taints show as pending.

    A node that was asked to be wiped must be before it takes pods again. Fences need no state: the node monitor asks
    again.

    Raises:
        KubeError: if the cluster does not answer, or refuses.
    """
    listed = await kube.list(
        "v1", "Node", keep=lambda node: node if quarantined(node, installation) is not None else None
    )
    return state_from(listed["items"], cluster, uid, installation, datetime.now(UTC))


def state_from(
    nodes: list[dict[str, Any]], cluster: str, uid: str, installation: str, now: datetime
) -> ProvisionerState | None:
    """Return the same from the Node objects in quarantine. Pure.

    A node that is only held is not wiped: it has the name of one that was to be, and nobody asked for its drives.
    """
    if not nodes:
        return None
    held = sorted(nodes, key=lambda node: str(node["metadata"]["name"]))
    wipes = tuple(
        NodeRequest(
            number=number,
            node=str(node["metadata"]["name"]),
            action=NodeAction.WIPE,
            at=now,
            why=_FOUND,
            by=MARK,
            uid=str(node["metadata"]["uid"]),
        )
        for number, node in enumerate((one for one in held if quarantined(one, installation) == WIPE), start=1)
    )
    asked = {wipe.node for wipe in wipes}
    waits = {
        name: "wipe" if name in asked else "its release" for name in (str(one["metadata"]["name"]) for one in held)
    }
    return ProvisionerState(
        cluster=cluster,
        cluster_uid=uid,
        last=len(wipes),
        pending=wipes,
        quarantined={name: Quarantine(since=now, why=f"waits for {what}: {_FOUND}") for name, what in waits.items()},
    )
