"""`holdfast ui`: workloads, queues and nodes of a cluster as a local web page (row E1)."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from holdfast.cli.common.options import HERE, Place, grouped, session
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.cli.page.reads import Reader


def ui(
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The port; 0: a free one.")] = 0,
    place: Place = HERE,
) -> None:
    """Show a cluster's workloads, queues and nodes in a browser. Runs in the foreground, on 127.0.0.1.

    The page only reads, and updates itself. Whoever can log in to this machine can read it.
    """
    cluster = place.required()

    from holdfast.cli.page.reads import Reader

    asyncio.run(_serve(Reader(cluster, lambda: session(place)), port))


async def _serve(reader: Reader, port: int) -> None:
    from holdfast.cli.page.server import application
    from holdfast.worker.runtime.health import listen

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Not every platform, and no thread but the first, may handle signals.
        with suppress(NotImplementedError, RuntimeError):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        runner, bound = await listen(application(reader), f"127.0.0.1:{port}")
    except OSError as error:
        raise HoldfastError(f"--port {port}: cannot be listened on: {error.strerror or error}") from None
    try:
        typer.echo(f"cluster {reader.cluster} at http://{bound}/ (Ctrl-C ends it)")
        await stop.wait()
    finally:
        await runner.cleanup()


def add_to(app: typer.Typer, panel: str) -> None:
    """Add this file's command."""
    app.command(rich_help_panel=panel)(grouped(ui))
