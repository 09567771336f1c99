"""The codec server, asked over HTTP: who may have what decrypted, and what a browser is told (row X6)."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from google.protobuf.json_format import MessageToDict
from temporalio.api.common.v1 import Payload, Payloads

from holdfast.codec.codec import Codec
from holdfast.codec.keys import Keys
from holdfast.codec.server import BODY_MAXIMUM, Access, application, check_address, tls_context
from holdfast.errors import HoldfastError
from holdfast.worker.runtime.health import listen
from tests.codec.test_codec import spoil, write
from tests.worker.temporal.authority import SERVER_NAME, Authority

pytestmark = pytest.mark.row("X6", level="pure")

TOKEN = "0123456789abcdef-token"
ORIGIN = "https://ui.example.com"
PLAIN = Payload(metadata={"encoding": b"json/plain"}, data=b'"planted"')


@pytest.fixture
def codec(tmp_path: Path) -> Codec:
    return Codec(Keys(write(tmp_path / "keys", "first")), accept_plaintext=True)


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o600)
    return file


@pytest.fixture
async def url(codec: Codec, token: Path) -> AsyncIterator[str]:
    runner, bound = await listen(application(codec, Access(token, [ORIGIN])), "127.0.0.1:0")
    yield f"http://{bound}/decode"
    await runner.cleanup()


async def post(url: str, body: Any, *, ssl: Any = True, **headers: str) -> tuple[int, Any, Any]:
    sent = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"} | headers
    data = body if isinstance(body, str | bytes) else json.dumps(body)
    async with aiohttp.ClientSession() as session, session.post(url, data=data, headers=sent, ssl=ssl) as answer:
        return answer.status, await answer.json(), answer.headers


async def sealed(codec: Codec) -> dict[str, Any]:
    return MessageToDict(Payloads(payloads=await codec.encode([PLAIN])))


async def test_X6_whoever_has_the_token_gets_it_decrypted(url: str, codec: Codec) -> None:
    status, answer, headers = await post(url, await sealed(codec), Origin=ORIGIN)
    assert status == 200
    assert base64.b64decode(answer["payloads"][0]["data"]) == PLAIN.data
    assert headers["Access-Control-Allow-Origin"] == ORIGIN
    assert (headers["Vary"], headers["Cache-Control"]) == ("Origin", "no-store")
    assert (await post(url, MessageToDict(Payloads(payloads=[PLAIN]))))[1]["payloads"][0]["data"]


@pytest.mark.parametrize("sent", ["", "Bearer ", "Bearer x", TOKEN, f"bearer {TOKEN}", f"Bearer {TOKEN}x", "Bearer é"])
async def test_X6_without_the_token_nothing_is_decrypted(url: str, codec: Codec, sent: str) -> None:
    status, answer, _ = await post(url, await sealed(codec), Authorization=sent)
    assert (status, answer) == (401, {"message": "expected Authorization: Bearer TOKEN"})


async def test_X6_a_changed_token_counts_at_once_and_one_that_cannot_be_read_opens_nothing(
    url: str, codec: Codec, token: Path
) -> None:
    spoil(token, "another-token-of-16")
    assert (await post(url, await sealed(codec)))[0] == 401
    spoil(token, None)
    assert (await post(url, await sealed(codec)))[0] == 500


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example.com", "http://ui.example.com", f"{ORIGIN}.evil.example", f"{ORIGIN}:444", "null", ""],
)
async def test_X6_pages_of_other_origins_are_refused_even_with_the_token(url: str, codec: Codec, origin: str) -> None:
    status, _, headers = await post(url, await sealed(codec), Origin=origin)
    assert status == 403
    assert "Access-Control-Allow-Origin" not in headers
    async with aiohttp.ClientSession() as session, session.options(url, headers={"Origin": origin}) as answer:
        assert answer.status == 403


async def test_X6_a_browser_is_told_what_it_may_send(url: str) -> None:
    headers = {"Origin": ORIGIN, "Access-Control-Request-Headers": "authorization,content-type,x-namespace"}
    async with aiohttp.ClientSession() as session, session.options(url, headers=headers) as answer:
        assert answer.status == 204
        assert answer.headers["Access-Control-Allow-Headers"] == "Authorization, Content-Type, X-Namespace"
        assert answer.headers["Access-Control-Allow-Methods"] == "POST"


@pytest.mark.parametrize(
    ("body", "headers", "status", "words"),
    [
        ("{", {}, 400, "expected {"),
        ('{"payload": []}', {}, 400, "expected {"),
        (b"\xff", {}, 400, "expected {"),
        ("[" * 100_000, {}, 400, "expected {"),
        ("{}", {"Content-Type": "text/plain"}, 415, "Content-Type"),
        ("x" * (BODY_MAXIMUM + 1), {}, 413, "Too Large"),
    ],
)
async def test_X6_what_is_no_request_is_refused(
    url: str, body: str | bytes, headers: dict[str, str], status: int, words: str
) -> None:
    got, answer, _ = await post(url, body, **headers)
    assert (got, words in answer["message"]) == (status, True), answer


async def test_X6_a_missing_key_is_named(url: str, tmp_path: Path) -> None:
    other = Codec(Keys(write(tmp_path / "other", "second")))
    status, answer, _ = await post(url, await sealed(other))
    assert status == 400
    assert "key 'second'" in answer["message"]
    assert (await post(url.replace("decode", "encode"), await sealed(other)))[0] == 404


async def test_X6_with_a_certificate_it_speaks_tls(codec: Codec, token: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority", "ours")
    pair = authority.sign("server")
    context = tls_context(pair.certificate, pair.key)
    runner, bound = await listen(application(codec, Access(token, ())), "127.0.0.1:0", context)
    trusting = ssl.create_default_context(cafile=str(authority.certificate))
    trusting.check_hostname = SERVER_NAME == "127.0.0.1"
    try:
        assert (await post(f"https://{bound}/decode", await sealed(codec), ssl=trusting))[0] == 200
    finally:
        await runner.cleanup()


def test_X6_what_cannot_be_used_is_refused_before_it_listens(token: Path, tmp_path: Path) -> None:
    for address in ("127.0.0.1:1", "[::1]:1", "localhost:1"):
        check_address(address, secured=False)
    for address in ("0.0.0.0:1", "[::]:1", "10.0.0.1:1", "ui.example.com:1"):
        check_address(address, secured=True)
        with pytest.raises(HoldfastError, match="expected a loopback address, or --tls-cert-file"):
            check_address(address, secured=False)
    for address in ("127.0.0.1", "127.0.0.1:x", ":1", "127.0.0.1:70000"):
        with pytest.raises(HoldfastError, match="expected host:port"):
            check_address(address, secured=True)
    for origin in ("*", "ui.example.com", "https://", "https://*.example.com", "https://ui.example.com/", "ftp://x"):
        with pytest.raises(HoldfastError, match="expected scheme://host"):
            Access(token, [origin])
    token.write_text("short")
    with pytest.raises(HoldfastError, match="at least 16 characters"):
        Access(token, ())
    token.write_text(TOKEN)
    token.chmod(0o644)
    with pytest.raises(HoldfastError, match="mode 0644 lets every user at it"):
        Access(token, ())
    with pytest.raises(HoldfastError, match="expected both, or neither"):
        tls_context(tmp_path, None)


async def test_X6_it_encrypts_only_where_it_is_told_to(url: str, codec: Codec, token: Path) -> None:
    plain = MessageToDict(Payloads(payloads=[PLAIN]))
    async with aiohttp.ClientSession() as session, session.post(url.replace("decode", "encode"), json=plain) as answer:
        assert answer.status == 401
    assert (await post(url.replace("decode", "encode"), plain))[0] == 404
    runner, bound = await listen(application(codec, Access(token, [ORIGIN]), encodes=True), "127.0.0.1:0")
    try:
        status, given, _ = await post(f"http://{bound}/encode", plain)
        assert status == 200
        assert "planted" not in base64.b64decode(given["payloads"][0]["data"]).decode("latin-1")
        assert (await post(f"http://{bound}/decode", given))[1] == plain
    finally:
        await runner.cleanup()
