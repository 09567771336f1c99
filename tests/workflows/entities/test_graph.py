"""A graph's workflow, and the workload's side of it, on a Temporal server that skips time (row L31)."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from temporalio import workflow
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from holdfast import names
from holdfast.client.connection import Place as Where
from holdfast.client.entities import graph as graph_client
from holdfast.client.entities.graph import GraphRun, end_unheard, submit
from holdfast.client.submission import InTheWay, begin, in_the_way
from holdfast.errors import AlreadyEnded, HoldfastError, SpecConflict
from holdfast.model import Phase, Status, Workload
from holdfast.model.entities.graph import (
    Edge,
    EdgeKind,
    Graph,
    GraphNews,
    GraphNode,
    GraphOrder,
    GraphStatus,
    ItemPhase,
    Place,
)
from holdfast.plugin import HoldfastPlugin
from tests.e2e.ground.site import until
from tests.fakes.several import Cluster
from tests.policy.lives.life import workload
from tests.simulation.server import open_server
from tests.workflows.workload.test_workload import replays

pytestmark = [
    pytest.mark.temporal,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]
CLUSTER = "local"


@workflow.defn(name="ToldNode", sandboxed=False)
class ToldNode:
    """Stands where a workload's workflow would: it keeps what its graph tells it."""

    def __init__(self) -> None:
        self._orders: list[GraphOrder] = []

    @workflow.run
    async def run(self) -> None:
        """Be there until cancelled."""
        await workflow.wait_condition(lambda: False)

    @workflow.signal(name=names.SIGNAL_GRAPH)
    def graph(self, order: GraphOrder) -> None:
        """Be told."""
        self._orders.append(order)

    @workflow.query
    def orders(self) -> list[GraphOrder]:
        """Say what was told."""
        return self._orders


@dataclass
class Scene:
    """One graph, whose workloads the test speaks for."""

    client: Client
    graph: Graph

    @property
    def run(self) -> GraphRun:
        return GraphRun(self.client, Where("here", "default"), self.graph.workflow_id)

    @property
    def handle(self) -> WorkflowHandle[Any, Any]:
        return self.client.get_workflow_handle(self.graph.workflow_id)

    async def open(self) -> Scene:
        await self.client.start_workflow(
            names.GRAPH_WORKFLOW,
            self.graph.model_dump(mode="json"),
            id=self.graph.workflow_id,
            task_queue=names.QUEUE_WORKFLOWS,
        )
        return self

    async def node(self, item: str) -> WorkflowHandle[Any, Any]:
        """Have somebody stand for a workload, and say that it is there."""
        handle = await self.client.start_workflow(
            ToldNode.run, id=names.workflow_id(CLUSTER, "default", self.graph.workload(item)), task_queue="stubs"
        )
        await self.news(item)
        return handle

    async def news(self, item: str, outcome: Phase | None = None, released: bool = False) -> None:
        said = GraphNews(item=item, workload_uid=f"uid-{item}", outcome=outcome, released=released)
        await self.handle.signal(names.SIGNAL_NEWS, said)

    def workload(self, item: str) -> Workload:
        return workload().model_copy(
            update={
                "name": self.graph.workload(item),
                "cluster": CLUSTER,
                "graph": Place(graph=self.graph.name, item=item),
            }
        )

    async def begin(self, item: str) -> WorkflowHandle[Any, Status]:
        """Start a real workload of it."""
        spec = self.workload(item)
        return await self.client.start_workflow(
            names.WORKLOAD_WORKFLOW,
            spec.model_dump(mode="json"),
            id=spec.workflow_id,
            task_queue=names.QUEUE_WORKFLOWS,
            result_type=Status,
        )

    async def waits(self, item: str) -> str:
        return (await self.run.status()).waits.get(item, "")


async def told(handle: WorkflowHandle[Any, Any], count: int = 1) -> list[GraphOrder]:
    found = list[GraphOrder]()

    async def check() -> bool:
        found[:] = await handle.query("orders", result_type=list[GraphOrder])
        return len(found) >= count

    await until(check, 30, f"{handle.id} was told {count} times")
    return found


async def shown(handle: WorkflowHandle[Any, Any], text: str) -> Status:
    found = list[Status]()

    async def check() -> bool:
        found[:] = [await handle.query(names.QUERY_STATUS, result_type=Status)]
        return text in f"{found[0].reason.value}: {found[0].message}"

    await until(check, 30, f"{handle.id} says {text}: {found}")
    return found[0]


