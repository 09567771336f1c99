"""Client of the rendezvous: posts an announcement to the address that serves the gang, and returns the directive."""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import socket
import ssl
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from holdfast.agent.messages import Directive, NotUnderstood

PATH: Final = "/rendezvous/v1/{workload}/announce"
_CONNECT_LIMIT: Final = 3.0
_ANSWER_LIMIT: Final = 5.0
"""Seconds that an answer may take beyond the time for which the rendezvous may hold it back."""
_BODY_MAXIMUM: Final = 1 << 20
_FINAL: Final = frozenset({400, 403})
"""Statuses with which the rendezvous refuses this agent for good; agents do not retry them."""


class Unreachable(Exception):
    """No server of this gang answered; the agent continues as before, and tries again."""


class Refused(Exception):
    """The rendezvous has refused this agent for good; the text is the rendezvous's own."""


class Hub:
    """A client for one gang's rendezvous. It runs one exchange at a time, and reuses its connection."""

    def __init__(self, url: str, workload_uid: str, token_file: str, ca_file: str = "") -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._secure = parts.scheme == "https"
        self._port = parts.port or (443 if self._secure else 80)
        self._target = parts.path.rstrip("/") + PATH.format(workload=workload_uid)
        self._token_file = token_file
        self._ca_file = ca_file
        self._address: str | None = None
        """The address that last served this gang."""
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def exchange(self, announcement: Mapping[str, Any], held: float = 0.0) -> Directive:
        """Post an announcement and return the directive; the call may be cancelled at any point, and repeated.

        Args:
            announcement: The announcement in its wire format.
            held: For how many seconds the rendezvous may hold the answer back.

        Raises:
            Unreachable: if no address serves the gang, or none answers with a directive.
            Refused: if the rendezvous refuses this agent for good.
        """
        body = json.dumps(announcement).encode()
        if self._streams:
            try:
                return await self._ask(body, held)
            except _Stale:
                pass  # the connection was closed while idle: its other end may still serve the gang
            except Unreachable:
                self._address = None
        problems: list[str] = []
        for address in await self._addresses():
            try:
                await self._connect(address)
                answer = await self._ask(body, held)
            except (Unreachable, _Stale) as error:
                problems.append(f"{address}: {error}")
            else:
                self._address = address
                return answer
        raise Unreachable("; ".join(problems) or f"{self._host}: no address")

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._streams:
            self._streams[1].close()
            self._streams = None

    async def _addresses(self) -> list[str]:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:  # A name that DNS cannot encode raises ValueError.
            raise Unreachable(f"{self._host}: {error}") from error
        addresses = list(dict.fromkeys(str(one[4][0]) for one in found))
        # Try the address that answered last first: it most likely still serves the gang.
        return sorted(addresses, key=lambda address: address != self._address)

    async def _connect(self, address: str) -> None:
        self.close()
        name = self._host if self._secure else None
        try:
            # Read for each connection: the kubelet may have renewed the file.
            context = ssl.create_default_context(cafile=self._ca_file or None) if self._secure else None
            async with asyncio.timeout(_CONNECT_LIMIT):
                self._streams = await asyncio.open_connection(address, self._port, ssl=context, server_hostname=name)
        except (OSError, TimeoutError) as error:
            raise Unreachable(f"cannot connect: {error or 'no answer'}") from error

    async def _ask(self, body: bytes, held: float) -> Directive:
        """Post on the open connection; close it unless it can be reused."""
        streams, self._streams = self._streams, None
        assert streams
        reader, writer = streams
        usable = False
        try:
            async with asyncio.timeout(held + _ANSWER_LIMIT):
                writer.write(self._request(body))
                await writer.drain()
                status, answer, usable = await _response(reader)
        except TimeoutError as error:
            raise Unreachable("no answer in time") from error
        except asyncio.IncompleteReadError as error:
            raise (Unreachable("the answer broke off") if error.partial else _Stale("closed")) from error
        except (OSError, ValueError, http.client.HTTPException, asyncio.LimitOverrunError) as error:
            raise Unreachable(f"no answer: {error}") from error
        finally:
            if usable:
                self._streams = streams
            else:
                writer.close()
        return _read(status, answer)

    def _request(self, body: bytes) -> bytes:
        try:
            with open(self._token_file, encoding="utf-8") as file:
                token = file.read().strip()
        except (OSError, ValueError) as error:
            raise Unreachable(f"the pod's token cannot be read: {error}") from error
        host = f"[{self._host}]" if ":" in self._host else self._host
        head = (
            f"POST {self._target} HTTP/1.1\r\nHost: {host}:{self._port}\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nAccept: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


class _Stale(Exception):
    """The other end has closed a connection that was kept for reuse."""


async def _response(reader: asyncio.StreamReader) -> tuple[int, bytes, bool]:
    """Return status and body, and whether the connection may be used again.

    Raises:
        asyncio.IncompleteReadError: if the other end closed it first.
        ValueError, http.client.HTTPException: if the answer is not HTTP, or is too long.
    """
    head = await reader.readuntil(b"\r\n\r\n")
    line, _, fields = head.partition(b"\r\n")
    version, _, rest = line.partition(b" ")
    if not version.startswith(b"HTTP/1."):
        raise ValueError(f"expected HTTP/1.1, found {line[:40]!r}")
    headers = http.client.parse_headers(io.BytesIO(fields))
    if "chunked" in headers.get("Transfer-Encoding", "").lower():
        body = await _chunks(reader)
    elif (length := headers.get("Content-Length")) is not None:
        if int(length) > _BODY_MAXIMUM:
            raise ValueError(f"an answer of {length} bytes: expected at most {_BODY_MAXIMUM}")
        body = await reader.readexactly(int(length))
    else:
        raise ValueError("an answer without a length")
    kept = version == b"HTTP/1.1" and "close" not in headers.get("Connection", "").lower()
    return int(rest[:3]), body, kept


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readline()).partition(b";")[0], 16):
        if len(body) + size > _BODY_MAXIMUM:
            raise ValueError(f"an answer of more than {_BODY_MAXIMUM} bytes")
        body += await reader.readexactly(size)
        await reader.readline()
    while (await reader.readline()).strip():
        pass  # trailers
    return body


def _read(status: int, answer: bytes) -> Directive:
    if status == http.client.OK:
        try:
            return Directive.read(json.loads(answer))
        except (NotUnderstood, ValueError, RecursionError) as error:
            raise Unreachable(str(error)) from error
    try:
        words = str(json.loads(answer)["error"])
    except (ValueError, KeyError, TypeError, RecursionError):
        words = answer[:200].decode(errors="replace")
    said = f"{status} {words}".strip()
    if status in _FINAL:
        raise Refused(said)
    raise Unreachable(said)
