"""The worker's connection to Temporal: made by the settings, and made anew when a certificate or key changes.

All parts of the process share one client. Only the connection below it is replaced, so each of them, and each running
activity, uses the new one from its next call on (row X7, record 0068).
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, Protocol, TypeVar

import structlog
from google.protobuf.message import Message
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, Interceptor, Plugin
from temporalio.converter import DefaultPayloadConverter
from temporalio.runtime import Runtime
from temporalio.service import RPCError, ServiceClient

from holdfast.codec import options
from holdfast.errors import HoldfastError
from holdfast.model.words import shortened
from holdfast.stale import AsksAgain
from holdfast.tls import Credentials, problem_of, tls_of
from holdfast.worker.runtime.settings import Settings, SettingsError

CHECK_PERIOD: Final = 5.0
"""Seconds between two looks at the files."""
CHECK_DEADLINE: Final = timedelta(seconds=3)
_RENEW_SECONDS: Final = 10.0
_CONTENTS: Final = re.compile(r"TEMPORAL_TLS_\w+_DATA")
"""Variables with which Temporal's other tools are given a certificate itself."""

Answer = TypeVar("Answer", bound=Message)
Log: Any = structlog.stdlib.get_logger("holdfast.worker")


class Worker(Protocol):
    """A worker whose client can be set while it runs; its tasks go on."""

    @property
    def client(self) -> Client:
        """The client in use."""
        ...

    @client.setter
    def client(self, value: Client) -> None: ...


class Connection(ServiceClient):
    """A connection that can be replaced below the client that uses it."""

    def __init__(self, first: ServiceClient) -> None:
        """Begin with a connection that is made."""
        super().__init__(first.config)
        self._current = first

    def replace(self, other: ServiceClient) -> None:
        """Use another connection from the next call on; calls under way end on the old one."""
        self.config, self._current = other.config, other

    @property
    def worker_service_client(self) -> Any:
        """The SDK's own connection, for workers."""
        return self._current.worker_service_client

    def update_rpc_metadata(self, metadata: Mapping[str, str | bytes]) -> None:
        """Change the headers of each call."""
        self._current.update_rpc_metadata(metadata)

    def update_api_key(self, api_key: str | None) -> None:
        """Change the API key of each call."""
        self._current.update_api_key(api_key)

    async def _rpc_call(
        self,
        rpc: str,
        req: Message,
        resp_type: type[Answer],
        *,
        service: str,
        retry: bool,
        metadata: Mapping[str, str | bytes],
        timeout: timedelta | None,  # noqa: ASYNC109 - the SDK's signature
    ) -> Answer:
        return await self._current._rpc_call(
            rpc, req, resp_type, service=service, retry=retry, metadata=metadata, timeout=timeout
        )


class TemporalConnector:
    """Connects to Temporal, and again when the files of its settings have other contents."""

    def __init__(
        self,
        settings: Settings,
        target: str,
        runtime: Runtime,
        plugins: Sequence[Plugin] = (),
        interceptors: Sequence[Interceptor] = (),
    ) -> None:
        """Prepare; `target` is the address to connect to."""
        self._settings = settings
        self._target = target
        self._runtime = runtime
        self._plugins = plugins
        self._interceptors = interceptors
        self._options = options.options(settings.codec_keys, accept_plaintext=settings.codec_accept_plaintext)
        self._used: Credentials | None = None
        self._shared: tuple[Client, Connection] | None = None

    @property
    def where(self) -> str:
        """The address and namespace, for messages."""
        return f"{self._settings.temporal_address} (namespace {self._settings.temporal_namespace})"

    async def connect(self) -> Client:
        """Connect, and return the client for all parts of the process.

        Raises:
            RuntimeError: if there is no connection.
            RPCError: if Temporal does not answer, or has no such namespace.
            OSError: if a file cannot be read.
            HoldfastError: if its contents cannot be used.
            SettingsError: if a certificate is given as a variable.
        """
        for name in sorted(os.environ):
            if _CONTENTS.fullmatch(name) and os.environ[name]:
                expected = name.removesuffix("DATA") + "PATH"
                raise SettingsError(f"{name}: a worker reads files, which may change: expected {expected}")
        credentials = self._settings.credentials()
        made = await self._made(credentials)
        connection = Connection(made.service_client)
        config = made.config()
        config["service_client"] = connection
        client = Client(**config)
        self._used, self._shared = credentials, (client, connection)
        return client

    async def renew(self, workers: Iterable[Worker]) -> bool:
        """If a file has another content, replace the connection by one made with it; return whether it did.

        The new connection is made and tried first: if that fails, the old one stays.

        Args:
            workers: those that run with the client.

        Raises:
            RuntimeError, RPCError, OSError, HoldfastError: as `connect`.
        """
        credentials = self._settings.credentials()
        if self._shared is None or credentials == self._used:
            return False
        client, connection = self._shared
        connection.replace((await self._made(credentials)).service_client)
        for worker in workers:
            worker.client = client
        self._used = credentials  # Not before: where a worker could not take it, all of this is done again.
        return True

    async def keep_renewing(self, workers: Iterable[Worker], stop: asyncio.Event, period: float = CHECK_PERIOD) -> None:
        """Look at the files again and again, until `stop` is set; what does not work is logged and tried again."""
        while not await _is_set(stop, period):
            try:
                async with asyncio.timeout(_RENEW_SECONDS):
                    renewed = await self.renew(workers)
            except (HoldfastError, OSError, RuntimeError, ValueError, RPCError) as error:
                why = shortened(str(error), 300) or type(error).__name__
                Log.warning("new certificates for temporal do not work yet", why=why)
                continue
            if renewed:
                Log.info("new certificates for temporal are in use", address=self.where)

    async def _made(self, credentials: Credentials) -> Client:
        tls = tls_of(credentials)
        converter = self._options["data_converter"]
        if self._plugins:  # A plugin brings its own payload converter, and keeps the codec of this one.
            converter = replace(converter, payload_converter_class=DefaultPayloadConverter)
        try:
            client = await Client.connect(
                self._target,
                namespace=self._settings.temporal_namespace,
                api_key=credentials.api_key,
                tls=tls,
                data_converter=converter,
                header_codec_behavior=self._options["header_codec_behavior"],
                plugins=self._plugins,
                interceptors=[AsksAgain(), *self._interceptors],
                identity=self._settings.identity or None,
                runtime=self._runtime,
            )
        except RuntimeError as error:
            problem = problem_of(str(error)) if tls else ""
            raise RuntimeError(f"{problem} ({error})" if problem else str(error)) from error
        request = DescribeNamespaceRequest(namespace=self._settings.temporal_namespace)
        await client.workflow_service.describe_namespace(request, timeout=CHECK_DEADLINE)
        return client


async def _is_set(event: asyncio.Event, seconds: float) -> bool:
    """Wait this long for an event; return whether it is set."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
