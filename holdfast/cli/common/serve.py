"""A web server in the foreground, until Ctrl-C."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

import typer

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    import ssl

    from aiohttp import web


async def serve(
    application: web.Application, address: str, given: str, announce: Callable[[str], str], tls: ssl.SSLContext | None
) -> None:
    """Serve an application until SIGINT or SIGTERM.

    Args:
        application: the application.
        address: `host:port`; port 0: a free one.
        given: the option and its value that name the address, for the error.
        announce: returns what is printed once it serves, from its URL.
        tls: its certificate; None: plain HTTP.

    Raises:
        HoldfastError: if the address cannot be bound.
    """
    from holdfast.worker.runtime.health import listen

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        runner, bound = await listen(application, address, tls)
    except OSError as error:
        raise HoldfastError(f"{given}: cannot be listened on: {error.strerror or error}") from None
    try:
        typer.echo(announce(f"{'https' if tls else 'http'}://{bound}"))
        await stop.wait()
    finally:
        await runner.cleanup()
