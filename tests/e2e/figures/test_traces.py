"""One trace from a submission to the requests at Kubernetes, sent to a real receiver by real processes (row O7)."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from holdfast import Holdfast, names
from holdfast.local import Stack
from holdfast.model import Workload
from tests.e2e.ground.site import Site, appwrapper, job, open_site, until
from tests.traces.otlp import Receiver, attributes, receiver

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240), pytest.mark.row("O7", level="e2e")]
SECRET = "not-for-traces-7f3a"
WAITS = {"failureGracePeriodDuration": "0s", "retryPausePeriodDuration": "0s", "successTTLDuration": "0s"}
ALLOWED = {
    "temporalWorkflowID",
    "temporalRunID",
    "temporalActivityID",
    "http.request.method",
    "http.response.status_code",
    "holdfast.kubernetes.verb",
    "holdfast.kubernetes.resource",
    "k8s.namespace.name",
}


def train(site: Site, namespace: str, name: str) -> Workload:
    component = job(name)
    container = component["template"]["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "PASSWORD", "value": SECRET}]
    return site.read(appwrapper(name, component, **WAITS), namespace)


async def submit(site: Site, traced: Receiver, monkeypatch: pytest.MonkeyPatch, workload: Workload) -> None:
    """Submit as a person does, with a client that traces."""
    with monkeypatch.context() as patch:
        for name, value in traced.environment.items():
            patch.setenv(name, value)
        async with Holdfast.connect(site.temporal_address, namespace=site.cluster, cluster=site.cluster) as holdfast:
            await holdfast.submit(workload)


def trace_of(traced: Receiver, workload: Workload) -> list[tuple[str, Span]]:
    """Return the spans of the one trace of a workload's submission, and the services that they are of."""
    spans = list(traced.spans())
    roots = [
        span
        for _, span in spans
        if span.name == f"StartWorkflow:{names.WORKLOAD_WORKFLOW}"
        and attributes(span)["temporalWorkflowID"] == workload.workflow_id
    ]
    assert len(roots) <= 1
    return [(service, span) for service, span in spans if roots and span.trace_id == roots[0].trace_id]


