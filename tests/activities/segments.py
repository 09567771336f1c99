"""An HTTP endpoint whose answer arrives in several TCP segments."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def segments_told(*segments: bytes) -> AsyncIterator[int]:
    """Serve a port that answers one request in these segments, each of which the asker reads alone."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await reader.readuntil(b"\r\n\r\n")
        for segment in segments:
            writer.write(segment)
            await asyncio.sleep(0.05)
        writer.close()
        ended.set()

    ended = asyncio.Event()
    server = await asyncio.start_server(serve, "0.0.0.0", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        await ended.wait()
