"""`holdfast ui`: workloads, queues and nodes of a cluster as a local web page (row E1)."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from holdfast.cli.common.options import HERE, Place, grouped, session
from holdfast.cli.common.serve import serve


def ui(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0: a free one.")] = 0,
    place: Place = HERE,
) -> None:
    """Show a cluster's workloads, queues and nodes in a browser. Runs in the foreground, on 127.0.0.1.

    The page only reads, and updates itself. Whoever can log in to this machine can read it.
    """
    cluster = place.required()

    from holdfast.cli.page.reads import Reader
    from holdfast.cli.page.server import application

    def announce(url: str) -> str:
        return f"cluster {cluster} at {url}/ (Ctrl-C ends it)"

    reader = Reader(cluster, lambda: session(place))
    asyncio.run(serve(application(reader), f"127.0.0.1:{port}", f"--port {port}", announce, None))


def add_to(app: typer.Typer, panel: str) -> None:
    """Add this file's command."""
    app.command(rich_help_panel=panel)(grouped(ui))