Opens = Callable[..., Scene]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def opens() -> AsyncIterator[Opens]:
    async with open_server() as env, open_workers(env) as opened:
        yield opened


@asynccontextmanager
async def open_workers(env: WorkflowEnvironment) -> AsyncIterator[Opens]:
    plugged = await Client.connect(
        env.client.service_client.config.target_host, plugins=[HoldfastPlugin(roles=["workflows"])]
    )

    def opened(*nodes: GraphNode) -> Scene:
        return Scene(env.client, Graph(name=f"g-{secrets.token_hex(3)}", cluster=CLUSTER, nodes=nodes))

    stubs = Worker(env.client, task_queue="stubs", workflows=[ToldNode])
    async with Worker(plugged, task_queue=names.QUEUE_WORKFLOWS), stubs:
        yield opened


def after(name: str, on: EdgeKind = EdgeKind.SUCCESS) -> tuple[Edge, ...]:
    return (Edge(node=name, on=on),)


async def test_its_workloads_are_told_as_others_end_and_its_end_says_how_all_stand(opens: Opens):
    scene = await opens(GraphNode(name="a"), GraphNode(name="b", after=after("a")), GraphNode(name="c")).open()
    a, b, c = [await scene.node(item) for item in "abc"]
    assert [order.admit for order in await told(a)] == [True]
    assert (await told(c))[0].why == "it waits for nothing in its graph"
    assert await scene.waits("b") == "a to succeed"
    await scene.news("a", Phase.SUCCEEDED)
    (order,) = await told(b)
    assert (order.admit, order.workload_uid, order.why) == (True, "uid-b", "what it waited for has come: a (Success)")
    await scene.news("a", Phase.SUCCEEDED, released=True)
    for item in "bc":
        await scene.news(item, Phase.SUCCEEDED, released=True)
    status = await scene.run.result()
    assert (status.phase, status.counts) == (Phase.SUCCEEDED, {"Succeeded": 3})
    await replays(scene.handle)


async def test_a_graph_that_failed_says_so_with_its_status(opens: Opens):
    scene = await opens(GraphNode(name="a"), GraphNode(name="b", after=after("a"))).open()
    await scene.node("a")
    b = await scene.node("b")
    await scene.news("a", Phase.FAILED, released=True)
    (order,) = await told(b)
    assert (order.admit, order.why) == (False, "a has not succeeded")
    await scene.news("b", Phase.CANCELLED, released=True)
    with pytest.raises(WorkflowFailureError) as failed:
        await scene.handle.result()
    assert isinstance(failed.value.cause, ApplicationError)
    assert failed.value.cause.type == names.ERROR_GRAPH_FAILED
    status = await scene.run.result()
    assert (status.phase, status.items["b"].why) == (Phase.FAILED, "a has not succeeded")


async def test_a_real_workload_waits_begins_and_is_cancelled_as_its_graph_says(opens: Opens):
    scene = await opens(
        GraphNode(name="a"), GraphNode(name="b", after=after("a")), GraphNode(name="c", after=after("b"))
    ).open()
    await scene.node("a")
    b, c = await scene.begin("b"), await scene.begin("c")
    assert (await shown(b, "Blocked: it waits for its graph")).phase is Phase.PENDING

    async def arrived() -> bool:
        items = (await scene.run.status()).items
        return all(items[one].phase is ItemPhase.BLOCKED for one in "bc")

    await until(arrived, 30, "both have been heard of")
    await scene.news("a", Phase.FAILED, released=True)
    for one in (b, c):
        status = await one.result()
        assert (status.phase, status.reason.value) == (Phase.CANCELLED, "DependencyUnsatisfiable")
        await replays(one)
    assert (await scene.run.result()).phase is Phase.FAILED


async def test_a_workload_without_its_graph_says_so_and_looks_again():
    # On a server of its own: it skips no time any more once a workload was terminated while its activity waited.
    async with (
        open_server() as env,
        open_workers(env) as opens,
        # It shows its wait in the cluster: no time is skipped while that waits for a worker.
        Worker(env.client, task_queue=names.queue_cluster(CLUSTER), activities=[Cluster().report]),
    ):
        await _looks_again(opens(GraphNode(name="a")), env)


