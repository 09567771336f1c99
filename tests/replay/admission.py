"""The lives of workloads that are recorded with who lets them begin: a queue, and a graph (rows L9, L31)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

from holdfast import names
from holdfast.client.connection import Place as Where
from holdfast.client.entities.graph import GraphRun
from holdfast.client.entities.queue import apply
from holdfast.model import Status
from holdfast.model.entities.graph import Edge, Graph, GraphNews, GraphNode, ItemPhase, Place
from holdfast.model.entities.queue import Queue, StopPolicy
from holdfast.plugin import HoldfastPlugin
from tests.e2e.ground.site import until
from tests.policy.lives.life import workload
from tests.workflows.conftest import SCALED, Run

Handle = WorkflowHandle[Any, Status]
HERE = Where("here", "default")
TIMINGS = SCALED.model_copy(update={"retry_pause_period": timedelta(seconds=0.2)}).model_dump(by_alias=False)


async def queued(run: Run) -> Handle:
    """Wait for a queue that is not there, be held by it, let in, and reset; give way, and be let in again."""
    spec = workload(timings=TIMINGS, queue="research", queued=True)
    handle = await run.start(spec)
    await _says(run, handle, "is not there")
    plugged = await Client.connect(
        run.client.service_client.config.target_host, plugins=[HoldfastPlugin(roles=["workflows"])], identity="recorder"
    )
    queue = Queue(name="research", cluster=run.name, quota={"pods": "2"}, stop_policy=StopPolicy.HOLD)
    async with Worker(plugged, task_queue=names.queue_admission(run.name, "research")):
        there = await apply(run.client, HERE, queue)

        async def waits() -> bool:
            return (await there.status()).waiting == 1

        await until(waits, 60, "the queue has heard of it")
        await apply(run.client, HERE, queue.model_copy(update={"stop_policy": StopPolicy.NONE}))
        await run.running(handle)
        await run.cluster.sees(handle, 1, running=1, failed=1)
        await run.running(handle, 2)
        await handle.signal(names.SIGNAL_PREEMPT, "make room")
        await run.reach(handle, "Suspended")
        await handle.signal(names.SIGNAL_RESUME, "there is room")
        await run.running(handle, 3)
        await run.cluster.sees(handle, 3, succeeded=2, complete=True)
        await handle.result()
        await run.client.get_workflow_handle(queue.workflow_id).terminate()
    return handle


async def in_a_graph(run: Run) -> Handle:
    """Wait for a graph that is not there, and then for what comes before in it; end."""
    graph = Graph(
        name="pipeline",
        cluster=run.name,
        nodes=(GraphNode(name="clean"), GraphNode(name="train", after=(Edge(node="clean"),))),
    )
    spec = workload(timings=TIMINGS).model_copy(
        update={"name": graph.workload("train"), "graph": Place(graph=graph.name, item="train")}
    )
    handle = await run.start(spec)
    await _says(run, handle, "is not there")
    whole = await run.client.start_workflow(
        names.GRAPH_WORKFLOW,
        graph.model_dump(mode="json"),
        id=graph.workflow_id,
        task_queue=names.QUEUE_WORKFLOWS,
    )
    there = GraphRun(run.client, HERE, graph.workflow_id)

    async def waits() -> bool:
        return (await there.status()).items["train"].phase is ItemPhase.BLOCKED

    await until(waits, 60, "the graph has heard of it")
    await whole.signal(names.SIGNAL_NEWS, GraphNews(item="clean", workload_uid="clean", outcome="Succeeded"))  # type: ignore[arg-type]
    await run.running(handle)
    await run.cluster.sees(handle, 1, succeeded=2, complete=True)
    await handle.result()
    await whole.terminate()
    return handle


async def shown_as_it_waits(run: Run) -> Handle:
    """Have an Anchor before the first attempt, since it is submitted suspended; be resumed, and end (record 0096)."""
    handle = await run.start(workload(timings=TIMINGS, suspend=True))
    await run.entered("report")
    await run.reach(handle, "Suspended")
    await handle.signal(names.SIGNAL_RESUME, "there is room")
    await run.running(handle)
    await run.cluster.sees(handle, 1, succeeded=2, complete=True)
    return handle


async def _says(run: Run, handle: Handle, words: str) -> None:
    status = await run.status(handle)
    for _ in range(2_000):
        if words in status.message:
            return
        await asyncio.sleep(0.02)
        status = await run.status(handle)
    raise AssertionError(f"{handle.id} does not say {words!r}: {status.model_dump_json(indent=1)}")


ADMISSION: dict[str, tuple[Callable[[Run], Awaitable[Handle]], int]] = {
    "queued": (queued, 0),
    "in-a-graph": (in_a_graph, 0),
    "shown-as-it-waits": (shown_as_it_waits, 0),
}
