"""The watch of nodes over a real API server: what its monitor was told last, and by whom."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHandle
from temporalio.worker import Worker

from holdfast import names
from holdfast.activities.facts.nodes import Marks
from holdfast.local import Stack
from holdfast.model import NodeSight, NodesSeen, NodeState
from holdfast.worker.nodes.watch import NodeWatchActivities
from holdfast.worker.runtime.kube import Connector
from holdfast.worker.runtime.metrics import Metrics
from holdfast.workflows.entities.node_monitor import NodeMonitor, NodeMonitorInput, NodeMonitorStatus
from tests.e2e.nodes.agents import lease_of, open_agents
from tests.worker.ground import opened
from tests.worker.nodes.test_node_monitor import TIMINGS, Pretended, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


async def state_of(handle: WorkflowHandle[Any, Any], node: str) -> NodeState | None:
    status: NodeMonitorStatus = await handle.query(names.QUERY_STATUS, result_type=NodeMonitorStatus)
    record = status.book.nodes.get(node)
    return record.state if record is not None else None


async def test_a_silence_that_was_told_as_the_last_before_a_crash_is_taken_back_by_the_next_watch(
    stack: Stack, tmp_path: Path
) -> None:
    """No heartbeat says that it was told, and the node renews before the next watch begins."""
    pretended = Pretended()
    async with opened(stack, tmp_path, [NodeMonitor]) as ground, open_agents(stack, ground.kube, tmp_path, 1) as it:
        (node,) = it[0].names
        lease = (await lease_of(ground.kube, node))["spec"]["renewTime"]
        others = Worker(
            ground.client,
            task_queue=names.queue_cluster(ground.cluster),
            activities=[pretended.look, pretended.mark],
        )
        connector = Connector(ground.settings, Metrics())
        watch = NodeWatchActivities(
            ground.client, connector, cluster_uid=ground.cluster_uid, metrics=Metrics(), marks=Marks()
        )
        async with others:
            handle = await ground.client.start_workflow(
                NodeMonitor.run,
                NodeMonitorInput(cluster=ground.cluster, cluster_uid=ground.cluster_uid, timings=TIMINGS),
                id=names.node_monitor_id(ground.cluster),
                task_queue=names.QUEUE_WORKFLOWS,
            )
            pretended.renewed = lease
            heard = datetime.now(UTC) - timedelta(minutes=1)
            silent = NodeSight(name=node, renewed=lease, heard=heard, silent=True)
            await handle.signal(names.SIGNAL_NODES, NodesSeen(at=heard, nodes=(silent,), total=5, silent=1))

            async def is_down() -> bool:
                return await state_of(handle, node) is NodeState.DOWN

            await until(is_down, "it is Down, as a look confirmed")

            async def is_renewed() -> bool:
                return (await lease_of(ground.kube, node))["spec"]["renewTime"] != lease

            await until(is_renewed, "it renews its lease")
            pretended.renewed = "another"
            async with Worker(
                ground.client, task_queue=names.queue_watch(ground.cluster), activities=[watch.watch_nodes]
            ):

                async def is_free() -> bool:
                    return await state_of(handle, node) in {NodeState.HEALTHY, None}

                await until(is_free, "it is healthy again")
                await handle.terminate()
