"""Entities that are killed, terminated or poisoned on a real site: rebuilt, nothing admitted twice (row D2)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy

from holdfast import names
from holdfast.client.connection import Place
from holdfast.client.run import Run
from holdfast.local import Stack
from holdfast.model import NodeState
from holdfast.model.entities.provisioner import NodeAction
from holdfast.workflows.entities.node_monitor import NodeMonitorInput
from tests.e2e.entities.test_queues import Queues, job
from tests.e2e.ground.site import Site, open_site, until
from tests.e2e.ground.space import open_space
from tests.e2e.ground.terminal import examined
from tests.e2e.nodes.agents import SHORT_SILENCE, open_agents
from tests.e2e.nodes.test_lost_nodes import stands
from tests.e2e.nodes.test_provisioner import ground

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]
ROW = pytest.mark.row("D2", level="e2e")
WITHIN = 60.0
"""Seconds in which an entity that is away, or cannot go on, is begun anew."""
QUICK = {"HOLDFAST_WATCHDOG_EVERY": "2s", "HOLDFAST_WATCHDOG_PATIENCE": "8s"}
OFTEN = {"HOLDFAST_WATCHDOG_EVERY": "2s", "HOLDFAST_WATCHDOG_PATIENCE": "30s"}
UNREADABLE: dict[str, Any] = {"book": 5, "queue": 5, "items": 5}
"""A memory that no worker can read."""


async def run_id(site: Site, workflow_id: str) -> str:
    return (await site.client.get_workflow_handle(workflow_id).describe()).run_id


async def poison(site: Site, workflow: str, workflow_id: str, *arguments: Any, queue: str) -> str:
    """Put a run with an unreadable memory in an entity's place, and return its run id."""
    await site.client.start_workflow(
        workflow,
        args=list(arguments),
        id=workflow_id,
        task_queue=queue,
        id_conflict_policy=WorkflowIDConflictPolicy.TERMINATE_EXISTING,
        task_timeout=timedelta(seconds=2),
    )
    return await run_id(site, workflow_id)


async def begun_anew(site: Site, workflow_id: str, gone: str) -> None:
    """Wait until another run of an entity is there, and takes in what comes."""
    handle = site.client.get_workflow_handle(workflow_id)

    async def check() -> bool:
        found = await handle.describe()
        failed = found.raw_description.pending_workflow_task.attempt > 1
        return found.status is WorkflowExecutionStatus.RUNNING and found.run_id != gone and not failed

    await until(check, WITHIN, f"{workflow_id} is begun anew", pause=0.5)


