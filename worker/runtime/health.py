"""Serves liveness and readiness: the two pages a kubelet requests, each with all its checks."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aiohttp import web


@dataclass(frozen=True)
class Check:
    """One check of a page: whether it passes, and a message for people."""

    name: str
    ok: bool
    message: str = ""


class Health:
    """The checks of a worker. Each runs when its page is requested; none of them waits."""

    def __init__(self) -> None:
        """Start without any added checks, and not draining."""
        self._live: dict[str, Callable[[], Check]] = {}
        self._ready: dict[str, Callable[[], Check]] = {}
        self._facts: dict[str, Check] = {}
        self._draining = False

    def ask_live(self, name: str, ask: Callable[[], Check]) -> None:
        """Add a check to liveness. Add only what a restart would fix."""
        self._live[name] = ask

    def ask_ready(self, name: str, ask: Callable[[], Check]) -> None:
        """Add a check to readiness."""
        self._ready[name] = ask

    def note(self, name: str, ok: bool, message: str = "") -> None:
        """Store the last result of a readiness check."""
        self._facts[name] = Check(name, ok, message)

    def drain(self) -> None:
        """Make this worker not ready from now on: it is shutting down."""
        self._draining = True

    @property
    def draining(self) -> bool:
        """Whether the worker is shutting down."""
        return self._draining

    def live(self) -> list[Check]:
        """The checks of liveness."""
        return [Check("loop", True, "the event loop answers"), *(ask() for ask in self._live.values())]

    def ready(self) -> list[Check]:
        """The checks of readiness."""
        shutdown = Check("shutdown", not self._draining, "going away" if self._draining else "")
        return [shutdown, *self._facts.values(), *(ask() for ask in self._ready.values())]

    def application(self) -> web.Application:
        """Return the web application with both pages: 200 if every check passes, else 503."""

        async def livez(_: web.Request) -> web.Response:
            return _answer(self.live())

        async def readyz(_: web.Request) -> web.Response:
            return _answer(self.ready())

        application = web.Application()
        application.router.add_get("/livez", livez)
        application.router.add_get("/readyz", readyz)
        return application


def _answer(checks: Sequence[Check]) -> web.Response:
    ok = all(check.ok for check in checks)
    body = {"ok": ok, "checks": [{"name": c.name, "ok": c.ok, "message": c.message} for c in checks]}
    return web.json_response(body, status=200 if ok else 503)


async def listen(
    application: web.Application, address: str, tls: ssl.SSLContext | None = None
) -> tuple[web.AppRunner, str]:
    """Serve an application; return its runner (to be cleaned up) and its bound address (port 0: a free one).

    Raises:
        OSError: if the address cannot be bound.
    """
    host, _, port = address.rpartition(":")
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, host.strip("[]"), int(port), ssl_context=tls)
    try:
        await site.start()
    except OSError:
        await runner.cleanup()
        raise
    bound = runner.addresses[0]
    return runner, f"{host}:{bound[1]}"
