"""The lives of Lattice's failure matrix that are recorded: checkpoints, probes, lost nodes, requeues, walltimes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.worker import Worker

from holdfast import names
from holdfast.model import (
    Bounded,
    Failure,
    FailureClass,
    NodesSeen,
    OnUnresponsive,
    Policy,
    Quiet,
    Reason,
    Scope,
    Status,
    Workload,
)
from holdfast.policy.attempt.checkpoint import CheckpointAsk
from holdfast.policy.values.edit import edit
from holdfast.profiles import lattice
from holdfast.workflows.entities.node_monitor import SIGNAL_STOP, SIGNAL_TIMINGS, NodeMonitorInput
from tests.policy.lives.life import workload
from tests.worker.nodes.test_node_monitor import TIMINGS, Pretended, sights, until
from tests.workflows.conftest import SCALED, Run
from tests.workflows.workload.test_checkpoint import saved, saving
from tests.workflows.workload.test_probe import asked, service

Handle = WorkflowHandle[Any, Status]
NODE = "node-7"


def scaled(policy: Policy) -> Policy:
    """Return a profile's policy with waits that can be waited for."""
    return policy.model_copy(update={"timings": SCALED})


def bounded(spec: Workload, walltime: float) -> Workload:
    """Return a workload with so many seconds of walltime, which may be extended to an hour."""
    return edit(spec, lifecycle=Bounded(walltime=timedelta(seconds=walltime), extendable_to=timedelta(hours=1)))


async def completes(run: Run, handle: Handle, attempt: int) -> Handle:
    await run.running(handle, attempt)
    await run.cluster.sees(handle, attempt, succeeded=2, complete=True)
    return handle


async def its_node_is_down(run: Run, handle: Handle, *, reason: Reason = Reason.NODE_DOWN, **view: int) -> None:
    """Have the cluster tell that a node of the first attempt is Down."""
    down = Failure(
        cls=FailureClass.NODE_LOST,
        scope=Scope.MEMBER,
        reason=reason,
        time=datetime.now(UTC),
        component="train",
        subject="train-0",
        node=NODE,
        message="its lease was last renewed 90 s ago",
    )
    run.cluster.told = (down,)
    await run.cluster.sees(handle, 1, **(view or {"running": 2}))


# --- checkpoints


async def checkpointed(run: Run) -> Handle:
    """Save on a person's word, save before a preemption, and go on from there."""
    run.cluster.saves = saved("s3://saved/1")
    handle = await run.start(saving())
    await run.running(handle)
    await handle.execute_update(names.UPDATE_CHECKPOINT, CheckpointAsk(note="nightly").model_dump(mode="json"))
    await run.entered("checkpoint")
    await run.reach(handle, "Running", 1)
    run.cluster.saves = saved("s3://saved/2")
    await handle.signal(names.SIGNAL_PREEMPT, "a larger job")
    await run.reach(handle, "Suspended")
    await handle.signal(names.SIGNAL_RESUME)
    return await completes(run, handle, 2)


async def unanswered(run: Run) -> Handle:
    """Be killed, since nobody has saved when whoever preempts has no patience left."""
    handle = await run.start(saving(on_unresponsive=OnUnresponsive.KILL))
    await run.running(handle)
    await handle.signal(names.SIGNAL_PREEMPT, args=["urgent", 0.5])
    await run.reach(handle, "Suspended")
    await handle.signal(names.SIGNAL_RESUME)
    return await completes(run, handle, 2)


async def taken_back(run: Run) -> Handle:
    """Be resumed while it saves, and run on."""
    handle = await run.start(saving())
    await run.running(handle)
    await handle.signal(names.SIGNAL_PREEMPT, "a larger job")
    await run.entered("checkpoint")
    await handle.signal(names.SIGNAL_RESUME)
    return await completes(run, handle, 1)


