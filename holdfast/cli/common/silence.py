"""The warning that every command prints if no worker answers: since when, and what happens once one does (row D36)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import typer

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.client.silence import Silence

T = TypeVar("T")

AGAIN: Final = 20.0
"""Seconds between two queries to a worker while a command waits."""
ASKED: Final = "what was asked for is recorded, and is carried out once a worker answers"
BEGUN: Final = "what was submitted is recorded, and begins once a worker answers"
ONLY_BY_A_WORKER: Final = "nothing is recorded until a worker answers: interrupting this command changes nothing"
READ: Final = (
    "this is what was last recorded; pods keep running, and failures are not acted on: once a worker answers, "
    "Holdfast acts on what it missed"
)


def text(silence: Silence, then: str) -> str:
    """Return lines: that no worker answers, and since when; what happens once one does; and what to do."""
    # A message from the server may have several lines.
    return "\n".join(" ".join(one.split()) for one in (silence.why, then, silence.remedy) if one)


def warn(silence: Silence, then: str) -> None:
    """Print the warning on standard error, so that programs can still parse standard output."""
    lines = text(silence, then).replace("\n", "\n           ")
    typer.secho(f"stale      {lines}", err=True, fg=typer.colors.YELLOW)


class Attended(Protocol):
    """A workload, a graph, a queue or a broker: what a worker runs."""

    async def silence(self) -> Silence | None:
        """Return why no worker answers for it, and since when; None if one does."""
        ...


async def attended(run: Attended, work: Awaitable[T], then: str, silent: asyncio.Event | None = None) -> T:
    """Await work. Warn once, within 5 s, if no worker answers for what it is on, and once when one answers again.

    Args:
        run: what the work is on.
        work: the work to await.
        then: what happens once a worker answers.
        silent: set once the warning is given.
    """
    told = asyncio.Event()
    listening = asyncio.create_task(_listen(run, then, told, silent))
    # However the listening ends, it must not hold up the work.
    listening.add_done_callback(lambda _: told.set())
    try:
        result = await work
        await told.wait()
        return result
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


async def _listen(run: Attended, then: str, told: asyncio.Event, warned: asyncio.Event | None) -> None:
    silent = False
    while True:
        # If the query itself fails, the command reports the error.
        silence = None
        with suppress(HoldfastError):
            silence = await run.silence()
        if silence is not None and not silent:
            warn(silence, then)
            if warned is not None:
                warned.set()
        elif silence is None and silent:
            typer.secho("a worker answers again", err=True)
        silent = silence is not None
        told.set()
        await asyncio.sleep(AGAIN)