async def _looks_again(scene: Scene, env: WorkflowEnvironment) -> None:
    a = await scene.begin("a")
    await shown(a, "is not there: submit the graph's file; it is looked for again")
    await env.sleep(timedelta(minutes=1))
    await shown(a, "is not there")
    await scene.open()
    # Once it is let in an activity waits for a worker, and time is not skipped any more.
    skipped = asyncio.create_task(env.sleep(timedelta(minutes=2)))

    async def let_in() -> bool:
        return (await scene.run.status()).items["a"].phase is ItemPhase.ADMITTED

    await until(let_in, 30, "it is let in")
    assert (await a.query(names.QUERY_STATUS, result_type=Status)).reason.value != "Blocked"
    await a.terminate()
    await scene.handle.terminate()
    skipped.cancel()
    await asyncio.gather(skipped, return_exceptions=True)


async def test_one_that_is_cancelled_while_its_graph_is_not_there_ends(opens: Opens):
    scene = opens(GraphNode(name="a"))
    a = await scene.begin("a")
    await shown(a, "is not there")
    await a.signal(names.SIGNAL_CANCEL, "not wanted")
    assert (await a.result()).phase is Phase.CANCELLED


async def test_who_waits_for_a_graph_goes_on_when_it_is_begun_anew(opens: Opens, monkeypatch: pytest.MonkeyPatch):
    scene = await opens(GraphNode(name="a")).open()
    waits = asyncio.create_task(scene.run.result())
    await asyncio.sleep(0.5)
    await scene.handle.terminate("it is begun anew")
    await asyncio.sleep(0.5)
    await scene.open()
    await asyncio.sleep(2)
    assert not waits.done()
    await scene.run.cancel("enough")
    assert (await waits).phase is Phase.CANCELLED
    monkeypatch.setattr(graph_client, "_LOOKS", 1)
    scene = await opens(GraphNode(name="a")).open()
    await scene.handle.terminate()
    with pytest.raises(HoldfastError, match="has ended without a status"):
        await scene.run.result()


async def test_a_cancelled_graph_ends_what_waits(opens: Opens):
    scene = await opens(GraphNode(name="a"), GraphNode(name="b", after=after("a"))).open()
    a, b = await scene.node("a"), await scene.begin("b")
    await told(a)
    await scene.run.cancel("no time")
    status = await b.result()
    assert (status.phase, status.reason.value, status.message) == (
        Phase.CANCELLED,
        "CancelRequested",
        "its deletion was asked for: no time",
    )
    assert (await told(a, 2))[1].admit is False
    await scene.news("a", Phase.CANCELLED, released=True)
    assert (await scene.run.result()).phase is Phase.CANCELLED


async def test_one_that_was_terminated_before_it_could_be_told_is_not_waited_for(opens: Opens):
    scene = await opens(GraphNode(name="a"), GraphNode(name="b", after=after("a"))).open()
    a, b = await scene.node("a"), await scene.node("b")
    await told(a)
    await b.terminate()
    await scene.news("a", Phase.SUCCEEDED, released=True)
    status = await scene.run.result()
    assert (status.phase, status.items["b"].phase) == (Phase.CANCELLED, ItemPhase.CANCELLED)


async def test_a_document_that_is_no_graph_ends_it_before_anything_begins(opens: Opens):
    scene = opens(GraphNode(name="a"))
    document = {**scene.graph.model_dump(mode="json"), "nodes": [{"name": "a", "after": [{"node": "x"}]}]}
    handle = await scene.client.start_workflow(
        names.GRAPH_WORKFLOW, document, id=scene.graph.workflow_id, task_queue=names.QUEUE_WORKFLOWS
    )
    with pytest.raises(WorkflowFailureError) as refused:
        await handle.result()
    assert isinstance(refused.value.cause, ApplicationError)
    assert refused.value.cause.type == names.ERROR_INVALID_GRAPH
    assert "nodes[0].after[0].node: 'x' names no node" in refused.value.cause.message


