"""A proxy before the API server that opens TLS, with the server's own certificate, and so knows what it leads on.

With it a worker's line can be cut right before a request of a certain sort: that one is under way when the worker is
fenced, and arrives late when its network heals.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.e2e.ground.proxy import CHUNK, Proxy

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD")
_END_LATE_SECONDS = 3.0
"""A connection's end arrives this much later than what was said last on it, so that it does not take that back."""


@dataclass(frozen=True)
class Sent:
    """One request that the worker sent."""

    method: str
    path: str
    dry: bool
    """Whether the server was only asked what it would say."""
    at: datetime
    """When it was led on to the server."""
    late: bool
    """Whether it had been sent before the line was cut, and arrived after it was mended."""

    @property
    def write(self) -> bool:
        """Whether it was to change an object."""
        return self.method not in {"GET", "HEAD"} and not (self.dry or self.path.endswith("subjectaccessreviews"))


Wanted = Callable[[str, str], bool]
"""Whether a request of this method and path is meant; it is never asked about a dry run."""


class ReadingProxy(Proxy):
    """A proxy that knows which request it leads on, and can be told before which one the line is to be cut."""

    def __init__(self, host: str, port: int, certificate: Path, key: Path) -> None:
        super().__init__(host, port)
        self._as_server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._as_server.load_cert_chain(certificate, key)
        self._as_client = ssl.create_default_context(cafile=str(certificate))
        self.sent: list[Sent] = []
        """What has been led on, in order."""
        self._wanted: Wanted | None = None
        self._left = 0
        self._cut = asyncio.Event()
        self._with: tuple[Proxy, ...] = ()

    def cut_before(self, wanted: Wanted, nth: int = 1, *, beside: tuple[Proxy, ...] = ()) -> asyncio.Event:
        """Cut this line and others right before the nth request of a sort; return what tells that they are."""
        self._wanted, self._left, self._with = wanted, nth, beside
        self._cut = asyncio.Event()
        return self._cut

    def writes(self, since: datetime | None = None) -> list[Sent]:
        """Return the changing requests that were led on, Events aside."""
        return [
            one
            for one in self.sent
            if one.write and not one.path.endswith("/events") and (since is None or one.at >= since)
        ]

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(
            self._accepted, "127.0.0.1", self.own_port, ssl=self._as_server, reuse_address=True
        )

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._open.is_set():
            # This proxy has shaken hands, which nobody can through a black hole: nothing said here was ever under way.
            self._writers.add(writer)
            await self._open.wait()
            self._writers.discard(writer)
            writer.transport.abort()
            return
        await super()._accepted(reader, writer)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self.host, self.port, ssl=self._as_client)

    async def _asked(self, reader: asyncio.StreamReader, onward: asyncio.StreamWriter) -> None:
        late = False
        with contextlib.suppress(OSError):
            while chunk := await reader.read(CHUNK):
                request = _request_in(chunk)
                if request is not None:
                    self._consider(*request)
                held = not self._open.is_set()
                await self._open.wait()
                late = late or held
                if held and onward.is_closing():
                    # The API server ends a connection that says nothing for 90 s. The request arrives all the same.
                    onward = await self._connect_again()
                if request is not None:
                    self.sent.append(Sent(*request, datetime.now(UTC), held))
                onward.write(chunk)
                await onward.drain()
        if late:
            await asyncio.sleep(_END_LATE_SECONDS)
        onward.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Lead answers on; a client that has gone meanwhile does not end what it had asked for."""
        while chunk := await reader.read(CHUNK):
            await self._open.wait()
            if not writer.transport.is_closing():
                with contextlib.suppress(OSError):
                    writer.write(chunk)
                    await writer.drain()
        await self._open.wait()
        writer.close()

    async def _connect_again(self) -> asyncio.StreamWriter:
        """Connect for what is late. Nobody waits for the answer any more, so it is read and dropped."""
        unread, onward = await self._connect()
        self._writers.add(onward)
        reading = asyncio.create_task(_read_all(unread))
        self._handlers.add(reading)
        reading.add_done_callback(self._handlers.discard)
        return onward

    def _consider(self, method: str, path: str, dry: bool) -> None:
        if self._wanted is None or dry or not self._open.is_set() or not self._wanted(method, path):
            return
        self._left -= 1
        if self._left == 0:
            self._wanted = None
            for each in (self, *self._with):
                each.black_hole()
            self._cut.set()


async def _read_all(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(OSError):
        await reader.read()


def _request_in(chunk: bytes) -> tuple[str, str, bool] | None:
    """Return method, path and whether it is a dry run if a request begins here; the next one comes after the answer."""
    method, _, rest = chunk[:4096].partition(b" ")
    if method.decode(errors="replace") not in _METHODS:
        return None
    path, _, query = rest.partition(b" ")[0].decode(errors="replace").partition("?")
    return method.decode(), path, "dryRun=All" in query
