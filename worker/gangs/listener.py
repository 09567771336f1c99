"""Accepts the connections of the gang door, over TLS, and bounds their number, their silence and their heads."""

from __future__ import annotations

import asyncio
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog
from aiohttp import web

from holdfast.worker.gangs.connections import Connections
from holdfast.worker.gangs.limits import source_of

HANDSHAKE_SECONDS: Final = 5.0
IDLE_SECONDS: Final = 15.0
"""How long a connection may take until it has sent a whole head, at its beginning and after each answer."""
CONNECTIONS_MAXIMUM: Final = 8192
_LIMITS: Final[dict[str, Any]] = {
    "keepalive_timeout": IDLE_SECONDS,
    "max_line_size": 2048,
    "max_field_size": 8190,
    "max_headers": 32,
    "lingering_time": 1.0,
    "auto_decompress": False,
    "access_log": None,
}

Handler = Callable[[web.BaseRequest, Callable[[str], None]], Awaitable[web.StreamResponse]]
"""Answers a request; calls what it is given with the uid of the pod whose it is, once that is proven."""
Log: Any = structlog.stdlib.get_logger("holdfast.gangs")


class _Connection:
    """One connection, from its acceptance on."""

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.transport: asyncio.BaseTransport | None = None

    def close(self) -> None:
        """Drop it, in whichever state it is."""
        if isinstance(self.transport, asyncio.Transport):
            self.transport.abort()
        elif self.task is not None:
            self.task.cancel()


class _Server(web.Server):
    """Makes the protocol of each connection, and says when one has ended."""

    def __init__(
        self, handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]], lost: Callable[[object], None]
    ) -> None:
        super().__init__(handler, handler_cancellation=True, **_LIMITS)
        self._lost = lost

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._lost(handler)


class Listener:
    """Serves one handler at one address."""

    def __init__(self, handler: Handler, tls: ssl.SSLContext | None = None) -> None:
        """Prepare; without a TLS context it serves plain HTTP."""
        self._server = _Server(self._handle, self._forget)
        self._answer = handler
        self._tls = tls
        self._connections: Connections[_Connection] = Connections(_room())
        self._of: dict[object, _Connection] = {}
        """The connection of each protocol."""
        self._listening: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None

    async def start(self, address: str) -> str:
        """Listen at host:port; return the address (port 0: a free one).

        Raises:
            OSError: if it cannot be bound.
        """
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, place = found[0]
        self._listening = socket.create_server(place[:2], family=family, backlog=512)
        self._listening.setblocking(False)
        self._accepting = asyncio.create_task(self._accept(self._listening))
        return f"{host}:{self._listening.getsockname()[1]}"

    async def close(self) -> None:
        """Stop listening, and end all connections."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
        if self._listening is not None:
            self._listening.close()
        await self._server.shutdown(1)
        for connection in list(self._connections):
            connection.close()

    def _forget(self, protocol: object) -> None:
        connection = self._of.pop(protocol, None)
        if connection is not None:
            self._connections.remove(connection)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        protocol = request.protocol

        def proven(pod_uid: str) -> None:
            connection = self._of.get(protocol)
            excess = self._connections.prove(connection, pod_uid) if connection is not None else None
            if excess is not None:
                excess.close()

        return await self._answer(request, proven)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, peer = await loop.sock_accept(listening)
            except OSError as error:
                Log.warning("a connection of an agent is not accepted", why=error.strerror or str(error))
                await asyncio.sleep(0.1)
                continue
            connection = _Connection()
            excess = self._connections.add(connection, source_of(str(peer[0])))
            if excess is connection:
                accepted.close()
                continue
            if excess is not None:
                excess.close()
            connection.task = asyncio.create_task(self._begin(connection, accepted))

    async def _begin(self, connection: _Connection, accepted: socket.socket) -> None:
        protocol = self._server()
        self._of[protocol] = connection
        try:
            connection.transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol,
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_SECONDS if self._tls else None,
            )
        except BaseException as error:
            self._forget(protocol)
            if not isinstance(error, (OSError, asyncio.CancelledError)):
                raise


def _room() -> int:
    """Return how many connections may be open: at most half of the files that this process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return CONNECTIONS_MAXIMUM if soft == resource.RLIM_INFINITY else min(CONNECTIONS_MAXIMUM, soft // 2)
