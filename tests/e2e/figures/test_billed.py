"""What lives and idle time cost in actions, by Temporal's own count, against what docs/performance.md says."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle

from bench import bill
from bench.actions import actions
from holdfast import Holdfast, names
from holdfast.local import Stack
from holdfast.model import Phase, Status
from tests.e2e.ground.billed import counted, quiet
from tests.e2e.ground.site import Site, appwrapper, job, open_site, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
IDLE = 16.0
"""Seconds in which each watch sends two heartbeats."""
UPSERT = EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES


@pytest.fixture
async def site(stack: Stack, tmp_path: Path) -> AsyncIterator[Site]:
    async with open_site(stack, tmp_path) as opened:
        await opened.start_worker()
        yield opened


async def reached(handle: WorkflowHandle[Any, Any], phase: Phase, attempt: int) -> None:
    """Wait until Temporal's list has an attempt in a phase: a query would be an action."""

    async def check() -> bool:
        memo = await (await handle.describe()).memo()
        found = Status.model_validate(memo[names.MEMO_STATUS]) if names.MEMO_STATUS in memo else None
        return found is not None and (found.phase, found.attempt) == (phase, attempt)

    await until(check, 60, f"attempt {attempt} of {handle.id} is {phase}", pause=0.5)


def entities(site: Site) -> tuple[str, str]:
    """Return the ids of the workflows that run once a cluster."""
    return (names.watch_workflow_id(site.cluster), names.node_monitor_id(site.cluster))


async def at_rest(site: Site, *workflow_ids: str) -> None:
    """Wait until the cluster's entities and these workflows have no more to do."""
    await quiet(site.client, *entities(site), *workflow_ids)


async def of_entities(site: Site) -> Counter[str]:
    """Return the actions so far of the cluster's entities."""
    histories = [await site.client.get_workflow_handle(one).fetch_history() for one in entities(site)]
    return actions(event for one in histories for event in one.events)


async def of_others(site: Site) -> Counter[str]:
    """Return what the server has counted so far beside the entities: other tests change nodes, which a monitor hears.

    Only the sorts that histories have are without the entities' own.
    """
    while True:
        before = await of_entities(site)
        found = await counted(site.stack, site.cluster)
        if await of_entities(site) == before:
            found.subtract(before)
            return found


async def test_a_life_costs_no_more_actions_than_is_documented(site: Site):
    namespace = await site.namespace()
    await at_rest(site)
    before = await of_others(site)
    waits = {"failureGracePeriodDuration": "0s", "retryPausePeriodDuration": "1s", "successTTLDuration": "0s"}
    async with Holdfast.connect(client=site.client, cluster=site.cluster) as holdfast:
        run = await holdfast.submit(site.read(appwrapper("train", job(), **waits), namespace))
    handle = site.client.get_workflow_handle(run.workflow_id)

    async def so_far() -> Counter[str]:
        await at_rest(site, handle.id)
        return actions((await handle.fetch_history()).events)

    await reached(handle, Phase.RUNNING, 1)
    started = await so_far()
    await site.fail_pod(namespace)
    await reached(handle, Phase.RUNNING, 2)
    reset = await so_far()
    await handle.signal(names.SIGNAL_SUSPEND, "room is needed")
    await reached(handle, Phase.SUSPENDED, 2)
    await handle.signal(names.SIGNAL_RESUME)
    await reached(handle, Phase.RUNNING, 3)
    resumed = await so_far()
    for each in await site.pods(namespace):
        await site.annotate("Pod", each["metadata"]["name"], namespace, kwok_complete="0s")
    await handle.result()
    ended = await so_far()
    life, parts = started + (ended - resumed), (reset - started, resumed - reset)
    print(f"MEASURED a life {life}; a reset {parts[0]}; a suspension with its resumption {parts[1]}")
    assert life.total() <= bill.LIFE.actions
    assert parts[0].total() <= bill.RESET.actions
    assert parts[1].total() <= bill.SUSPENSION.actions
    # The server counts the column of patches too, which is not billed; and whatever a watch is tried again.
    events = (await handle.fetch_history()).events
    patches = sum(one.event_type == UPSERT for one in events) - ended["columns"]
    server = await of_others(site)
    server.subtract(before)
    again = ("activities", "queries", "heartbeats")
    assert +Counter({**server, **dict.fromkeys(again, 0)}) == +Counter(
        {**(ended + Counter(columns=patches)), **dict.fromkeys(again, 0)}
    )
    assert server["activities"] >= ended["activities"]


async def test_idle_workloads_cost_nothing_and_a_cluster_no_more_than_is_documented(site: Site):
    namespace = await site.namespace()
    async with Holdfast.connect(client=site.client, cluster=site.cluster) as holdfast:
        run = await holdfast.submit(site.read(appwrapper("train", job()), namespace))
    await reached(site.client.get_workflow_handle(run.workflow_id), Phase.RUNNING, 1)
    await at_rest(site, run.workflow_id)
    loop = asyncio.get_running_loop()
    begun, before = loop.time(), await of_others(site)
    await asyncio.sleep(IDLE)  # What is measured is that nothing happens meanwhile.
    idle, seconds = await of_others(site) - before, loop.time() - begun
    print(f"MEASURED in {seconds:.1f} idle seconds: {idle}")
    assert idle.keys() <= {"heartbeats"}, f"{bill.IDLE.what}: {bill.IDLE.actions}"
    # One more of each watch may fall into the time.
    assert 2 <= idle["heartbeats"] <= (bill.WATCH.actions + bill.NODES.actions) / 3600 * seconds + 2
