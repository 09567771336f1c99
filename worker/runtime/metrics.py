"""The worker's own metrics and the SDK's, served together on one Prometheus page."""

from __future__ import annotations

import socket
from typing import Any, Final

import aiohttp
from aiohttp import web
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from temporalio import activity
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from holdfast import names

_BIND_TRIES: Final = 5
_REMOVAL_SECONDS: Final = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1200, 3600, 21600)
"""Buckets: a removal takes seconds, the forceful deletion grace and more, or as long as a finalizer holds."""
_BUCKETS: Final = {
    names.METRIC_PREEMPTION: _REMOVAL_SECONDS,
    names.METRIC_REMOVAL: _REMOVAL_SECONDS,
    names.METRIC_SPENT: (1, 10, 60, 300, 1800, 3600, 14400, 86400, 604800),
    names.METRIC_REACTION: (0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 1800),
    names.METRIC_HISTORY_EVENTS: (50, 100, 200, 500, 1000, 2000, 4000, 8000, 16000, 51200),
    names.METRIC_HISTORY_BYTES: (65536, 262144, 1048576, 4194304, 8388608, 16777216, 33554432, 52428800),
}
"""Buckets of the workflows' histograms. The server ends a run with 51,200 events or 50 MiB."""


class Metrics:
    """The worker's own metrics. One object per process, passed to every user."""

    def __init__(self) -> None:
        """Create all metrics at zero, in their own registry."""
        self.counted_by: object = None
        """Who counts the workloads: of several tries of a watch in this process, the last."""
        disable_created_metrics()
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
        self.registry = registry
        self.up = Gauge("holdfast_up", "1 while the worker runs.", ["cluster", "version"], registry=registry)
        self.role = Gauge("holdfast_worker_role", "1 for each role of the worker.", ["role"], registry=registry)
        self.slots = Gauge(
            "holdfast_slots_limit",
            "How many tasks of a queue may run here at once.",
            ["task_queue", "worker_type"],
            registry=registry,
        )
        self.running = Gauge(
            "holdfast_operations_running",
            "Activities that run here now, by type. `force_remove` is a removal that deletion alone did not finish.",
            ["operation"],
            registry=registry,
        )
        self.workloads = Gauge(
            "holdfast_workloads",
            "Workloads that have not ended, counted every minute by the worker that watches the cluster. For those "
            "that are Pending, the reason with which they became so; else empty.",
            ["cluster", "phase", "reason"],
            registry=registry,
        )
        self.counted = Gauge(
            "holdfast_workloads_counted_timestamp_seconds",
            "When workloads were last counted; 0 where another worker counts.",
            registry=registry,
        )
        self.refused = Counter(
            "holdfast_door_refusals", "Custom resources that were refused, by kind.", ["kind"], registry=registry
        )
        self.pods = Gauge("holdfast_watch_pods", "Pods of this installation in the watch's cache.", registry=registry)
        self.attempts = Gauge("holdfast_watch_attempts", "Attempts the watch follows.", registry=registry)
        self.lag = Histogram(
            "holdfast_watch_lag_seconds",
            "From the moment a change reached the watch until the signal it caused was accepted.",
            ["urgency"],
            buckets=(0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 2, 5, 15, 60),
            registry=registry,
        )
        self.signals = Counter(
            "holdfast_watch_signals",
            "Signals by result: sent, closed (its workflow has ended) or failed (to be tried again).",
            ["result"],
            registry=registry,
        )
        self.suppressed = Counter(
            "holdfast_watch_suppressed",
            "Changes that were no news to the workflow: same, own-deletion, not-submitted.",
            ["reason"],
            registry=registry,
        )
        self.coalesced = Counter(
            "holdfast_watch_coalesced", "Changes that the signal of another change carried.", registry=registry
        )
        self.blind = Counter(
            "holdfast_watch_blind_seconds", "Time in which the watch could not see the cluster.", registry=registry
        )
        self.relists = Counter(
            "holdfast_watch_relists",
            "Whole lists read, by resource and reason.",
            ["resource", "reason"],
            registry=registry,
        )
        self.skipped = Counter(
            "holdfast_watch_skipped",
            "Versions of objects that could not be decoded: what was known before counts. By resource.",
            ["resource"],
            registry=registry,
        )
        self.storage = Gauge(
            "holdfast_storage_available",
            "1 while the store that data sets are staged from can be used.",
            ["store"],
            registry=registry,
        )
        self.storage_away = Counter(
            "holdfast_storage_away", "Stagings that found the store away.", ["store"], registry=registry
        )
        self.unwatchable = Gauge(
            "holdfast_watch_unwatchable",
            "1 for each resource the worker may not list or that is not served.",
            ["resource"],
            registry=registry,
        )
        self.nodes = Gauge("holdfast_nodes_watched", "Nodes whose leases are watched here.", registry=registry)
        self.node_marks = Gauge(
            "holdfast_nodes_marked",
            "Nodes that the node monitor has marked, by state, counted by the worker that watches nodes.",
            ["state"],
            registry=registry,
        )
        self.renewals = Counter("holdfast_nodes_renewals", "Renewals of node leases that were seen.", registry=registry)
        gang = ["namespace", "workload"]
        self.gangs = Gauge("holdfast_gangs_served", "Elastic gangs whose agents are answered here.", registry=registry)
        self.gang_members = Gauge("holdfast_gang_members", "Members that are there.", gang, registry=registry)
        self.gang_remaining = Gauge(
            "holdfast_gang_remaining_restarts",
            "Restarts left to the member that has fewest, by role.",
            [*gang, "role"],
            registry=registry,
        )
        self.gang_flakiness = Gauge(
            "holdfast_gang_flakiness",
            "Percent of what it may fail that the flakiest member has, by role.",
            [*gang, "role"],
            registry=registry,
        )
        self.gang_updates = Counter(
            "holdfast_gang_updates",
            "Batches of updates sent to a rendezvous, by result.",
            ["result"],
            registry=registry,
        )
        self.gang_exchanges = Counter(
            "holdfast_gang_exchanges", "Announcements of agents, by status.", ["status"], registry=registry
        )
        self.entities = Gauge(
            "holdfast_entity_healthy",
            "1 while all of a kind run and take in what comes: queues, graphs, the node monitor and others.",
            ["entity"],
            registry=registry,
        )
        self.entities_begun = Counter(
            "holdfast_entity_rebuilt", "Entities that this worker has begun anew.", ["entity"], registry=registry
        )
        self.requests = Counter(
            "holdfast_kubernetes_requests", "Requests to the API server.", ["verb", "code"], registry=registry
        )
        self.request_seconds = Histogram(
            "holdfast_kubernetes_request_seconds",
            "Time from request to answer.",
            ["verb"],
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
            registry=registry,
        )

    def count_request(self, verb: str, code: int | str, seconds: float) -> None:
        """Count one request to the API server; `code` 0 is a request that got no answer."""
        self.requests.labels(verb, str(code)).inc()
        self.request_seconds.labels(verb).observe(seconds)


