"""OpenTelemetry traces: from a submission through its workflow and activities to the requests at Kubernetes (row O7).

Off by default. OTEL_TRACES_EXPORTER=otlp turns them on; OpenTelemetry's SDK reads all else from its own OTEL_*
variables. Temporal's SDK makes the spans of clients, workflows and activities (record 0098).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from holdfast import __version__
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Tracer
    from temporalio.contrib.opentelemetry import TracingInterceptor

ENV_EXPORTER: Final = "OTEL_TRACES_EXPORTER"
ENV_DISABLED: Final = "OTEL_SDK_DISABLED"
ENV_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL: Final = "http/protobuf"
_NEEDED: Final = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


@dataclass(frozen=True)
class Traces:
    """What a process traces with.

    Attributes:
        interceptor: Makes the spans of Temporal's client, workflows and activities.
        tracer: Makes the spans of requests at Kubernetes.
        provider: Sends them.
    """

    interceptor: TracingInterceptor
    tracer: Tracer
    provider: TracerProvider

    def close(self) -> None:
        """Send what is left, which blocks for as long as the exporter tries."""
        self.provider.shutdown()


def wanted() -> bool:
    """Return whether the environment turns traces on.

    Raises:
        HoldfastError: if it asks for what there is not: another exporter or protocol, or the extra is not installed.
    """
    exporter = os.environ.get(ENV_EXPORTER, "").strip().lower()
    if exporter in {"", "none"} or os.environ.get(ENV_DISABLED, "").strip().lower() == "true":
        return False
    if exporter != "otlp":
        raise HoldfastError(f"{ENV_EXPORTER}: {exporter!r}: expected otlp or none")
    protocol = next((name for name in ENV_PROTOCOLS if os.environ.get(name)), None)
    if protocol is not None and os.environ[protocol].strip() != PROTOCOL:
        raise HoldfastError(f"{protocol}: {os.environ[protocol]!r}: expected {PROTOCOL}")
    if not is_installed():
        raise HoldfastError(f"{ENV_EXPORTER}: otlp needs OpenTelemetry's SDK: pip install 'holdfast[traces]'")
    return True


def is_installed() -> bool:
    """Whether the SDK and its exporter are installed: they come with the extra `traces`."""
    try:
        return all(find_spec(name) is not None for name in _NEEDED)
    except ModuleNotFoundError:  # Of a parent package.
        return False


@asynccontextmanager
async def opened(service: str) -> AsyncGenerator[Traces | None]:
    """Yield what to trace with, or None where traces are off; send what is left at the end.

    Args:
        service: the name of the service, if neither OTEL_SERVICE_NAME nor OTEL_RESOURCE_ATTRIBUTES gives one.

    Raises:
        HoldfastError: as `wanted`, or if OpenTelemetry's SDK refuses what its own variables say.
    """
    if not wanted():
        yield None
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        traces = started(service, OTLPSpanExporter())
    except Exception as error:  # Whatever the SDK raises for a value of its many variables.
        raise HoldfastError(f"traces cannot be turned on: check the OTEL_* variables: {error}") from error
    try:
        yield traces
    finally:
        await asyncio.to_thread(traces.close)


def started(service: str, exporter: SpanExporter) -> Traces:
    """Return what to trace with, by an exporter; whoever asks closes it."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource
    from opentelemetry.sdk.trace import SpanLimits, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    from holdfast.spans import VALUE_LENGTH, Bare, Submissions, Tracing

    named = Resource.create({"service.name": service, "service.version": __version__})
    provider = TracerProvider(
        resource=named.merge(OTELResourceDetector().detect()),
        span_limits=SpanLimits(max_span_attribute_length=VALUE_LENGTH),
        shutdown_on_exit=False,
    )
    provider.sampler = Submissions(provider.sampler)  # What OTEL_TRACES_SAMPLER chose decides about submissions.
    provider.add_span_processor(BatchSpanProcessor(Bare(exporter)))
    tracer = provider.get_tracer("holdfast", __version__)
    return Traces(Tracing(tracer), tracer, provider)
