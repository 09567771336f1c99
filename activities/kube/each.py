"""Calls a function for many things, a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

AT_ONCE: Final = 16

T = TypeVar("T")
R = TypeVar("R")


async def each(things: Iterable[T], act: Callable[[T], Awaitable[R]], at_once: int = AT_ONCE) -> list[R]:
    """Call `act` for each thing, a few at a time; if one call raises, cancel the others before its error is raised."""
    every = list(things)
    found: dict[int, R] = {}
    left = iter(range(len(every)))

    async def work() -> None:
        for index in left:
            found[index] = await act(every[index])

    tasks = [asyncio.create_task(work()) for _ in range(min(at_once, len(every)))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [found[index] for index in range(len(every))]
