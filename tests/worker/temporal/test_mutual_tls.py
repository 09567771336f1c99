"""Temporal over TLS: which certificates it takes, and that a worker's are rotated without losing a task (row X7)."""

from __future__ import annotations

import asyncio
import secrets
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from temporalio import activity, workflow
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client, WorkflowHandle
from temporalio.runtime import Runtime
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from holdfast.client.connection import reached
from holdfast.errors import HoldfastError, NotReachable
from holdfast.worker.runtime.settings import Settings, SettingsError, load
from holdfast.worker.runtime.temporal import TemporalConnector
from tests.worker.temporal.authority import Authority, Pair
from tests.worker.temporal.mutual_tls import Server, mutual_tls_server
from tests.worker.test_process import worker

pytestmark = [pytest.mark.temporal, pytest.mark.e2e, pytest.mark.timeout(180)]
NAMESPACE, QUEUE = "secured", "tasks"
ROW = pytest.mark.row("X7", level="e2e")


@activity.defn
async def wait(seconds: float) -> int:
    """Wait, with a heartbeat each half a second; return which try this is."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        activity.heartbeat()
        await asyncio.sleep(0.5)
    return activity.info().attempt


@workflow.defn(sandboxed=False)
class Waits:
    """Runs one activity."""

    @workflow.run
    async def run(self, seconds: float) -> int:
        """Return the number of the try that succeeded."""
        return await workflow.execute_activity(
            wait, seconds, start_to_close_timeout=timedelta(minutes=1), heartbeat_timeout=timedelta(seconds=20)
        )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The server, once it answers and has the namespace."""
    folder = tmp_path_factory.mktemp("mutual-tls")
    with mutual_tls_server(folder) as server:
        system = settings(server, server.client, temporal_namespace="temporal-system")
        asyncio.run(register(server, system, settings(server, server.client)))
        yield server


async def register(server: Server, system: Settings, own: Settings) -> None:
    """Make the namespace once the server answers, and wait until it is there."""
    deadline = time.monotonic() + 90
    request = RegisterNamespaceRequest(
        namespace=NAMESPACE, workflow_execution_retention_period=Duration(seconds=24 * 3600)
    )
    while True:
        try:
            client = await TemporalConnector(system, server.address, Runtime.default()).connect()
            await client.workflow_service.register_namespace(request)
            await TemporalConnector(own, server.address, Runtime.default()).connect()
            return
        except RPCError as error:
            if error.status is RPCStatusCode.ALREADY_EXISTS:
                continue
            why = repr(error)
        except RuntimeError as error:
            why = repr(error)
        assert time.monotonic() < deadline, f"{why}\n{server.log.read_text()[-4000:]}"
        await asyncio.sleep(0.3)


def settings(server: Server, pair: Pair | None, authority: Authority | None = None, **more: Any) -> Settings:
    """The settings of a worker with a client certificate, or without."""
    files = {"temporal_tls_cert_file": pair.certificate, "temporal_tls_key_file": pair.key} if pair else {}
    given = {
        "roles": "workflows",
        "temporal_address": server.address,
        "temporal_namespace": NAMESPACE,
        "temporal_tls_ca_file": (authority or server.authority).certificate,
        **files,
        **more,
    }
    return load({name: str(value) for name, value in given.items()})


@dataclass
class Working:
    """A worker that looks at its files several times a second."""

    client: Client
    connector: TemporalConnector

    async def task(self, client: Client, seconds: float = 0) -> asyncio.Task[int]:
        """Begin a workflow, and return its result as a task."""
        handle = await client.start_workflow(Waits.run, seconds, id=secrets.token_hex(4), task_queue=QUEUE)
        return asyncio.create_task(result_of(handle))


async def result_of(handle: WorkflowHandle[Any, int]) -> int:
    """Wait for a result, although the server ends the connection on which it is waited for."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await handle.result()
            except RPCError:
                await asyncio.sleep(0.1)


@asynccontextmanager
async def working(given: Settings) -> AsyncIterator[Working]:
    connector = TemporalConnector(given, given.temporal_address, Runtime.default())
    client, stop = await connector.connect(), asyncio.Event()
    runner = UnsandboxedWorkflowRunner()
    made = Worker(client, task_queue=QUEUE, workflows=[Waits], activities=[wait], workflow_runner=runner)
    renewing = asyncio.create_task(connector.keep_renewing([made], stop, period=0.2))
    async with made:
        yield Working(client, connector)
        stop.set()
        await renewing


@ROW
async def test_X7_a_workflow_completes_with_the_right_certificate(server: Server) -> None:
    async with working(settings(server, server.client)) as work:
        assert await (await work.task(work.client)) == 1


def none(server: Server, folder: Path) -> Pair | None:
    return None


def of_another(server: Server, folder: Path) -> Pair:
    return Authority(folder / "other", "another authority").sign("client")


def expired(server: Server, folder: Path) -> Pair:
    return server.authority.sign("expired", timedelta(hours=-2), timedelta(minutes=-1))


@ROW
@pytest.mark.parametrize("wrong", [none, of_another, expired])
async def test_X7_a_wrong_client_certificate_is_refused_and_named(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: Callable[[Server, Path], Pair | None]
) -> None:
    pair = wrong(server, tmp_path)
    # The server's own reason may be lost: it ends the connection just after the handshake.
    with pytest.raises(RuntimeError, match=r"^the server .*client certificate"):
        await TemporalConnector(settings(server, pair), server.address, Runtime.default()).connect()
    monkeypatch.setenv("TEMPORAL_TLS_SERVER_CA_CERT_PATH", str(server.authority.certificate))
    if pair is not None:
        monkeypatch.setenv("TEMPORAL_TLS_CLIENT_CERT_PATH", str(pair.certificate))
        monkeypatch.setenv("TEMPORAL_TLS_CLIENT_KEY_PATH", str(pair.key))
    with pytest.raises(NotReachable, match=r"client certificate.*check what TEMPORAL_TLS_"):
        async with reached(server.address, NAMESPACE):
            pass


@ROW
async def test_X7_a_server_of_another_authority_is_not_believed(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Authority(tmp_path / "other", "another authority")
    with pytest.raises(RuntimeError, match="not signed by an authority that is trusted here"):
        await TemporalConnector(settings(server, server.client, other), server.address, Runtime.default()).connect()
    monkeypatch.setenv("TEMPORAL_TLS_SERVER_CA_CERT_PATH", str(other.certificate))
    with pytest.raises(NotReachable, match="not signed by an authority that is trusted here"):
        async with reached(server.address, NAMESPACE):
            pass


@ROW
async def test_X7_rotated_certificates_are_used_and_no_task_is_lost(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = timedelta(seconds=24)
    used = server.authority.sign("rotated", ends=life)
    over = time.monotonic() + life.total_seconds()
    old = Pair(tmp_path / "old.crt", tmp_path / "old.key")
    old.replace(used)
    given = settings(server, used)
    asking = await TemporalConnector(settings(server, server.client), server.address, Runtime.default()).connect()
    async with working(given) as work:
        assert await (await work.task(asking)) == 1
        long = await work.task(asking, 30)
        await asyncio.sleep(1)
        # A certificate that the server does not take leaves the worker as it is.
        used.replace(Authority(tmp_path / "other", "another authority").sign("client"))
        await asyncio.sleep(1.5)
        assert await (await work.task(asking)) == 1
        used.replace(server.authority.sign("client-2"))
        await asyncio.sleep(max(0.0, over - time.monotonic()) + 6)
        # The old one is over, and every connection is younger than that.
        with pytest.raises(RuntimeError):
            await TemporalConnector(settings(server, old), server.address, Runtime.default()).connect()
        assert await (await work.task(asking)) == 1
        assert await long == 1, "the activity that ran meanwhile ended at its first try"
        # The client of the other parts of the process is the same, and works on.
        assert await work.client.service_client.check_health()


@ROW
async def test_X7_an_api_key_is_refused_without_tls_before_anything_is_sent(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text("swordfish\n")
    with socket.socket() as plain:
        plain.bind(("127.0.0.1", 0))
        plain.listen()
        plain.setblocking(False)
        address = f"127.0.0.1:{plain.getsockname()[1]}"
        off = {"roles": "workflows", "temporal_address": address, "temporal_tls": "false"}
        with pytest.raises(SettingsError, match="an API key: it is never sent without TLS"):
            load({**off, "temporal_api_key_file": str(key)})
        monkeypatch.setenv("TEMPORAL_TLS", "false")
        monkeypatch.setenv("TEMPORAL_API_KEY", "swordfish")
        with pytest.raises(SettingsError, match="an API key: it is never sent without TLS"):
            load({"roles": "workflows", "temporal_address": address})
        with pytest.raises(HoldfastError, match="an API key: it is never sent without TLS"):
            async with reached(address, NAMESPACE):
                pass
        with pytest.raises(BlockingIOError):
            plain.accept()
        # Where nothing is said of TLS, a key implies it: what arrives is the beginning of a handshake.
        monkeypatch.delenv("TEMPORAL_TLS")
        plain.setblocking(True)
        first = asyncio.create_task(asyncio.to_thread(_first_bytes, plain))
        given = load({"roles": "workflows", "temporal_address": address})
        with pytest.raises(RuntimeError):
            await TemporalConnector(given, address, Runtime.default()).connect()
        sent = await first
        assert sent[:1] == b"\x16"
        assert b"swordfish" not in sent


def _first_bytes(listening: socket.socket) -> bytes:
    listening.settimeout(10)
    connection, _ = listening.accept()
    with connection:
        connection.settimeout(10)
        return connection.recv(65536)


@ROW
async def test_X7_a_worker_process_takes_new_certificates_without_a_restart(server: Server) -> None:
    used = server.authority.sign("process")
    environment = {
        "HOLDFAST_ROLES": "workflows,admission",
        "TEMPORAL_ADDRESS": server.address,
        "TEMPORAL_NAMESPACE": NAMESPACE,
        "TEMPORAL_TLS_SERVER_CA_CERT_PATH": str(server.authority.certificate),
        "TEMPORAL_TLS_CLIENT_CERT_PATH": str(used.certificate),
        "TEMPORAL_TLS_CLIENT_KEY_PATH": str(used.key),
    }
    async with worker(**environment) as running:
        await running.ready()
        used.replace(server.authority.sign("expired-2", timedelta(hours=-2), timedelta(minutes=-1)))
        told = await running.line("new certificates for temporal do not work")
        assert "client certificate" in told["why"]
        used.replace(server.authority.sign("process-2"))
        await running.line("new certificates for temporal are in use")
        await running.ready()
        running.process.send_signal(signal.SIGTERM)
        assert await running.end() == 0
