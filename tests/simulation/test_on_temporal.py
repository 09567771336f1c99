"""The same scripts through the real workflow, with the documents' own durations, on a Temporal server that skips time.

The server is io.temporal:temporal-test-server; server.py says how it is had.
"""

from __future__ import annotations

import asyncio
import secrets
from datetime import timedelta

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from holdfast import names
from holdfast.model import Status
from holdfast.plugin import HoldfastPlugin
from holdfast.simulation import simulate
from tests.fakes import activities_of
from tests.fakes.virtual import UID, Player, VirtualCluster, plays
from tests.simulation.cases import CASES, Case, Verdict, decisions
from tests.simulation.server import open_server

pytestmark = pytest.mark.temporal


async def ended(player: Player) -> Status:
    """Return the status it ended with, skipping the time until then."""
    try:
        return await player.handle.result()
    except WorkflowFailureError as error:
        if not isinstance(error.cause, ApplicationError):
            raise
        return Status.model_validate(error.cause.details[0])


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES if plays(case)])
async def test_the_workflow_decides_what_was_simulated(case: Case):
    async with open_server() as env:
        cluster = VirtualCluster(case)
        client = await Client.connect(
            env.client.service_client.config.target_host, plugins=[HoldfastPlugin(roles=["workflows"])]
        )
        spec = case.workload(f"v-{secrets.token_hex(3)}").model_copy(update={"uid": UID})
        begun = await env.get_current_time()
        cluster.now(begun)
        async with (
            Worker(client, task_queue=names.QUEUE_WORKFLOWS),
            Worker(env.client, task_queue=names.queue_cluster(spec.cluster), activities=activities_of(cluster)),
            Worker(env.client, task_queue=names.queue_wait(spec.cluster), activities=activities_of(cluster)),
            Worker(env.client, task_queue=names.queue_probe(spec.cluster), activities=activities_of(cluster)),
        ):
            player = Player(env, None, cluster, begun)  # type: ignore[arg-type]
            for index, event in enumerate(case.script.events):
                if event.attempt is None and event.at == timedelta(0):
                    player.done.add((index, 0, 0))
                    await player.happens(event)
            player.handle = await env.client.start_workflow(
                names.WORKLOAD_WORKFLOW,
                spec.model_dump(mode="json", by_alias=True),
                id=spec.workflow_id,
                task_queue=names.QUEUE_WORKFLOWS,
                result_type=Status,
            )
            await player.play()
            status = await asyncio.wait_for(ended(player), 300)
    expected = simulate(case.workload(), case.script)
    assert decisions(status.causes) == decisions(expected.causes)
    assert Verdict.told(status) == Verdict.of(expected)
    lasted = status.causes[-1].time - begun
    print(f"MEASURED {case.name}: {lasted} of Temporal's time, {expected.summary.ended_at} simulated")
