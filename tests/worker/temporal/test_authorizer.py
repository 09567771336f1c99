"""The example of an authorizer: what each role may do at Temporal, by client certificate (rows X2, X15)."""

from __future__ import annotations

import asyncio
import secrets
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from temporalio.api.common.v1 import Payloads, WorkflowExecution, WorkflowType
from temporalio.api.enums.v1 import WorkflowIdConflictPolicy, WorkflowIdReusePolicy
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.update.v1 import Input, Meta, Request
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionRequest,
    ListWorkflowExecutionsRequest,
    PollActivityTaskQueueRequest,
    PollWorkflowTaskQueueRequest,
    RecordActivityTaskHeartbeatByIdRequest,
    RegisterNamespaceRequest,
    RespondActivityTaskCompletedByIdRequest,
    RespondActivityTaskCompletedRequest,
    RespondWorkflowTaskCompletedRequest,
    SignalWorkflowExecutionRequest,
    StartWorkflowExecutionRequest,
    TerminateWorkflowExecutionRequest,
    UpdateWorkflowExecutionRequest,
)
from temporalio.client import Client
from temporalio.runtime import Runtime
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.client import Holdfast
from holdfast.client.connection import add_search_attributes, missing_search_attributes
from holdfast.errors import NotReachable
from holdfast.model import Phase
from holdfast.worker.runtime.settings import Settings, load
from holdfast.worker.runtime.temporal import TemporalConnector
from tests.policy.lives.life import workload
from tests.worker.temporal.authority import Pair
from tests.worker.temporal.authorizer import authorizer
from tests.worker.temporal.mutual_tls import Server, mutual_tls_server
from tests.worker.test_process import worker

pytestmark = [
    *(pytest.mark.temporal, pytest.mark.e2e, pytest.mark.timeout(420)),
    *(pytest.mark.row(row, level="e2e") for row in ("X2", "X15")),
]
OURS, THEIRS = "team-a", "team-b"
WORKLOAD = "workload/main/default/train"


@dataclass
class Domain:
    """The server, and a client for each certificate."""

    server: Server
    pairs: dict[str, Pair] = field(default_factory=dict)

    def pair(self, unit: str) -> Pair:
        """A certificate with this organizational unit."""
        if unit not in self.pairs:
            self.pairs[unit] = self.server.authority.sign(secrets.token_hex(4), unit=unit)
        return self.pairs[unit]

    def settings(self, unit: str, namespace: str = OURS) -> Settings:
        """The settings of a worker with such a certificate."""
        pair = self.pair(unit)
        given = {
            "roles": "workflows",
            "temporal_address": self.server.address,
            "temporal_namespace": namespace,
            "temporal_tls_ca_file": self.server.authority.certificate,
            "temporal_tls_cert_file": pair.certificate,
            "temporal_tls_key_file": pair.key,
        }
        return load({name: str(value) for name, value in given.items()})

    async def client(self, unit: str, namespace: str = OURS) -> Client:
        """A connected client; connecting reads the namespace."""
        return await TemporalConnector(self.settings(unit, namespace), self.server.address, Runtime.default()).connect()


@pytest.fixture(scope="module")
def domain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Domain]:
    """The server with two namespaces, once it answers."""
    with mutual_tls_server(tmp_path_factory.mktemp("authorizer"), str(authorizer()), "-config-file={config}") as server:
        made = Domain(server)
        asyncio.run(_register(made))
        yield made


async def _register(domain: Domain) -> None:
    deadline = time.monotonic() + 90
    while True:
        try:
            admin = await domain.client("*:admin", "temporal-system")
            for name in (OURS, THEIRS):
                with suppress(RPCError):
                    retention = Duration(seconds=24 * 3600)
                    request = RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=retention)
                    await admin.workflow_service.register_namespace(request)
            for name in (OURS, THEIRS):
                client = await domain.client("*:admin", name)
                await add_search_attributes(client, await missing_search_attributes(client))
            return
        except (RPCError, RuntimeError) as error:
            why = repr(error)
        assert time.monotonic() < deadline, f"{why}\n{domain.server.log.read_text()[-4000:]}"
        await asyncio.sleep(0.3)


