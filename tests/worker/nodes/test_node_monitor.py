"""The workflow that keeps the book of nodes, on a Temporal server of its own, with a cluster that only pretends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Replayer, Worker

from holdfast import names
from holdfast.local import Stack
from holdfast.model import NodeMarked, NodeSight, NodesSeen, NodeState, NodeTimings, NodeWord
from holdfast.model.calls.cluster import LookedNodes, LookNodesInput, MarkedNodes, MarkNodesInput, WatchNodesInput
from holdfast.plugin import with_passthrough
from holdfast.stale import AsksAgain
from holdfast.workflows.entities.node_monitor import NodeMonitor, NodeMonitorInput, NodeMonitorStatus

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(120)]
TIMINGS = NodeTimings(
    degraded=timedelta(seconds=1),
    down=timedelta(seconds=1),
    sensitive_down=timedelta(hours=1),
    check=timedelta(seconds=1),
)


@dataclass
class Pretended:
    """Nodes that say nothing until they are told to, and objects that take any mark."""

    renewed: str = "r0"
    began: list[WatchNodesInput] = field(default_factory=list[WatchNodesInput])
    looks: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    words: dict[str, NodeWord] = field(default_factory=dict[str, NodeWord])
    marks: int = 0

    @activity.defn(name=names.ACTIVITY_WATCH_NODES)
    async def watch(self, given: WatchNodesInput) -> None:
        self.began.append(given)
        while True:
            activity.heartbeat()
            await asyncio.sleep(0.1)

    @activity.defn(name=names.ACTIVITY_LOOK_NODES)
    async def look(self, given: LookNodesInput) -> LookedNodes:
        self.looks.append(given.nodes)
        return LookedNodes(nodes=tuple(NodeSight(name=name, uid=name, renewed=self.renewed) for name in given.nodes))

    @activity.defn(name=names.ACTIVITY_MARK_NODES)
    async def mark(self, given: MarkNodesInput) -> MarkedNodes:
        self.marks += 1
        self.words |= {wish.name: wish.word for wish in given.nodes}
        return MarkedNodes(nodes=tuple(NodeMarked(name=wish.name, word=wish.word) for wish in given.nodes))


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[Client]:
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(stack.binary("temporal")),
        dev_server_startup_timeout=timedelta(minutes=2),
        data_converter=pydantic_data_converter,
        interceptors=[AsksAgain()],
    ) as environment:
        yield environment.client


async def until(check: Any, what: str) -> None:
    for _ in range(600):
        if await check():
            return
        await asyncio.sleep(0.05)
    raise AssertionError(what)


def sights(renewed: str, *, silent: bool, count: int = 50) -> tuple[NodeSight, ...]:
    now = datetime.now(UTC)
    heard = now - TIMINGS.degraded if silent else now
    named = [f"n{number}" for number in range(count)]
    return tuple(NodeSight(name=name, uid=name, renewed=renewed, heard=heard, silent=silent) for name in named)


async def standing(handle: WorkflowHandle[Any, Any]) -> set[NodeState]:
    status: NodeMonitorStatus = await handle.query(names.QUERY_STATUS, result_type=NodeMonitorStatus)
    return {one.state for one in status.book.nodes.values()}


@pytest.mark.parametrize("cached", [0, 100])
async def test_a_rack_that_is_lost_costs_a_few_events_and_its_history_replays(client: Client, cached: int) -> None:
    """Fifty nodes go and come back; then the timings change, which begins a new run with the same book."""
    cluster = Pretended()
    workers = (
        Worker(
            client,
            task_queue=names.QUEUE_WORKFLOWS,
            workflows=[NodeMonitor],
            workflow_runner=with_passthrough(None),
            max_cached_workflows=cached,
        ),
        Worker(client, task_queue=names.queue_watch("c"), activities=[cluster.watch]),
        Worker(client, task_queue=names.queue_cluster("c"), activities=[cluster.look, cluster.mark]),
    )
    async with workers[0], workers[1], workers[2]:
        handle = await client.start_workflow(
            NodeMonitor.run,
            NodeMonitorInput(cluster="c", cluster_uid="u", timings=TIMINGS),
            id=names.node_monitor_id("c"),
            task_queue=names.QUEUE_WORKFLOWS,
        )

        async def stands(state: NodeState) -> None:
            async def check() -> bool:
                return await standing(handle) == {state}

            await until(check, state.value)

        seen = NodesSeen(at=datetime.now(UTC), nodes=sights("r0", silent=True), total=500, silent=50)
        await handle.signal(names.SIGNAL_NODES, seen)
        await stands(NodeState.DOWN)

        async def told() -> bool:
            return set(cluster.words.values()) == {NodeWord.DOWN} and len(cluster.words) == 50

        await until(told, "all are marked")
        assert len(cluster.looks[0]) == 50, "one look for all"
        assert len((await handle.fetch_history()).events) <= 45
        cluster.renewed = "r1"
        await handle.signal(
            names.SIGNAL_NODES, NodesSeen(at=datetime.now(UTC), nodes=sights("r1", silent=False), total=500)
        )

        async def free() -> bool:
            return set(cluster.words.values()) == {NodeWord.NONE}

        await until(free, "all are free again")
        first = await client.get_workflow_handle(handle.id).describe()
        await handle.signal("timings", TIMINGS.model_copy(update={"down": timedelta(seconds=2)}))

        async def began_anew() -> bool:
            return cluster.began[-1].timings.down == timedelta(seconds=2)

        await until(began_anew, "it is watched by other timings")
        assert cluster.marks <= 6
    history = await client.get_workflow_handle(handle.id, run_id=first.run_id).fetch_history()
    await Replayer(
        workflows=[NodeMonitor], workflow_runner=with_passthrough(None), data_converter=pydantic_data_converter
    ).replay_workflow(history)
