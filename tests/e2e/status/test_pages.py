"""Real lives as a report and in the local page: what Chromium shows of them, and how it follows (rows P7 and E1)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from aiohttp import ClientSession
from playwright.async_api import Page

from holdfast import names
from holdfast.local import Stack
from tests.cli.page.browser import CHROMIUM, chromium
from tests.e2e.crash.scene import own_temporal
from tests.e2e.ground.site import appwrapper, job, open_site, until
from tests.e2e.ground.space import Space, open_space
from tests.e2e.ground.terminal import command, run
from tests.e2e.ground.ui import served

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
PHONE, DESKTOP = 375, 1280
FAST = {"failureGracePeriodDuration": "0s", "retryPausePeriodDuration": "1s"}


@pytest_asyncio.fixture(loop_scope="session")
async def queueing(stack: Stack, tmp_path: Path) -> AsyncIterator[Space]:
    """A namespace on a site of a test's own: queues are seen by all that a site submits."""
    async with open_site(stack, tmp_path, prefix="p") as site:
        await site.start_worker()
        async with open_space(site) as space:
            yield space


async def text_of(page: Page) -> str:
    """What the page says."""
    return await page.get_by_role("main").inner_text()


@ROW("E1", level="e2e")
@ROW("P7", level="e2e")
async def test_the_page_and_the_report_tell_a_failure_a_reset_and_what_runs_now(space: Space, tmp_path: Path):
    site, where = space.site, f"{space.namespace}/train"
    handle = await space.submit(appwrapper("train", job(), **FAST))
    await space.reach(handle, "Running", 1)
    pod = await space.fail_pod("train", 7)
    await space.reach(handle, "Running", 2)
    life = tmp_path / "life.html"
    await command(site, "report", where, "-o", str(life))
    refused = await run(site, "report", where, "-o", str(tmp_path / "nowhere" / "life.html"))
    assert (refused.code, "life.html: cannot be written: No such file" in refused.errors) == (2, True)
    assert await command(site, "report", where, "-o", "-") != ""
    async with served(site) as address, ClientSession() as client:
        async with client.get(f"{address}workloads/{where}") as answer:
            assert answer.status == 200
            page = await answer.text()
        async with client.get(address, params={"phase": "Failed", "namespace": space.namespace}) as answer:
            assert "0 workloads in phase Failed" in await answer.text()
        async with client.get(f"{address}workloads/{space.namespace}/none") as answer:
            assert answer.status == 404
    for text in (page, life.read_text()):
        assert "2 of 2 pods run or have succeeded" in text
        assert f"attempt 1: {pod} exited 7 on" in text or "BackoffLimitExceeded" in text
        assert text.count('<text x="0"') == 2, "a row for each attempt"
        for phase in ("Resuming", "Running", "Resetting"):
            assert f'class="bar {phase}"' in text


@CHROMIUM
@ROW("E1", level="e2e")
@ROW("P7", level="e2e")
async def test_a_life_with_a_failure_is_followed_in_the_page_and_told_whole_in_the_report(space: Space, tmp_path: Path):
    site, where = space.site, f"{space.namespace}/train"
    handle = await space.submit(appwrapper("train", job(), **FAST))
    await space.reach(handle, "Running", 1)
    pod = await space.fail_pod("train", 7)
    await space.reach(handle, "Running", 2)
    async with chromium() as browser, served(site) as address:
        page = await browser.new_page(viewport={"width": PHONE, "height": 800})
        await page.goto(address)
        await page.get_by_label("Phase", exact=True).select_option("Running")
        await page.get_by_label("Namespace").fill(space.namespace)
        await page.keyboard.press("Enter")
        await page.get_by_role("link", name="1 Running").wait_for()
        await page.get_by_role("link", name=where).focus()
        await page.keyboard.press("Enter")
        await page.get_by_role("heading", name=where).wait_for()
        assert await page.get_by_text("attempt 2", exact=True).is_visible()
        assert "2 of 2 pods run" in await text_of(page)
        assert await page.evaluate("document.documentElement.scrollWidth") == PHONE
        # It follows without being loaded again, and the keyboard stays where it is.
        await page.evaluate("window.same = true")
        await page.get_by_role("region", name="Causes").last.focus()
        await space.complete("train")
        await page.get_by_text("Succeeded: all components are complete").wait_for(timeout=60_000)
        assert await page.evaluate("window.same")
        assert await page.evaluate("document.activeElement.getAttribute('aria-labelledby')") == "causes"

    await space.ended(handle)
    life = tmp_path / "life.html"
    await command(site, "report", where, "-o", str(life))
    async with chromium() as browser:
        page = await browser.new_page(viewport={"width": DESKTOP, "height": 800})
        requested = list[str]()
        page.on("request", lambda one: requested.append(one.url))
        await page.goto(life.as_uri())
        text = await text_of(page)
        bars = await page.locator("svg[role=img] rect.bar").count()
    assert requested == [life.as_uri()], "it loads nothing else"
    assert bars >= 5, "Resuming, Running and Resetting, then Resuming, Running and Succeeded; some may take no time"
    assert "2, of which 1 restarts" in text
    assert f"attempt 1: {pod} exited 7 on" in text or "BackoffLimitExceeded" in text
    assert "retry pause" in text
    assert "Completed: all components are complete" in text


