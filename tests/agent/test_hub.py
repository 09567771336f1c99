"""The way to the rendezvous, over real sockets: which address serves, what a status means, which connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from holdfast.agent.hub import Hub, Refused, Unreachable
from holdfast.agent.messages import Kind

DIRECTIVE = {"revision": 1, "kind": "Wait"}
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[int]:
    app = web.Application()
    app.router.add_post("/rendezvous/v1/{workload}/announce", answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("first\n")
    return path


def hub(port: int, token: Path, host: str = "127.0.0.1") -> Hub:
    return Hub(f"http://{host}:{port}", "u-1", str(token))


async def test_an_announcement_is_posted_with_the_token_that_is_in_the_file_now(token: Path) -> None:
    asked: list[tuple[Any, ...]] = []

    async def answer(request: web.Request) -> web.Response:
        assert request.transport
        peer = request.transport.get_extra_info("peername")
        asked.append((request.match_info["workload"], request.headers["Authorization"], await request.json(), peer))
        return web.json_response(DIRECTIVE)

    async with serving(answer) as port:
        one = hub(port, token)
        assert (await one.exchange({"seen": 0})).kind is Kind.WAIT
        token.write_text("second")  # noqa: ASYNC240
        await one.exchange({"seen": 1})
        one.close()
    assert [said[:3] for said in asked] == [
        ("u-1", "Bearer first", {"seen": 0}),
        ("u-1", "Bearer second", {"seen": 1}),
    ]
    assert asked[0][3] == asked[1][3], "the connection is used again"


@pytest.mark.parametrize(
    ("status", "error"), [(400, Refused), (403, Refused), (401, Unreachable), (421, Unreachable), (503, Unreachable)]
)
async def test_what_a_status_means(token: Path, status: int, error: type[Exception]) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"error": "in words"}, status=status)

    async with serving(answer) as port:
        with pytest.raises(error, match=f"{status} in words"):
            await hub(port, token).exchange({})


@pytest.mark.parametrize(
    "response",
    [
        lambda: web.Response(text="hello"),
        lambda: web.json_response({"kind": "Dance", "revision": 1}),
        lambda: web.Response(text="<html>", status=502),
        lambda: web.Response(body=b" " * (2 << 20)),
    ],
)
async def test_an_answer_that_is_none_is_none(token: Path, response: Callable[[], web.Response]) -> None:
    async def answer(request: web.Request) -> web.Response:
        return response()

    async with serving(answer) as port:
        with pytest.raises(Unreachable):
            await hub(port, token).exchange({})


async def test_a_proxy_may_send_it_in_chunks(token: Path) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for part in (b'{"revision": 9,', b' "kind": "Wait"}'):
            await response.write(part)
        await response.write_eof()
        return response

    async with serving(answer) as port:
        one = hub(port, token)
        assert (await one.exchange({})).revision == 9
        assert (await one.exchange({})).revision == 9
        one.close()


async def test_nobody_there_is_unreachable_and_a_missing_token_too(token: Path) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.json_response(DIRECTIVE)

    async with serving(answer) as port:
        with pytest.raises(Unreachable, match="token"):
            await hub(port, token.with_name("missing")).exchange({})
        one = hub(port, token)
        await one.exchange({})
    with pytest.raises(Unreachable):
        await one.exchange({})
    with pytest.raises(Unreachable, match="no-such-host"):
        await hub(port, token, "no-such-host.invalid").exchange({})


async def test_a_connection_that_was_closed_meanwhile_is_made_again(token: Path) -> None:
    async def answer(request: web.Request) -> web.Response:
        assert request.transport
        asyncio.get_running_loop().call_soon(request.transport.close)
        return web.json_response(DIRECTIVE)

    async with serving(answer) as port:
        one = hub(port, token)
        for _ in range(3):
            assert (await one.exchange({})).revision == 1
        one.close()


async def test_of_several_addresses_the_one_that_serves_the_gang_answers(
    token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    serves = ["127.0.0.3"]

    async def answer(request: web.Request) -> web.Response:
        assert request.transport
        address = request.transport.get_extra_info("sockname")[0]
        asked.append(address)
        return web.json_response(DIRECTIVE, status=200 if address in serves else 421)

    async def addresses(host: str, port: int, **kwargs: Any) -> list[Any]:
        return [(None, None, None, "", (f"127.0.0.{last}", port)) for last in (1, 2, 3, 4)]

    app = web.Application()
    app.router.add_post("/rendezvous/v1/{workload}/announce", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    # Nothing listens on the second.
    first = web.TCPSite(runner, "127.0.0.1", 0)
    await first.start()
    port = runner.addresses[0][1]
    for last in (3, 4):
        await web.TCPSite(runner, f"127.0.0.{last}", port).start()
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", addresses)
    one = Hub(f"http://hub:{port}", "u-1", str(token))
    try:
        await one.exchange({})
        await one.exchange({})
        serves[:] = ["127.0.0.4"]
        await one.exchange({})
    finally:
        one.close()
        await runner.cleanup()
    assert asked == ["127.0.0.1", "127.0.0.3", "127.0.0.3", "127.0.0.3", "127.0.0.1", "127.0.0.3", "127.0.0.4"]


async def test_an_exchange_may_be_given_up_and_the_other_end_knows(token: Path) -> None:
    held, dropped = asyncio.Event(), asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        if (await request.json()).get("hold"):
            held.set()
            try:
                await asyncio.Event().wait()
            finally:
                dropped.set()
        return web.json_response(DIRECTIVE)

    async with serving(answer) as port:
        one = hub(port, token)
        asking = asyncio.ensure_future(one.exchange({"hold": True}, held=3600.0))
        await held.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert (await one.exchange({})).revision == 1
        await dropped.wait()
        one.close()
