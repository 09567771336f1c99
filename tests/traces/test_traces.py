"""Traces: what turns them on, what begins one, what a span keeps, and that replay does not see them (row O7)."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Replayer

from holdfast import names, traces
from holdfast.errors import HoldfastError
from holdfast.plugin import HoldfastPlugin
from holdfast.spans import VALUE_LENGTH
from holdfast.worker.runtime.api_spans import ApiRequest, api_request, api_span, set_status
from tests.replay.test_replay import RECORDED, read

pytestmark = pytest.mark.row("O7", level="pure")
SUBMISSION = f"StartWorkflow:{names.WORKLOAD_WORKFLOW}"


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (traces.ENV_EXPORTER, traces.ENV_DISABLED, *traces.ENV_PROTOCOLS, "OTEL_TRACES_SAMPLER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


async def opening() -> None:
    async with traces.opened("test"):
        pass


def sent(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


# What turns them on.


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_TRACES_EXPORTER": ""},
        {"OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"},
        {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"},
    ],
)
async def test_traces_are_off(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    async with traces.opened("test") as tracing:
        assert tracing is None


async def test_one_variable_turns_them_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    async with traces.opened("test") as tracing:
        assert tracing is not None


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER: 'zipkin': expected otlp or none"),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc': expected http/protobuf",
        ),
        (
            {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/json"},
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL: 'http/json': expected http/protobuf",
        ),
    ],
)
async def test_what_there_is_not_is_refused(environment: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(HoldfastError, match=words.replace(":", "[:]")):
        await opening()


async def test_without_the_extra_it_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.setattr(traces, "_NEEDED", ("opentelemetry.of_no_package",))
    assert not traces.is_installed()
    with pytest.raises(HoldfastError, match=r"pip install 'holdfast\[traces\]'"):
        await opening()


async def test_a_value_that_the_sdk_refuses_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "many")
    with pytest.raises(HoldfastError, match="traces cannot be turned on"):
        await opening()


def test_where_they_are_off_nothing_of_them_is_loaded():
    program = (
        "import sys, holdfast.worker.process, holdfast.client.session\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


# What begins a trace, and what follows.


@pytest.mark.parametrize("sampler", ["", "always_on", "traceidratio"])
def test_a_trace_begins_with_a_submission_alone(
    sampler: str, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
):
    if sampler:
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    with closing(traces.started("test", exporter)) as tracing:
        tracer = tracing.tracer
        for name in (SUBMISSION, "RunActivity:watch", "SignalWorkflow:news", "StartWorkflow:ClusterWatch"):
            with tracer.start_as_current_span(name), tracer.start_as_current_span(f"in {name}"):
                pass
    assert set(sent(exporter)) == {SUBMISSION, f"in {SUBMISSION}"}


def test_a_shared_workflow_is_in_no_submissions_trace(exporter: InMemorySpanExporter):
    with closing(traces.started("test", exporter)) as tracing:
        begin = tracing.tracer.start_as_current_span
        with begin(SUBMISSION), begin("RunActivity:ask"):
            with begin("SignalWithStartWorkflow:Queue"), begin("in the queue"):
                pass
            with begin(f"StartWorkflow:{names.GRAPH_WORKFLOW}"):
                pass
    assert set(sent(exporter)) == {SUBMISSION, "RunActivity:ask"}


class _Inner(ActivityInboundInterceptor):
    """Stands for an activity: whether it runs within a span."""

    def __init__(self) -> None:
        pass

    async def execute_activity(self, input: ExecuteActivityInput) -> bool:
        return trace.get_current_span().get_span_context().is_valid


@pytest.mark.parametrize(("begun", "within"), [(SUBMISSION, True), ("StartWorkflow:ClusterWatch", False), ("", False)])
async def test_an_activity_outside_of_traces_runs_in_no_span(begun: str, within: bool, exporter: InMemorySpanExporter):
    """A submission that such an activity makes begins a trace, then."""
    with closing(traces.started("test", exporter)) as tracing:
        interceptor, carrier = tracing.interceptor, dict[str, str]()
        if begun:
            with tracing.tracer.start_as_current_span(begun):
                interceptor.text_map_propagator.inject(carrier)  # pyright: ignore[reportArgumentType] its own default
        headers = {interceptor.header_key: interceptor.payload_converter.to_payloads([carrier])[0]} if begun else {}
        given = ExecuteActivityInput(fn=lambda: None, args=[], executor=None, headers=headers)
        activity = interceptor.intercept_activity(_Inner())
        assert await ActivityEnvironment().run(activity.execute_activity, given) is within


def test_the_sampler_of_the_environment_decides_about_submissions(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    exporter = InMemorySpanExporter()
    with closing(traces.started("test", exporter)) as tracing, tracing.tracer.start_as_current_span(SUBMISSION):
        pass
    assert not sent(exporter)


# What a span keeps.


def test_a_span_keeps_no_words_of_a_failure(exporter: InMemorySpanExporter):
    with closing(traces.started("test", exporter)) as tracing:
        with pytest.raises(ValueError, match="s3cr3t"), tracing.tracer.start_as_current_span(SUBMISSION):
            raise ValueError("s3cr3t")
        with tracing.tracer.start_as_current_span(SUBMISSION, attributes={"long": "x" * 10_000}) as span:
            span.set_status(StatusCode.ERROR, "s3cr3t")
    failed, described = exporter.get_finished_spans()
    assert failed.status.status_code is described.status.status_code is StatusCode.ERROR
    assert "s3cr3t" not in failed.to_json() + described.to_json()
    assert not failed.events
    assert described.attributes == {"long": "x" * VALUE_LENGTH}


def test_a_service_is_named_by_the_environment_first(monkeypatch: pytest.MonkeyPatch):
    found: list[object] = []
    for own in (None, "training-workers"):
        if own:
            monkeypatch.setenv("OTEL_SERVICE_NAME", own)
        exporter = InMemorySpanExporter()
        with (
            closing(traces.started("holdfast-worker", exporter)) as tracing,
            tracing.tracer.start_as_current_span(SUBMISSION),
        ):
            pass
        (span,) = exporter.get_finished_spans()
        found.append(span.resource.attributes["service.name"])
    assert found == ["holdfast-worker", "training-workers"]


# Requests at Kubernetes.

HOST = "https://10.0.0.1:6443"


@pytest.mark.parametrize(
    ("method", "url", "expected"),
    [
        ("GET", "/api/v1/namespaces/team/pods/one", ApiRequest("get", "pods", "team")),
        ("GET", "/api/v1/namespaces/team/pods/one/log?tailLines=3", ApiRequest("get", "pods/log", "team")),
        ("GET", "/api/v1/namespaces/team/secrets/pass", ApiRequest("get", "secrets", "team")),
        ("GET", "/apis/batch/v1/namespaces/team/jobs?labelSelector=a%3Db", ApiRequest("list", "batch/jobs", "team")),
        ("GET", "/apis/batch/v1/jobs?watch=1&resourceVersion=7", ApiRequest("watch", "batch/jobs")),
        ("POST", "/apis/batch/v1/namespaces/team/jobs", ApiRequest("create", "batch/jobs", "team")),
        (
            "PATCH",
            "/apis/x.dev/v1beta1/namespaces/t/anchors/a/status",
            ApiRequest("patch", "x.dev/anchors/status", "t"),
        ),
        ("PUT", "/apis/batch/v1/namespaces/team/jobs/one", ApiRequest("update", "batch/jobs", "team")),
        ("DELETE", "/apis/batch/v1/namespaces/team/jobs/one", ApiRequest("delete", "batch/jobs", "team")),
        ("DELETE", "/apis/batch/v1/namespaces/team/jobs", ApiRequest("deletecollection", "batch/jobs", "team")),
        ("GET", "/api/v1/namespaces/team", ApiRequest("get", "namespaces")),
        ("GET", "/api/v1/nodes/n1", ApiRequest("get", "nodes")),
        ("GET", "/api/v1/namespaces/team/pods/one/proxy/a/b", ApiRequest("get", "pods/proxy", "team")),
        ("GET", "/apis/batch/v1", ApiRequest("GET")),
        ("GET", "/readyz", ApiRequest("GET")),
    ],
)
def test_a_request_is_said_in_kubernetes_words(method: str, url: str, expected: ApiRequest):
    assert api_request(method, HOST + url) == expected


@pytest.mark.parametrize(
    ("code", "status"),
    [(201, StatusCode.UNSET), (404, StatusCode.UNSET), (503, StatusCode.ERROR), (0, StatusCode.ERROR)],
)
def test_a_requests_span_has_its_answer_and_no_name(code: int, status: StatusCode):
    exporter = InMemorySpanExporter()
    url = f"{HOST}/api/v1/namespaces/team/secrets/pass?labelSelector=x"
    with (
        closing(traces.started("test", exporter)) as tracing,
        tracing.tracer.start_as_current_span(SUBMISSION),
        api_span(tracing.tracer, "GET", url) as span,
    ):
        set_status(span, code)
    span = sent(exporter)["get secrets"]
    assert span.kind is SpanKind.CLIENT
    assert span.status.status_code is status
    assert dict(span.attributes or {}) == {
        "http.request.method": "GET",
        "holdfast.kubernetes.verb": "get",
        "holdfast.kubernetes.resource": "secrets",
        "k8s.namespace.name": "team",
    } | ({"http.response.status_code": code} if code else {})


# Replay.


async def test_recorded_histories_replay_with_traces_on(exporter: InMemorySpanExporter):
    """They were recorded without: so this is a worker that turns traces on under workflows that are under way."""
    with closing(traces.started("test", exporter)) as tracing:
        replayer = Replayer(workflows=[], plugins=[HoldfastPlugin(["workflows"])], interceptors=[tracing.interceptor])
        for path in RECORDED:
            await replayer.replay_workflow(read(path))
    assert not sent(exporter), "a replay makes no span again"
