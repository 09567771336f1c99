"""What is read as it is scraped: readiness, and when certificates expire; what counts nodes, slots and operations."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

from prometheus_client import CollectorRegistry
from temporalio.testing import ActivityEnvironment
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput

from holdfast.model import NodeTimings, OwnMarks
from holdfast.model.entities.nodes import NodeWord
from holdfast.worker.nodes.ledger import NodeLedger
from holdfast.worker.nodes.watch import NodeFacts, _Nodes
from holdfast.worker.roles import limits
from holdfast.worker.runtime.health import Health
from holdfast.worker.runtime.metrics import Metrics, Running
from holdfast.worker.runtime.scraped import Certificates, Checks
from holdfast.worker.runtime.settings import Role, Settings
from tests.worker.temporal.authority import Authority

EXPIRY = "holdfast_certificate_expiry_timestamp_seconds"


def test_a_check_shows_as_its_page_has_it():
    health, registry = Health(), CollectorRegistry()
    registry.register(Checks(health))
    health.note("temporal", False, "no answer")
    assert registry.get_sample_value("holdfast_ready", {"check": "temporal"}) == 0
    health.note("temporal", True)
    assert registry.get_sample_value("holdfast_ready", {"check": "temporal"}) == 1
    health.drain()
    assert registry.get_sample_value("holdfast_ready", {"check": "shutdown"}) == 0


def test_a_certificate_shows_when_it_expires_and_a_new_one_at_once(tmp_path: Path):
    authority = Authority(tmp_path / "authority", "root")
    first = authority.sign("worker", ends=timedelta(days=1))
    registry = CollectorRegistry()
    registry.register(Certificates({"temporal_tls_cert_file": first.certificate}))

    def left() -> float:
        at = registry.get_sample_value(EXPIRY, {"setting": "temporal_tls_cert_file"})
        assert at is not None
        return at - datetime.now(UTC).timestamp()

    assert 86_400 - 120 < left() <= 86_400
    first.replace(authority.sign("again", ends=timedelta(days=2)))
    assert left() > 86_400
    # Neither a file that is gone nor one with something else in it passes for one that lasts.
    first.certificate.write_text("none")
    assert left() < 0
    first.certificate.unlink()
    assert left() < 0


def test_nodes_count_under_the_mark_they_have_now():
    nodes = _Nodes(NodeLedger(NodeTimings()), lambda: None)

    def node(name: str, word: NodeWord | None) -> NodeFacts:
        return NodeFacts(name, f"uid-{name}", "", "", OwnMarks(word=word) if word is not None else None)

    def marked() -> dict[str, int]:
        found = nodes.marked()
        assert set(found) == set(NodeWord) - {NodeWord.NONE}, "a state without a node is 0, and not unknown"
        return {word.value: count for word, count in found.items() if count}

    for name, word in (("a", NodeWord.DOWN), ("b", NodeWord.DOWN), ("c", None), ("d", NodeWord.FAULTY)):
        nodes.put(node(name, word))
    assert marked() == {"Down": 2, "Faulty": 1}
    nodes.put(node("a", NodeWord.RETURNING))
    nodes.put(node("a", NodeWord.RETURNING))
    nodes.put(node("d", None))
    assert marked() == {"Down": 1, "Returning": 1}
    nodes.drop(node("b", NodeWord.DOWN), 7)
    assert marked() == {"Returning": 1}


async def test_an_operation_counts_while_it_runs_however_it_ends():
    metrics = Metrics()
    begun, goes = asyncio.Semaphore(0), asyncio.Event()

    class Work(ActivityInboundInterceptor):
        def __init__(self) -> None: ...

        async def execute_activity(self, input: ExecuteActivityInput) -> Any:
            begun.release()
            await goes.wait()
            raise RuntimeError("no")

    def running() -> float | None:
        return metrics.registry.get_sample_value("holdfast_operations_running", {"operation": activity_type})

    activity_type = ActivityEnvironment().info.activity_type
    around = Running(metrics).intercept_activity(Work())

    async def run() -> None:
        await ActivityEnvironment().run(around.execute_activity, cast("Any", None))

    tasks = [asyncio.create_task(run()) for _ in range(2)]
    for _ in tasks:
        await begun.acquire()
    assert running() == 2
    tasks[0].cancel()
    await asyncio.gather(tasks[0], return_exceptions=True)
    assert running() == 1
    goes.set()
    await asyncio.gather(tasks[1], return_exceptions=True)
    assert running() == 0


def test_a_worker_that_acts_on_no_cluster_has_the_slots_of_workflows_alone():
    settings = Settings(roles=(Role.WORKFLOWS, Role.ADMISSION), max_concurrent_workflow_tasks=7)
    assert list(limits(settings, None)) == [("holdfast", "WorkflowWorker", 7)]