@CHROMIUM
@ROW("E1", level="e2e")
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
async def test_queues_and_graphs_are_shown_in_their_order(queueing: Space, tmp_path: Path, width: int):
    space, site = queueing, queueing.site

    def document(kind: str, name: str, spec: dict[str, Any], **annotations: str) -> dict[str, Any]:
        version = names.API_VERSION if kind in {"Queue", "Graph"} else "batch/v1"
        metadata = {"name": name, "annotations": {f"holdfast.dev/{key}": one for key, one in annotations.items()}}
        return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}

    async def make(verb: list[str], *documents: dict[str, Any]) -> None:
        file = tmp_path / "documents.yaml"
        file.write_text(yaml.safe_dump_all(documents))
        await command(site, *verb, str(file))

    spec = job()["template"]["spec"]
    await make(["queue", "apply"], document("Queue", "gpus", {"quota": {"pods": 2}}))
    for name in ("first", "later", "last"):
        await make(["submit", "-n", space.namespace], document("Job", name, spec, queue="gpus"))
    nodes = [
        {"name": "extract", "template": document("Job", "", spec, queue="gpus")},
        {"name": "load", "after": [{"node": "extract"}], "template": document("Job", "", spec, queue="gpus")},
    ]
    for node in nodes:
        del node["template"]["metadata"]["name"]
    await make(["submit", "-n", space.namespace], document("Graph", "etl", {"nodes": nodes}))

    async def queued() -> bool:
        listed = json.loads(await command(site, "list", "--queue", "gpus", "--sort", "name", "-o", "json"))
        return [one["name"] for one in listed] == ["etl-extract", "etl-load", "first", "last", "later"]

    await until(queued, 60, "the list of a queue has its workloads")
    assert json.loads(await command(site, "list", "--queue", "others", "-o", "json")) == []
    async with chromium() as browser, served(site) as address:
        page = await browser.new_page(viewport={"width": width, "height": 800})

        async def fits() -> bool:
            return await page.evaluate("document.documentElement.scrollWidth") == width

        async def ordered() -> bool:
            await page.goto(f"{address}queues")
            rows = await page.get_by_role("row").all_inner_texts()
            places = [row.split("\t")[:2] for row in rows[1:]]
            queue = [["1", "later"], ["2", "last"], ["3", "etl-extract"], ["admitted", "first"]]
            return places == [[place, f"{space.namespace}/{name}"] for place, name in queue]

        await until(ordered, 60, "the queue stands in its order")
        assert await fits(), "the queues do not scroll sideways"
        await page.get_by_role("link", name=f"{space.namespace}/etl-extract").click()
        await page.get_by_role("heading", name="Graph etl").wait_for()
        drawn = [await page.get_by_text(name, exact=True).bounding_box() for name in ("extract", "load")]
        assert drawn[0] is not None
        assert drawn[1] is not None
        assert drawn[0]["x"] < drawn[1]["x"], "a node stands to the right of those that it comes after"
        await page.get_by_text("The graph as text").click()
        tree = await page.locator("pre").inner_text()
        assert tree.index("└── extract") < tree.index("└── load")
        assert "place 3 of 3" in await text_of(page)
        assert await fits(), "the graph does not scroll sideways"
        await page.get_by_role("link", name="Nodes", exact=True).click()
        await page.get_by_text("nodes with a lease").wait_for()
        assert await fits(), "the nodes do not scroll sideways"


@CHROMIUM
@ROW("E1", level="e2e")
async def test_it_says_that_temporal_is_away_and_goes_on_when_it_returns(stack: Stack, tmp_path: Path):
    async with (
        own_temporal(stack, tmp_path) as temporal,
        open_site(stack, tmp_path, temporal_address=temporal.address) as site,
    ):
        temporal.kill()
        async with chromium() as browser, served(site) as address:
            page = await browser.new_page(viewport={"width": DESKTOP, "height": 800})
            away = page.get_by_text("cannot reach Temporal")
            back = page.get_by_label("Workloads by phase")
            await page.goto(address)
            await away.wait_for()
            await temporal.start()
            await back.wait_for(timeout=60_000)
            temporal.kill()
            await away.wait_for(timeout=60_000)
            await temporal.start()
            await back.wait_for(timeout=60_000)
