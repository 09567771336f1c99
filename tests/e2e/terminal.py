"""The `holdfast` command as a user of a site runs it."""

from __future__ import annotations

import asyncio
import subprocess

from tests.e2e.site import Site, executable


def shell(site: Site) -> dict[str, str]:
    """Return the environment that `holdfast dev env` would give, for this site."""
    return site.command()[1]


async def command(site: Site, *argv: str, expect: int = 0) -> str:
    """Run it, and return what it printed; any exit code but the expected one fails the test."""
    done = await asyncio.to_thread(
        subprocess.run,
        [*executable(), *argv],
        env=shell(site),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == expect, f"{argv}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