async def continued_while_saving(run: Run) -> Handle:
    """Continue as new in the middle of a checkpoint, which the next run hears the answers to."""
    handle = await run.start(saving())
    await run.running(handle)
    await handle.signal(names.SIGNAL_PREEMPT, "a larger job")
    await run.entered("checkpoint")
    first = (await handle.describe()).run_id
    again: Handle = run.client.get_workflow_handle(handle.id, result_type=Status)
    while (await again.describe()).run_id == first:
        await run.cluster.sees(again, 1, running=2)
        await asyncio.sleep(0.05)
    assert (await run.status(again)).phase == "Checkpointing"
    run.cluster.saves = saved()
    await run.reach(again, "Suspended")
    await again.signal(names.SIGNAL_CANCEL, "enough")
    return again


async def walltime_while_saving(run: Run) -> Handle:
    """Save in the grace after the walltime: resumable, with a new walltime."""
    handle = await run.start(bounded(saving(), 2))
    await run.running(handle)
    await handle.signal(names.SIGNAL_PREEMPT, "a larger job")
    await run.entered("checkpoint")
    run.cluster.close("remove")
    await run.entered("remove")
    run.cluster.saves = saved()
    run.cluster.open("remove")
    status = await run.reach(handle, "Suspended")
    assert status.checkpoint is not None
    assert status.checkpoint.conflict is not None
    await handle.signal(names.SIGNAL_RESUME)
    return await completes(run, handle, 2)


# --- back to the queue, a person's word, the walltime


async def node_down(run: Run) -> Handle:
    """Be requeued once for a node that is Down, and once by whoever asks for it with the right count."""
    handle = await run.start(workload(policy=scaled(lattice.BATCH)))
    await run.running(handle)
    await its_node_is_down(run, handle)
    await run.running(handle, 2)
    for expected in (0, 1, 1):
        await handle.signal(names.SIGNAL_REQUEUE, {"expectedRequeueCount": expected, "node": NODE})
    return await completes(run, handle, 3)


async def crash_beside_a_loss(run: Run) -> Handle:
    """Hold a crash until the node that is silent is found Down, which requeues it."""
    handle = await run.start(workload(policy=scaled(lattice.BATCH)))
    await run.running(handle)
    now = datetime.now(UTC)
    run.cluster.quietest = Quiet(node=NODE, renewed=now - timedelta(seconds=11), down_at=now + timedelta(minutes=1))
    await run.cluster.sees(handle, 1, running=1, failed=1)
    await run.entered("observe", 2)  # By the first look it is not known yet, nor is it 12 s after the last renewal.
    assert (await run.status(handle)).phase == "Running"
    await its_node_is_down(run, handle, running=1, failed=1)
    await run.entered("remove")
    run.cluster.quietest = None
    return await completes(run, handle, 2)


async def sensitive(run: Run) -> Handle:
    """Be held when its node is Down, run again by a person's word, and have each act audited before it is done."""
    handle = await run.start(workload(policy=scaled(lattice.SERVICE), sensitive=True))
    await run.running(handle)
    await its_node_is_down(run, handle, reason=Reason.NODE_STILL_DOWN)
    await run.reach(handle, "Pending")
    await handle.signal(names.SIGNAL_RETRY, "looked into it")
    return await completes(run, handle, 2)


async def walltime_extended(run: Run) -> Handle:
    """Be extended, requeued, and ended by the walltime of the second attempt."""
    handle = await run.start(bounded(workload(policy=scaled(lattice.BATCH)), 2))
    await run.running(handle)
    await handle.execute_update(names.UPDATE_EXTEND, {"by": "1s"})
    await its_node_is_down(run, handle)
    await run.running(handle, 2)
    return handle


async def launch_elsewhere(run: Run) -> Handle:
    """Be tried again where a node could not start it, charged to a budget of its own."""
    handle = await run.start(workload(policy=scaled(lattice.BATCH)))
    await run.submitted(handle)
    begun = datetime.now(UTC)
    failed = Failure(
        cls=FailureClass.LAUNCH,
        scope=Scope.MEMBER,
        reason="StartError",
        exit_code=128,
        time=begun,
        component="train",
        subject="train-0",
        node=NODE,
    )
    run.cluster.told = (failed,)
    await run.cluster.sees(handle, 1, pending=1)
    return await completes(run, handle, 2)


