"""A real S3 server of a test's own, which can be killed and started again; and a line to it that can be made slow."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import obstore
from obstore.store import S3Store

from holdfast.local.extras.store import BUCKET, KEY, REGION, SECRET, StoreServer
from holdfast.local.programs.resolve import resolve
from holdfast.local.programs.tools import STORE_TOOLS
from tests.e2e.ground.site import free_port


class Store(StoreServer):
    """The server, and its objects."""

    def bucket(self, name: str = BUCKET) -> S3Store:
        config: Any = {"endpoint": self.endpoint, "region": REGION}
        config |= {"access_key_id": KEY, "secret_access_key": SECRET}
        return S3Store(name, config=config, client_options={"allow_http": True})

    def put(self, key: str, data: bytes) -> None:
        obstore.put(self.bucket(), key, data)

    def delete(self, key: str) -> None:
        obstore.delete(self.bucket(), key)

    def settings(self, cache: Path, endpoint: str = "", sources: str = f"*=s3://{BUCKET}") -> dict[str, str]:
        """Return what a worker is told to stage from here, as variables."""
        return {
            **self.environment,
            "HOLDFAST_DATA_DIRECTORY": str(cache),
            "HOLDFAST_DATA_ENDPOINT": endpoint or self.endpoint,
            "HOLDFAST_DATA_SOURCES": sources,
        }


@contextmanager
def open_store(directory: Path) -> Iterator[Store]:
    """Open a store of a test's own."""
    directory.mkdir(parents=True, exist_ok=True)
    store = Store(directory, resolve(STORE_TOOLS, lambda _: None)["versitygw"], free_port())
    store.start()
    try:
        yield store
    finally:
        store.kill()


class Meter:
    """A line to a store on which only so many bytes pass until it is opened."""

    def __init__(self, store: Store, budget: int) -> None:
        self._store = store
        self._left = budget
        self._open = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self.port = 0
        self.stalled = asyncio.Event()
        """Set once something is held back."""

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def open(self) -> None:
        """Let everything pass from now on."""
        self._open.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        there: asyncio.StreamWriter | None = None
        try:
            with contextlib.suppress(OSError):
                back, there = await asyncio.open_connection("127.0.0.1", self._store.port)
                ends = [asyncio.create_task(self._pump(reader, there)), asyncio.create_task(self._back(back, writer))]
                self._tasks.update(ends)
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                for end in ends:
                    end.cancel()
        finally:
            writer.close()
            if there is not None:
                there.close()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await source.read(65536):
                sink.write(piece)
                await sink.drain()

    async def _back(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while piece := await source.read(65536):
                self._left -= len(piece)
                while self._left < 0 and not self._open.is_set() and self._store.process is not None:
                    self.stalled.set()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._open.wait(), 0.05)
                if self._store.process is None:
                    return  # What had not passed is lost with its server.
                sink.write(piece)
                await sink.drain()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@asynccontextmanager
async def metered(store: Store, budget: int) -> AsyncIterator[Meter]:
    """Open a line on which so many bytes pass, and then none until it is opened."""
    meter = Meter(store, budget)
    server = await asyncio.start_server(meter.serve, "127.0.0.1", free_port())
    meter.port = server.sockets[0].getsockname()[1]
    try:
        yield meter
    finally:
        server.close()
        await meter.close()
