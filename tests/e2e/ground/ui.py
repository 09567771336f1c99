"""`holdfast ui` as a user of a site runs it."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.e2e.ground.site import Site, executable
from tests.e2e.ground.terminal import shell


@asynccontextmanager
async def served(site: Site, *argv: str) -> AsyncIterator[str]:
    """Run it; yield the address that it prints, and end it as Ctrl-C does."""
    command = [*executable(), "ui", *argv]
    process = await asyncio.create_subprocess_exec(*command, env=shell(site), stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), 30)).decode()
        found = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert found, line
        yield found.group()
    finally:
        process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(process.wait(), 30) == 0