def start(
    type_: str = names.WORKLOAD_WORKFLOW, id_: str = WORKLOAD, queue: str = names.QUEUE_WORKFLOWS, **more: Any
) -> StartWorkflowExecutionRequest:
    return StartWorkflowExecutionRequest(
        namespace=OURS,
        workflow_id=id_,
        workflow_type=WorkflowType(name=type_),
        task_queue=TaskQueue(name=queue),
        request_id=secrets.token_hex(8),
        **more,
    )


def send(name: str, id_: str = WORKLOAD) -> SignalWorkflowExecutionRequest:
    return SignalWorkflowExecutionRequest(
        namespace=OURS, workflow_execution=WorkflowExecution(workflow_id=id_), signal_name=name
    )


def update(name: str, id_: str = WORKLOAD) -> UpdateWorkflowExecutionRequest:
    request = Request(meta=Meta(update_id=secrets.token_hex(8)), input=Input(name=name, args=Payloads()))
    return UpdateWorkflowExecutionRequest(
        namespace=OURS, workflow_execution=WorkflowExecution(workflow_id=id_), request=request
    )


QUEUE = TaskQueue(name="none")
READS = {
    "list_workflow_executions": ListWorkflowExecutionsRequest(namespace=OURS),
    "describe_workflow_execution": DescribeWorkflowExecutionRequest(
        namespace=OURS, execution=WorkflowExecution(workflow_id=WORKLOAD)
    ),
}
SUBMITS = {
    "start_workflow_execution": [start(), start(names.GRAPH_WORKFLOW, "graph/main/default/train")],
    "signal_workflow_execution": [
        send(name)
        for name in (
            names.SIGNAL_SUSPEND,
            names.SIGNAL_RESUME,
            names.SIGNAL_PREEMPT,
            names.SIGNAL_CANCEL,
            names.SIGNAL_RETRY,
            names.SIGNAL_REQUEUE,
        )
    ],
    "update_workflow_execution": [
        update(name)
        for name in (
            names.UPDATE_POLICY,
            names.UPDATE_COMPONENTS,
            names.UPDATE_EXTEND,
            names.UPDATE_STRIP,
            names.UPDATE_CHECKPOINT,
            names.UPDATE_SCALE,
        )
    ],
}
FORGES = {
    "poll_workflow_task_queue": [PollWorkflowTaskQueueRequest(namespace=OURS, task_queue=QUEUE)],
    "poll_activity_task_queue": [PollActivityTaskQueueRequest(namespace=OURS, task_queue=QUEUE)],
    "respond_workflow_task_completed": [RespondWorkflowTaskCompletedRequest(namespace=OURS, task_token=b"x")],
    "respond_activity_task_completed": [RespondActivityTaskCompletedRequest(namespace=OURS, task_token=b"x")],
    "respond_activity_task_completed_by_id": [
        RespondActivityTaskCompletedByIdRequest(namespace=OURS, workflow_id=WORKLOAD, activity_id="1")
    ],
    "record_activity_task_heartbeat_by_id": [
        RecordActivityTaskHeartbeatByIdRequest(namespace=OURS, workflow_id=WORKLOAD, activity_id="1")
    ],
    "terminate_workflow_execution": [
        TerminateWorkflowExecutionRequest(namespace=OURS, workflow_execution=WorkflowExecution(workflow_id=WORKLOAD))
    ],
    "start_workflow_execution": [
        start(names.PROVISIONER_WORKFLOW, "provisioner/main"),
        start(names.NODE_MONITOR_WORKFLOW),
        start(names.WORKLOAD_WORKFLOW, "provisioner/main"),
        start(workflow_id_conflict_policy=WorkflowIdConflictPolicy.WORKFLOW_ID_CONFLICT_POLICY_TERMINATE_EXISTING),
        start(workflow_id_reuse_policy=WorkflowIdReusePolicy.WORKFLOW_ID_REUSE_POLICY_TERMINATE_IF_RUNNING),
        start(queue="elsewhere"),
        start(cron_schedule="@every 1m"),
        start(request_eager_execution=True),
    ],
    "signal_workflow_execution": [
        *(send(name) for name in (names.SIGNAL_OBSERVE, names.SIGNAL_NODES, names.SIGNAL_NEWS)),
        send(names.SIGNAL_CANCEL, names.queue_id("main", "gpus")),
    ],
    "update_workflow_execution": [
        update(names.UPDATE_ATTACH),
        update(names.UPDATE_EVICT),
        update(names.UPDATE_SCALE, names.queue_id("main", "gpus")),
    ],
}


