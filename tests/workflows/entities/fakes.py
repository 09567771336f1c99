"""All entities of a cluster that only pretends: each with its activities, and with something to be told."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

from holdfast import names
from holdfast.model import NodeMarked, NodeSight, NodesSeen, NodeTimings, Phase
from holdfast.model.calls.broker import AskDone, AskInput, WeighInput
from holdfast.model.calls.cluster import (
    LookedNodes,
    LookNodesInput,
    MarkedNodes,
    MarkNodesInput,
    WatchInput,
    WatchNodesInput,
)
from holdfast.model.calls.gang import GangBegin, HubInput, RendezvousInput
from holdfast.model.calls.provisioner import Enlisted, EnlistInput, Provisioned, ProvisionInput
from holdfast.model.calls.queue import LookQueueInput, SeenQueue
from holdfast.model.entities.broker import Broker, Weighed
from holdfast.model.entities.graph import Graph, GraphNews
from holdfast.model.entities.provisioner import FenceAsk, Result
from holdfast.model.entities.queue import Queue, QueueNews, Standing
from holdfast.model.gang.state import Gang
from holdfast.workflows.entities.cluster_watch import SIGNAL_DIVIDE, ClusterWatchInput
from holdfast.workflows.entities.node_monitor import NodeMonitorInput
from holdfast.workflows.entities.provisioner import ProvisionerInput

DOWN = timedelta(seconds=6)
TIMINGS = NodeTimings(degraded=timedelta(seconds=1), down=DOWN, sensitive_down=timedelta(hours=1))
Handle = WorkflowHandle[Any, Any]


async def _for_ever() -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(0.1)


@dataclass
class Pretended:
    """A cluster whose nodes are silent, whose machines take for ever, and in which nobody runs."""

    looked_at_nodes: list[str] = field(default_factory=list[str])
    looked_at_queue: int = 0
    provisioned: int = 0

    @activity.defn(name=names.ACTIVITY_WATCH_NODES)
    async def watch_nodes(self, given: WatchNodesInput) -> None:
        await _for_ever()

    @activity.defn(name=names.ACTIVITY_LOOK_NODES)
    async def look_nodes(self, given: LookNodesInput) -> LookedNodes:
        self.looked_at_nodes += given.nodes
        return LookedNodes(nodes=tuple(NodeSight(name=name, uid=name, renewed="r0") for name in given.nodes))

    @activity.defn(name=names.ACTIVITY_MARK_NODES)
    async def mark_nodes(self, given: MarkNodesInput) -> MarkedNodes:
        return MarkedNodes(nodes=tuple(NodeMarked(name=wish.name, word=wish.word) for wish in given.nodes))

    @activity.defn(name=names.ACTIVITY_WATCH)
    async def watch(self, given: WatchInput) -> None:
        await _for_ever()

    @activity.defn(name=names.ACTIVITY_GANG_HUB)
    async def hub(self, given: HubInput) -> None:
        await _for_ever()

    @activity.defn(name=names.ACTIVITY_LOOK_QUEUE)
    async def look_queue(self, given: LookQueueInput) -> SeenQueue:
        self.looked_at_queue += 1
        return SeenQueue(kueue=False, workloads=(), gone=())

    @activity.defn(name=names.ACTIVITY_WEIGH)
    async def weigh(self, given: WeighInput) -> Weighed:
        return Weighed()

    @activity.defn(name=names.ACTIVITY_ASK)
    async def ask(self, given: AskInput) -> AskDone:
        return AskDone(number=1)

    @activity.defn(name=names.ACTIVITY_ENLIST)
    async def enlist(self, given: EnlistInput) -> Enlisted:
        return Enlisted(uid="u", service="https://bmc.example.com")

    @activity.defn(name=names.ACTIVITY_PROVISION)
    async def provision(self, given: ProvisionInput) -> Provisioned:
        self.provisioned += 1
        return Provisioned(result=Result.WAITS, said="told to be off, and its power is on", reached=True)

    def workers(self, client: Client, cluster: str) -> list[Worker]:
        given = [
            (
                names.queue_cluster(cluster),
                [self.look_nodes, self.mark_nodes, self.look_queue, self.weigh, self.ask, self.enlist],
            ),
            (names.queue_watch(cluster), [self.watch_nodes, self.watch]),
            (names.queue_wait(cluster), [self.provision]),
            (names.queue_gangs(cluster), [self.hub]),
        ]
        return [Worker(client, task_queue=queue, activities=activities) for queue, activities in given]


@dataclass
class Entities:
    """One of each."""

    client: Client
    cluster: str
    handles: dict[str, Handle] = field(default_factory=dict[str, Handle])

    @property
    def task_queues(self) -> list[str]:
        return [names.QUEUE_WORKFLOWS, names.queue_admission(self.cluster, "q")]

    async def start(self) -> None:
        """Start all; the provisioner has something to do that is tried again and again."""
        cluster, uid = self.cluster, "cluster-uid"
        queue, broker = Queue(name="q", cluster=cluster), Broker(cluster=cluster, every=timedelta(seconds=14))
        graph = Graph.model_validate({"name": "g", "cluster": cluster, "nodes": [{"name": "a"}]})
        gang = Gang(min=2, max=2, join_timeout=timedelta(seconds=14), last_call=timedelta(seconds=1))
        begin = GangBegin(
            cluster=cluster,
            namespace="team",
            workload="w",
            workload_uid="w-uid",
            workflow_id=names.workflow_id(cluster, "team", "w"),
            submitted_at=datetime.now(UTC),
            attempt=1,
            gang=gang,
        )
        await self._begin(
            "Provisioner",
            names.PROVISIONER_WORKFLOW,
            names.provisioner_id(cluster),
            ProvisionerInput(cluster=cluster, cluster_uid=uid),
        )
        ask = FenceAsk(node="node-1", uid="node-1", renewed="r0", why="it is silent")
        await self.handles["Provisioner"].signal(names.SIGNAL_FENCE, ask)
        await self._begin("Queue", names.QUEUE_WORKFLOW, queue.workflow_id, queue.model_dump(mode="json"))
        await self._begin("Graph", names.GRAPH_WORKFLOW, graph.workflow_id, graph.model_dump(mode="json"))
        await self._begin("CheckpointBroker", names.BROKER_WORKFLOW, broker.workflow_id, broker.model_dump(mode="json"))
        watch = ClusterWatchInput(cluster=cluster, cluster_uid=uid)
        await self._begin("ClusterWatch", names.CLUSTER_WATCH_WORKFLOW, names.watch_workflow_id(cluster), watch)
        place = names.rendezvous_id(cluster, "team", "w")
        await self._begin("Rendezvous", names.RENDEZVOUS_WORKFLOW, place, RendezvousInput(**dict(begin)))
        await self._begin(
            "NodeMonitor",
            names.NODE_MONITOR_WORKFLOW,
            names.node_monitor_id(cluster),
            NodeMonitorInput(cluster=cluster, cluster_uid=uid, timings=TIMINGS),
        )

    async def _begin(self, name: str, workflow: str, id_: str, argument: Any) -> None:
        queue = self.task_queues[1] if workflow == names.QUEUE_WORKFLOW else names.QUEUE_WORKFLOWS
        self.handles[name] = await self.client.start_workflow(workflow, argument, id=id_, task_queue=queue)

    async def node_falls_silent(self) -> None:
        """Have a node be silent, one of three: it is Down after `DOWN`."""
        now = datetime.now(UTC)
        sight = NodeSight(name="node-1", uid="node-1", renewed="r0", heard=now - TIMINGS.degraded, silent=True)
        seen = NodesSeen(at=now, nodes=(sight,), total=3, silent=1)
        await self.handles["NodeMonitor"].signal(names.SIGNAL_NODES, seen)

    async def news(self) -> None:
        """Tell each something that a signal tells."""
        ask = self.workload_asks("w", 1)
        await self.handles["Queue"].signal(names.SIGNAL_NEWS, ask)
        came = GraphNews(item="a", workload_uid="a-uid", outcome=Phase.SUCCEEDED, released=True)
        await self.handles["Graph"].signal(names.SIGNAL_NEWS, came)
        await self.handles["ClusterWatch"].signal(SIGNAL_DIVIDE, [[0, 127], [128, 255]])

    def workload_asks(self, name: str, turn: int) -> QueueNews:
        return QueueNews(
            workload=names.workflow_id(self.cluster, "team", name), uid=name, turn=turn, standing=Standing.ASKS
        )
