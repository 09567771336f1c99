"""Follow a workload's life as it happens: a line for each transition, and on a terminal a live last line."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Final

import typer

from holdfast.cli.common import output as printed
from holdfast.cli.common import progress
from holdfast.cli.common.live import LiveLine
from holdfast.cli.common.options import (
    EXIT_FAILED,
    HERE,
    Format,
    Name,
    Namespace,
    NotInTime,
    Output,
    Place,
    chosen,
    exit_code_of,
    grouped,
    seconds,
    with_run,
)
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.client import Run, StatusView
    from holdfast.model import Status

INTERVAL: Final = 0.5
_SLOWEST: Final = 2.0


def watch(
    name: Name,
    namespace: Namespace = None,
    timeout: Annotated[
        str | None,
        typer.Option("--timeout", help="Give up after so long, for example 5m: exit code 4.", show_default=False),
    ] = None,
    place: Place = HERE,
    output: Format = Output.TABLE,
) -> None:
    """Show a workload's life as it happens, until its outcome. Exit code 1 if it fails."""
    seconds(timeout, "--timeout")
    named = chosen(name, namespace)
    if not with_run(named, place, lambda run: follow_all([run], output, timeout)):
        raise typer.Exit(1)


def add_to(app: typer.Typer, panel: str) -> None:
    """Add this file's command."""
    app.command(rich_help_panel=panel)(grouped(watch))


async def follow_all(runs: Sequence[Run], output: Output, limit: str | None) -> bool:
    """Follow workloads until each has its outcome, and return whether none failed.

    Args:
        runs: The workloads.
        output: As for `follow`.
        limit: The duration to give up after; None: never.

    Raises:
        NotInTime: if time is up; it says how far each of those without an outcome has come.
        HoldfastError: if the only one cannot be followed.
        Exit: if some of several cannot be followed, with the worst exit code; the others are followed to their end.
    """
    from holdfast.model.words import printable

    left = list(runs)

    async def one(run: Run) -> int:
        try:
            well = await follow(run, output, named=len(runs) > 1)
        except HoldfastError as error:
            if len(runs) == 1:
                raise
            typer.secho(printable(f"Error: {run.name}: {error}"), err=True, fg=typer.colors.RED)
            left.remove(run)
            return exit_code_of(error)
        left.remove(run)
        return 0 if well else EXIT_FAILED

    try:
        async with asyncio.timeout(seconds(limit, "--timeout")):
            worst = max(await asyncio.gather(*map(one, runs)), default=0)
    except TimeoutError:
        raise NotInTime("\n".join(await asyncio.gather(*(_late(run, str(limit)) for run in left)))) from None
    if worst > EXIT_FAILED:
        raise typer.Exit(worst)
    return not worst


async def _late(run: Run, limit: str) -> str:
    where, seen = f"{run.namespace}/{run.name}", await progress.last_look(run)
    return progress.late(where, limit, seen, "explain")


async def follow(
    run: Run, output: Output = Output.TABLE, *, named: bool = False, say: Callable[[str], None] = printed.say
) -> bool:
    """Print a workload's transitions until its outcome, and return whether it did not fail.

    Args:
        run: The workload.
        output: TABLE prints lines for people; JSON and YAML one JSON document a line, since such a stream can be piped.
        named: Whether each line begins with the workload's name.
        say: Prints each line.
    """
    from holdfast.cli.common import render
    from holdfast.model import Phase

    seen = Seen()
    prefix = f"{run.name}: " if named else ""
    live = LiveLine(sys.stdout, wanted=output is Output.TABLE and not named)
    last: StatusView | None = None
    try:
        async for view in _changes(run):
            turned = (last is not None and last.silence is not None) != (view.silence is not None)
            for line in (*(_turned(view) if turned else ()), *seen.news(view.status)):
                if output is Output.TABLE:
                    live.erase()
                    say(prefix + line)
            if output is not Output.TABLE and (turned or last is None or last.status != view.status):
                say(json.dumps(view.model_dump(mode="json"), ensure_ascii=False))
            if live.on:
                live.show(render.status(view, datetime.now(UTC)).splitlines()[0] + f"  {view.status.pods.sentence()}")
            last = view
            if view.phase.ended:
                break
    finally:
        live.erase()
    return last is not None and last.phase is not Phase.FAILED


def _turned(view: StatusView) -> list[str]:
    """Return lines that say that workers began or ceased to answer. While none answers, the last record is shown."""
    from holdfast.cli.common import render
    from holdfast.cli.common.silence import READ, text

    if view.silence is None:
        return [render.line(datetime.now(UTC), "", "a worker answers again")]
    first, *others = text(view.silence, READ).splitlines()
    now = datetime.now(UTC)
    return [render.line(now, "stale", first), *(render.line(now, "", other) for other in others)]


class Seen:
    """Remembers which causes of a workload were already printed."""

    def __init__(self) -> None:
        self._total = 0
        self._before: Status | None = None

    def news(self, status: Status) -> list[str]:
        """Return a line for each new cause and transition since the last call."""
        from holdfast.cli.common import render

        fresh = min(max(status.causes_total - self._total, 0), len(status.causes))
        # The transition to a removal may have been told before its cause is recorded.
        told = self._before.message if self._before is not None else ""
        causes = [one for one in (status.causes[-fresh:] if fresh else ()) if one.message != told]
        lines = [render.caused(cause) for cause in causes]
        if render.is_transition(self._before, status):
            line = render.transition(self._before, status)
            led = [place for place, cause in enumerate(causes) if cause.message == status.message]
            if led:
                lines[led[-1]] = line
            else:
                lines.append(line)
        self._total, self._before = max(self._total, status.causes_total), status
        return lines


async def _changes(run: Run) -> AsyncIterator[StatusView]:
    """Yield the status repeatedly: the worker's answer, or the last record while no worker answers.

    Once another submission has its name, it is the status with which it ended (row D46).
    """
    from holdfast.client.found import Resubmitted
    from holdfast.client.patience import Patience

    pause = INTERVAL
    before: Status | None = None
    patience = Patience()
    while True:
        try:
            view = await patience.ask(run.status)
        except Resubmitted:
            view = await patience.ask(run.followed)
        yield view
        pause = INTERVAL if view.status != before else min(pause * 1.2, _SLOWEST)
        before = view.status
        await asyncio.sleep(pause)