CUT = {RPCStatusCode.UNAVAILABLE, RPCStatusCode.UNKNOWN, RPCStatusCode.INTERNAL, RPCStatusCode.CANCELLED}
"""How the client reports a connection that has ended. A call of its own that timed out is CANCELLED too."""
TIMED_OUT = "Timeout expired"


async def refused(client: Client, call: str, request: Any) -> bool:
    """Whether the server denies a call, in place of answering it in whatever way, or waiting.

    The server ends connections that are two seconds old: what it has not answered is asked again.
    """
    waits = timedelta(seconds=2) if isinstance(request, UpdateWorkflowExecutionRequest) else None
    while True:
        try:
            await getattr(client.workflow_service, call)(request, timeout=waits)
        except RPCError as error:
            if error.status in CUT and TIMED_OUT not in error.message:
                await asyncio.sleep(0.1)
                continue
            return error.status is RPCStatusCode.PERMISSION_DENIED
        return False


@pytest.mark.parametrize("unit", ["", f"{THEIRS}:worker", "*:worker", f"{OURS}:boss", f"{OURS}", "admin"])
async def test_X2_without_a_role_in_the_namespace_nothing_is_allowed(domain: Domain, unit: str) -> None:
    with pytest.raises(RPCError, match="unauthorized"):
        await domain.client(unit)


async def test_X2_a_reader_reads_and_changes_nothing(domain: Domain) -> None:
    admin, reader = await domain.client("*:admin"), await domain.client(f"{OURS}:reader")
    with suppress(RPCError):
        await admin.workflow_service.start_workflow_execution(start())
    for call, request in READS.items():
        assert not await refused(reader, call, request), call
    for call, requests in [*SUBMITS.items(), *FORGES.items()]:
        for request in requests:
            assert await refused(reader, call, request), request


async def test_X2_a_submitter_submits_and_cannot_pass_for_a_worker(domain: Domain) -> None:
    submitter = await domain.client(f"{OURS}:submitter")
    allowed = [*((call, one) for call, requests in SUBMITS.items() for one in requests), *READS.items()]
    denied = await asyncio.gather(*(refused(submitter, call, request) for call, request in allowed))
    assert [request for (_, request), no in zip(allowed, denied, strict=True) if no] == []
    for call, requests in FORGES.items():
        for request in requests:
            assert await refused(submitter, call, request), request
    with pytest.raises(RPCError, match="unauthorized"):
        await domain.client(f"{OURS}:submitter", THEIRS)


async def test_X2_a_holdfast_worker_works_with_the_role_of_a_worker(domain: Domain) -> None:
    pair = domain.pair(f"{OURS}:worker")
    environment = {
        "HOLDFAST_ROLES": "workflows",
        "TEMPORAL_ADDRESS": domain.server.address,
        "TEMPORAL_NAMESPACE": OURS,
        "TEMPORAL_TLS_SERVER_CA_CERT_PATH": str(domain.server.authority.certificate),
        "TEMPORAL_TLS_CLIENT_CERT_PATH": str(pair.certificate),
        "TEMPORAL_TLS_CLIENT_KEY_PATH": str(pair.key),
    }
    submitter, reader = await domain.client(f"{OURS}:submitter"), await domain.client(f"{OURS}:reader")
    async with worker(**environment) as running:
        await running.ready()
        spec = workload(suspend=True).model_copy(update={"name": f"w-{secrets.token_hex(3)}", "cluster": "main"})
        async with Holdfast.connect(client=submitter) as mine, Holdfast.connect(client=reader) as theirs:
            run = await mine.submit(spec)
            read = await theirs.get(spec.name, spec.namespace, "main")
            assert (await read.status()).phase is Phase.SUSPENDED
            await run.preempt("a test asks")
            with pytest.raises(NotReachable, match="unauthorized"):
                await read.preempt("a reader asks")
        running.process.send_signal(signal.SIGTERM)
        assert await running.end() == 0
