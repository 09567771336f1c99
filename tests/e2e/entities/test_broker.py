"""The checkpoint broker on real controllers: who is asked, how many at once, and what is lost with it (row L11)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from holdfast import names
from holdfast.client import Holdfast
from holdfast.client.connection import Place
from holdfast.local import Stack
from holdfast.model import Status
from holdfast.model.entities.broker import Broker, BrokerStatus
from tests.e2e.ground.site import open_site, until
from tests.e2e.ground.space import Handle, Space, open_space
from tests.e2e.ground.terminal import command
from tests.e2e.lives.saving import asked, gang, save

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
WHO = ("a", "b", "c")


@pytest_asyncio.fixture(loop_scope="session")
async def alone(stack: Stack, tmp_path: Path) -> AsyncIterator[Space]:
    """A site of the test's own: a broker weighs all that run on its cluster."""
    async with open_site(stack, tmp_path, prefix="k") as site:
        await site.start_worker()
        async with open_space(site) as space:
            yield space


def holdfast(space: Space) -> Holdfast:
    return Holdfast(space.site.client, Place(space.site.temporal_address, space.site.cluster), space.site.cluster)


async def begin(space: Space, name: str) -> Handle:
    workload = space.site.read(gang(name, pods=2), space.namespace)
    run = await holdfast(space).submit(workload)
    handle: Handle = space.site.client.get_workflow_handle(run.workflow_id, result_type=Status)
    space.handles.append(handle)
    return handle


async def shows(space: Space, **fields: int) -> BrokerStatus:
    found = list[BrokerStatus]()

    async def check() -> bool:
        found[:] = [await holdfast(space).broker().status()]
        return all(getattr(found[0], key) == value for key, value in fields.items())

    await until(check, 60, lambda: f"{fields}: {found}", pause=0.3)
    return found[0]


async def saves(space: Space, name: str, number: int = 1) -> None:
    await save(space, f"s3://saved/{name}-{number}", name, pods=2, number=number)


async def saved(space: Space, handle: Handle, number: int = 1) -> Status:
    found = list[Status]()

    async def check() -> bool:
        found[:] = [await space.site.status(handle)]
        return found[0].saved is not None and found[0].saved.number == number

    await until(check, 60, f"{handle.id} has saved {number}")
    return found[0]


async def requested(space: Space) -> set[str]:
    """Return whose pods are asked now."""
    request = names.ANNOTATION_CHECKPOINT_REQUEST
    pods = [one for one in await space.pods() if (one["metadata"].get("annotations") or {}).get(request)]
    return {one["metadata"]["annotations"][names.ANNOTATION_WORKLOAD] for one in pods}


async def next_one(space: Space, left: set[str]) -> str:
    """Wait until one of those that are left is asked, and return which."""
    found = set[str]()

    async def check() -> bool:
        found.clear()
        found.update(await requested(space) & left)
        return bool(found)

    await until(check, 60, f"one of {left} is asked", pause=0.2)
    (name,) = found
    return name


def eager(space: Space, **fields: object) -> Broker:
    """A broker that finds each checkpoint worth its cost after some seconds."""
    given = {"every": "1s", "least": "2s", "most": "3s", "at_once": 1, **fields}
    return Broker.model_validate({"cluster": space.site.cluster, **given})


@ROW("L11", level="e2e")
async def test_L11_all_that_run_are_asked_in_turn_as_many_as_storage_bears(alone: Space):
    handles = {name: await begin(alone, name) for name in WHO}
    for one in handles.values():
        await alone.reach(one, "Running", 1)
    await holdfast(alone).apply_broker(eager(alone, most="10m", least="2s", cost="1s", node_mtbf="1m"))
    left: set[str] = set(WHO)
    while left:
        name = await next_one(alone, left)
        assert (await shows(alone, saving=1)).due <= len(left), "one at a time"
        assert await requested(alone) & left == {name}
        await saves(alone, name)
        status = await saved(alone, handles[name])
        assert (status.phase, status.attempt) in {("Running", 1), ("Checkpointing", 1)}
        left.remove(name)
    assert "not saved for" in await command(alone.site, "broker", "show")
    await command(alone.site, "broker", "stop")


