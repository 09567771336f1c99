"""The count of a cluster's workloads, by a real Temporal; stand-ins have the attributes of workloads."""

from __future__ import annotations

import asyncio
import secrets

import pytest
from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.service import RPCError

from holdfast import names
from holdfast.client.connection import add_search_attributes
from holdfast.local import Stack
from holdfast.worker.runtime.metrics import Metrics
from holdfast.worker.watch.census import Census
from tests.e2e.ground.site import until
from tests.worker.ground import register

pytestmark = pytest.mark.e2e


@pytest.fixture
async def client(stack: Stack) -> Client:
    """A client of a Temporal namespace without search attributes."""
    name = f"census-{secrets.token_hex(3)}"
    await register(stack.temporal_address, name)
    return await Client.connect(stack.temporal_address, namespace=name)


async def begin(client: Client, cluster: str, phase: str, reason: str) -> None:
    """Start a workflow that no worker serves: it runs, and has a workload's attributes."""
    words = {names.SA_CLUSTER: cluster, names.SA_PHASE: phase, names.SA_REASON: reason}
    pairs = [SearchAttributePair(SearchAttributeKey.for_keyword(key), word) for key, word in words.items()]
    await client.start_workflow(
        names.WORKLOAD_WORKFLOW,
        id=f"workload/{cluster}/team/{secrets.token_hex(4)}",
        task_queue="nobody",
        search_attributes=TypedSearchAttributes(pairs),
    )


async def counts(census: Census) -> bool:
    try:
        await census.count()
    except RPCError:
        return False
    return True


def shown(metrics: Metrics) -> dict[tuple[str, str, str], float]:
    return {
        (one.labels["cluster"], one.labels["phase"], one.labels["reason"]): one.value
        for family in metrics.registry.collect()
        for one in family.samples
        if one.name == "holdfast_workloads" and one.value
    }


async def test_workloads_count_by_phase_and_the_pending_ones_by_reason(client: Client):
    metrics = Metrics()
    census = Census(client, "here", metrics)
    task = asyncio.create_task(census.run())
    try:
        # Without search attributes there is no number, and the watch goes on.
        with pytest.raises(RPCError):
            await census.count()
        assert shown(metrics) == {}
        await add_search_attributes(client, dict(names.SEARCH_ATTRIBUTES))
        await until(lambda: counts(census), 30, "Temporal knows the search attributes")
        for cluster, phase, reason in (
            ("here", "Running", "SufficientPodsReady"),
            ("here", "Running", "InsufficientPodsReady"),
            ("here", "Pending", "Held"),
            ("here", "Pending", "Admitted"),
            ("elsewhere", "Running", "SufficientPodsReady"),
        ):
            await begin(client, cluster, phase, reason)
        expected = {("here", "Running", ""): 2, ("here", "Pending", "Held"): 1, ("here", "Pending", ""): 1}

        async def all_are_there() -> bool:
            return await counts(census) and shown(metrics) == expected

        await until(all_are_there, 30, "Temporal shows all that has begun")
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert shown(metrics) == {}, "another worker counts from now on"
    assert metrics.registry.get_sample_value("holdfast_workloads_counted_timestamp_seconds") == 0
