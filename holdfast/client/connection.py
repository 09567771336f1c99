"""The connection to Temporal: its address, and its errors translated into messages that a person can act on."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Final

from temporalio.client import Client
from temporalio.envconfig import ClientConfigProfile, DataSource
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names, traces
from holdfast.codec.options import from_environment
from holdfast.errors import HoldfastError, NotReachable
from holdfast.relay import relayed
from holdfast.stale import AsksAgain
from holdfast.tls import DENIED, Credentials, check_target, key_of, problem_of, tls_of

CONNECT_TIMEOUT: Final = timedelta(seconds=3)
ENV_ADDRESS: Final = "HOLDFAST_TEMPORAL_ADDRESS"
ENV_API_KEY_FILE: Final = "HOLDFAST_TEMPORAL_API_KEY_FILE"
"""A file with the API key, in place of TEMPORAL_API_KEY, as for a worker."""
DEFAULT_TARGET: Final = "localhost:7233"
_REMEDY: Final = (
    "is it running there? Set TEMPORAL_ADDRESS or --address, "
    'or start the local one: `holdfast dev up`, then `eval "$(holdfast dev env)"`'
)
_REMEDY_TLS: Final = "check what TEMPORAL_TLS_* or the profile name: certificates, their authority, the server's name"
_REMEDY_DENIED: Final = "check what this key or certificate may do (TEMPORAL_API_KEY, TEMPORAL_TLS_*, your profile)"
_AWAY: Final = {RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED}
_log: Final = logging.getLogger("holdfast.client")


@dataclass(frozen=True)
class Place:
    """Identifies a Temporal namespace: the server's address and the namespace."""

    target: str
    namespace: str

    def __str__(self) -> str:
        return f"{self.target}, namespace {self.namespace}"


@asynccontextmanager
async def reached(address: str | None, namespace: str | None) -> AsyncGenerator[tuple[Client, Place]]:
    """Connect to Temporal, configured as its own tools are: arguments, TEMPORAL_* variables, its configuration file.

    HOLDFAST_CODEC_KEYS names the key file that encrypts payloads (row X6).
    HOLDFAST_TEMPORAL_ADDRESS takes precedence over TEMPORAL_ADDRESS, since those tools accept only one address.
    Unlike them, it never sends an API key without TLS (row X7).

    If several addresses are given, the connection uses any that answers, for as long as this context lasts (row L10).

    Raises:
        NotReachable: if no server answers at that address within a few seconds, or the namespace does not exist.
        HoldfastError: if the configuration cannot be read or used; nothing was sent then.
    """
    try:
        profile = ClientConfigProfile.load()
        credentials = credentials_of(profile)
        settings = profile.to_client_connect_config()
    except (OSError, ValueError, RuntimeError) as error:
        raise HoldfastError(f"Temporal's client configuration cannot be read: {error}") from error
    place = Place(
        target=address or os.environ.get(ENV_ADDRESS) or settings.get("target_host") or DEFAULT_TARGET,
        namespace=namespace or settings.get("namespace") or "default",
    )
    check_target(place.target)
    encoding = from_environment()
    settings["tls"] = tls_of(credentials)
    if os.environ.get(ENV_API_KEY_FILE) and credentials.api_key is not None:
        settings["api_key"] = credentials.api_key
    async with relayed(place.target) as target, _traced() as tracing:
        interceptors = [AsksAgain(), *([] if tracing is None else [tracing.interceptor])]
        settings["target_host"] = target
        settings["namespace"] = place.namespace
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT.total_seconds() + 1):
                client = await Client.connect(
                    **settings, **encoding, interceptors=interceptors, connect_timeout=CONNECT_TIMEOUT
                )
        except (RuntimeError, TimeoutError, ValueError) as error:
            problem = problem_of(str(error)) if settings["tls"] else ""
            remedy = _REMEDY_DENIED if problem == DENIED else _REMEDY_TLS if problem else _REMEDY
            raise NotReachable("Temporal", place.target, remedy, problem or _short(error)) from error
        yield client, place


@asynccontextmanager
async def _traced() -> AsyncGenerator[traces.Traces | None]:
    """Yield what to trace with, or None where it cannot be had: the variables may be meant for another program."""
    async with AsyncExitStack() as stack:
        try:
            tracing = await stack.enter_async_context(traces.opened("holdfast"))
        except HoldfastError as error:
            _warn_of_no_traces(str(error))
            tracing = None
        yield tracing


@cache
def _warn_of_no_traces(why: str) -> None:
    """Warn once in a process: a program may connect many times."""
    _log.warning("going on without traces: %s", why)


def credentials_of(profile: ClientConfigProfile) -> Credentials:
    """Read the credentials that a profile of Temporal's own configuration gives.

    Raises:
        OSError: if a file cannot be read.
        HoldfastError: if the API key's file has more than a key.
    """
    file, tls = os.environ.get(ENV_API_KEY_FILE), profile.tls
    header = next((value for name, value in profile.grpc_meta.items() if name.lower() == "authorization"), None)
    api_key = key_of(Path(file)) if file else profile.api_key or header
    if tls is None:
        return Credentials(api_key=api_key)
    return Credentials(
        tls=not tls.disabled,
        server_name=tls.server_name or "",
        ca=_contents(tls.server_root_ca_cert),
        certificate=_contents(tls.client_cert),
        key=_contents(tls.client_private_key),
        api_key=api_key,
    )


