"""The same scripts through the real workflow, with the documents' own durations, on a Temporal server that skips time.

The server is io.temporal:temporal-test-server; server.py says how it is had.
"""

from __future__ import annotations

import asyncio
import secrets
from datetime import timedelta

import pytest
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.client import Client, WorkflowFailureError
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from holdfast import names
from holdfast.model import Status
from holdfast.plugin import HoldfastPlugin
from holdfast.simulation import simulate
from tests.simulation.cases import CASES, Case, Verdict, decisions
from tests.simulation.server import time_skipping_server
from tests.simulation.virtual import UID, Player, VirtualCluster, plays

pytestmark = pytest.mark.temporal


async def define_columns(client: Client) -> None:
    """Define Holdfast's search attributes, without which the server refuses what the workflow shows."""
    kinds = {
        "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
        "Int": IndexedValueType.INDEXED_VALUE_TYPE_INT,
        "Bool": IndexedValueType.INDEXED_VALUE_TYPE_BOOL,
        "Datetime": IndexedValueType.INDEXED_VALUE_TYPE_DATETIME,
    }
    wanted = {attribute: kinds[kind] for attribute, kind in names.SEARCH_ATTRIBUTES.items()}
    await client.operator_service.add_search_attributes(
        AddSearchAttributesRequest(namespace=client.namespace, search_attributes=wanted)
    )


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
    server = await asyncio.to_thread(time_skipping_server)
    async with await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=server,
        test_server_startup_timeout=timedelta(minutes=4),
        data_converter=pydantic_data_converter,
    ) as env:
        cluster = VirtualCluster(case)
        client = await Client.connect(
            env.client.service_client.config.target_host, plugins=[HoldfastPlugin(roles=["workflows"])]
        )
        spec = case.workload(f"v-{secrets.token_hex(3)}").model_copy(update={"uid": UID})
        await define_columns(env.client)
        begun = await env.get_current_time()
        cluster.now(begun)
        async with (
            Worker(client, task_queue=names.QUEUE_WORKFLOWS),
            Worker(env.client, task_queue=names.queue_cluster(spec.cluster), activities=cluster.activities()),
            Worker(env.client, task_queue=names.queue_wait(spec.cluster), activities=cluster.activities()),
            Worker(env.client, task_queue=names.queue_probe(spec.cluster), activities=cluster.activities()),
        ):
            player = Player(env, None, cluster, begun)  # type: ignore[arg-type]
            for index, event in enumerate(case.script.events):
                if event.attempt is None and event.spans()[0].total_seconds() == 0:
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
            status = await asyncio.wait_for(ended(player), 60)
    expected = simulate(case.workload(), case.script)
    assert decisions(status.causes) == decisions(expected.causes)
    assert Verdict.told(status) == Verdict.of(expected)
    lasted = status.causes[-1].time - begun
    print(f"MEASURED {case.name}: {lasted} of Temporal's time, {expected.summary.ended_at} simulated")