@ROW
async def test_D2_a_queue_is_terminated_under_a_killed_worker_and_poisoned_and_admits_nobody_twice(
    stack: Stack, tmp_path: Path
):
    async with open_site(stack, tmp_path, prefix="w") as site:
        workers = [await site.start_worker(kubeconfig=None, **OFTEN) for _ in range(2)]
        async with open_space(site) as space:
            queues = Queues(space, tmp_path)
            await queues.apply("gpus", quota={"pods": 2})
            queue, admission = names.queue_id(site.cluster, "gpus"), names.queue_admission(site.cluster, "gpus")
            handles = [await queues.submit(job("w0", "gpus"))]
            await space.reach(handles[0], "Running", 1)
            handles += [await queues.submit(job(f"w{n}", "gpus")) for n in (1, 2)]
            await queues.shows("gpus", 1, 2)

            gone = await run_id(site, queue)
            await site.client.get_workflow_handle(queue).terminate(reason="by mistake")
            workers[0].kill()
            await begun_anew(site, queue, gone)
            await queues.shows("gpus", 1, 2)
            await space.complete("w0")
            assert (await space.ended(handles[0])).phase == "Succeeded"

            async def next_one() -> bool:
                return (await queues.status("gpus")).admitted == 1

            await until(next_one, 60, "the next one is admitted")
            await queues.shows("gpus", 1, 1)
            lines = (await queues.status("gpus")).lines
            first = next(one.name for one in lines if one.admitted)
            rest = "w2" if first == "w1" else "w1"
            second = handles[int(first[1])]
            await space.reach(second, "Running", 1)

            gone = await poison(site, names.QUEUE_WORKFLOW, queue, None, UNREADABLE, queue=admission)

            async def explained() -> bool:
                # In this process: the command takes seconds on a loaded machine, and the watchdog mends it meanwhile.
                where = Place(site.temporal_address, site.cluster)
                said = " ".join((await Run(site.client, where, handles[int(rest[1])].id, "").explain()).entities)
                return "gpus: its workflow has failed its tasks since" in said and "no workload is admitted" in said

            await until(explained, WITHIN, "explain says what is wrong with its queue")
            await begun_anew(site, queue, gone)
            await queues.shows("gpus", 1, 1)
            told = await examined(site, "--cluster", site.cluster)
            queued = {check["name"]: check["good"] for check in told if "queue gpus" in check["name"]}
            assert queued == {"queue gpus": True, "admission queue gpus": True}, told
            await space.complete(first)
            assert (await space.ended(second)).phase == "Succeeded"
            third = handles[int(rest[1])]
            await space.reach(third, "Running", 1)
            await space.complete(rest)
            assert (await space.ended(third)).phase == "Succeeded"
            await space.truth.settle()
            assert sorted(queues.attempts()) == [names.attempt_name(f"w{n}", 1) for n in range(3)]


@ROW
@pytest.mark.parametrize("how", ["terminated", "poisoned"])
async def test_D2_a_node_monitor_is_begun_anew_and_finds_a_silent_node_down(stack: Stack, tmp_path: Path, how: str):
    async with open_site(stack, tmp_path, prefix="w") as site:
        await site.start_worker(kubeconfig=None, **SHORT_SILENCE, **QUICK)
        async with open_agents(stack, site.kube, tmp_path, 1, lease_seconds=4, group="") as (doomed, agents):
            monitor = names.node_monitor_id(site.cluster)
            handle = site.client.get_workflow_handle(monitor)
            if how == "terminated":
                gone = await run_id(site, monitor)
                await handle.terminate(reason="by mistake")
            else:
                given = NodeMonitorInput(cluster=site.cluster, cluster_uid="uid").model_dump(mode="json")
                poisoned = {**given, **UNREADABLE}
                gone = await poison(site, names.NODE_MONITOR_WORKFLOW, monitor, poisoned, queue=names.QUEUE_WORKFLOWS)
            await begun_anew(site, monitor, gone)
            agents.kill()
            await stands(site, doomed.names[0], NodeState.DOWN, 150)


@ROW
async def test_D2_a_provisioner_is_terminated_and_the_wipe_of_a_node_in_quarantine_is_done(
    stack: Stack, tmp_path: Path
):
    async with ground(stack, tmp_path, 1, {"power_seconds": 1}, **QUICK) as here:
        (wiped,) = here.nodes.names
        here.redfish.kill()
        await here.ask(NodeAction.WIPE, wiped, why="released")
        await until(lambda: here.is_quarantined(wiped), 90, "it is in quarantine")
        provisioner = names.provisioner_id(here.site.cluster)
        gone = await run_id(here.site, provisioner)
        await here.site.client.get_workflow_handle(provisioner).terminate(reason="by mistake")
        await begun_anew(here.site, provisioner, gone)
        assert list((await here.status()).quarantined) == [wiped]
        assert await here.is_quarantined(wiped)
        await here.redfish.start()

        async def released() -> bool:
            return not await here.is_quarantined(wiped)

        await until(released, 120, "it is wiped, and takes pods again")
        assert here.redfish.erasures() == [(wiped, "d1"), (wiped, "d2")]

        async def knows() -> bool:  # Its node is free a moment before it has heard that it is.
            return (await here.status()).quarantined == {}

        await until(knows, 90, "the provisioner knows it")
