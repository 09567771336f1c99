"""What runs beside what: nothing beside what is measured; in a smoke, whose figures mean nothing, all at once."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from bench.ground import Options, every


async def orderly(options: Options) -> list[str]:
    """Return in which order three runs began and ended, each of which gives way once."""
    found: list[str] = []

    async def run(name: str) -> None:
        found.append(f"{name} begins")
        await asyncio.sleep(0)
        found.append(f"{name} ends")

    await every(options, [partial(run, name) for name in "abc"])
    return found


async def test_what_is_measured_runs_alone() -> None:
    assert await orderly(Options()) == [f"{name} {word}" for name in "abc" for word in ("begins", "ends")]


async def test_a_smoke_runs_all_at_once() -> None:
    assert await orderly(Options(smoke=True)) == [f"{name} {word}" for word in ("begins", "ends") for name in "abc"]


async def test_a_run_of_a_smoke_that_breaks_is_told() -> None:
    async def broken() -> None:
        raise ValueError("broken")

    with pytest.raises(ExceptionGroup) as caught:
        await every(Options(smoke=True), [broken, partial(asyncio.sleep, 0)])
    assert caught.group_contains(ValueError, match="broken")