def _contents(source: DataSource | None) -> bytes | None:
    if isinstance(source, Path):
        return source.read_bytes()
    return source.encode() if isinstance(source, str) else source


@contextmanager
def refusals(place: Place) -> Generator[None]:
    """Translate Temporal's errors into errors that say what a person can do.

    Raises:
        NotReachable: if Temporal does not answer, does not know the namespace, or denies access.
        HoldfastError: if the namespace lacks the search attributes.
    """
    try:
        yield
    except RPCError as error:
        raise explained(error, place) from error


_BROKE_OFF = ("transport error", "http2 error", "connection error")


def explained(error: RPCError, place: Place) -> HoldfastError:
    """Return the Holdfast error that says what a Temporal error means."""
    # If a server dies during a call, the client gets an error without a specific gRPC code.
    broke_off = error.status is RPCStatusCode.UNKNOWN and error.message.startswith(_BROKE_OFF)
    if error.status in _AWAY or broke_off:
        return NotReachable("Temporal", place.target, _REMEDY, _short(error), passing=True)
    if error.status is RPCStatusCode.RESOURCE_EXHAUSTED:
        remedy = "it has more to do than its limits allow: try again, or raise the limits of the namespace"
        return NotReachable("Temporal", str(place), remedy, _short(error), passing=True)
    if error.status is RPCStatusCode.NOT_FOUND and error.message.lower().startswith("namespace"):
        return NotReachable(
            "Temporal",
            str(place),
            "set TEMPORAL_NAMESPACE or --temporal-namespace, or create it: "
            f"temporal operator namespace create --namespace {place.namespace}",
            _short(error),
        )
    if error.status in {RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED}:
        return NotReachable("Temporal", str(place), _REMEDY_DENIED, _short(error))
    # Another attribute is the caller's own: a typo in a query.
    named = set(re.findall(r"\w+", error.message)) & names.SEARCH_ATTRIBUTES.keys()
    if named and "search attribute" in error.message.lower():
        return HoldfastError(
            f"Temporal at {place} lacks Holdfast's search attributes ({_short(error)}): "
            "`holdfast doctor --fix` adds them"
        )
    return HoldfastError(f"Temporal at {place}: {error.message}")


_TYPES: Final = ("Text", "Keyword", "Int", "Double", "Bool", "Datetime", "KeywordList")
"""Temporal's names of the search attribute types, in the order of its own numbers, from 1."""


async def missing_search_attributes(client: Client) -> dict[str, str]:
    """Return the search attributes that the client's namespace lacks, each with its type."""
    missing, _ = await search_attributes(client)
    return missing


async def search_attributes(client: Client) -> tuple[dict[str, str], dict[str, str]]:
    """Return the search attributes that the client's namespace lacks, and those that have another type than expected.

    A missing one comes with the expected type, a wrong one with the type it has. Temporal refuses writes to the wrong
    ones (row D51).
    """
    from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest

    answer = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=client.namespace), timeout=CONNECT_TIMEOUT
    )
    there = {name: _type_name(number) for name, number in answer.custom_attributes.items()}
    missing = {name: kind for name, kind in names.SEARCH_ATTRIBUTES.items() if name not in there}
    wrong = {name: there[name] for name, kind in names.SEARCH_ATTRIBUTES.items() if there.get(name, kind) != kind}
    return missing, wrong


def _type_name(number: int) -> str:
    return _TYPES[number - 1] if 0 < number <= len(_TYPES) else f"type {number}"


async def add_search_attributes(client: Client, missing: dict[str, str]) -> None:
    """Add search attributes to the client's namespace."""
    from temporalio.api.enums.v1 import IndexedValueType
    from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest

    kinds = {
        "Keyword": IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
        "Int": IndexedValueType.INDEXED_VALUE_TYPE_INT,
        "Bool": IndexedValueType.INDEXED_VALUE_TYPE_BOOL,
        "Datetime": IndexedValueType.INDEXED_VALUE_TYPE_DATETIME,
    }
    request = AddSearchAttributesRequest(
        namespace=client.namespace, search_attributes={name: kinds[kind] for name, kind in missing.items()}
    )
    await client.operator_service.add_search_attributes(request, timeout=CONNECT_TIMEOUT)


_DUMPED: Final = re.compile(r'\b(?:message|error): "([^"]+)"')
"""The words for people in a dump of the transport's error."""


def _short(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_TIMEOUT.total_seconds() + 1:g} s"
    lines = str(error).strip().splitlines()
    if not lines:
        return type(error).__name__
    said = _DUMPED.findall(lines[0])
    return said[-1] if said else lines[0][:300]
