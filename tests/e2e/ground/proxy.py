"""A TCP proxy before a server, to take that server away from one client without disturbing any other.

TLS passes through it unopened. A kubeconfig for it keeps the server's name, so that the certificate stays right.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from tests.e2e.ground.site import free_port

CHUNK = 1 << 16


class Proxy:
    """One listening port that leads to one server, as long as it is let."""

    def __init__(self, host: str, port: int, own_host: str = "127.0.0.1", own_port: int = 0) -> None:
        self.host, self.port, self.own_host = host, port, own_host
        # Free still when it is listened on again after a refusal.
        self.own_port = own_port or free_port()
        self.turned_away = 0
        """Connections that were reset instead of being led on."""
        self._server: asyncio.Server | None = None
        self._open = asyncio.Event()
        self._resetting = False
        self._closed = False
        self._handlers: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Listen, on the same port each time."""
        self._server = await self._listen()
        self._open.set()

    async def close(self) -> None:
        """End everything."""
        self._closed = True
        await self._unlisten()
        self._reset_all()
        self._open.set()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    # --- what can go wrong with a network

    def black_hole(self) -> None:
        """Let nothing through any more: connections stay open, new ones are taken, and nothing is ever said."""
        self._open.clear()

    async def refuse(self) -> None:
        """Be gone: all connections are reset, and new ones are refused."""
        await self._unlisten()
        self._reset_all()

    def reset(self) -> None:
        """Take each connection and reset it at once, and count them."""
        self._resetting = True
        self._reset_all()

    async def heal(self, *, lose: bool = True) -> None:
        """Lead on again. What was sent into the black hole is lost with its connections, or else arrives now."""
        self._resetting = False
        if lose and not self._open.is_set():
            self._reset_all()
        self._open.set()
        if self._server is None:
            await self.start()

    # --- below

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._accepted, self.own_host, self.own_port, reuse_address=True)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self.host, self.port)

    async def _asked(self, reader: asyncio.StreamReader, onward: asyncio.StreamWriter) -> None:
        """Lead on what the client says."""
        await self._pump(reader, onward)

    async def _unlisten(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def _reset_all(self) -> None:
        for writer in list(self._writers):
            _reset(writer)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        task.add_done_callback(self._handlers.discard)
        if self._resetting:
            self.turned_away += 1
            _reset(writer)
            return
        self._writers.add(writer)
        onward: asyncio.StreamWriter | None = None
        try:
            await self._open.wait()
            if self._closed or writer.transport.is_closing():
                return
            back, onward = await self._connect()
            self._writers.add(onward)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._asked(reader, onward))
                both.create_task(self._pump(back, writer))
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for each in (writer, onward):
                if each is not None:
                    self._writers.discard(each)
                    each.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(CHUNK):
            await self._open.wait()
            writer.write(chunk)
            await writer.drain()
        with contextlib.suppress(OSError):
            writer.write_eof() if writer.can_write_eof() else writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection with RST, as a dead host's neighbour would."""
    # Under TLS, a connection that has ended does not even know its socket any more.
    with contextlib.suppress(OSError, AttributeError):
        raw = writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@asynccontextmanager
async def api_proxy(kubeconfig: Path, directory: Path) -> AsyncIterator[tuple[Proxy, Path]]:
    """Open a proxy before a kubeconfig's API server; yield it with a kubeconfig that leads through it."""
    host, port = address_in(kubeconfig)
    proxy = Proxy(host, port)
    await proxy.start()
    try:
        yield proxy, redirected(kubeconfig, directory / "proxied.kubeconfig", host, proxy.own_port)
    finally:
        await proxy.close()


def address_in(kubeconfig: Path) -> tuple[str, int]:
    """Return host and port of a kubeconfig's API server."""
    server = urlsplit(_read(kubeconfig)["clusters"][0]["cluster"]["server"])
    assert server.hostname is not None
    assert server.port is not None
    return server.hostname, server.port


def _read(kubeconfig: Path) -> dict[str, Any]:
    return yaml.safe_load(kubeconfig.read_text())


def redirected(kubeconfig: Path, path: Path, host: str, port: int) -> Path:
    """Write a kubeconfig that leads to a port on this machine, and still expects the server's own name."""
    document = _read(kubeconfig)
    (entry,) = document["clusters"]
    entry["cluster"]["server"] = f"https://127.0.0.1:{port}"
    entry["cluster"]["tls-server-name"] = host
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(document))
    return path