class Running(Interceptor):
    """Counts the activities that run in this process."""

    def __init__(self, metrics: Metrics) -> None:
        """Take the metrics to update."""
        self._metrics = metrics

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Put the count around each activity."""
        return _Running(next, self._metrics.running)


class _Running(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, running: Gauge) -> None:
        super().__init__(next)
        self._running = running

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        with self._running.labels(activity.info().activity_type).track_inprogress():
            return await super().execute_activity(input)


def sdk_runtime() -> tuple[Runtime, str]:
    """Return the SDK's runtime, and the URL of its metrics page, which it serves on a free loopback port.

    Raises:
        RuntimeError: if no port could be bound in several tries.
    """
    problem: Exception | None = None
    for _ in range(_BIND_TRIES):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        try:
            telemetry = TelemetryConfig(
                metrics=PrometheusConfig(
                    bind_address=f"127.0.0.1:{port}",
                    counters_total_suffix=True,
                    unit_suffix=True,
                    durations_as_seconds=True,
                    histogram_bucket_overrides=_BUCKETS,
                )
            )
            return Runtime(telemetry=telemetry), f"http://127.0.0.1:{port}/metrics"
        except (ValueError, RuntimeError) as error:  # another process took the port in between
            problem = error
    raise RuntimeError(f"no loopback port for the SDK's metrics: {problem}")


def page(metrics: Metrics, sdk_url: str = "") -> web.Application:
    """Return the web application with the one page `/metrics`."""

    async def serve(_: web.Request) -> web.Response:
        body = generate_latest(metrics.registry)
        if sdk_url:
            body += await _fetch(sdk_url)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    application = web.Application()
    application.router.add_get("/metrics", serve)
    return application


async def _fetch(url: str) -> bytes:
    timeout = aiohttp.ClientTimeout(total=2)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as response:
            return await response.read()
    except (TimeoutError, aiohttp.ClientError) as error:
        return f"# the SDK's metrics could not be read: {type(error).__name__}\n".encode()