# --- probes


async def probed(run: Run) -> Handle:
    """Fail its probe, be made again, be asked anew, be suspended and resumed."""
    handle = await run.start(service())
    await run.running(handle)
    await asked(run, 1)
    run.cluster.silent_in = 1
    await run.running(handle, 2)
    await asked(run, 2)
    await handle.signal(names.SIGNAL_SUSPEND)
    await run.reach(handle, "Suspended")
    await handle.signal(names.SIGNAL_RESUME)
    await run.running(handle, 3)
    await asked(run, 3)
    await handle.signal(names.SIGNAL_CANCEL, "enough")
    return handle


async def continued_while_probed(run: Run) -> Handle:
    """Continue as new while its pods are asked: what was counted goes on in the next run."""
    handle = await run.start(service())
    await run.running(handle)
    await asked(run, 1)
    while len(run.cluster.probes) < 2:
        await run.cluster.sees(handle, 1, running=2)
        await asyncio.sleep(0.05)
    again: Handle = run.client.get_workflow_handle(handle.id, result_type=Status)
    await again.signal(names.SIGNAL_CANCEL, "enough")
    return again


# --- the monitor of nodes


async def monitored(run: Run) -> Handle:
    """Find two nodes of many Down, say so, free them again once they are sound, and take other timings."""
    cluster, name = Pretended(), "nodes"
    watch = Worker(run.client, task_queue=names.queue_watch(name), activities=[cluster.watch])
    acts = Worker(run.client, task_queue=names.queue_cluster(name), activities=[cluster.look, cluster.mark])

    async def marks(count: int) -> None:
        async def check() -> bool:
            return cluster.marks >= count

        await until(check, f"{count} marks are made")

    async def began_anew() -> bool:
        return len(cluster.began) == 2

    async with watch, acts:
        handle = await run.client.start_workflow(
            names.NODE_MONITOR_WORKFLOW,
            NodeMonitorInput(cluster=name, cluster_uid="kube", timings=TIMINGS),
            id=names.node_monitor_id(name),
            task_queue=names.QUEUE_WORKFLOWS,
        )

        async def hears(renewed: str, *, silent: bool) -> None:
            nodes = sights(renewed, silent=silent, count=2)
            seen = NodesSeen(at=datetime.now(UTC), nodes=nodes, total=50, silent=2 if silent else 0)
            await handle.signal(names.SIGNAL_NODES, seen)

        await hears("r0", silent=True)
        await marks(1)
        cluster.renewed = "r1"
        await hears("r1", silent=False)
        await marks(2)
        await handle.signal(SIGNAL_TIMINGS, TIMINGS.model_copy(update={"down": timedelta(seconds=2)}))
        await until(began_anew, "it is watched by other timings")
        again: Handle = run.client.get_workflow_handle(handle.id)
        await again.signal(SIGNAL_STOP)
        await again.result()
    return again


RECOVERY: dict[str, tuple[Callable[[Run], Awaitable[Handle]], int]] = {
    "checkpointed": (checkpointed, 0),
    "checkpoint-unanswered": (unanswered, 0),
    "checkpoint-taken-back": (taken_back, 0),
    "checkpoint-continued-as-new": (continued_while_saving, 20),
    "walltime-while-saving": (walltime_while_saving, 0),
    "node-down": (node_down, 0),
    "crash-beside-a-loss": (crash_beside_a_loss, 0),
    "sensitive": (sensitive, 0),
    "walltime-extended": (walltime_extended, 0),
    "launch-elsewhere": (launch_elsewhere, 0),
    "probed": (probed, 0),
    "probe-continued-as-new": (continued_while_probed, 45),
    "monitored": (monitored, 0),
}
