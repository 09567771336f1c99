"""A run is one submission: what an old one wishes is not taken by whoever has its name now (row D46)."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any
from uuid import uuid4

import pytest
from temporalio.client import Client

from holdfast import Holdfast, HoldfastError, Phase, PolicyChange, Workload, WorkloadFailed, names
from holdfast.client.run import Run
from holdfast.model import Reason
from holdfast.model.entities.graph import Graph, GraphNode
from holdfast.model.entities.graph import Place as InGraph
from tests.client.conftest import a_workload
from tests.fakes.several import Cluster, working
from tests.workflows.workload.test_workload import replays

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(90)]
OLD = "00000000-0000-4000-8000-000000000000"
WISHES: dict[str, Any] = {
    "suspend": lambda run: run.suspend("making room"),
    "preempt": lambda run: run.preempt("for another"),
    "resume": lambda run: run.resume("again"),
    "retry": lambda run: run.retry("once more"),
    "cancel": lambda run: run.cancel("no longer wanted"),
    "policy": lambda run: run.update_policy(PolicyChange(budgets={"restart": 7})),
}


async def test_D46_no_wish_of_an_old_run_moves_whoever_has_its_name_now(
    holdfast: Holdfast, client: Client, workload: Workload
) -> None:
    async with working(client, Cluster()):
        run = await holdfast.submit(workload)
        await run.until(lambda status: status.phase is Phase.RUNNING)
        old = dataclasses.replace(run, uid=OLD)
        taken = list[str]()
        for name, wish in WISHES.items():
            said = ""
            try:
                await wish(old)
            except HoldfastError as error:
                said = str(error)
            taken += [] if run.uid in said else [name]
        assert taken == [], "each is refused, and hears who is there now"
        status = (await run.status()).status
        assert status.phase is Phase.RUNNING
        assert {cause.reason for cause in status.causes} <= {Reason.SIGNAL_NOT_UNDERSTOOD, *_living(status.causes)}
        assert next(one.limit for one in status.budgets if one.name == "restart") != 7
        await run.suspend(wait=True)
        await run.cancel(wait=True)
        assert (await run.history()).exact, "what is read from its record refuses the same"
        await replays(run.handle)


async def test_D46_the_workflow_itself_refuses_what_comes_too_late(
    holdfast: Holdfast, client: Client, workload: Workload
) -> None:
    """As when the name is taken between the asking and the wish: nobody but the workflow can know by then."""
    async with working(client, Cluster()):
        run = await holdfast.submit(workload)
        await run.until(lambda status: status.phase is Phase.RUNNING)
        await run.handle.signal(names.SIGNAL_CANCEL, args=["no longer wanted", OLD])
        await run.handle.signal(names.SIGNAL_PREEMPT, args=["for another", None, OLD])
        status = (await run.status()).status
        assert status.phase is Phase.RUNNING
        said = [cause.message for cause in status.causes if cause.reason is Reason.SIGNAL_NOT_UNDERSTOOD]
        assert said == [
            f"signal {name} was dropped: it is meant for the workload of uid {OLD}, and this is {run.uid}"
            for name in ("cancel", "preempt")
        ]
        await run.cancel(wait=True)


@pytest.mark.parametrize("ask", [Run.status, Run.explain, Run.recorded])
async def test_D46_whoever_asks_how_an_old_run_is_hears_that_it_is_over(
    holdfast: Holdfast, client: Client, workload: Workload, ask: Any
) -> None:
    async with working(client, Cluster()):
        run = await holdfast.submit(workload)
        await run.until(lambda status: status.phase is Phase.RUNNING)
        with pytest.raises(HoldfastError, match="was submitted again"):
            await ask(dataclasses.replace(run, uid=OLD))
        await run.cancel(wait=True)


async def test_D46_no_wish_of_an_old_graph_moves_whoever_has_its_name_now(
    holdfast: Holdfast, client: Client, workload: Workload
) -> None:
    async with working(client, Cluster()):
        graph = Graph(
            name="g", namespace=workload.namespace, cluster=workload.cluster, nodes=(GraphNode(name=workload.name),)
        )
        placed = [
            workload.model_copy(
                update={"name": graph.workload(workload.name), "graph": InGraph(graph="g", item=workload.name)}
            )
        ]
        first = await holdfast.submit_graph(graph, placed)
        await first.cancel("no longer wanted")
        assert (await first.result()).phase is Phase.CANCELLED
        second = await holdfast.submit_graph(graph, placed, again=True)
        joined = await holdfast.submit_graph(graph, placed)
        assert second.uid == joined.uid != first.uid
        for ask in (first.cancel, first.status):
            with pytest.raises(HoldfastError, match="was submitted again meanwhile"):
                await ask()
        run = await holdfast.get(placed[0].name, placed[0].namespace)
        await run.until(lambda status: status.phase is Phase.RUNNING)
        assert (await second.status()).phase is Phase.RUNNING
        await joined.cancel("it is this one")
        assert (await second.result()).phase is Phase.CANCELLED
        with pytest.raises(HoldfastError, match="was submitted again meanwhile"):
            await first.result()


async def test_D46_whoever_waits_for_an_end_hears_it_although_another_has_the_name_by_then(
    holdfast: Holdfast, client: Client
) -> None:
    cluster = Cluster()
    async with working(client, cluster):
        one = a_workload()
        first = await holdfast.submit(one)
        await first.until(lambda status: status.phase is Phase.RUNNING)
        await first.cancel("no longer wanted", wait=True)
        second = await holdfast.submit(one, again=True)
        assert [(view.phase, view.closed, view.status.uid) async for view in first.watch()] == [
            (Phase.CANCELLED, True, first.uid)
        ]
        assert (await first.cancel(wait=True)).phase is Phase.CANCELLED
        for told in (first.result, first.closed):
            assert (await told()).uid == first.uid
        with pytest.raises(HoldfastError, match="was submitted again"):
            await first.status()
        for unknown in (second.run_id, str(uuid4()), ""):
            with pytest.raises(HoldfastError, match="was submitted again"):
                await dataclasses.replace(first, run_id=unknown).result()
        await second.cancel(wait=True)

        cluster.failing = "OOMKilled"
        budgets = tuple(budget.model_copy(update={"limit": 0}) for budget in one.policy.budgets)
        failing = a_workload(policy=one.policy.model_copy(update={"budgets": budgets}))
        first = await holdfast.submit(failing)
        with pytest.raises(WorkloadFailed):
            await first.closed()
        cluster.failing = ""
        second = await holdfast.submit(failing, again=True)
        for told in (first.result, first.closed):
            with pytest.raises(WorkloadFailed, match="137"):
                await told()
        await second.cancel(wait=True)


async def test_what_temporal_forgot_the_first_run_of_is_read_and_waited_for_by_the_latest(
    holdfast: Holdfast, client: Client, workload: Workload
) -> None:
    """As once the retention of the run that was submitted is over: it has continued as new since."""
    async with working(client, Cluster()):
        run = await holdfast.submit(workload)
        await run.until(lambda status: status.phase is Phase.RUNNING)
        late = dataclasses.replace(run, run_id=str(uuid4()))
        assert (await late.workload()).uid == (await late.in_force()).uid == run.uid
        assert (await late.history()).exact
        assert (await late.ledger()).uid == run.uid
        over = asyncio.create_task(late.closed())
        await late.cancel("enough")
        assert (await over).phase is Phase.CANCELLED
        for read in (Run.workload, Run.history, Run.closed):
            with pytest.raises(HoldfastError, match="was submitted again"):
                await read(dataclasses.replace(late, uid=OLD))


def _living(causes: Any) -> set[Reason]:
    """What a life without any wish leaves."""
    wished = {Reason.SUSPEND_REQUESTED, Reason.PREEMPTED, Reason.RESUMED, Reason.RETRY_REQUESTED}
    wished |= {Reason.CANCEL_REQUESTED, Reason.POLICY_CHANGED}
    return {cause.reason for cause in causes} - wished