async def test_a_thousand_in_layers_all_end_in_order_over_several_runs(opens: Opens):
    layers, wide = 10, 100
    nodes = [
        GraphNode(name=f"n{index}", tasks=wide, after=after(f"n{index - 1}", EdgeKind.CORRESPONDING) if index else ())
        for index in range(layers)
    ]
    scene = await opens(*nodes).open()
    graph = scene.graph
    for item in graph.items:
        await scene.news(item)
    # Nobody stands for them here: of each it is found that it cannot be told, unless it has ended by then.
    for index in range(layers):
        await asyncio.gather(*(scene.news(item, Phase.SUCCEEDED, released=True) for item in nodes[index].items))

    async def over() -> bool:
        return (await scene.handle.describe()).status is WorkflowExecutionStatus.COMPLETED

    # By its status: on a busy machine the test server gave an empty answer to a long wait for its result.
    await until(over, 120, "all of it has ended")
    status = await scene.run.result()
    assert len(status.items) == layers * wide
    assert all(item.phase.ended for item in status.items.values())


async def test_what_was_broken_off_is_submitted_again_and_goes_on(opens: Opens):
    scene = opens(GraphNode(name="a"), GraphNode(name="b", after=after("a")))
    workloads = [scene.workload(item) for item in "ab"]
    where = Where("here", "default")
    run = await submit(scene.client, where, scene.graph, workloads[:1], again=False)
    with pytest.raises(SpecConflict):  # What is submitted is told apart by its workloads, too.
        await submit(scene.client, where, scene.graph, workloads, again=False)
    run = await _gone_again(scene, run)
    run = await submit(scene.client, where, scene.graph, workloads, again=True)
    for _ in range(2):  # Twice is as good as once.
        await submit(scene.client, where, scene.graph, workloads, again=False)

    async def met() -> bool:
        phases = {name: item.phase for name, item in (await run.status()).items.items()}
        return phases == {"a": ItemPhase.ADMITTED, "b": ItemPhase.BLOCKED}

    await until(met, 30, "both are there")
    status = await run.status()
    assert GraphStatus.model_validate(status.model_dump(mode="json")) == status
    for one in (*workloads,):
        await scene.client.get_workflow_handle(one.workflow_id).terminate()
    await scene.handle.terminate()


async def test_a_name_that_is_in_the_way_is_told_before_anything_begins(opens: Opens):
    scene = opens(GraphNode(name="a"), GraphNode(name="b", after=after("a")))
    workloads = [scene.workload(item) for item in "ab"]
    alone = workloads[1].model_copy(update={"graph": None})
    where = Where("here", "default")
    stands = await begin(scene.client, where, alone, again=False)
    with pytest.raises(SpecConflict):
        await submit(scene.client, where, scene.graph, workloads, again=True)
    await scene.client.get_workflow_handle(stands.workflow_id).terminate()
    with pytest.raises(AlreadyEnded):
        await submit(scene.client, where, scene.graph, workloads, again=False)
    for place in (scene.graph.workflow_id, workloads[0].workflow_id):
        with pytest.raises(RPCError, match="not found"):
            await scene.client.get_workflow_handle(place).describe()


async def test_what_a_terminated_graph_left_waiting_gives_way_to_the_next(opens: Opens):
    scene = opens(GraphNode(name="a"), GraphNode(name="b", after=after("a")))
    workloads = [scene.workload(item) for item in "ab"]
    where = Where("here", "default")
    await submit(scene.client, where, scene.graph, workloads, again=False)

    async def met() -> bool:
        phases = {name: item.phase for name, item in (await scene.run.status()).items.items()}
        return phases == {"a": ItemPhase.ADMITTED, "b": ItemPhase.BLOCKED}

    await until(met, 30, "both are there")
    b = await scene.client.get_workflow_handle(workloads[1].workflow_id).describe()
    await scene.handle.terminate()
    await scene.client.get_workflow_handle(workloads[0].workflow_id).terminate()
    await submit(scene.client, where, scene.graph, workloads, again=True)
    await until(met, 30, "both are there again")
    assert (await scene.client.get_workflow_handle(b.id, run_id=b.run_id).result())["phase"] == "Cancelled"
    with pytest.raises(HoldfastError, match="is under way, of an earlier submission: cancel it first"):
        await _again_while_one_runs(scene, where, workloads)
    b = await scene.client.get_workflow_handle(workloads[1].workflow_id).describe()
    assert b.status is WorkflowExecutionStatus.RUNNING  # A refusal ends nothing.
    for one in workloads:
        await scene.client.get_workflow_handle(one.workflow_id).terminate()


