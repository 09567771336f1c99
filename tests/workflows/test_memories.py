"""A memory that no previous run left is refused, by the name of its argument (row X3)."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import pytest_asyncio
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from holdfast import names
from holdfast.model import NodeBook, Workload
from holdfast.model.calls.gang import RendezvousInput, RendezvousMemory
from holdfast.model.entities.broker import Broker
from holdfast.model.entities.graph import Graph, GraphNode
from holdfast.model.entities.provisioner import ProvisionerState, ProvisionerStatus
from holdfast.model.entities.queue import Queue, QueueStatus
from holdfast.model.gang.state import Gang
from holdfast.plugin import HoldfastPlugin
from holdfast.policy.entities import broker as broker_policy
from holdfast.policy.entities import graph as graph_policy
from holdfast.policy.entities import queue as queue_policy
from holdfast.policy.loop.submission import submitted
from holdfast.policy.rendezvous.step import begun
from holdfast.worker.entities.begin import begin_provisioner
from holdfast.worker.entities.rebuild import prepare_queue
from holdfast.worker.runtime.settings import Settings
from holdfast.workflows.entities.node_monitor import NodeMonitorInput
from holdfast.workflows.entities.provisioner import ProvisionerInput
from tests.client.server import temporal_server
from tests.policy.lives.life import workload
from tests.workflows.workload.test_workload import replays

pytestmark = [
    pytest.mark.temporal,
    pytest.mark.e2e,
    pytest.mark.timeout(120),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.row("X3", level="e2e"),
]
NOW = datetime(2026, 11, 27, tzinfo=UTC)
CLUSTER = f"c-{secrets.token_hex(3)}"
QUEUE = Queue(name="q", cluster=CLUSTER, quota={"pods": "2"})
Started = tuple[str, str, list[Any]]
"""A workflow's type, its id, and its arguments with a memory that no run of it left."""


def a_workload() -> Started:
    spec = Workload.model_validate({**workload().model_dump(mode="json"), "cluster": CLUSTER})
    return names.WORKLOAD_WORKFLOW, spec.workflow_id, [spec.model_dump(mode="json"), submitted(spec, NOW)]


def a_queue() -> Started:
    return names.QUEUE_WORKFLOW, QUEUE.workflow_id, [QUEUE.model_dump(mode="json"), queue_policy.begun(QUEUE)]


def a_graph() -> Started:
    graph = Graph(name="g", namespace="team", cluster=CLUSTER, nodes=(GraphNode(name="a"),))
    return names.GRAPH_WORKFLOW, graph.workflow_id, [graph.model_dump(mode="json"), graph_policy.begun(graph)]


def a_broker() -> Started:
    broker = Broker(cluster=CLUSTER)
    return names.BROKER_WORKFLOW, broker.workflow_id, [broker.model_dump(mode="json"), broker_policy.begun(broker)]


def a_rendezvous() -> Started:
    gang = Gang(min=1, max=2)
    given = RendezvousInput(
        cluster=CLUSTER,
        namespace="team",
        workload="w",
        workload_uid="uid",
        workflow_id=names.workflow_id(CLUSTER, "team", "w"),
        submitted_at=NOW,
        attempt=1,
        gang=gang,
        memory=RendezvousMemory(state=begun(gang, "uid-1", 1, NOW), generation=3),
    )
    return names.RENDEZVOUS_WORKFLOW, names.rendezvous_id(CLUSTER, "team", "w"), [given]


def a_monitor() -> Started:
    given = NodeMonitorInput(cluster=CLUSTER, cluster_uid="uid", book=NodeBook(total=3))
    return names.NODE_MONITOR_WORKFLOW, names.node_monitor_id(CLUSTER), [given]


def a_provisioner() -> Started:
    state = ProvisionerState(cluster=CLUSTER, cluster_uid="uid")
    given = ProvisionerInput(cluster=CLUSTER, cluster_uid="uid", state=state)
    return names.PROVISIONER_WORKFLOW, names.provisioner_id(CLUSTER), [given]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client() -> AsyncIterator[Client]:
    """A client of a server with a worker of every workflow."""
    with temporal_server() as address:
        plugged = await Client.connect(address, plugins=[HoldfastPlugin(roles=["workflows"])])
        async with (
            Worker(plugged, task_queue=names.QUEUE_WORKFLOWS),
            Worker(plugged, task_queue=QUEUE.task_queue),
        ):
            yield await Client.connect(address, data_converter=pydantic_data_converter)


async def start(client: Client, started: Started, **options: Any) -> WorkflowHandle[Any, Any]:
    workflow, workflow_id, arguments = started
    queue = QUEUE.task_queue if workflow == names.QUEUE_WORKFLOW else names.QUEUE_WORKFLOWS
    return await client.start_workflow(workflow, args=arguments, id=workflow_id, task_queue=queue, **options)


@pytest.mark.parametrize(
    ("started", "argument", "error"),
    [
        (a_workload, "carried", names.ERROR_INVALID_WORKLOAD),
        (a_queue, "carried", names.ERROR_INVALID_QUEUE),
        (a_graph, "carried", names.ERROR_INVALID_GRAPH),
        (a_broker, "carried", names.ERROR_INVALID_BROKER),
        (a_rendezvous, "memory", names.ERROR_INVALID_INPUT),
        (a_monitor, "book", names.ERROR_INVALID_INPUT),
        (a_provisioner, "state", names.ERROR_INVALID_INPUT),
    ],
)
async def test_X3_a_memory_that_no_previous_run_left_is_refused(
    client: Client, started: Callable[[], Started], argument: str, error: str
) -> None:
    handle = await start(client, started())
    with pytest.raises(WorkflowFailureError) as refused:
        await handle.result()
    cause = refused.value.cause
    assert isinstance(cause, ApplicationError)
    assert (cause.type, cause.non_retryable) == (error, True)
    assert cause.message.startswith(f"{argument}: expected nothing")
    await replays(handle)


async def test_X3_what_a_worker_found_of_a_lost_entity_is_accepted(client: Client) -> None:
    workflow, workflow_id, (document, _) = a_queue()
    lost = await start(client, (workflow, workflow_id, [document]))
    assert (await lost.query(names.QUERY_STATUS, result_type=QueueStatus)).queue == QUEUE
    await lost.terminate(reason="by mistake")
    begin = await prepare_queue(client, workflow_id)
    assert begin is not None
    await begin()
    queue = client.get_workflow_handle(workflow_id)
    assert (await queue.query(names.QUERY_STATUS, result_type=QueueStatus)).queue == QUEUE
    state = ProvisionerState(cluster=CLUSTER, cluster_uid="uid", done=7)
    await begin_provisioner(client, Settings(cluster=CLUSTER), "uid", state)
    provisioner = client.get_workflow_handle(names.provisioner_id(CLUSTER))
    found = await provisioner.query(names.QUERY_STATUS, result_type=ProvisionerStatus)
    assert found.done == 7, "it goes on from what it was given"
    for one in (queue, provisioner):
        await replays(one)
        await one.terminate()
