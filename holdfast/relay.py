"""One address for several Temporal servers: forwards each connection to a server that answers (row L10).

The SDK accepts one target. A DNS name with several addresses is enough for it; the relay is for setups without such a
name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

_log = logging.getLogger("holdfast.relay")

LOOPBACK: Final = "127.0.0.1"
CONNECT_SECONDS: Final = 2.0
"""Seconds after which a server that has not accepted a connection is skipped."""
FIRST_SECONDS: Final = 1.0
"""Seconds without an answer to the first data, after which the relay tries the next server, too.

It is a third of what the client waits for a connection (row D48)."""
SILENT_SECONDS: Final = 10.0
"""Seconds without an answer to sent data, after which new connections try another server first."""
_CHUNK: Final = 1 << 16
_UNANSWERED_MOST: Final = 1 << 20
"""The most bytes read from a client before a server has answered."""

_Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def addresses_of(target: str) -> tuple[str, ...]:
    """Return each `host:port` of a target, a list separated by commas."""
    return tuple(one.strip() for one in target.split(",") if one.strip())


@asynccontextmanager
async def relayed(target: str) -> AsyncGenerator[str]:
    """Yield the address to connect to: the only one of the target, or that of a relay that runs in this context."""
    addresses = addresses_of(target)
    if len(addresses) < 2:
        yield addresses[0] if addresses else target
        return
    relay = Relay(addresses)
    try:
        yield await relay.start()
    finally:
        await relay.close()


class Relay:
    """Forwards connections without reading them. With TLS, the client must set the server name to verify."""

    def __init__(self, addresses: Sequence[str]) -> None:
        """Prepare the relay; it tries the first address first.

        Args:
            addresses: `host:port` of each server, at least one.
        """
        self._addresses = list(addresses)
        self._first = 0
        self._server: asyncio.Server | None = None
        self._passing: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Listen on a free loopback port, and return its address."""
        self._server = await asyncio.start_server(self._taken, LOOPBACK, 0)
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    async def close(self) -> None:
        """Stop listening, and close all forwarded connections."""
        if self._server is not None:
            self._server.close()
        for task in self._passing:
            task.cancel()
        await asyncio.gather(*self._passing, return_exceptions=True)

    async def _taken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        try:
            await self._pass(reader, writer)
        except asyncio.CancelledError:
            pass  # The relay is closing: asyncio would report the cancellation as an error, which it is not.
        finally:
            self._passing.discard(task)
            writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found = await _Opening(self._addresses, self._first, reader).answered()
        if found.stream is None:
            # No server answers, or the client has gone: the next connection tries another first if this one was silent.
            if found.silent:
                self._lost(self._first)
            return
        self._first = index = found.index
        far_reader, far_writer = found.stream
        writer.write(found.first)
        clock = asyncio.get_running_loop().time
        asked = heard = clock()

        async def out() -> None:
            nonlocal asked
            while data := await reader.read(_CHUNK):
                asked = clock() if asked <= heard else asked
                far_writer.write(data)
                await far_writer.drain()

        async def back() -> None:
            nonlocal heard
            while data := await far_reader.read(_CHUNK):
                heard = clock()
                writer.write(data)
                await writer.drain()

        ways = [asyncio.create_task(out()), asyncio.create_task(back())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            silent = asked > heard and clock() - asked > SILENT_SECONDS
            if ways[1].done() or silent:
                self._lost(index)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            far_writer.close()

    def _lost(self, index: int) -> None:
        """Try another server first from now on: this one is gone, or does not answer."""
        if self._first == index:
            self._first = (index + 1) % len(self._addresses)
            _log.warning("Temporal at %s is lost: connecting to another", self._addresses[index])


@dataclass
class _Found:
    """The server that answered a new connection, and its first data; `stream` is None if none answered."""

    index: int = 0
    stream: _Stream | None = None
    first: bytes = b""
    silent: bool = False
    """Whether the client has gone after it waited too long for an answer."""


class _Opening:
    """The opening of one connection: tries servers until one has sent data.

    Until then the client has received nothing, so its data can go to the next server, too. The first server to answer
    gets the connection; the others are closed. A request that reaches two servers is one request to Temporal: it has
    one request id.
    """

    def __init__(self, addresses: Sequence[str], first: int, reader: asyncio.StreamReader) -> None:
        count = len(addresses)
        self._addresses = addresses
        self._left = [(first + step) % count for step in range(count)]
        self._reader = reader
        self._sent = bytearray()
        self._sent_at = self._asked_at = 0.0
        self._open: dict[int, _Stream] = {}
        self._clock = asyncio.get_running_loop().time

    async def answered(self) -> _Found:
        """Return the server that answered first."""
        asking = dict[asyncio.Task[bytes], int]()
        hearing: asyncio.Task[bytes] = asyncio.create_task(self._reader.read(_CHUNK))
        found = _Found()
        try:
            while found.stream is None:
                if self._left and (not asking or self._is_due):
                    index = self._left.pop(0)
                    self._asked_at = self._clock()
                    asking[asyncio.create_task(self._ask(index))] = index
                if not asking:
                    return found
                waits = {*asking}
                if len(self._sent) < _UNANSWERED_MOST:
                    waits.add(hearing)
                done, _ = await asyncio.wait(waits, timeout=self._patience, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in asking if task in done]:
                    index = asking.pop(task)
                    said = b"" if task.exception() is not None else task.result()
                    if said and found.stream is None:
                        found = _Found(index, self._open.pop(index), said)
                if hearing in done and found.stream is None:
                    data = b"" if hearing.exception() is not None else hearing.result()
                    if not data:
                        found.silent = bool(self._sent) and self._clock() - self._sent_at > SILENT_SECONDS
                        return found
                    self._send(data)
                    hearing = asyncio.create_task(self._reader.read(_CHUNK))
            await self._handed_on(hearing, found.stream[1])
            return found
        finally:
            for task in (hearing, *asking):
                task.cancel()
            await asyncio.gather(hearing, *asking, return_exceptions=True)
            for _, writer in self._open.values():
                writer.close()

    async def _handed_on(self, hearing: asyncio.Task[bytes], writer: asyncio.StreamWriter) -> None:
        """Stop reading from the client; send what was read so far to the server that has the connection."""
        hearing.cancel()
        (data,) = await asyncio.gather(hearing, return_exceptions=True)
        if isinstance(data, bytes) and data:
            writer.write(data)

    def _send(self, data: bytes) -> None:
        self._sent_at = self._sent_at or self._clock()
        self._sent += data
        for _, writer in self._open.values():
            writer.write(data)

    @property
    def _is_due(self) -> bool:
        return self._patience == 0

    @property
    def _patience(self) -> float | None:
        """Seconds until the next server is tried; None: wait until something happens."""
        if not self._left or not self._sent:
            return None
        return max(0.0, max(self._asked_at, self._sent_at) + FIRST_SECONDS - self._clock())

    async def _ask(self, index: int) -> bytes:
        """Connect to a server, send it the client's data, and return its first data; empty if it closes."""
        host, _, port = self._addresses[index].rpartition(":")
        async with asyncio.timeout(CONNECT_SECONDS):
            stream = await asyncio.open_connection(host.strip("[]"), int(port))
        self._open[index] = stream
        stream[1].write(bytes(self._sent))
        return await stream[0].read(_CHUNK)
