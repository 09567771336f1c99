"""The proxy of the fencing tests: what it held while the line was cut arrives once the line is mended."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.ground.reading_proxy import ReadingProxy

REQUEST = b"POST /api/v1/namespaces/one/pods HTTP/1.1\r\nContent-Length: 4\r\n\r\n"


@dataclass
class Server:
    """A TLS server that writes down what it reads, and can end each connection that it has."""

    port: int = 0
    read: list[bytes] = field(default_factory=list[bytes])
    writers: list[asyncio.StreamWriter] = field(default_factory=list[asyncio.StreamWriter])
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        self.opened.set()
        said = b""
        while chunk := await reader.read(1 << 16):
            said += chunk
            if said.endswith(b"body"):
                self.read.append(said)
                self.arrived.set()
        writer.close()

    async def end_all(self) -> None:
        """Close every connection, as the API server does with one that is idle for 90 s."""
        for writer in self.writers:
            writer.close()
            await writer.wait_closed()


@asynccontextmanager
async def serving(certificate: Path, key: Path) -> AsyncIterator[tuple[Server, ReadingProxy]]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    server = Server()
    listening = await asyncio.start_server(server.accept, "127.0.0.1", 0, ssl=context)
    server.port = listening.sockets[0].getsockname()[1]
    proxy = ReadingProxy("127.0.0.1", server.port, certificate, key)
    await proxy.start()
    try:
        yield server, proxy
    finally:
        await proxy.close()
        listening.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("pki")
    made, key = folder / "server.crt", folder / "server.key"
    subject = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    argv = ["openssl", "req", "-x509", *curve, *subject, "-keyout", str(key), "-out", str(made)]
    subprocess.run(argv, check=True, capture_output=True)
    return made, key


@pytest.mark.parametrize("ended", [False, True], ids=["server-waits", "server-ends-idle-connections"])
async def test_a_request_that_was_held_arrives_once_and_whole(certificate: tuple[Path, Path], ended: bool):
    async with serving(*certificate) as (server, proxy):
        cut = proxy.cut_before(lambda method, path: method == "POST" and path.endswith("/pods"))
        trusted = ssl.create_default_context(cafile=str(certificate[0]))
        _, client = await asyncio.open_connection("127.0.0.1", proxy.own_port, ssl=trusted)
        client.write(REQUEST)
        await client.drain()
        await asyncio.wait_for(cut.wait(), 20)
        client.write(b"body")
        await client.drain()
        await asyncio.wait_for(server.opened.wait(), 20)
        if ended:
            await server.end_all()
        client.transport.abort()
        assert not server.read

        await proxy.heal(lose=False)
        await asyncio.wait_for(server.arrived.wait(), 20)
        assert server.read == [REQUEST + b"body"]
        assert [(one.method, one.late) for one in proxy.writes()] == [("POST", True)]
