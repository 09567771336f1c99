"""One address for several servers, on real sockets: which is used, and when another is (row L10)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from holdfast import relay
from holdfast.relay import addresses_of, relayed

pytestmark = pytest.mark.row("L10", level="pure")
D48 = pytest.mark.row("D48", level="pure")


class Echo:
    """A server that says its name with what it hears; or hears, and says nothing."""

    def __init__(self, name: str) -> None:
        self.name, self.mute = name, False
        self.pause = 0.0
        self.heard: list[bytes] = []
        self.server: asyncio.Server | None = None
        self.open: set[asyncio.StreamWriter] = set()
        self.port = 0

    async def start(self) -> None:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self.server.sockets[0].getsockname()[1]

    async def kill(self) -> None:
        assert self.server is not None
        self.server.close()
        for writer in self.open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.add(writer)
        try:
            while data := await reader.read(1024):
                self.heard.append(data)
                await asyncio.sleep(self.pause)
                if not self.mute:
                    writer.write(self.name.encode() + data)
        except ConnectionError:
            pass
        finally:
            self.open.discard(writer)
            writer.close()


@asynccontextmanager
async def servers(*names: str) -> AsyncIterator[list[Echo]]:
    opened = [Echo(name) for name in names]
    for one in opened:
        await one.start()
    try:
        yield opened
    finally:
        for one in opened:
            await one.kill()


def target(*found: Echo) -> str:
    return ", ".join(f"127.0.0.1:{one.port}" for one in found)


class Client:
    """One connection."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def __aenter__(self) -> Client:
        host, port = self._address.split(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def ask(self, text: str) -> str:
        """Return what is answered, empty where the connection has ended."""
        self._writer.write(text.encode())
        try:
            return (await asyncio.wait_for(self._reader.read(1024), 5)).decode()
        except ConnectionError:
            return ""


def test_several_addresses_have_commas_between_them():
    assert addresses_of("a:1") == ("a:1",)
    assert addresses_of(" a:1, b:2 ,,[::1]:3") == ("a:1", "b:2", "[::1]:3")


async def test_one_address_needs_no_relay():
    async with relayed("temporal:7233") as address:
        assert address == "temporal:7233"


async def test_L10_the_first_is_used_until_it_is_lost_and_then_the_next():
    async with servers("a", "b") as (a, b), relayed(target(a, b)) as address:
        async with Client(address) as client:
            assert await client.ask("1") == "a1"
            assert await client.ask("2") == "a2"
            await a.kill()
            assert await client.ask("3") == ""
        async with Client(address) as client:
            assert await client.ask("4") == "b4"
        await a.start()
        async with Client(address) as client:
            assert await client.ask("5") == "b5", "what answers is not left for what answers too"


async def test_L10_one_that_is_not_there_is_passed_over():
    async with servers("a", "b") as (a, b):
        await a.kill()
        async with relayed(target(a, b)) as address, Client(address) as client:
            assert await client.ask("1") == "b1"


async def test_L10_where_none_is_there_the_connection_ends_and_the_next_is_tried_anew():
    async with servers("a", "b") as (a, b), relayed(target(a, b)) as address:
        for one in (a, b):
            await one.kill()
        async with Client(address) as client:
            assert await client.ask("1") == ""
        await b.start()
        async with Client(address) as client:
            assert await client.ask("2") == "b2"


async def test_L10_one_that_hears_and_never_answers_is_not_tried_first_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(relay, "SILENT_SECONDS", 0.2)
    async with servers("a", "b") as (a, b), relayed(target(a, b)) as address:
        a.mute = True
        async with Client(address) as client:
            asking = asyncio.create_task(client.ask("1"))
            await asyncio.sleep(0.4)
            asking.cancel()
        await asyncio.sleep(0.1)
        async with Client(address) as client:
            assert await client.ask("2") == "b2"


# --- a server that accepts and says nothing (row D48)


@D48
async def test_D48_one_that_accepts_and_says_nothing_is_left_for_the_next_on_the_same_connection(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(relay, "FIRST_SECONDS", 0.2, raising=False)
    async with servers("a", "b") as (a, b), relayed(target(a, b)) as address:
        a.mute = True
        async with Client(address) as client:
            assert await client.ask("1") == "b1"
            assert await client.ask("2") == "b2", "the rest of the conversation is with who has answered"
        async with Client(address) as client:
            assert await client.ask("3") == "b3"
        assert [len(one.heard) for one in (a, b)] == [1, 3], "the next connection begins with who answers"


@D48
async def test_D48_a_server_that_is_slow_is_not_left_for_one_that_says_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(relay, "FIRST_SECONDS", 0.1, raising=False)
    async with servers("a", "b") as (a, b), relayed(target(a, b)) as address:
        a.pause, b.mute = 0.5, True
        async with Client(address) as client:
            assert await client.ask("1") == "a1"


@D48
async def test_D48_a_client_that_says_nothing_yet_is_no_reason_to_leave_a_server(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(relay, "FIRST_SECONDS", 0.1, raising=False)
    async with servers("a", "b") as (a, b), relayed(target(a, b)) as address, Client(address) as client:
        await asyncio.sleep(0.4)
        assert await client.ask("1") == "a1"
        assert b.heard == []
