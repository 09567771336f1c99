"""A receiver of OpenTelemetry's protocol over HTTP: keeps the spans that it is sent."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Receiver:
    """What came in, and where it comes in."""

    endpoint: str = ""
    requests: list[ExportTraceServiceRequest] = field(default_factory=list[ExportTraceServiceRequest])

    @property
    def environment(self) -> dict[str, str]:
        """What turns traces on in a process, and sends them here at once."""
        return {
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.endpoint,
            "OTEL_BSP_SCHEDULE_DELAY": "200",
        }

    def spans(self) -> Iterator[tuple[str, Span]]:
        """Yield each span with its service's name."""
        for request in self.requests:
            for resource in request.resource_spans:
                service = {one.key: one.value.string_value for one in resource.resource.attributes}["service.name"]
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        yield service, span

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        if request.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.requests.append(ExportTraceServiceRequest.FromString(body))
        return web.Response(content_type="application/x-protobuf")


def attributes(span: Span) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value") or "string_value") for one in span.attributes}


@asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    """Listen on a port of its own."""
    made = Receiver()
    application = web.Application()
    application.router.add_post("/v1/traces", made.take)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        made.endpoint = f"http://{host}:{port}"
        yield made
    finally:
        await runner.cleanup()
