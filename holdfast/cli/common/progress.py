"""How far a long wait has come: what it waits for, how many pods are gone, what holds the rest (row E5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence, Sized
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from holdfast.cli.common.live import LiveLine
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.cli.common.options import Chosen
    from holdfast.client import ActivityView, Run, StatusView

GOALS: Final = {
    "suspend": "is Suspended",
    "preempt": "is Suspended",
    "resume": "is Running",
    "retry": "is Running",
    "checkpoint": "has saved",
    "cancel": "is gone",
    "graph": "has ended",
}
"""What `--wait` waits for, by command."""
_AGAIN: Final = 1.0
PATIENCE: Final = 5.0
"""Seconds in which a worker answers about a workload whose time is over."""


async def keep(line: LiveLine, read: Callable[[timedelta], Awaitable[str]]) -> None:
    """Show a text, and read it again each second, until this is cancelled.

    Args:
        line: Where to show it.
        read: Returns the text, given how long the wait has lasted; an empty one leaves the line as it is.
    """
    begun = datetime.now(UTC)
    while line.on:
        if shown := await read(datetime.now(UTC) - begun):
            line.show(shown)
        await asyncio.sleep(_AGAIN)


@asynccontextmanager
async def kept(line: LiveLine, read: Callable[[timedelta], Awaitable[str]]) -> AsyncGenerator[None]:
    """Keep the line up to date inside, and erase it at the end."""
    keeping = asyncio.create_task(keep(line, read))
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        line.erase()


async def show(line: LiveLine, waiting: Mapping[Chosen, Run], done: Sized, verb: str, total: int) -> None:
    """Keep the line up to date until this is cancelled.

    Args:
        line: Where to show it.
        waiting: The workloads that have taken the request and are not done yet; the caller removes each that is.
        done: Those that are done; the caller adds to it.
        verb: The command.
        total: How many workloads there are.
    """

    async def read(waited: timedelta) -> str:
        if not waiting:
            return ""
        named, run = next(iter(waiting.items()))
        seen = ""
        # The command itself reports an error; a line that shows how it goes must not end it.
        with suppress(HoldfastError):
            seen = await look(run)
        return text(f"{named.namespace}/{named.name}", verb, seen, waited, len(done), total)

    await keep(line, read)


def text(name: str, verb: str, seen: str, waited: timedelta, done: int, total: int) -> str:
    """Return the line: `2 of 5 done, 41s: waiting until team/train is Suspended: Suspending, 61 of 64 pods gone`."""
    from holdfast.cli.common.render import age

    count = f"{done} of {total} done, " if total > 1 else ""
    return f"{count}{age(waited)}: waiting until {name} {GOALS[verb]}: {seen}".removesuffix(": ")


async def look(run: Run) -> str:
    """Return how far a workload has come, as a short sentence.

    Raises:
        HoldfastError: if Temporal no longer knows it, or does not answer.
    """
    view, activities = await asyncio.gather(run.status(), run.under_way())
    return doing(view, activities, datetime.now(UTC))


async def last_look(run: Run) -> str:
    """Return the same of a workload whose time is over, as last recorded if no worker answers; empty if Temporal fails.

    The wait is over already, so this takes a few seconds at most.
    """
    with suppress(HoldfastError):
        try:
            async with asyncio.timeout(PATIENCE):
                return await look(run)
        except TimeoutError:
            return doing(await run.recorded(), await run.under_way(), datetime.now(UTC))
    return ""


def late(where: str, limit: str, seen: str, verb: str = "explain", what: str = "not ended") -> str:
    """Return why a wait ended: `team/train: not ended after 30s: Running: `holdfast explain team/train` says …`."""
    return (
        f"{where}: {what} after {limit}{f': {seen}' if seen else ''}: `holdfast {verb} {where}` says what it waits for"
    )


def doing(view: StatusView, activities: Sequence[ActivityView], now: datetime) -> str:
    """Say it: `Suspending, 61 of 64 pods gone, left: Pod worker-3 (finalizer example.com/hold)`."""
    from holdfast.cli.common.render import phase_word
    from holdfast.model import Phase
    from holdfast.model.words import counted

    status = view.status
    progress = next((one for each in activities for one in each.progress if one.pods is not None), None)
    parts = [phase_word(status)]
    if progress is not None and progress.pods is not None:
        total = max(status.pods.expected, progress.pods)
        parts.append(f"{total - progress.pods:,} of {counted(total, 'pod')} gone")
        if progress.remaining:
            more = progress.remaining_total - 1
            parts.append(f"left: {progress.remaining[0]}" + (f" and {more} more" if more > 0 else ""))
        return ", ".join(parts)
    if status.phase in {Phase.RESUMING, Phase.RUNNING} and status.pods.expected:
        parts.append(status.pods.sentence())
        parts += [one.sentence() for one in status.waiting[:1]]
        return ", ".join(parts)
    sentences = [sentence for each in activities if (sentence := each.sentence(now))]
    return ", ".join([*parts, *(sentences[:1] or [status.message or status.reason.value])])
