"""Which spans there are, and what is left of them when they are sent: no messages of failures, which quote documents.

Imported only where traces are on: it needs the extra `traces`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult
from opentelemetry.trace import Link, SpanKind, Status, TraceState
from opentelemetry.util.types import Attributes
from temporalio.contrib.opentelemetry import TracingInterceptor
from temporalio.worker import ActivityInboundInterceptor, ActivityOutboundInterceptor, ExecuteActivityInput

from holdfast import names

VALUE_LENGTH: Final = 512
"""Characters of an attribute's value. A workflow id, the longest, has at most 400."""
_STARTS: Final = "StartWorkflow:"
"""Before the workflow's type: `StartWorkflow:`, and `SignalWithStartWorkflow:`."""


class Submissions(Sampler):
    """Samples what belongs to a workload's submission.

    A trace begins with a submission alone: what runs for ever, such as the watch, would make one without an end. A
    workflow that many workloads share, which one of them happened to start, is left out of its trace.
    """

    def __init__(self, chosen: Sampler) -> None:
        """Let a sampler decide about each submission; what follows from one is sampled as it is."""
        self._chosen = chosen

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """Drop what begins elsewhere, what starts a workflow of another type, and all that follows from either.

        The last is also for samplers that do not ask for the parent, such as `always_on`.
        """
        _, starts, workflow = name.partition(_STARTS)
        parent = trace.get_current_span(parent_context).get_span_context()
        dropped = parent.is_valid and not parent.trace_flags.sampled
        if dropped or (starts and workflow != names.WORKLOAD_WORKFLOW) or not (parent.is_valid or starts):
            return SamplingResult(Decision.DROP)
        return self._chosen.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)

    def get_description(self) -> str:
        """Return what the SDK shows of it."""
        return f"Submissions({self._chosen.get_description()})"


class Tracing(TracingInterceptor):
    """The SDK's interceptor, which leaves alone an activity that is in no trace.

    The watch is such an activity, and submits what is applied with kubectl: its span would be the parent of all that.
    """

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Trace the activities of a workflow that is in a trace."""
        return _InTrace(super().intercept_activity(next), next, self)


class _InTrace(ActivityInboundInterceptor):
    def __init__(
        self, traced: ActivityInboundInterceptor, plain: ActivityInboundInterceptor, tracing: TracingInterceptor
    ) -> None:
        super().__init__(traced)
        self._plain = plain
        self._tracing = tracing

    def init(self, outbound: ActivityOutboundInterceptor) -> None:
        self.next.init(outbound)

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        way = self.next if self._is_sampled(input) else self._plain
        return await way.execute_activity(input)

    def _is_sampled(self, input: ExecuteActivityInput) -> bool:
        header = input.headers.get(self._tracing.header_key)
        if header is None:
            return False
        (carrier,) = self._tracing.payload_converter.from_payloads([header])
        context = self._tracing.text_map_propagator.extract(carrier)
        return trace.get_current_span(context).get_span_context().trace_flags.sampled


class Bare(SpanExporter):
    """Sends spans without events and without the words of a status: both hold messages and stacks of failures."""

    def __init__(self, exporter: SpanExporter) -> None:
        """Send by another exporter."""
        self._exporter = exporter

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send what is left of each span."""
        return self._exporter.export([_bare(span) for span in spans])

    def shutdown(self) -> None:
        """Stop sending."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Send what the exporter still holds."""
        return self._exporter.force_flush(timeout_millis)


def _bare(span: ReadableSpan) -> ReadableSpan:
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=span.attributes,
        links=span.links,
        kind=span.kind,
        status=Status(span.status.status_code),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )
