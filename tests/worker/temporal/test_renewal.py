"""When the connection to Temporal is replaced, and that what does not work leaves it as it is (row X7)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.runtime import Runtime
from temporalio.service import ConnectConfig, ServiceClient

from holdfast.errors import HoldfastError
from holdfast.tls import Credentials, tls_of
from holdfast.worker.runtime.settings import SettingsError, load
from holdfast.worker.runtime.temporal import TemporalConnector
from tests.e2e.ground.site import until

pytestmark = pytest.mark.row("X7", level="pure")


class Server(ServiceClient):
    """One connection: it remembers what it was asked for."""

    def __init__(self, credentials: Credentials) -> None:
        super().__init__(ConnectConfig("nowhere:1"))
        self.credentials, self.calls = credentials, list[str]()

    @property
    def worker_service_client(self) -> Any:
        return self

    def update_rpc_metadata(self, metadata: Any) -> None:
        self.calls.append("headers")

    def update_api_key(self, api_key: str | None) -> None:
        self.calls.append("API key")

    async def _rpc_call(self, rpc: str, req: Any, resp_type: Any, **_: Any) -> Any:
        self.calls.append(rpc)
        return resp_type()


class Connector(TemporalConnector):
    """Makes connections to no server; some credentials do not work."""

    def __init__(self, key: Path) -> None:
        settings = load({"roles": "workflows", "temporal_api_key_file": str(key)})
        super().__init__(settings, "nowhere:1", Runtime.default())
        self.made: list[Server] = []

    async def _made(self, credentials: Credentials) -> Client:
        assert tls_of(credentials)
        if credentials.api_key == "bad":
            raise RuntimeError("Request unauthorized")
        self.made.append(Server(credentials))
        return Client(self.made[-1])


class Worker:
    """A worker that only has a client."""

    def __init__(self, client: Client) -> None:
        self.given = [client]

    @property
    def client(self) -> Client:
        return self.given[-1]

    @client.setter
    def client(self, value: Client) -> None:
        self.given.append(value)


async def answered(value: bool) -> bool:
    return value


def write(file: Path, content: str | None) -> None:
    file.unlink(missing_ok=True)
    if content is not None:
        file.write_text(content)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    key = tmp_path / "key"
    key.write_text("first")
    return key


async def test_X7_a_changed_file_replaces_the_connection_of_the_same_client(key: Path) -> None:
    connector = Connector(key)
    client = await connector.connect()
    worker = Worker(client)
    assert not await connector.renew([worker])
    write(key, "first")
    assert not await connector.renew([worker]), "the content counts, not the time"
    write(key, "second")
    assert await connector.renew([worker])
    assert worker.given == [client, client], "the same client, whose connection the worker takes anew"
    await client.service_client.check_health()
    first, second = connector.made
    assert (first.calls, len(second.calls)) == ([], 1)
    assert client.service_client.worker_service_client is second
    assert second.credentials.api_key == "second"


async def test_X7_what_does_not_work_is_tried_again_and_the_old_stays(key: Path) -> None:
    connector = Connector(key)
    client, stop = await connector.connect(), asyncio.Event()
    worker = Worker(client)
    for content, error in (("bad", RuntimeError), ("two\nlines", HoldfastError), ("", HoldfastError), (None, OSError)):
        write(key, content)
        with pytest.raises(error):
            await connector.renew([worker])
    renewing = asyncio.create_task(connector.keep_renewing([worker], stop, period=0.01))
    await asyncio.sleep(0.05)
    await client.service_client.check_health()
    assert (len(connector.made), worker.given) == (1, [client])
    write(key, "third")
    await until(lambda: answered(len(worker.given) == 2), 10, "the worker is given it", pause=0.01)
    stop.set()
    await renewing
    assert connector.made[-1].credentials.api_key == "third"


async def test_X7_a_certificate_as_a_variable_is_refused_since_it_cannot_change(
    key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_TLS_CLIENT_CERT_DATA", "x")
    with pytest.raises(SettingsError, match="expected TEMPORAL_TLS_CLIENT_CERT_PATH"):
        await Connector(key).connect()
