"""One address for several Temporal servers: whoever connects here is passed on to one of them that answers (row L10).

The SDK knows one target. A name with several addresses is enough for it, where somebody keeps such a name; this is for
where nobody does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Final

_log = logging.getLogger("holdfast.relay")

LOOPBACK: Final = "127.0.0.1"
CONNECT_SECONDS: Final = 2.0
"""A server that has not taken a connection by then is passed over."""
SILENT_SECONDS: Final = 10.0
"""A server that has answered nothing for that long to what was sent is not the first to be tried again."""
_CHUNK: Final = 1 << 16


def addresses_of(target: str) -> tuple[str, ...]:
    """Return each `host:port` of a target; several have commas between them."""
    return tuple(one.strip() for one in target.split(",") if one.strip())


@asynccontextmanager
async def relayed(target: str) -> AsyncGenerator[str]:
    """Yield the one address to connect to: the target's own, or that of a relay for as long as this lasts."""
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
    """Passes connections on, unread. What it passes on may be encrypted: the name to be proven is then to be given."""

    def __init__(self, addresses: Sequence[str]) -> None:
        """Begin with the first.

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
        """Listen no more, and break off what is passed on."""
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
            pass  # The relay is closed; whoever made this task would only be told of an error that is none.
        finally:
            self._passing.discard(task)
            writer.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found = await self._connected()
        if found is None:
            return
        index, far_reader, far_writer = found
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
            if (ways[1].done() or silent) and self._first == index:
                # It has gone, or does not answer: the next connection tries another first.
                self._first = (index + 1) % len(self._addresses)
                _log.warning("Temporal at %s is lost: connecting to another", self._addresses[index])
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            far_writer.close()

    async def _connected(self) -> tuple[int, asyncio.StreamReader, asyncio.StreamWriter] | None:
        """Connect to the first that takes it, beginning with the one that did last; None if none does."""
        count = len(self._addresses)
        for index in [(self._first + step) % count for step in range(count)]:
            host, _, port = self._addresses[index].rpartition(":")
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_SECONDS):
                    streams = await asyncio.open_connection(host.strip("[]"), int(port))
                self._first = index
                return index, *streams
        return None
