"""The command that draws a graph of workloads, or cancels it as a whole."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.common import progress
from holdfast.cli.common.live import LiveLine
from holdfast.cli.common.options import (
    EXIT_FAILED,
    HERE,
    Chosen,
    Format,
    Namespace,
    NotInTime,
    Output,
    Place,
    Timeout,
    chosen,
    grouped,
    seconds,
    session,
)
from holdfast.cli.common.output import document, emit
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.client.entities.graph import GraphRun
    from holdfast.model.entities.graph import GraphStatus

Name = Annotated[str, typer.Argument(help="The graph: NAME, or NAMESPACE/NAME.", metavar="NAME")]


def graph(
    name: Name,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="End all of its workloads: those that wait, and those that run.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all of it has ended.")] = False,
    timeout: Timeout = None,
    reason: Annotated[str, typer.Option("--reason", help="Why, for its history.")] = "",
    namespace: Namespace = None,
    place: Place = HERE,
    output: Format = Output.TABLE,
) -> None:
    """Draw a graph of workloads: what has ended, what runs, what waits for what."""
    limit = seconds(timeout, "--timeout")
    if limit is not None and not wait:
        raise typer.BadParameter("is for --wait", param_hint="--timeout")
    named = chosen(name, namespace)

    async def go() -> GraphStatus:
        async with session(place) as holdfast:
            run = holdfast.graph(named.name, named.namespace)
            if cancel:
                await run.cancel(reason)
            if not wait:
                return await run.status()
            try:
                async with asyncio.timeout(limit):
                    return await _result(run, named)
            except TimeoutError:
                raise await _late(run, named, str(timeout)) from None

    from holdfast.cli.entities.graph_text import drawn
    from holdfast.model import Phase

    status = asyncio.run(go())
    emit(document(status), output, lambda: drawn(status))
    if wait and status.phase is Phase.FAILED:
        raise typer.Exit(EXIT_FAILED)


async def _result(run: GraphRun, named: Chosen) -> GraphStatus:
    """Wait for the outcome of a graph; at a terminal, a line shows how far it has come."""
    where = f"{named.namespace}/{named.name}"

    async def read(waited: timedelta) -> str:
        return progress.text(where, "graph", await _seen(run), waited, 0, 1)

    async with progress.kept(LiveLine(sys.stderr), read):
        return await run.result()


async def _late(run: GraphRun, named: Chosen, limit: str) -> NotInTime:
    where, seen = f"{named.namespace}/{named.name}", await _seen(run)
    return NotInTime(progress.late(where, limit, seen, "graph"))


async def _seen(run: GraphRun) -> str:
    """Return how far a graph has come; empty if nobody says so within a few seconds."""
    from holdfast.cli.entities.graph_text import doing

    with suppress(HoldfastError, TimeoutError):
        async with asyncio.timeout(progress.PATIENCE):
            return doing(await run.status())
    return ""


def add_to(app: typer.Typer, panel: str) -> None:
    """Add this file's command."""
    app.command(rich_help_panel=panel)(grouped(graph))
