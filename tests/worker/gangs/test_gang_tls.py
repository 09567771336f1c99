"""The gang door over TLS, with real agents' own client: which certificate is believed, which connections are kept."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from aiohttp import web

from holdfast.agent.hub import Hub, Unreachable
from holdfast.agent.messages import Kind
from holdfast.worker.gangs import listener as listeners
from holdfast.worker.gangs.certificate import Certificate
from holdfast.worker.gangs.connections import OF_POD_MAXIMUM, OF_SOURCE_MAXIMUM
from holdfast.worker.gangs.listener import Listener
from holdfast.worker.runtime.rendezvous_settings import CertificateError, RendezvousFiles
from tests.e2e.ground.site import until
from tests.worker.temporal.authority import Authority

X9 = pytest.mark.row("X9", level="pure")


class Place:
    """A listener that answers everything, with a certificate that a test can replace."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder / "ours", "ours")
        self.pair = self.authority.sign("door")
        self.token = folder / "token"
        self.token.write_text("token")
        self.certificate = Certificate(self.files)
        self.url = ""
        self.proves = "pod-a"

    @property
    def files(self) -> RendezvousFiles:
        return RendezvousFiles(self.pair.certificate, self.pair.key, self.authority.certificate)

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("https://").rpartition(":")
        return host, int(port)

    def agent(self, ca: Path | None) -> Hub:
        return Hub(self.url, "uid-1", str(self.token), str(ca or ""))

    async def answer(self, request: web.BaseRequest, proven: Callable[[str], None]) -> web.StreamResponse:
        if self.proves:
            proven(self.proves)
        return web.json_response({"revision": 1, "kind": "Wait"})

    async def connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        return await asyncio.open_connection(*self.address, ssl=context)

    async def answers(self, agent: Hub) -> bool:
        try:
            return (await agent.exchange({})).kind is Kind.WAIT
        except Unreachable:
            return False
        finally:
            agent.close()


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(tmp_path)
    async with listening(place):
        yield place


@asynccontextmanager
async def listening(place: Place) -> AsyncIterator[None]:
    listener = Listener(place.answer, place.certificate.context)
    place.url = f"https://{await listener.start('127.0.0.1:0')}"
    try:
        yield
    finally:
        await listener.close()


@X9
async def test_X9_an_agent_believes_the_authority_that_its_pod_was_given_and_no_other(place: Place):
    other = Authority(place.folder / "theirs", "theirs")
    assert await place.answers(place.agent(place.authority.certificate))
    for ca in (other.certificate, None, place.token, place.folder / "absent"):
        with pytest.raises(Unreachable, match=r"cannot connect|no answer"):
            await place.agent(ca).exchange({})
    plain = Hub(place.url.replace("https", "http"), "uid-1", str(place.token))
    with pytest.raises((Unreachable, ConnectionError)):
        await plain.exchange({})


@X9
async def test_X9_an_expired_certificate_and_one_of_another_host_are_not_believed(place: Place):
    authority = place.authority
    for pair in (
        authority.sign("old", timedelta(hours=-2), timedelta(hours=-1)),
        authority.sign("elsewhere", address="10.9.9.9"),
    ):
        place.pair.replace(pair)
        assert place.certificate.renew()
        assert not await place.answers(place.agent(authority.certificate))
    place.pair.replace(authority.sign("good"))
    assert place.certificate.renew()
    assert await place.answers(place.agent(authority.certificate))


@X9
async def test_X9_a_certificate_and_its_authority_are_replaced_while_agents_are_connected(place: Place):
    agent = place.agent(place.authority.certificate)
    await agent.exchange({})
    assert not place.certificate.renew()
    old, new = place.authority, Authority(place.folder / "new", "new")
    pair = new.sign("door")
    place.pair.certificate.write_bytes(pair.certificate.read_bytes())
    with pytest.raises(CertificateError, match="rendezvous_tls_cert_file"):
        place.certificate.renew()  # The key is not written yet.
    assert await place.answers(place.agent(old.certificate)), "the old one stays in use"
    place.pair.key.write_bytes(pair.key.read_bytes())
    both = old.certificate.read_text() + new.certificate.read_text()
    old.certificate.write_text(both)
    assert place.certificate.renew()
    assert place.certificate.ca() == both
    assert (await agent.exchange({})).kind is Kind.WAIT, "a connection that stands goes on"
    assert await place.answers(place.agent(new.certificate))
    agent.close()


@X9
async def test_X9_files_are_looked_at_again_and_again(place: Place):
    renewing = asyncio.create_task(place.certificate.keep_renewing(0.01))
    new = Authority(place.folder / "new", "new")
    place.pair.replace(new.sign("door"))
    await until(lambda: place.answers(place.agent(new.certificate)), 20, "the new certificate is in use", pause=0.01)
    renewing.cancel()
    with suppress(asyncio.CancelledError):
        await renewing


@X9
async def test_X9_who_sends_its_head_slowly_or_nothing_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(listeners._LIMITS, "keepalive_timeout", 0.2)
    monkeypatch.setattr(listeners, "HANDSHAKE_SECONDS", 0.2)
    place = Place(tmp_path)
    async with listening(place), asyncio.timeout(30):
        silent, _ = await place.connection()
        assert await silent.read() == b""
        slow, writer = await place.connection()
        for part in (b"POST /rendezvous/v1/u/announce HTTP/1.1\r\n", b"Host: x\r\n"):
            writer.write(part)
            await writer.drain()
        assert await slow.read() == b""
        unshaken, _ = await asyncio.open_connection(*place.address)
        with suppress(ConnectionResetError):
            assert await unshaken.read() == b""


@X9
async def test_X9_a_head_that_is_too_large_is_refused(place: Place):
    for head in (b"X-Junk: " + b"x" * 20_000, b"\r\n".join(b"X-%d: y" % index for index in range(100))):
        reader, writer = await place.connection()
        writer.write(b"POST /rendezvous/v1/u/announce HTTP/1.1\r\n" + head + b"\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.0 400") or b" 400 " in await reader.read()
        writer.close()


@X9
async def test_X9_a_source_that_opens_connections_without_end_loses_its_oldest_and_a_proven_pod_none(place: Place):
    agent = place.agent(place.authority.certificate)
    await agent.exchange({})
    place.proves = ""
    idle = [await asyncio.open_connection(*place.address) for _ in range(OF_SOURCE_MAXIMUM + 20)]
    async with asyncio.timeout(30):
        for reader, _ in idle[:20]:
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
    assert not idle[-1][0].at_eof()
    assert (await agent.exchange({})).kind is Kind.WAIT
    assert await place.answers(place.agent(place.authority.certificate)), "a new pod behind the same address"
    agent.close()
    for _, writer in idle:
        writer.close()


@X9
async def test_X9_a_pod_that_opens_connections_without_end_loses_its_own_oldest_and_another_pod_none(place: Place):
    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        try:
            writer.write(b"POST /rendezvous/v1/u/announce HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
            return b" 200 " in await reader.readuntil(b"}")
        except (ConnectionError, asyncio.IncompleteReadError):
            return False

    other = await place.connection()
    assert await answered(*other)
    place.proves = "pod-x"
    opened = [await place.connection() for _ in range(OF_POD_MAXIMUM + 3)]
    assert [await answered(*one) for one in opened] == [True] * len(opened)
    assert [await answered(*one) for one in opened] == [False] * 3 + [True] * OF_POD_MAXIMUM
    place.proves = "pod-a"
    assert await answered(*other)
    for _, writer in (*opened, other):
        writer.close()
