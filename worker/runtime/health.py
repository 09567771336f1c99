"""Is it alive, is it ready: the two pages a kubelet asks, each with every check it rests on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aiohttp import web


@dataclass(frozen=True)
class Check:
    """One thing a page rests on: whether it holds, and what a person should know of it."""

    name: str
    ok: bool
    message: str = ""


class Health:
    """The checks of a worker. Each is asked when the page is asked; none of them waits."""

    def __init__(self) -> None:
        """Begin alive, and not ready: nothing has been reached yet."""
        self._live: dict[str, Callable[[], Check]] = {}
        self._ready: dict[str, Callable[[], Check]] = {}
        self._facts: dict[str, Check] = {}
        self._draining = False

    def ask_live(self, name: str, ask: Callable[[], Check]) -> None:
        """Let liveness rest on an answer too. Only what a restart would mend belongs here."""
        self._live[name] = ask

    def ask_ready(self, name: str, ask: Callable[[], Check]) -> None:
        """Let readiness rest on an answer too."""
        self._ready[name] = ask

    def note(self, name: str, ok: bool, message: str = "") -> None:
        """Remember the last result of something readiness rests on."""
        self._facts[name] = Check(name, ok, message)

    def drain(self) -> None:
        """From now on this worker is not ready: it is going away."""
        self._draining = True

    @property
    def draining(self) -> bool:
        """Whether the worker is going away."""
        return self._draining

    def live(self) -> list[Check]:
        """The checks of liveness."""
        return [Check("loop", True, "the event loop answers"), *(ask() for ask in self._live.values())]

    def ready(self) -> list[Check]:
        """The checks of readiness."""
        shutdown = Check("shutdown", not self._draining, "going away" if self._draining else "")
        return [shutdown, *self._facts.values(), *(ask() for ask in self._ready.values())]

    def application(self) -> web.Application:
        """Return the web application with both pages: 200 if every check holds, else 503."""

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


async def listen(application: web.Application, address: str) -> tuple[web.AppRunner, str]:
    """Serve an application; return its runner (to be cleaned up) and the address it got (port 0: a free one).

    Raises:
        OSError: if the address cannot be had.
    """
    host, _, port = address.rpartition(":")
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, host.strip("[]"), int(port))
    try:
        await site.start()
    except OSError:
        await runner.cleanup()
        raise
    bound = runner.addresses[0]
    return runner, f"{host}:{bound[1]}"