@ROW("L11", level="e2e")
async def test_L11_a_broker_that_is_lost_loses_nothing_but_its_cycle(alone: Space):
    site = alone.site
    handles = {name: await begin(alone, name) for name in WHO}
    for one in handles.values():
        await alone.reach(one, "Running", 1)
    await command(site, "broker", "start", "--every", "1s", "--least", "2s", "--most", "3s", "--at-once", "1")
    await shows(alone, saving=1)
    name = await next_one(alone, set(WHO))
    await asked(alone, name, pods=2)
    site.workers[-1].kill()
    broker = site.client.get_workflow_handle(names.broker_id(site.cluster))
    await broker.terminate("lost with all that it knew")
    await asyncio.sleep(1)
    assert await requested(alone) == {name}, "nobody is asked while it is gone"
    await saves(alone, name)
    await site.start_worker()
    assert (await saved(alone, handles[name])).phase == "Running", "what was asked for is not lost with it"
    # Once it is there again each is asked.
    await holdfast(alone).apply_broker(eager(alone, at_once=3, most="1h", least="5s", cost="1s", node_mtbf="1m"))
    for other in set(WHO) - {name}:
        await asked(alone, other, pods=2)
        await saves(alone, other)
        assert (await saved(alone, handles[other])).restarts == 0
    assert (await shows(alone, running=3)).broker.every == timedelta(seconds=1)


@ROW("D8", level="e2e")
async def test_D8_a_thousand_workloads_that_do_not_answer_delay_no_checkpoint_of_others(alone: Space):
    handle = await begin(alone, "a")
    await alone.reach(handle, "Running", 1)
    await silent(alone, 1000)
    began = asyncio.get_running_loop().time()
    await holdfast(alone).apply_broker(eager(alone))

    async def is_asked() -> bool:
        return await requested(alone) == {"a"}

    # A quarter of a second for each, eight at a time, and the deadline of the last ones: 42 s on an idle machine.
    await until(is_asked, 200, "the one that answers is asked", pause=0.3)
    print(f"MEASURED {asyncio.get_running_loop().time() - began:.1f} s until the one that answers was asked")
    assert (await shows(alone, unheard=1000)).running == 1
    await command(alone.site, "broker", "stop")


async def silent(space: Space, count: int) -> None:
    """Begin workloads that run, can save their state, and answer no query: no worker serves them."""
    attributes = TypedSearchAttributes(
        [
            SearchAttributePair(SearchAttributeKey.for_keyword(names.SA_CLUSTER), space.site.cluster),
            SearchAttributePair(SearchAttributeKey.for_keyword(names.SA_PHASE), "Running"),
        ]
    )
    turns = asyncio.Semaphore(32)

    async def begins(at: int) -> None:
        async with turns:
            await space.site.client.start_workflow(
                names.WORKLOAD_WORKFLOW,
                id=f"workload/{space.site.cluster}/{space.namespace}/silent-{at}",
                task_queue="nobody-serves-it",
                memo={names.MEMO_SAVES: True},
                search_attributes=attributes,
                execution_timeout=timedelta(minutes=10),
            )

    await asyncio.gather(*(begins(at) for at in range(count)))
    query = f"WorkflowType = '{names.WORKLOAD_WORKFLOW}' AND ExecutionStatus = 'Running'"

    async def listed() -> bool:
        return (await space.site.client.count_workflows(query)).count == count + 1

    await until(listed, 60, "all are listed")


async def test_without_a_broker_it_is_said_how_to_start_one(alone: Space):
    await command(alone.site, "broker", "show", expect=2)
    told = await command(alone.site, "broker", "start", "--at-once", "3")
    assert "at most 3 save at once" in told
    await command(alone.site, "broker", "start", "--least", "2h", "--most", "1h", expect=2)