async def test_a_workload_that_is_being_removed_gives_way_to_the_next_graph(opens: Opens):
    scene, where = opens(GraphNode(name="a")), Where("here", "default")
    spec = scene.workload("a")
    await submit(scene.client, where, scene.graph, [spec], again=False)
    a = scene.client.get_workflow_handle(spec.workflow_id)

    async def phase(wanted: Phase) -> bool:
        return (await a.query(names.QUERY_STATUS, result_type=Status)).phase is wanted

    await until(lambda: phase(Phase.RESUMING), 30, "its first attempt is made")
    await scene.handle.terminate()
    await a.signal(names.SIGNAL_CANCEL, "no longer wanted")
    await until(lambda: phase(Phase.TERMINATING), 30, "it is being removed")

    async def is_under_way() -> bool:
        return False

    found = await in_the_way(scene.client, where, spec, again=True, is_under_way=is_under_way)
    assert found is not None
    assert found.description.id == spec.workflow_id
    with pytest.raises(HoldfastError, match="is being removed: submit it with --again"):
        await in_the_way(scene.client, where, spec, again=False, is_under_way=is_under_way)
    await a.terminate()


async def test_of_two_that_submit_an_ended_graph_again_none_cancels_what_the_other_has_begun(
    opens: Opens, monkeypatch: pytest.MonkeyPatch
):
    scene = opens(GraphNode(name="a"), GraphNode(name="b", after=after("a")))
    workloads = [scene.workload(item) for item in "ab"]
    where = Where("here", "default")
    first = await submit(scene.client, where, scene.graph, workloads, again=False)
    await scene.handle.terminate()
    for one in workloads:
        await scene.client.get_workflow_handle(one.workflow_id).terminate()
    lock, faster = asyncio.Lock(), list[Sequence[str]]()

    async def runs() -> list[str]:
        described = [await scene.client.get_workflow_handle(one.workflow_id).describe() for one in workloads]
        return [one.run_id for one in described if one.status is WorkflowExecutionStatus.RUNNING]

    async def overtaken(*given: Any, **options: Any) -> InTheWay | None:
        async with lock:
            if not faster:  # The other one is done between the first look at the graph and that at its workloads.
                monkeypatch.setattr(graph_client, "in_the_way", in_the_way)
                await submit(scene.client, where, scene.graph, workloads, again=True)
                faster.append(await runs())
        return await in_the_way(*given, **options)

    monkeypatch.setattr(graph_client, "in_the_way", overtaken)
    second = await submit(scene.client, where, scene.graph, workloads, again=True)
    assert second.workflow_id == first.workflow_id
    assert faster == [await runs()]
    assert len(faster[0]) == 2
    for one in workloads:
        await scene.client.get_workflow_handle(one.workflow_id).terminate()
    await scene.handle.terminate()


async def _again_while_one_runs(scene: Scene, where: Where, workloads: list[Workload]) -> None:
    """Its graph is gone, and one of its workloads has begun: that is no leftover."""
    a = scene.client.get_workflow_handle(workloads[0].workflow_id)

    async def attempts() -> bool:
        return (await a.query(names.QUERY_STATUS, result_type=Status)).attempt == 1

    await until(attempts, 30, "its first attempt is made")
    await scene.handle.terminate()
    await submit(scene.client, where, scene.graph, workloads, again=True)


async def test_what_comes_to_a_graph_that_has_ended_meanwhile_is_ended_too(opens: Opens):
    scene = opens(GraphNode(name="a"), GraphNode(name="b", after=after("a")))
    late, where = scene.workload("b"), Where("here", "default")
    await scene.open()
    await scene.run.cancel("no time")
    assert (await scene.run.result()).phase is Phase.CANCELLED
    begun = await begin(scene.client, where, late, again=False)
    handle = scene.client.get_workflow_handle(begun.workflow_id, result_type=Status)
    await shown(handle, "is not there")
    await end_unheard(scene.run, [late])
    status = await handle.result()
    assert (status.phase, status.message) == (
        Phase.CANCELLED,
        "its deletion was asked for: its graph had ended before it was handed in",
    )


async def _gone_again(scene: Scene, run: GraphRun) -> GraphRun:
    await scene.handle.terminate()
    await scene.client.get_workflow_handle(scene.workload("a").workflow_id).terminate()
    return run
