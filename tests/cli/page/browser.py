"""The machine's own Chromium, if it has one: nothing is downloaded."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import pytest
from playwright.async_api import Browser, async_playwright

_FOUND: Final = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"))), None
)
CHROMIUM: Final = pytest.mark.skipif(_FOUND is None, reason="no Chromium in PATH")


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Yield a headless Chromium."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=_FOUND, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            yield browser
        finally:
            await browser.close()
