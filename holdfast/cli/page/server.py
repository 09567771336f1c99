"""The local web page: which addresses there are, who may read them, and what a reader sees when something fails (E1).

It answers only requests that name a loopback host: a page of the web cannot read it under a name of its own that leads
to this machine (DNS rebinding).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final

from aiohttp import web
from aiohttp.typedefs import Handler
from yarl import URL

from holdfast import names
from holdfast.cli.page import html
from holdfast.cli.page.reads import Reader
from holdfast.errors import HoldfastError, NotReachable, WorkloadNotFound
from holdfast.model import Phase

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_SECONDS: Final = 15.0
"""How long a page waits for Temporal; the client library itself retries a request for about 10 s."""
_KINDS: Final = "|".join(("appwrapper", *names.KINDS_IN_IDS))
_ASSETS: Final = {"style.css": "text/css", "live.js": "text/javascript"}


def application(reader: Reader, seconds: float = _SECONDS) -> web.Application:
    """Return the web application.

    Args:
        reader: reads what the pages show.
        seconds: the longest wait of a page for what it shows.
    """

    async def answer(request: web.Request, template: str, read: Awaitable[dict[str, Any]], **more: Any) -> web.Response:
        try:
            async with asyncio.timeout(seconds):
                values = await read
        except NotReachable as error:
            return _page(request, "problem.html", 503, problem=str(error))
        except TimeoutError:
            return _page(request, "problem.html", 503, problem=f"Temporal has not answered within {seconds:g} s")
        except WorkloadNotFound as error:
            return _page(request, "problem.html", 404, problem=str(error))
        except HoldfastError as error:
            return _page(request, "problem.html", 502, problem=str(error))
        return _page(request, template, 200, **values, **more)

    async def fleet(request: web.Request) -> web.Response:
        given, namespace = request.query.get("phase", ""), request.query.get("namespace", "")
        if given and given not in list(Phase):
            problem = f"phase: {given!r}: expected one of {', '.join(Phase)}"
            return _page(request, "problem.html", 400, problem=problem)
        phase = Phase(given) if given else None
        wanted = {"phase": phase, "namespace": namespace, "phases": list(Phase)}
        return await answer(request, "fleet.html", reader.fleet(phase, namespace), **wanted)

    async def workload(request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        read = _drawn(reader.workload(namespace, name))
        return await answer(request, "workload.html", read, namespace=namespace, name=name)

    async def queues(request: web.Request) -> web.Response:
        return await answer(request, "queues.html", reader.queues())

    async def nodes(request: web.Request) -> web.Response:
        return await answer(request, "nodes.html", reader.nodes())

    def _page(request: web.Request, template: str, code: int, /, **values: Any) -> web.Response:
        text = html.page(template, path=request.path, cluster=reader.cluster, now=datetime.now(UTC), **values)
        return web.Response(text=text, status=code, content_type="text/html")

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not _is_loopback(request.headers.get("Host", "")):
            found: web.StreamResponse = web.Response(status=403, text="expected a loopback Host, such as 127.0.0.1")
        elif _is_foreign(request):
            found = web.Response(status=403, text="expected a request of this page's own")
        else:
            try:
                found = await handler(request)
            except web.HTTPException as error:
                found = _page(request, "problem.html", error.status, problem=f"{error.status} {error.reason}")
                found.headers.update({name: value for name, value in error.headers.items() if name == "Allow"})
        found.headers.update(HEADERS)
        return found

    async def closed(_: web.Application) -> AsyncIterator[None]:
        yield
        await reader.close()

    application = web.Application(middlewares=[guarded])
    application.cleanup_ctx.append(closed)
    application.router.add_get("/", fleet)
    application.router.add_get(f"/workloads/{{namespace}}/{{name:(?:(?:{_KINDS})/)?[^/]+}}", workload)
    application.router.add_get("/queues", queues)
    application.router.add_get("/nodes", nodes)
    for name, kind in _ASSETS.items():
        application.router.add_get(f"/{name}", _asset(name, kind))
    return application


def _asset(name: str, kind: str) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=html.asset(name), content_type=kind)

    return answer


async def _drawn(read: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    values = await read
    return {**values, **html.of_life(values["life"])}


def _is_foreign(request: web.Request) -> bool:
    """Whether another site's page asks in the background: it could make Temporal work without end."""
    return request.headers.get("Sec-Fetch-Site") in {"cross-site", "same-site"} and (
        request.headers.get("Sec-Fetch-Mode") != "navigate"
    )


def _is_loopback(host: str) -> bool:
    """Whether a Host header names this machine, with or without a port."""
    try:
        return URL(f"http://{host}").host in _LOOPBACK and not set(host) & set("/@?#")
    except ValueError:
        return False
