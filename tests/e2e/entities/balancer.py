"""One address before several workers, as a Service is: each connection goes to one of those that listen."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


@asynccontextmanager
async def open_balancer(host: str, port: int, behind: list[tuple[str, int]], rng: random.Random) -> AsyncIterator[None]:
    """Listen, and pass each connection to one of `behind`, which may grow."""
    served = set[asyncio.Task[None]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for place in rng.sample(behind, len(behind)):
            with contextlib.suppress(OSError):
                there_reader, there_writer = await asyncio.open_connection(*place)
                break
        else:
            writer.close()
            return
        for source, sink in ((reader, there_writer), (there_reader, writer)):
            task = asyncio.create_task(_pump(source, sink))
            served.add(task)
            task.add_done_callback(served.discard)

    server = await asyncio.start_server(serve, host, port)
    try:
        yield
    finally:
        server.close()
        for task in tuple(served):
            task.cancel()
        await asyncio.gather(*served, return_exceptions=True)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await source.read(65536):
            sink.write(chunk)
            await sink.drain()
    sink.close()
