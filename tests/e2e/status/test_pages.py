"""A real life as a report and in the local page: what Chromium shows of it, and how it follows (rows P7 and E1)."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.cli.page.browser import CHROMIUM, chromium
from tests.e2e.ground.site import Site, appwrapper, executable, job
from tests.e2e.ground.space import Space
from tests.e2e.ground.terminal import command, shell

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), CHROMIUM]
ROW = pytest.mark.row
PHONE, DESKTOP = 375, 1280


@asynccontextmanager
async def served(site: Site) -> AsyncIterator[str]:
    """Run `holdfast ui`; yield its address, and end it as Ctrl-C does."""
    argv = [*executable(), "ui"]
    process = await asyncio.create_subprocess_exec(*argv, env=shell(site), stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), 30)).decode()
        found = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert found, line
        yield found.group()
    finally:
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 30) == 0


@ROW("E1", level="e2e")
@ROW("P7", level="e2e")
async def test_a_life_with_a_failure_is_drawn_in_the_report_and_followed_in_the_page(space: Space, tmp_path: Path):
    site, where = space.site, f"{space.namespace}/train"
    handle = await space.submit(
        appwrapper("train", job(), failureGracePeriodDuration="0s", retryPausePeriodDuration="1s")
    )
    await space.reach(handle, "Running", 1)
    pod = await space.fail_pod("train", 7)
    await space.reach(handle, "Running", 2)
    async with chromium() as browser, served(site) as address:
        page = await browser.new_page(viewport={"width": PHONE, "height": 800})
        await page.goto(f"{address}?namespace={space.namespace}")
        await page.get_by_role("link", name=where).click()
        await page.get_by_role("heading", name=where).wait_for()
        assert await page.get_by_text("attempt 2", exact=True).is_visible()
        main = page.get_by_role("main")
        assert "Running" in await main.inner_text()
        assert await page.evaluate("document.documentElement.scrollWidth") == PHONE
        # It follows without being loaded again.
        await page.evaluate("window.same = true")
        await space.complete("train")
        await page.get_by_text("Succeeded").first.wait_for(timeout=60_000)
        assert await page.evaluate("window.same")
        for name in ("Queues", "Nodes", "Workloads"):
            await page.get_by_role("link", name=name, exact=True).click()
            await page.get_by_role("heading", name=name, level=1).wait_for()
            assert await page.locator(".problem").count() == 0

    await space.ended(handle)
    life = tmp_path / "life.html"
    await command(site, "report", where, "-o", str(life))
    async with chromium() as browser:
        page = await browser.new_page(viewport={"width": DESKTOP, "height": 800})
        requested = list[str]()
        page.on("request", lambda one: requested.append(one.url))
        await page.goto(life.as_uri())
        text = await page.get_by_role("main").inner_text()
        bars = await page.locator("svg[role=img] rect.bar").count()
    assert requested == [life.as_uri()]
    assert bars >= 4
    assert "2, of which 1 restarts" in text
    assert "exited 7" in text or "BackoffLimitExceeded" in text
    assert pod in text or "BackoffLimitExceeded" in text
    assert "Completed" in text
