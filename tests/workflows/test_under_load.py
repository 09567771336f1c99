"""Entities that are told something all the time begin new runs all the same, and lose nothing (D6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity, workflow
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle, WorkflowHistory
from temporalio.common import SearchAttributeKey
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Replayer, Worker

from holdfast import names
from holdfast.local.programs.resolve import resolve
from holdfast.model.calls.queue import LookQueueInput, SeenQueue
from holdfast.model.entities.graph import Graph, GraphNews, GraphOrder
from holdfast.model.entities.queue import Queue, QueueNews, QueueOrder, QueueStatus, Standing
from holdfast.plugin import HoldfastPlugin

pytestmark = [pytest.mark.temporal, pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.row("D6", level="e2e")]
CLUSTER = "c"
PLAYERS, TURNS, BURST = 20, 15, 400
EVENTS_MAXIMUM = 1_500
"""Of one run. One run of all would have 2,000 to 3,000. The server ends a run at 51,200; ours end below 10,000."""


@workflow.defn(name="Player", sandboxed=False)
class Player:
    """Stands where a workload's workflow would: it is let in, lets go, and asks anew, turn after turn."""

    def __init__(self) -> None:
        self._orders: list[QueueOrder] = []
        self._graph: list[GraphOrder] = []

    @workflow.run
    async def run(self, queue: str, turns: int) -> list[int]:
        """Play; return which turns it was let in for, once for each time that it was told. With no turn, stay."""
        await workflow.wait_condition(lambda: turns > 0)
        info = workflow.info()
        place: workflow.ExternalWorkflowHandle[Any] = workflow.get_external_workflow_handle(queue)
        for turn in range(1, turns + 1):
            for standing in (Standing.ASKS, Standing.RELEASED):
                news = QueueNews(
                    workload=info.workflow_id,
                    uid=info.workflow_id,
                    turn=turn,
                    standing=standing,
                    demand={"pods": 1000},
                )
                await place.signal(names.SIGNAL_NEWS, news)
                if standing is Standing.ASKS:
                    await workflow.wait_condition(lambda turn=turn: any(one.turn == turn for one in self._orders))
        return [one.turn for one in self._orders if one.admit]

    @workflow.signal(name=names.SIGNAL_QUEUE)
    def queue(self, order: QueueOrder) -> None:
        """Be told by a queue."""
        self._orders.append(order)

    @workflow.signal(name=names.SIGNAL_GRAPH)
    def graph(self, order: GraphOrder) -> None:
        """Be told by a graph."""
        self._graph.append(order)

    @workflow.query
    def told(self) -> list[GraphOrder]:
        """Say what the graph told."""
        return self._graph


@activity.defn(name=names.ACTIVITY_LOOK_QUEUE)
async def look(given: LookQueueInput) -> SeenQueue:
    """See nobody, after a while."""
    await asyncio.sleep(1)
    return SeenQueue(kueue=False, workloads=(), gone=())


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(resolve(["temporal"], lambda _: None)["temporal"]),
        dev_server_startup_timeout=timedelta(minutes=2),
        data_converter=pydantic_data_converter,
        search_attributes=[SearchAttributeKey.for_keyword(names.SA_PHASE)],
    ) as env:
        yield env.client


async def plugged(client: Client) -> Client:
    target = client.service_client.config.target_host
    return await Client.connect(target, plugins=[HoldfastPlugin(roles=["workflows"])])


async def runs(client: Client, handle: WorkflowHandle[Any, Any]) -> list[WorkflowHistory]:
    """Return the histories of all runs, the first one first."""
    found, run = list[WorkflowHistory](), handle.first_execution_run_id
    while run:
        history = await client.get_workflow_handle(handle.id, run_id=run).fetch_history()
        found.append(history)
        last = history.events[-1]
        run = ""
        if last.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
            run = last.workflow_execution_continued_as_new_event_attributes.new_execution_run_id
    return found


