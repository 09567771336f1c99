"""The report and the page in Chromium: on a phone and a desk, light, dark, printed, by keyboard; a picture (P7, E1)."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Literal

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestServer
from PIL import Image
from playwright.async_api import Browser

from holdfast import Holdfast
from holdfast.cli.page import html
from holdfast.cli.page.reads import Reader
from holdfast.cli.page.server import application
from holdfast.cli.page.timeline import timeline_of
from tests.cli.page.browser import CHROMIUM, chromium
from tests.e2e.ground.site import free_port, until
from tests.past.recorded import story

pytestmark = [
    pytest.mark.row("P7", level="pure"),
    pytest.mark.timeout(120),
    pytest.mark.asyncio(loop_scope="module"),
    CHROMIUM,
]
RUNNING = {"light": (0x2E, 0x8B, 0x57), "dark": (0x2B, 0x7A, 0x4E)}
BACK = {"light": (0xFF, 0xFF, 0xFF), "dark": (0x14, 0x18, 0x1C)}
WIDTHS = [375, 1280]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a report of a life with two failures."""
    now = datetime(2027, 1, 1, tzinfo=UTC)
    path = tmp_path_factory.mktemp("report") / "life.html"
    path.write_text(html.report(timeline_of(await story("node-down"), now), now), encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
async def test_its_picture_shows_the_phases_within_the_width(
    browser: Browser, report: str, width: int, scheme: Literal["light", "dark"]
):
    page = await browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    requested = list[str]()
    page.on("request", lambda one: requested.append(one.url))
    await page.goto(report)
    assert requested == [report]
    assert await page.evaluate("document.documentElement.scrollWidth") == width
    drawing = page.get_by_role("img", name="Timeline of attempts")
    picture = Image.open(io.BytesIO(await drawing.screenshot())).convert("RGB")
    colours = {colour: count for count, colour in picture.getcolors(1 << 20) or []}
    assert colours.get(RUNNING[scheme], 0) > 200, "bars of running attempts"
    assert max(colours, key=lambda one: colours[one]) == BACK[scheme]
    assert await page.get_by_text("attempt 3", exact=True).is_visible()


async def test_printed_it_is_dark_on_white(browser: Browser, report: str):
    page = await browser.new_page(color_scheme="dark")
    await page.goto(report)
    await page.emulate_media(media="print")
    told = await page.evaluate(
        "getComputedStyle(document.body).backgroundColor + getComputedStyle(document.body).color"
    )
    assert told == "rgb(255, 255, 255)rgb(0, 0, 0)"


async def test_wide_tables_are_reached_and_scrolled_by_keyboard(browser: Browser, report: str):
    page = await browser.new_page(viewport={"width": 375, "height": 800})
    await page.goto(report)
    await page.keyboard.press("Tab")
    name = await page.evaluate("document.activeElement.getAttribute('aria-labelledby')")
    ring = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert (name, ring) == ("attempts", "solid")
    await page.keyboard.press("ArrowRight")

    async def scrolled() -> bool:
        return await page.evaluate("document.activeElement.scrollLeft > 0")

    # Chromium's own `wait_for_function` evaluates a text within the page, which the page forbids.
    await until(scrolled, 30, "the table scrolls")


async def test_each_drawing_table_and_region_has_a_name(browser: Browser, report: str):
    page = await browser.new_page()
    await page.goto(report)
    regions = await page.get_by_role("region").all()
    assert len(regions) >= 4
    told = await page.locator("body").aria_snapshot()
    assert "- region:" not in told
    assert "- img\n" not in told
    assert 'columnheader "What happened"' in told


@pytest.mark.row("E1", level="pure")
@pytest.mark.parametrize("width", WIDTHS)
async def test_the_pages_are_reached_by_keyboard_alone(browser: Browser, width: int):
    reader = Reader("dev", lambda: Holdfast.connect(f"127.0.0.1:{free_port()}", "default", "dev"))
    async with TestServer(application(reader)) as server:
        page = await browser.new_page(viewport={"width": width, "height": 800})
        problems = list[str]()
        page.on("console", lambda one: problems.append(one.text) if "Content Security" in one.text else None)
        await page.goto(str(server.make_url("/")))
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.textContent") == "Skip to content"
        assert await page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0, "it is seen"
        await page.keyboard.press("Tab")
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.textContent") == "Queues"
        assert await page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/queues")
        assert await page.locator("[aria-current=page]").inner_text() == "Queues"
        await page.get_by_role("button", name="Pause updates").press("Enter")
        assert await page.get_by_role("button", name="Update again").is_visible()
        assert await page.evaluate("document.documentElement.scrollWidth") == width
        assert problems == [], "no style or script of its own is forbidden"
