"""What every command says where no worker answers: since when, and what happens once one does (row D36)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

import typer

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.client import Run
    from holdfast.client.silence import Silence

T = TypeVar("T")

AGAIN: Final = 20.0
"""Seconds between two questions to a worker while a command waits."""
ASKED: Final = "what was asked for is recorded, and is carried out once a worker answers"
BEGUN: Final = "what was submitted is recorded, and begins once a worker answers"
ONLY_BY_A_WORKER: Final = "nothing is recorded until a worker answers: to break this command off changes nothing"
READ: Final = (
    "this is what was last recorded; pods run on meanwhile, and what becomes of them is acted on once a worker answers"
)


def text(silence: Silence, then: str) -> str:
    """Say that no worker answers, since when, what happens once one does, and what to do: two lines."""
    # What a server says may have lines of its own.
    first, second = (" ".join(one.split()) for one in (silence.why, f"{then}; {silence.remedy}"))
    return f"{first}\n{second}"


def warn(silence: Silence, then: str) -> None:
    """Say it on standard error, so that what programs read of a command stays what it is."""
    first, _, second = text(silence, then).rpartition("\n")
    typer.secho(f"stale      {first}\n           {second}", err=True, fg=typer.colors.YELLOW)


async def attended(run: Run, work: Awaitable[T], then: str) -> T:
    """Do something for a workload, and say within 5 s if no worker answers for it; once, and once that one does again.

    Args:
        run: the workload.
        work: what is done.
        then: what happens once a worker answers.
    """
    told = asyncio.Event()
    listening = asyncio.create_task(_listen(run, then, told))
    # Whatever ends the listening, the work is not held up by it.
    listening.add_done_callback(lambda _: told.set())
    try:
        result = await work
        await told.wait()
        return result
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


async def _listen(run: Run, then: str, told: asyncio.Event) -> None:
    silent = False
    while True:
        # What cannot be asked at all is the command's own to tell.
        silence = None
        with suppress(HoldfastError):
            silence = await run.silence()
        if silence is not None and not silent:
            warn(silence, then)
        elif silence is None and silent:
            typer.secho("a worker answers again", err=True)
        silent = silence is not None
        told.set()
        await asyncio.sleep(AGAIN)
