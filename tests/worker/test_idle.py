"""What is idle leaves a worker's cache, and goes on as if it had stayed; what had a task of late stays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import Client, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from holdfast import names
from holdfast.model import Workload
from holdfast.worker import roles
from holdfast.worker.idle import Idle, eviction, give_back, keep_evicting
from holdfast.worker.runtime.settings import Role, Settings
from tests.activities.bench import eventually
from tests.client.server import temporal_server
from tests.e2e.ground.site import until
from tests.policy.lives.life import workload


class Clock:
    """A clock that stands still."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def task(idle: Idle, run: str, what: str = "initialize_workflow") -> None:
    """Give a run a task."""
    given = WorkflowActivation(run_id=run)
    getattr(given.jobs.add(), what).SetInParent()
    idle._noted(run, lambda _: WorkflowActivationCompletion())(given)


def test_those_without_a_task_for_longest_go_first_and_the_latest_stay() -> None:
    clock = Clock()
    idle = Idle(clock)
    for run in "abc":
        task(idle, run)
        clock.now += 100
    task(idle, "a", "fire_timer")
    assert idle.over(150, 0) == ["b"], "a has had a task since, and c only 100 s ago"
    assert idle.over(0, 0) == ["b", "c", "a"]
    assert idle.over(0, 2) == ["b"]
    assert idle.over(0, 3) == []


def test_what_has_left_the_cache_is_idle_no_longer() -> None:
    idle = Idle()
    task(idle, "a")
    assert idle.cached() == 1
    task(idle, "a", "remove_from_cache")
    assert (idle.cached(), idle.over(0, 0)) == (0, [])


def test_memory_is_given_back_wherever_it_runs() -> None:
    give_back()


@asynccontextmanager
async def serving(idle: Idle) -> AsyncIterator[tuple[Client, Worker]]:
    """Run a worker of all workflows, as `holdfast worker` makes it."""
    with temporal_server() as address:
        client = await Client.connect(address, data_converter=pydantic_data_converter)
        settings = Settings(roles=(Role.WORKFLOWS,))
        (worker,) = roles.workers(client, settings, None, UnsandboxedWorkflowRunner(), idle=idle)
        assert isinstance(worker, Worker)
        async with worker:
            yield client, worker


async def begun(client: Client, name: str) -> WorkflowHandle[Any, Any]:
    """Start a workload that waits for its first activity, which nobody runs here."""
    spec = Workload.model_validate({**workload().model_dump(mode="json"), "cluster": "c", "name": name})
    document = spec.model_dump(mode="json")
    return await client.start_workflow(
        names.WORKLOAD_WORKFLOW, document, id=spec.workflow_id, task_queue=names.QUEUE_WORKFLOWS
    )


async def status(handle: WorkflowHandle[Any, Any]) -> tuple[str, ...]:
    """Return what a workload says of itself, once it says something, without what depends on when it is asked."""

    async def said() -> Any:
        return await handle.query(names.QUERY_STATUS)

    found = await eventually(said)
    return tuple(str(found[name]) for name in ("phase", "attempt", "reason", "message"))


@asynccontextmanager
async def evicting(worker: Worker, idle: Idle, kept: int) -> AsyncIterator[None]:
    """Evict whatever is idle for a moment."""
    running = asyncio.create_task(keep_evicting(worker, idle, kept, seconds=0, look=0.05))
    yield
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


@pytest.mark.temporal
@pytest.mark.e2e
@pytest.mark.timeout(120)
async def test_what_is_evicted_goes_on_from_its_history() -> None:
    idle = Idle()
    async with serving(idle) as (client, worker):
        handles = [await begun(client, name) for name in ("w0", "w1", "w2")]
        before = [await status(handle) for handle in handles]
        assert idle.cached() == 3
        async with evicting(worker, idle, kept=1):
            await until(lambda: _is(idle, 1), 30, "all but one are evicted")
        async with evicting(worker, idle, kept=0):
            await until(lambda: _is(idle, 0), 30, "all are evicted")
        assert [await status(handle) for handle in handles] == before
        await handles[0].signal(names.SIGNAL_SUSPEND)
        await until(lambda: _differs(handles[0], before[0]), 30, "a signal reaches one that was evicted")


async def _is(idle: Idle, count: int) -> bool:
    return idle.cached() == count


async def _differs(handle: WorkflowHandle[Any, Any], before: tuple[str, ...]) -> bool:
    return await status(handle) != before


@pytest.mark.temporal
@pytest.mark.e2e
@pytest.mark.timeout(60)
async def test_this_temporalio_evicts_on_request() -> None:
    """The SDK's way is not public: a version without it keeps idle workflows in memory, and says so in the log."""
    async with serving(Idle()) as (_, worker):
        assert eviction(worker) is not None
