"""The local page without a Temporal: who may read it, what it forbids, what it says (row E1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestClient, TestServer

from holdfast import Holdfast
from holdfast.cli.page.reads import Reader
from holdfast.cli.page.server import HEADERS, application
from tests.e2e.ground.site import free_port

pytestmark = pytest.mark.row("E1", level="pure")
ALL = ("/", "/queues", "/nodes", "/workloads/research/train", "/style.css", "/live.js", "/nothing")


@pytest_asyncio.fixture
async def client() -> AsyncIterator[TestClient]:
    nobody = f"127.0.0.1:{free_port()}"
    reader = Reader("dev", lambda: Holdfast.connect(nobody, "default", "dev"))
    async with TestClient(TestServer(application(reader))) as made:
        yield made


@pytest.mark.parametrize("path", ALL)
async def test_every_answer_forbids_what_it_does_not_need_and_sets_no_cookie(client: TestClient, path: str):
    answer = await client.get(path)
    for name, value in HEADERS.items():
        assert answer.headers[name] == value
    assert "Set-Cookie" not in answer.headers
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "://" not in (await answer.text()).replace("http://127.0.0.1", "")


@pytest.mark.parametrize("path", ALL)
@pytest.mark.parametrize(
    "host",
    [
        "evil.example.com",
        "evil.example.com:80",
        "127.0.0.1.evil.example.com",
        "localhost.evil.example.com",
        "127.0.0.1@evil.example.com",
        "evil.example.com#127.0.0.1",
        "evil.example.com/127.0.0.1",
        "10.0.0.1",
        "[::2]",
        "0.0.0.0",
        ":80",
        "[",
        "",
    ],
)
async def test_a_host_that_is_not_loopback_reads_nothing(client: TestClient, path: str, host: str):
    answer = await client.get(path, headers={"Host": host})
    assert answer.status in {400, 403}
    assert "Holdfast" not in await answer.text()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:1234", "[::1]:80", "127.0.0.1:1"])
async def test_each_name_of_this_machine_is_served(client: TestClient, host: str):
    assert (await client.get("/style.css", headers={"Host": host})).status == 200


@pytest.mark.parametrize(
    ("site", "mode", "code"),
    [
        ("cross-site", "no-cors", 403),
        ("same-site", "cors", 403),
        ("cross-site", "navigate", 200),
        ("same-origin", "cors", 200),
        ("none", "navigate", 200),
    ],
)
async def test_another_sites_page_asks_nothing_in_the_background(client: TestClient, site: str, mode: str, code: int):
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}
    assert (await client.get("/style.css", headers=headers)).status == code


@pytest.mark.row("F7", level="pure")
@pytest.mark.parametrize(
    ("path", "code"),
    [("train", 503), ("jobset/train", 503), ("appwrapper/train", 503), ("jobset", 503), ("pod/train", 404), ("", 404)],
)
async def test_F7_a_workload_is_named_with_its_kind_or_without(client: TestClient, path: str, code: int):
    assert (await client.get(f"/workloads/research/{path}")).status == code, "there is no Temporal"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize("path", ALL[:-1])
async def test_nothing_can_be_changed(client: TestClient, method: str, path: str):
    assert (await client.request(method, path)).status == 405


async def test_without_a_temporal_it_says_so(client: TestClient):
    answer = await client.get("/")
    assert answer.status == 503
    assert "cannot reach Temporal at 127.0.0.1:" in await answer.text()


async def test_a_phase_that_is_none_is_refused_as_text(client: TestClient):
    answer = await client.get("/", params={"phase": "<b>Lost"})
    text = await answer.text()
    assert answer.status == 400
    assert "expected one of Pending, Resuming" in text
    assert "<b>" not in text


async def test_an_address_that_leads_nowhere_is_a_page(client: TestClient):
    answer = await client.get("/nothing")
    assert answer.status == 404
    assert "404 Not Found" in await answer.text()


async def test_a_temporal_that_hangs_is_not_waited_for_for_ever():
    @asynccontextmanager
    async def hangs() -> AsyncGenerator[Holdfast]:
        await asyncio.Event().wait()
        yield Holdfast.__new__(Holdfast)

    async with TestClient(TestServer(application(Reader("dev", hangs), seconds=0.1))) as client:
        for path in ALL[:4]:
            answer = await client.get(path)
            assert answer.status == 503
            assert "Temporal has not answered within 0.1 s" in await answer.text()
