"""Which queues have a worker: what is not listed is asked itself, and one that ends holds up no other (row D59)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.worker.entities import queues
from holdfast.worker.entities.queues import Admission
from holdfast.worker.runtime.settings import Settings
from tests.e2e.ground.site import until

ROW = pytest.mark.row


class Temporal:
    """Workflows by id, and a list of them that may lag."""

    def __init__(self, *there: str) -> None:
        self.running = set(there)
        self.listed: set[str] | None = None
        self.error: RPCError | None = None
        self.lists = 0

    async def list_workflows(self, query: str) -> AsyncIterator[Any]:
        self.lists += 1
        for one in sorted(self.running if self.listed is None else self.listed):
            yield SimpleNamespace(id=names.queue_id("dev", one))

    def get_workflow_handle(self, workflow_id: str) -> Any:
        async def describe(**_: Any) -> Any:
            if self.error is not None:
                raise self.error
            running = names.parse_queue_id(workflow_id)[1] in self.running
            statuses = WorkflowExecutionStatus
            return SimpleNamespace(status=statuses.RUNNING if running else statuses.COMPLETED)

        return SimpleNamespace(describe=describe)


class Serving:
    """A worker that ends when it is told to, once it has let go of what it has in hand."""

    def __init__(self) -> None:
        self.told, self.free = asyncio.Event(), asyncio.Event()
        self.free.set()

    async def run(self) -> None:
        await self.told.wait()
        await self.free.wait()

    async def shutdown(self) -> None:
        self.told.set()
        await self.free.wait()


@asynccontextmanager
async def serving(temporal: Temporal, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[dict[str, Serving]]:
    monkeypatch.setattr(queues, "LOOK_SECONDS", 0.01)
    workers = dict[str, Serving]()

    def worker_for(queue: str) -> Any:
        workers[queue.rpartition("/")[2]] = Serving()
        return workers[queue.rpartition("/")[2]]

    client: Any = temporal
    admission = Admission(client, Settings(cluster="dev"), worker_for)
    running = asyncio.create_task(admission.run())
    try:
        yield workers
    finally:
        for one in workers.values():
            one.free.set()
        await admission.shutdown()
        await running


async def looked(temporal: Temporal, times: int = 3) -> None:
    """Wait until it has looked so many times more, the last of them to the end."""
    wanted = temporal.lists + times + 1

    async def enough() -> bool:
        return temporal.lists >= wanted

    await until(enough, 30, "it has looked", pause=0.005)


@ROW("D59", level="pure")
async def test_D59_an_empty_list_ends_the_admission_of_no_queue_that_runs(monkeypatch: pytest.MonkeyPatch):
    temporal = Temporal("a", "b")
    async with serving(temporal, monkeypatch) as workers:
        await looked(temporal)
        assert sorted(workers) == ["a", "b"]
        temporal.listed = set()
        await looked(temporal)
        assert not any(one.told.is_set() for one in workers.values())
        temporal.error = RPCError("nobody is there", RPCStatusCode.UNAVAILABLE, b"")
        await looked(temporal)
        assert not any(one.told.is_set() for one in workers.values()), "what is not known has not ended"
        temporal.error, temporal.running = None, {"b"}
        await looked(temporal)
        assert {name: one.told.is_set() for name, one in workers.items()} == {"a": True, "b": False}


@ROW("D59", level="pure")
async def test_D59_a_queue_that_ends_slowly_holds_up_no_other(monkeypatch: pytest.MonkeyPatch):
    temporal = Temporal("a", "b")
    async with serving(temporal, monkeypatch) as workers:
        await looked(temporal)
        slow = workers["a"]
        slow.free.clear()
        temporal.running = {"b", "c"}
        await looked(temporal)
        assert slow.told.is_set()
        assert "c" in workers, "a queue that is new is served meanwhile"
        temporal.running = {"a", "b", "c"}
        await looked(temporal)
        assert workers["a"] is slow, "no second worker beside one that still ends"
        slow.free.set()
        await looked(temporal)
        assert workers["a"] is not slow


@ROW("X7", level="pure")
async def test_X7_the_workers_of_all_queues_are_given_another_client(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(queues, "LOOK_SECONDS", 0.01)
    temporal, workers = Temporal("a", "b"), dict[str, Any]()
    before, after = cast("Any", temporal), cast("Any", Temporal("a", "b"))
    admission = Admission(before, Settings(cluster="dev"), lambda queue: workers.setdefault(queue, Serving()))
    running = asyncio.create_task(admission.run())
    await looked(temporal)
    admission.client = after
    assert [one.client for one in workers.values()] == [after, after]
    await looked(after)
    await admission.shutdown()
    await running
