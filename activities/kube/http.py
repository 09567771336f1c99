"""The transport of the Kubernetes client: credentials, connections, requests, and which went unanswered."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol, Self, cast
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio import config as kube_config
from kubernetes.aio.client.configuration import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException

from holdfast import names
from holdfast.activities.kube.blindness import Answers, Sight
from holdfast.activities.kube.deep import loads
from holdfast.activities.kube.errors import KubeError, QuotaExceeded, Unreachable, error_of, is_log

Object = dict[str, Any]
"""A Kubernetes object as JSON has it."""

CONNECT_TIMEOUT = 5.0
TOTAL_TIMEOUT = 10.0
POOL_SIZE = 64
_RELOGIN_SECONDS = 10.0
_RELOGIN_DEADLINE = 30.0
_WRITES = frozenset({"PATCH", "PUT", "DELETE"})
"""What is answered from the store alone; reviews, which are not, are POSTs."""
_KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 2}
"""Seconds of silence until the kernel asks the other end, seconds between two askings, and how many may go unanswered.

A connection whose other end is gone, or is forgotten by what is between, breaks within 20 s. Not every system has all.
"""
LASTING: Final = timedelta(seconds=10)
"""How long a stream must have been open for its end to be no failure."""
_ACCEPT = "application/json, */*"
"""As kubectl asks: the keys of tokens are JSON by another name (`application/jwk-set+json`)."""


class _Response(Protocol):
    response: aiohttp.ClientResponse


@dataclass(slots=True)
class Contact:
    """When the server last sent something on a request; at first, when the request was sent."""

    at: datetime
    stream: bool = False
    answered: datetime | None = None

    def dark_since(self, error: Exception) -> datetime:
        """Return since when nothing is known: a silence counts from the last data, a connection that broke from now."""
        return self.at if isinstance(error, TimeoutError) or self.answered is None else datetime.now(UTC)

    def is_cut(self, error: Exception) -> bool:
        """Whether a stream broke that has lasted: proxies cut silent ones. The next request tells more."""
        lasted = self.stream and self.answered is not None and datetime.now(UTC) - self.answered >= LASTING
        return lasted and not isinstance(error, TimeoutError)


class _Rest(RESTClientObject):
    """The library's client, with connections that notice when their other end is gone."""

    def _create_connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(limit=0, ssl=self.ssl_context, socket_factory=_socket)


def _socket(address: Any) -> socket.socket:
    made = socket.socket(*address[:3])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _KEEPALIVE.items():
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


