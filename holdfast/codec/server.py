"""The codec server: decrypts payloads for Temporal's UI and CLI, for whoever has its token (row X6).

It encrypts only where it is told to: whoever may have payloads encrypted may send signals in the name of a client.
"""

from __future__ import annotations

import hmac
import ipaddress
import ssl
import stat
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler
from google.protobuf.json_format import MessageToDict, Parse, ParseError
from temporalio.api.common.v1 import Payload, Payloads

from holdfast.codec.codec import Codec
from holdfast.errors import HoldfastError, Undecodable

BODY_MAXIMUM: Final = 16 * 1024 * 1024
"""Bytes of a request: more than a page of a history in base64."""
TOKEN_LEAST: Final = 16
_BEARER: Final = "Bearer "
Convert = Callable[[Sequence[Payload]], Awaitable[list[Payload]]]


class Access:
    """Who may have payloads decrypted: whoever sends the token, from no page of another origin."""

    def __init__(self, token_file: Path | None, origins: Collection[str]) -> None:
        """Read the token.

        Args:
            token_file: a file with the token, read again for each request; None: anyone may.
            origins: the origins of pages that may ask, each as a browser sends it: `https://temporal.example.com`.

        Raises:
            HoldfastError: if the token or an origin cannot be used.
        """
        for origin in origins:
            scheme, separator, host = origin.partition("://")
            if scheme not in {"http", "https"} or not separator or not host or set(host) & set("/*?# "):
                raise HoldfastError(
                    f"origin {origin!r}: expected scheme://host[:port], for example https://ui.example.com"
                )
        self._token_file = token_file
        self._origins = frozenset(origins)
        if token_file is not None:
            token_of(token_file)

    def is_allowed_origin(self, request: web.Request) -> bool:
        """Whether a page of another origin that is not listed sent it; other clients send no origin."""
        origin = request.headers.get("Origin")
        return origin is None or origin in self._origins

    def is_authorized(self, request: web.Request) -> bool:
        """Whether it carries the token.

        Raises:
            HoldfastError: if the token cannot be read.
        """
        if self._token_file is None:
            return True
        sent = request.headers.get("Authorization", "")
        expected = _BEARER + token_of(self._token_file)
        return hmac.compare_digest(sent.encode("utf-8", "replace"), expected.encode())


def token_of(file: Path) -> str:
    """Read a token: one line of at least 16 characters, in a file that other users may not read.

    Raises:
        HoldfastError: if it is not that.
    """
    try:
        mode = file.stat().st_mode
        token = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is no ASCII"
        raise HoldfastError(f"token file {file}: {reason}") from None
    if mode & stat.S_IRWXO:
        raise HoldfastError(
            f"token file {file}: mode {stat.S_IMODE(mode):04o} lets every user at it: expected 0600 or 0640"
        )
    if len(token) < TOKEN_LEAST or not token.isprintable() or " " in token:
        raise HoldfastError(f"token file {file}: expected one line of at least {TOKEN_LEAST} characters without spaces")
    return token


def check_address(address: str, secured: bool) -> None:
    """Check that decrypted payloads leave the machine over TLS only.

    Raises:
        HoldfastError: if it is no host:port, or if it is not a loopback address and there is no TLS.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise HoldfastError(f"address {address!r}: expected host:port, for example 127.0.0.1:8087")
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    if not local and not secured:
        raise HoldfastError(f"address {address!r}: expected a loopback address, or --tls-cert-file and --tls-key-file")


def tls_context(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """Return the TLS context of a server; None without TLS.

    Raises:
        HoldfastError: if only one of the two is given, or they cannot be used.
    """
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise HoldfastError("--tls-cert-file and --tls-key-file: expected both, or neither")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise HoldfastError(f"--tls-cert-file {certificate}: it cannot be used with its key: {error}") from None
    return context


def application(codec: Codec, access: Access, encodes: bool = False) -> web.Application:
    """Return the web application: POST /decode, as Temporal's UI and CLI request it.

    Args:
        codec: decrypts; what is not encrypted is returned as it is.
        access: who may ask.
        encodes: whether POST /encode encrypts, too, so that the UI and the CLI can send signals and inputs.
    """

    async def converted(request: web.Request, convert: Convert) -> web.Response:
        if request.content_type != "application/json":
            return _refusal(415, "expected Content-Type: application/json")
        try:
            payloads = Parse(await request.text(), Payloads())
        except (ParseError, UnicodeDecodeError, RecursionError):
            return _refusal(400, 'expected {"payloads": [...]}')
        try:
            found = Payloads(payloads=await convert(payloads.payloads))
        except Undecodable as error:
            return _refusal(400, str(error))
        return web.json_response(MessageToDict(found))

    async def decode(request: web.Request) -> web.Response:
        return await converted(request, codec.decode)

    async def encode(request: web.Request) -> web.Response:
        return await converted(request, codec.encode)

    async def preflight(_: web.Request) -> web.Response:
        return web.Response(status=204)

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not access.is_allowed_origin(request):
            return _refusal(403, "this origin is not listed")
        try:
            # A browser asks first, without the token, whether it may ask.
            authorized = request.method == "OPTIONS" or access.is_authorized(request)
        except HoldfastError as error:
            answer: web.StreamResponse = _refusal(500, str(error))
        else:
            try:
                answer = await handler(request) if authorized else _refusal(401, "expected Authorization: Bearer TOKEN")
            except web.HTTPException as error:
                answer = _refusal(error.status, error.reason)
        if origin := request.headers.get("Origin"):
            answer.headers["Access-Control-Allow-Origin"] = origin
            answer.headers["Access-Control-Allow-Credentials"] = "true"
            answer.headers["Access-Control-Allow-Methods"] = "POST"
            answer.headers["Access-Control-Allow-Headers"] = "Authorization, Content-Type, X-Namespace"
        answer.headers["Vary"] = "Origin"
        answer.headers["Cache-Control"] = "no-store"
        return answer

    app = web.Application(client_max_size=BODY_MAXIMUM, middlewares=[guarded])
    for path, handler in {"/decode": decode, **({"/encode": encode} if encodes else {})}.items():
        app.router.add_post(path, handler)
        app.router.add_options(path, preflight)
    return app


def _refusal(status: int, message: str) -> web.Response:
    return web.json_response({"message": message}, status=status)