async def test_O7_one_trace_has_submission_activities_and_requests(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with receiver() as traced, open_site(stack, tmp_path, prefix="o") as site:
        await site.start_worker(kubeconfig=None, **traced.environment)
        namespace = await site.namespace()
        workload = train(site, namespace, "traced")
        await submit(site, traced, monkeypatch, workload)
        handle = site.client.get_workflow_handle(workload.workflow_id)
        await site.reach(handle, "Running")
        await site.fail_pod(namespace)
        await site.reach(handle, "Running", attempt=2)
        await handle.signal(names.SIGNAL_CANCEL, "the test is over")

        async def complete() -> bool:
            return any(span.name == "CompleteWorkflow:Workload" for _, span in trace_of(traced, workload))

        await until(complete, 60, "the trace has the workflow's end")
        assert await asyncio.to_thread(site.workers[0].stop) == 0, "what is left to send is sent at the end"
        spans = trace_of(traced, workload)

        by_id = {span.span_id: span for _, span in spans}
        roots = [span for _, span in spans if not span.parent_span_id]
        assert [span.name for span in roots] == ["StartWorkflow:Workload"]
        assert all(span.parent_span_id in by_id for _, span in spans if span.parent_span_id), "no span is an orphan"
        assert {service for service, _ in spans} == {"holdfast", "holdfast-worker"}

        requests: dict[str, set[str]] = defaultdict(set)
        for _, span in spans:
            if "holdfast.kubernetes.verb" in (found := attributes(span)):
                assert by_id[span.parent_span_id].name.startswith("RunActivity:"), span
                requests[span.name].add(f"{found.get('k8s.namespace.name')} {found['http.response.status_code']}")
        assert f"{namespace} 201" in requests["create batch/jobs"], requests
        assert f"{namespace} 200" in requests["delete holdfast.dev/attempts"], requests
        names_ = {span.name for _, span in spans}
        assert {"RunWorkflow:Workload", "CompleteWorkflow:Workload"} <= names_
        assert [name for name in names_ if name.startswith("HandleSignal:")], "what the watch tells is in it"

        # Nothing else begins a trace; and no payload, no failure's words and no object's name are in it.
        assert {span.trace_id for _, span in traced.spans()} == {span.trace_id for _, span in spans}
        assert {key for _, span in spans for key in attributes(span)} <= ALLOWED
        raw = b"".join(request.SerializeToString() for request in traced.requests)
        assert SECRET.encode() not in raw
        assert not [span for _, span in spans if span.events or span.status.message]
        for name in {pod["metadata"]["name"] for pod in await site.pods(namespace)}:
            assert name.encode() not in raw


async def test_O7_what_is_applied_with_kubectl_begins_a_trace_of_its_own(stack: Stack, tmp_path: Path):
    async with receiver() as traced, open_site(stack, tmp_path, prefix="o") as site:
        await site.start_worker(kubeconfig=None, **traced.environment)
        namespace = await site.namespace()
        for name in ("one", "two"):
            document = appwrapper(name, job(name), **WAITS)
            document["metadata"]["namespace"] = namespace
            document["spec"]["managedBy"] = site.managed_by
            await site.kube.create(document)

        async def both() -> bool:
            made = [span for _, span in traced.spans() if span.name == "create batch/jobs"]
            return len({span.trace_id for span in made}) == 2

        await until(both, 90, "each has a trace with the request that makes its Job")
        assert await asyncio.to_thread(site.workers[0].stop) == 0
        roots = [span for _, span in traced.spans() if not span.parent_span_id]
        assert [span.name for span in roots] == ["StartWorkflow:Workload"] * 2
        assert {span.trace_id for _, span in traced.spans()} == {span.trace_id for span in roots}


async def test_O7_traces_are_turned_on_and_off_under_live_workloads(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """No worker caches a workflow of the one before: each replays what the other has written."""
    async with receiver() as traced, open_site(stack, tmp_path, prefix="o") as site:
        await site.start_worker()
        namespace = await site.namespace()
        before, within = train(site, namespace, "before"), train(site, namespace, "within")
        await site.submit(before)
        handles = {one.name: site.client.get_workflow_handle(one.workflow_id) for one in (before, within)}
        await site.reach(handles["before"], "Running")
        site.workers[-1].kill()

        await site.start_worker(kubeconfig=None, **traced.environment)
        await submit(site, traced, monkeypatch, within)
        await site.reach(handles["within"], "Running")
        await handles["before"].signal(names.SIGNAL_SUSPEND, "with traces on")
        await site.reach(handles["before"], "Suspended")
        assert not [
            span for _, span in traced.spans() if attributes(span).get("temporalWorkflowID") == before.workflow_id
        ], "what was submitted without a trace has none"
        site.workers[-1].kill()

        await site.start_worker()
        for name, handle in handles.items():
            await handle.signal(names.SIGNAL_CANCEL, "with traces off again")
            assert (await handle.result())["phase"] == "Cancelled", name
            history = json.loads((await handle.fetch_history()).to_json())
            failed = [event for event in history["events"] if "TASK_FAILED" in event["eventType"]]
            assert not [event for event in failed if "WORKFLOW_TASK" in event["eventType"]], failed


async def test_O7_a_receiver_that_is_not_there_holds_up_nothing(stack: Stack, tmp_path: Path):
    async with receiver() as traced:
        gone = traced.environment  # Of a port where nobody listens any more.
    async with open_site(stack, tmp_path, prefix="o") as site:
        await site.start_worker(kubeconfig=None, **gone)
        namespace = await site.namespace()
        handle = await site.submit(train(site, namespace, "untold"))
        await site.reach(handle, "Running")
        await handle.signal(names.SIGNAL_CANCEL, "the test is over")
        assert (await handle.result()).phase == "Cancelled"
