"""The command that draws a graph of workloads, or cancels it as a whole."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.common.options import EXIT_FAILED, HERE, Format, Namespace, Output, Place, chosen, grouped, session
from holdfast.cli.common.output import document, emit

if TYPE_CHECKING:
    from holdfast.model.entities.graph import GraphStatus

Name = Annotated[str, typer.Argument(help="The graph: NAME, or NAMESPACE/NAME.", metavar="NAME")]


def graph(
    name: Name,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="End all of its workloads: those that wait, and those that run.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all of it has ended.")] = False,
    reason: Annotated[str, typer.Option("--reason", help="Why, for its history.")] = "",
    namespace: Namespace = None,
    place: Place = HERE,
    output: Format = Output.TABLE,
) -> None:
    """Draw a graph of workloads: what has ended, what runs, what waits for what."""
    named = chosen(name, namespace)

    async def go() -> GraphStatus:
        async with session(place) as holdfast:
            run = holdfast.graph(named.name, named.namespace)
            if cancel:
                await run.cancel(reason)
            return await (run.result() if wait else run.status())

    from holdfast.cli.entities.graph_text import drawn
    from holdfast.model import Phase

    status = asyncio.run(go())
    emit(document(status), output, lambda: drawn(status))
    if wait and status.phase is Phase.FAILED:
        raise typer.Exit(EXIT_FAILED)


def add_to(app: typer.Typer, panel: str) -> None:
    """Add this file's command."""
    app.command(rich_help_panel=panel)(grouped(graph))
