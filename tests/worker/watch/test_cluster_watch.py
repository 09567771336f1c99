"""The workflow that keeps the watch alive, on a Temporal server of its own, with a watch that only pretends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from holdfast import names
from holdfast.local import Stack
from holdfast.model.calls.cluster import WatchInput
from holdfast.plugin import with_passthrough
from holdfast.stale import AsksAgain
from holdfast.workflows.entities.cluster_watch import ClusterWatch, ClusterWatchInput

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(180)]


@dataclass
class Pretended:
    """A watch that fails as often as told, then stays."""

    failures: int = 0
    final: bool = False
    began: list[tuple[int, int]] = field(default_factory=list)
    ended: list[tuple[int, int]] = field(default_factory=list)

    @activity.defn(name=names.ACTIVITY_WATCH)
    async def watch(self, input: WatchInput) -> None:
        self.began.append(input.shards)
        if self.final:
            raise ApplicationError("never", non_retryable=True)
        if self.failures:
            self.failures -= 1
            raise RuntimeError("not this time")
        try:
            while True:
                activity.heartbeat()
                await asyncio.sleep(0.1)
        finally:
            self.ended.append(input.shards)

    async def began_all(self, count: int) -> None:
        for _ in range(3000):
            if len(self.began) >= count:
                return
            await asyncio.sleep(0.02)
        raise AssertionError(str(self.began))


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[Client]:
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(stack.binary("temporal")),
        dev_server_startup_timeout=timedelta(minutes=2),
        data_converter=pydantic_data_converter,
        interceptors=[AsksAgain()],
    ) as environment:
        yield environment.client


async def start(client: Client, *parts: tuple[int, int]) -> WorkflowHandle[Any, Any]:
    return await client.start_workflow(
        ClusterWatch.run,
        ClusterWatchInput(cluster="c", cluster_uid="u", shard_sets=parts or ((0, 255),)),
        id=names.watch_workflow_id("c"),
        task_queue=names.QUEUE_WORKFLOWS,
        memo={"kept": "yes"},
    )


def working(client: Client, watch: Pretended, cached: int = 100) -> tuple[Worker, Worker]:
    decides = Worker(
        client,
        task_queue=names.QUEUE_WORKFLOWS,
        workflows=[ClusterWatch],
        workflow_runner=with_passthrough(None),
        max_cached_workflows=cached,
    )
    return decides, Worker(client, task_queue=names.queue_watch("c"), activities=[watch.watch])


async def test_failing_again_and_again_costs_no_history(client: Client) -> None:
    watch = Pretended(failures=5)
    decides, sees = working(client, watch)
    async with decides, sees:
        handle = await start(client)
        await watch.began_all(6)
        assert len((await handle.fetch_history()).events) == 5
        description = (await handle.describe()).raw_description
        assert description.pending_activities[0].attempt == 6


@pytest.mark.parametrize("cached", [0, 100])
async def test_other_parts_begin_anew_and_keep_the_memo(client: Client, cached: int) -> None:
    watch = Pretended()
    decides, sees = working(client, watch, cached)
    async with decides, sees:
        handle = await start(client)
        await watch.began_all(1)
        await handle.signal("divide", [[0, 99], [100, 255]])
        await watch.began_all(3)
        assert sorted(watch.began[1:]) == [(0, 99), (100, 255)]
        newest = client.get_workflow_handle(handle.id)
        assert await (await newest.describe()).memo() == {"kept": "yes", "holdfast.shardSets": 2}
        await newest.signal("stop")
        async with asyncio.timeout(40):
            await newest.result()


async def test_a_refusal_for_good_ends_it_with_the_reason(client: Client) -> None:
    watch = Pretended(final=True)
    decides, sees = working(client, watch)
    async with decides, sees:
        handle = await start(client)
        with pytest.raises(WorkflowFailureError):
            async with asyncio.timeout(40):
                await handle.result()


async def test_a_cancelled_watch_ends(client: Client) -> None:
    watch = Pretended()
    decides, sees = working(client, watch)
    async with decides, sees:
        handle = await start(client)
        await watch.began_all(1)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            async with asyncio.timeout(40):
                await handle.result()
        # It hears of that by its next heartbeat, of which the SDK sends one in 8 s.
        for _ in range(1500):
            if watch.ended:
                return
            await asyncio.sleep(0.02)
        raise AssertionError("its activity goes on")