class Transport:
    """Sends requests to one API server, within a deadline each, and marks in `sight` whether they were answered."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        sight: Sight | None = None,
        pool_size: int = POOL_SIZE,
        connect_timeout: float = CONNECT_TIMEOUT,
        timeout: float = TOTAL_TIMEOUT,
        kubeconfig: str | None = None,
        context: str | None = None,
    ) -> None:
        self.sight = sight or Sight()
        """The record of when the API server did not answer this client."""
        self.answers = Answers()
        # A given record may be that of one kind. Our own is that of the whole server: an error of a single kind does
        # not count as blindness.
        self._sees_all = sight is None
        self.timeout = timeout
        self.connect_timeout = connect_timeout
        self._configuration = configuration
        self._kubeconfig = kubeconfig
        self._context = context
        # Waiting for a free slot is not waiting for the server, so it must not eat into a request's deadline: slots are
        # counted here and the connector itself is unbounded. Watches, which last, take no slot.
        self._slots = asyncio.Semaphore(pool_size)
        self._rest = _Rest(configuration)
        self._login = asyncio.Lock()
        self._logged_in = 0.0
        self._renewal: asyncio.Future[Configuration] | None = None

    @classmethod
    async def connect(
        cls,
        kubeconfig: str | None = None,
        *,
        context: str | None = None,
        sight: Sight | None = None,
        pool_size: int = POOL_SIZE,
        connect_timeout: float = CONNECT_TIMEOUT,
        timeout: float = TOTAL_TIMEOUT,  # noqa: ASYNC109 - of each request to come
    ) -> Self:
        """Return a client with the credentials of a kubeconfig; without one, for the cluster this process runs in."""
        return cls(
            await _configuration(kubeconfig, context),
            sight=sight,
            pool_size=pool_size,
            connect_timeout=connect_timeout,
            timeout=timeout,
            kubeconfig=kubeconfig,
            context=context,
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._renewal is not None:
            self._renewal.cancel()
        await self._rest.close()

    async def __aenter__(self) -> Self:
        """Return the client itself."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close all connections."""
        await self.close()

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
        impersonate: str = "",
        timeout: float | None = None,  # noqa: ASYNC109 - a deadline of the HTTP request, not of this coroutine
    ) -> Object:
        """Send a request and return its answer; waits for a free slot first."""
        deadline = aiohttp.ClientTimeout(total=timeout or self.timeout, sock_connect=self.connect_timeout)
        async with (
            self._slots,
            self._sent(
                method,
                path,
                query=query,
                body=body,
                content_type=content_type,
                impersonate=impersonate,
                deadline=deadline,
            ) as response,
        ):
            text = await response.read()
            return cast("Object", parsed(text, method, path)) if text else {}

    def streamed(
        self, path: str, query: Mapping[str, str], deadline: aiohttp.ClientTimeout, impersonate: str = ""
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """Send a GET whose answer is read as it comes, within a deadline of its own."""
        return self._sent("GET", path, query=query, deadline=deadline, impersonate=impersonate)

    @asynccontextmanager
    async def _sent(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
        impersonate: str = "",
        deadline: aiohttp.ClientTimeout,
        contact: Contact | None = None,
        opening: float | None = None,
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Send a request, raise the error of its answer, and record in `sight` whether it was answered.

        `opening` are the seconds until the answer must begin; None if the deadline alone counts.
        """
        contact = contact or Contact(datetime.now(UTC))
        sent = contact.at
        url = f"{self._configuration.host}{path}" + (f"?{urlencode(query)}" if query else "")

        async def send() -> aiohttp.ClientResponse:
            async with asyncio.timeout(opening):
                return await self._send(method, url, body, content_type, impersonate, deadline)

        try:
            response = await send()
            if response.status == 401 and await self._relogin():
                response.release()
                response = await send()
            try:
                if response.status == 403 and await self._doubted(await _error(response, method, path)):
                    response.release()
                    response = await send()
                if response.status >= 400:
                    raise await _error(response, method, path)
                contact.at = contact.answered = datetime.now(UTC)
                self.sight.regained(contact.at)
                if method in _WRITES:
                    self.answers.note(sent)
                yield response
            finally:
                response.release()
        except Unreachable as error:
            if error.blinding(method) and not (self._sees_all and error.partial(path)):
                self.sight.lost(contact.dark_since(error), opened=contact.answered is not None)
            raise
        except KubeError:
            self.sight.regained()
            raise
        except (TimeoutError, aiohttp.ClientError, ssl.SSLError, OSError) as error:
            if not is_log(path) and not contact.is_cut(error):  # It may have been the kubelet that fell silent.
                self.sight.lost(contact.dark_since(error), opened=contact.answered is not None)
            detail = str(error) or type(error).__name__
            raise Unreachable(0, "Unreachable", f"{method} {path}: {detail}") from error

    async def ready(self) -> bool:
        """Ask the API server whether it is ready; a server that forbids the question counts as ready."""
        deadline = aiohttp.ClientTimeout(total=self.connect_timeout)
        url = f"{self._configuration.host}/readyz"
        try:
            response = await self._send("GET", url, None, "application/json", "", deadline)
        except (TimeoutError, aiohttp.ClientError, ssl.SSLError, OSError):
            return False
        response.release()
        return response.status < 500

    async def _doubted(self, error: KubeError) -> bool:
        """Whether to repeat a forbidden request: a server that has just started forbids it until it has read all roles.

        Raises:
            Unreachable: if it has not read them yet. Once it has, its next answer counts.
        """
        if isinstance(error, QuotaExceeded):
            return False
        if not await self.ready():
            raise Unreachable(503, "NotReady", f"it is starting, and does not know all roles yet: {error.message}")
        return True

    async def _send(
        self,
        method: str,
        url: str,
        body: Object | None,
        content_type: str,
        impersonate: str,
        deadline: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": _ACCEPT, "User-Agent": names.FIELD_MANAGER, "Content-Type": content_type}
        token = await self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        if token:
            headers["Authorization"] = token
        if impersonate:
            headers["Impersonate-User"] = impersonate
        answer = cast(
            "_Response",
            await self._rest.request(  # pyright: ignore[reportUnknownMemberType]
                method, url, headers=headers, body=body, _request_timeout=deadline
            ),
        )
        return answer.response

    async def _relogin(self) -> bool:
        """Read the credentials again, as they may have been renewed; at most once in ten seconds.

        False if that was tried just now, or gives none: the server's refusal stands. A program that hangs is waited for
        by the next try, and not begun a second time.
        """
        clock = asyncio.get_running_loop().time
        async with self._login:
            if self._logged_in and clock() - self._logged_in < _RELOGIN_SECONDS:
                return False
            if self._renewal is None:
                self._renewal = asyncio.ensure_future(_configuration(self._kubeconfig, self._context))
            try:
                done, _ = await asyncio.wait({self._renewal}, timeout=_RELOGIN_DEADLINE)
            finally:
                self._logged_in = clock()
            if not done:
                return False
            renewal, self._renewal = self._renewal, None
            try:
                self._configuration = renewal.result()
            except (ConfigException, OSError, ValueError):  # The program fails, or a file is not readable now.
                return False
            old, self._rest = self._rest, _Rest(self._configuration)
            await old.close()
            return True


async def _configuration(kubeconfig: str | None, context: str | None) -> Configuration:
    configuration = Configuration()
    # The proxy is read from the environment once. `trust_env` would read it for each request, and .netrc too.
    configuration.client_session_kwargs = {"trust_env": False}
    if kubeconfig is None:
        kube_config.load_incluster_config(  # pyright: ignore[reportUnknownMemberType]
            client_configuration=configuration
        )
    else:
        if not any(Path(one).expanduser().exists() for one in kubeconfig.split(os.pathsep) if one):  # noqa: ASYNC240
            # The library logs a warning, and says that a key is missing.
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), kubeconfig)
        await kube_config.load_kube_config(  # pyright: ignore[reportUnknownMemberType]
            config_file=kubeconfig, context=context, client_configuration=configuration, persist_config=False
        )
    if configuration.proxy is None:
        configuration.proxy = _proxy(configuration.host)
    return configuration


def _proxy(url: str) -> str | None:
    """Return the proxy that the environment (`https_proxy`, `no_proxy`) names for the API server, if any."""
    parts = urlsplit(url)
    if not parts.hostname or proxy_bypass(parts.hostname):
        return None
    return getproxies().get(parts.scheme)


async def _error(response: aiohttp.ClientResponse, method: str, path: str) -> KubeError:
    return error_of(response.status, _status(await response.read()), method, path, response.headers)


def parsed(text: bytes, method: str, path: str) -> Any:
    """Read an answer, whatever has sent it.

    Raises:
        Unreachable: if it is none of an API server: of a proxy's, or of the server of one group's.
    """
    try:
        return loads(text)
    except ValueError as error:
        raise Unreachable(502, "Unreadable", f"{method} {path}: the answer is no JSON: {error}") from None


def _status(text: bytes) -> Object:
    """Return the `Status` of an error answer; for any other answer (a proxy's), its text as the message."""
    try:
        status: Any = json.loads(text)
    except ValueError:
        return {"message": text[:200].decode(errors="replace")}
    return cast("Object", status) if isinstance(status, dict) else {"message": str(status)[:200]}


async def body_of(response: aiohttp.ClientResponse, maximum: int) -> bytes:
    """Read an answer to its end, or to so many bytes of it; a single read returns only what has arrived."""
    parts, left = list[bytes](), maximum
    while left and (part := await response.content.read(left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


async def lines(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Yield an answer's lines, however long each is."""
    rest = b""
    async for chunk in response.content.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            if line.strip():
                yield line