async def check(histories: list[WorkflowHistory], least: int) -> None:
    """Each run is short, and replays."""
    events = [len(one.events) for one in histories]

    assert max(events) < EVENTS_MAXIMUM, events
    assert len(events) >= least, events
    replayer = Replayer(workflows=[], plugins=[HoldfastPlugin(["workflows"])])
    for one in (histories[0], histories[len(histories) // 2], histories[-1]):
        await replayer.replay_workflow(one)


async def test_a_queue_that_always_has_somebody_to_tell_begins_new_runs_and_loses_nobody(client: Client) -> None:
    """20 workloads come and go 15 times each, half of them waiting, after a burst that nobody was there for."""
    own = await plugged(client)
    queue = Queue(name="q", cluster=CLUSTER, quota={"pods": str(PLAYERS // 2)})
    async with AsyncExitStack() as open_:
        for worker in (
            Worker(client, task_queue="players", workflows=[Player]),
            Worker(client, task_queue=names.queue_cluster(CLUSTER), activities=[look]),
        ):
            await open_.enter_async_context(worker)
        place = names.queue_admission(CLUSTER, "q")
        handle = await client.start_workflow(
            names.QUEUE_WORKFLOW, queue.model_dump(mode="json"), id=queue.workflow_id, task_queue=place
        )

        async def burst(number: int) -> None:
            gone = QueueNews(
                workload=names.workflow_id(CLUSTER, "team", f"gone-{number}"),
                uid=f"gone-{number}",
                turn=1,
                standing=Standing.RELEASED,
            )
            await handle.signal(names.SIGNAL_NEWS, gone)

        for first in range(0, BURST, 100):
            await asyncio.gather(*(burst(first + one) for one in range(100)))
        players = [
            await client.start_workflow(
                Player.run,
                args=[queue.workflow_id, TURNS],
                id=names.workflow_id(CLUSTER, "team", f"w-{number}"),
                task_queue="players",
            )
            for number in range(PLAYERS)
        ]
        await open_.enter_async_context(Worker(own, task_queue=place))
        admitted = await asyncio.gather(*(one.result() for one in players))
        assert admitted == [list(range(1, TURNS + 1))] * PLAYERS, "each is let in once for each time that it asks"
        told: QueueStatus = await handle.query(names.QUERY_STATUS, result_type=QueueStatus)
        assert (told.admitted, told.waiting) == (0, 0)
        histories = await runs(client, handle)
    await check(histories, 3)


async def test_a_graph_that_always_has_somebody_to_tell_begins_new_runs_and_loses_nobody(client: Client) -> None:
    """600 strangers ask a graph, each of whom is to be answered, while its own two workloads come and end."""
    own = await plugged(client)
    nodes = [{"name": "a"}, {"name": "b", "after": [{"node": "a"}]}]
    graph = Graph.model_validate({"name": "g", "namespace": "team", "cluster": CLUSTER, "nodes": nodes})
    async with (
        Worker(client, task_queue="players", workflows=[Player]),
        Worker(own, task_queue=names.QUEUE_WORKFLOWS),
    ):
        handle = await client.start_workflow(
            names.GRAPH_WORKFLOW,
            graph.model_dump(mode="json"),
            id=graph.workflow_id,
            task_queue=names.QUEUE_WORKFLOWS,
        )
        ours = {
            name: await client.start_workflow(
                Player.run,
                args=["", 0],
                id=names.workflow_id(CLUSTER, "team", graph.workload(name)),
                task_queue="players",
            )
            for name in "ab"
        }

        async def ask(number: int) -> None:
            news = GraphNews(item=f"stranger-{number}", workload_uid=f"uid-{number}")
            await handle.signal(names.SIGNAL_NEWS, news)

        def of(item: str, **more: Any) -> GraphNews:
            return GraphNews(item=item, workload_uid=f"uid-{item}", **more)

        for item in "ab":
            await handle.signal(names.SIGNAL_NEWS, of(item))

        async def flood() -> None:
            for first in range(0, 600, 30):
                await asyncio.gather(*(ask(first + one) for one in range(30)))

        async def told_of(item: str) -> list[GraphOrder]:
            """Wait as a workload does: it ends only after it was let begin."""
            for _ in range(600):
                found: list[GraphOrder] = await ours[item].query("told", result_type=list[GraphOrder])
                if found:
                    return found
                await asyncio.sleep(0.1)
            raise AssertionError(f"{item} was not told")

        flooding = asyncio.create_task(flood())
        await told_of("a")
        await handle.signal(names.SIGNAL_NEWS, of("a", outcome="Succeeded", released=True))
        await told_of("b")
        await flooding
        await handle.signal(names.SIGNAL_NEWS, of("b", outcome="Succeeded", released=True))
        status = await handle.result()
        assert status["phase"] == "Succeeded"
        for one in ours.values():
            told: list[GraphOrder] = await one.query("told", result_type=list[GraphOrder])
            assert [order.admit for order in told] == [True], "each is told once"
        histories = await runs(client, handle)
    await check(histories, 2)
