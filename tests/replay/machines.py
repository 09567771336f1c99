"""The lives of machines that are recorded: what a provisioner is asked, and a node that is fenced."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from temporalio import activity
from temporalio.client import WorkflowHandle
from temporalio.worker import Worker

from holdfast import names
from holdfast.client.connection import Place
from holdfast.client.entities.provisioner import ProvisionerRun
from holdfast.model import NodesSeen, NodeWord, Status
from holdfast.model.calls.cluster import MarkedNodes, MarkNodesInput
from holdfast.model.entities.provisioner import NodeAction, NodeAsk
from holdfast.workflows.entities.node_monitor import SIGNAL_STOP, NodeMonitorInput
from holdfast.workflows.entities.provisioner import SIGNAL_AT_ONCE, ProvisionerInput
from holdfast.workflows.entities.provisioner import SIGNAL_STOP as SIGNAL_STOP_PROVISIONER
from tests.worker.nodes.test_node_monitor import TIMINGS, Pretended, sights, until
from tests.workflows.conftest import Run
from tests.workflows.entities.test_provisioner import Machines

Handle = WorkflowHandle[Any, Status]
CLUSTER = "nodes"


@dataclass
class Fencing(Pretended):
    """Nodes with pods of ours, none of them sensitive."""

    @activity.defn(name=names.ACTIVITY_MARK_NODES)
    async def mark(self, given: MarkNodesInput) -> MarkedNodes:
        self.marks += 1
        self.words |= {wish.name: wish.word for wish in given.nodes}
        marked = await Pretended.mark(self, given)
        ours = tuple(one.model_copy(update={"ours": one.word is NodeWord.FENCING}) for one in marked.nodes)
        return MarkedNodes(nodes=ours)


async def begin(run: Run) -> WorkflowHandle[Any, Any]:
    return await run.client.start_workflow(
        names.PROVISIONER_WORKFLOW,
        ProvisionerInput(cluster=CLUSTER, cluster_uid="kube"),
        id=names.provisioner_id(CLUSTER),
        task_queue=names.QUEUE_WORKFLOWS,
    )


async def provisioned(run: Run) -> Handle:
    """Wipe, boot and release nodes, the service being away for some seconds; then go by other numbers, and end."""
    machines = Machines(away=True)
    short = Worker(run.client, task_queue=names.queue_cluster(CLUSTER), activities=[machines.enlist])
    acts = [machines.provision, machines.check]
    long = Worker(run.client, task_queue=names.queue_wait(CLUSTER), activities=acts)
    async with short, long:
        handle = await begin(run)
        asked = ProvisionerRun(run.client, Place("here", "default"), CLUSTER)

        async def ask(action: NodeAction, node: str, why: str = "") -> int:
            return (await asked.request(NodeAsk(node=node, action=action, why=why, by="a person"))).number

        await ask(NodeAction.WIPE, "a", "released")
        await ask(NodeAction.BOOT, "b")
        await ask(NodeAction.WIPE, "nobody")

        async def tried() -> bool:
            return len(machines.tried) >= 3

        await until(tried, "the service was asked again")
        machines.away, machines.waits = False, 2

        async def done() -> bool:
            return not (await asked.status()).pending

        await until(done, "all is done")
        await ask(NodeAction.RELEASE, "c", "it was never wiped")
        await until(done, "it is released")
        await asked.check()
        await handle.signal(SIGNAL_AT_ONCE, 2)

        async def anew() -> bool:
            return (await asked.status()).at_once == 2

        await until(anew, "it goes by other numbers")
        again: Handle = run.client.get_workflow_handle(handle.id)
        await again.signal(SIGNAL_STOP_PROVISIONER)
        await again.result()
    return again


async def fenced(run: Run) -> Handle:
    """Find two nodes Down, have one off by the provisioner, hear the other before that, and both in the end."""
    cluster, machines = Fencing(), Machines(away=True)
    watch = Worker(run.client, task_queue=names.queue_watch(CLUSTER), activities=[cluster.watch])
    short = Worker(
        run.client,
        task_queue=names.queue_cluster(CLUSTER),
        activities=[cluster.look, cluster.mark, machines.enlist],
    )
    long = Worker(run.client, task_queue=names.queue_wait(CLUSTER), activities=[machines.provision])
    async with watch, short, long:
        provisioner = await begin(run)
        handle = await run.client.start_workflow(
            names.NODE_MONITOR_WORKFLOW,
            NodeMonitorInput(cluster=CLUSTER, cluster_uid="kube", timings=TIMINGS.model_copy(update={"fence": True})),
            id=names.node_monitor_id(CLUSTER),
            task_queue=names.QUEUE_WORKFLOWS,
        )

        async def hears(renewed: str, *which: int, silent: bool) -> None:
            nodes = tuple(sights(renewed, silent=silent, count=2)[one] for one in which)
            seen = NodesSeen(at=datetime.now(UTC), nodes=nodes, total=50, silent=2 if silent else 0)
            await handle.signal(names.SIGNAL_NODES, seen)

        async def says(**words: NodeWord) -> None:
            async def check() -> bool:
                return cluster.words == words

            await until(check, f"{words}: {cluster.words}")

        await hears("r0", 0, 1, silent=True)
        await says(n0=NodeWord.FENCING, n1=NodeWord.FENCING)
        asked = ProvisionerRun(run.client, Place("here", "default"), CLUSTER)

        async def pending() -> bool:
            return len((await asked.status()).pending) == 2

        await until(pending, "both are to be off")
        cluster.renewed = "r1"
        await hears("r1", 1, silent=False)
        await says(n0=NodeWord.FENCING, n1=NodeWord.NONE)
        machines.away = False
        await says(n0=NodeWord.LOST, n1=NodeWord.NONE)
        await hears("r1", 0, silent=False)
        await says(n0=NodeWord.NONE, n1=NodeWord.NONE)
        await handle.signal(SIGNAL_STOP)
        await handle.result()
        await provisioner.signal(SIGNAL_STOP_PROVISIONER)
        await provisioner.result()
    return handle


MACHINES: dict[str, tuple[Callable[[Run], Awaitable[Handle]], int]] = {
    "provisioned": (provisioned, 0),
    "fenced": (fenced, 0),
}
