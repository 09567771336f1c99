"""A TCP line to the API server that a test can cut or hold, so that a cluster shared by others is left in peace."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self


class Line:
    """Forwards a port to another; `cut` refuses and drops, `hold` takes everything and answers nothing."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._cut = False
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        self.drop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        self._cut = True
        self.drop()

    def drop(self) -> None:
        """Close what is open, and serve on: so a proxy cuts what is silent for too long."""
        for writer in self._writers:
            writer.close()

    def hold(self) -> None:
        self._open.clear()

    def mend(self) -> None:
        self._cut = False
        self._open.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._cut:
            writer.close()
            return
        there_reader, there_writer = await asyncio.open_connection(*self._target)
        self._writers |= {writer, there_writer}
        for source, sink in ((reader, there_writer), (there_reader, writer)):
            task = asyncio.create_task(self._pump(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.CancelledError):
            while chunk := await source.read(65536):
                await self._open.wait()
                sink.write(chunk)
                await sink.drain()
        self._writers.discard(sink)
        sink.close()
