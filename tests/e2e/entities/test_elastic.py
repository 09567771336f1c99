"""Elastic gangs on a real kubelet: workers that are told RANK and WORLD_SIZE, killed with real signals (T1-T13)."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from temporalio.client import WorkflowUpdateFailedError

from holdfast import names
from holdfast.local import Stack
from tests.e2e.entities.elastic import DIES, EXIT_CODE, FAILS, FINISHES, Elastic, open_gangs
from tests.e2e.ground.held import open_real
from tests.e2e.ground.site import Site
from tests.e2e.ground.space import Space
from tests.e2e.nodes.test_real_node import FOREVER, job

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real_node,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(600),
]
ROW = pytest.mark.row


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """A site whose worker is reached from the real node's pods."""
    async with open_gangs(stack, tmp_path_factory.mktemp("elastic")) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def real(site: Site) -> AsyncIterator[Space]:
    async with open_real(site) as space:
        yield space


def used(status: Any) -> dict[str, int]:
    return {each.name: each.used for each in status.budgets}


@ROW("T6", level="e2e")
@ROW("T11", level="e2e")
async def test_T6_a_gang_of_two_is_scaled_to_three_and_back_and_nobody_is_charged(real: Space):
    gang = await Elastic.submit(real, 2, 2)
    before = await gang.meets(2)
    await real.reach(gang.handle, "Running", 1)
    assert await gang.scale(3) == {"min": 2, "max": 3}
    after = await gang.meets(3)
    assert {one.member for one in before} < {one.member for one in after}
    assert not {one.pid for one in before} & {one.pid for one in after}, "all were stopped, and rejoined"
    assert [one.restarts for one in after] == [0, 0, 0]
    told = await gang.rendezvous()
    assert (told.round, told.participants, dict(told.charged)) == (2, 3, {})
    for one in after:
        await gang.prints(one.member, f"RANK {one.rank} WORLD_SIZE 3")
    assert await gang.scale(2) == {"min": 2, "max": 2}
    assert [one.restarts for one in await gang.meets(2)] == [0, 0]
    status = await gang.status()
    assert (status.attempt, status.restarts, used(status)["restart"]) == (1, 0, 0)


@ROW("D39", level="e2e")
async def test_D39_a_gang_of_three_shrinks_to_the_two_that_its_job_keeps_though_index_0_came_last(real: Space):
    gang = await Elastic.submit(real, 2, 3)
    await gang.meets(3)
    first = next(member for member, index in (await gang.indexes()).items() if index == 0)
    os.kill((await gang.agents())[first], DIES)
    await gang.meets(2, 60)
    whole = await gang.meets(3, 120, without=first)
    indexes = await gang.indexes()
    assert indexes[whole[-1].member] == 0, "its replacement came last, and has the highest rank"
    assert await gang.scale(2) == {"min": 2, "max": 2}
    left = await gang.meets(2, 60)
    assert {indexes[one.member] for one in left} == {0, 1}
    assert {one.member for one in left} < {one.member for one in whole}, "both were left where they are"
    status = await gang.status()
    assert (status.phase, status.attempt, status.restarts) == ("Running", 1, 0)


@ROW("T6", level="e2e")
async def test_what_has_no_gang_is_not_scaled(real: Space):
    component = job(FOREVER, 1)
    handle: Any = await real.submit({**component["template"], "metadata": {"name": "plain"}})
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await handle.execute_update(names.UPDATE_SCALE, {"max": 2})
    assert "it has no gang" in str(refused.value.cause)


@ROW("T3", level="e2e")
async def test_T3_a_worker_that_fails_is_charged_alone_and_all_begin_a_new_round(real: Space):
    gang = await Elastic.submit(real, 3, 3)
    before = await gang.meets(3)
    await gang.signal(before[1], FAILS)

    async def again() -> bool:
        return {one.pid for one in await gang.workers()}.isdisjoint(one.pid for one in before)

    await gang.waits(again, 60, "all workers are others")
    after = await gang.meets(3)
    assert {one.member: one.restarts for one in after} == {one.member: int(one is before[1]) for one in before}, (
        "its own budget alone: 2, 3, 3 are left"
    )
    told = await gang.rendezvous()
    assert (told.round, dict(told.charged)) == (2, {before[1].member: 1})
    assert used(await gang.status())["restart"] == 0


@ROW("T4", level="e2e")
@ROW("T5", level="e2e")
async def test_T4_T5_a_member_with_none_left_ends_the_gang_and_the_others_at_once(real: Space):
    gang = await Elastic.submit(real, 2, 2, maxRestarts=1, keepAliveAttempts=30)
    flaky = (await gang.meets(2))[0]
    await gang.signal(flaky, FAILS)

    async def restarted() -> bool:
        return any(one.member == flaky.member and one.restarts == 1 for one in await gang.workers())

    await gang.waits(restarted, 60, "it runs for the second time")
    (again,) = [one for one in await gang.meets(2) if one.member == flaky.member]
    failed_at = time.monotonic()
    await gang.signal(again, FAILS)
    status = await real.ended(gang.handle)
    assert time.monotonic() - failed_at < 100, "there is no barrier on failure"
    assert (status.phase, status.reason, status.restarts) == ("Failed", "MaxRestartsExhausted", 0)
    assert status.failure is not None
    assert (status.failure.subject, status.failure.exit_code) == (flaky.member, EXIT_CODE)
    assert "max_restarts_exhausted" in status.failure.message
    assert not await gang.processes()


@ROW("T9", level="e2e")
async def test_T9_without_restarts_a_killed_pod_is_charged_to_the_workload(real: Space):
    gang = await Elastic.submit(real, 2, 2, maxRestarts=0)
    before = await gang.meets(2)
    os.kill((await gang.agents())[before[0].member], DIES)
    status = await real.reach(gang.handle, "Running", 2, 240)
    assert (status.restarts, used(status)["restart"]) == (1, 1)
    assert any("member_lost" in each.message for each in status.causes)
    after = await gang.meets(2)
    assert {one.member for one in before}.isdisjoint(one.member for one in after)
    assert [one.restarts for one in after] == [0, 0]


@ROW("T9", level="e2e")
@ROW("T13", level="e2e")
async def test_T9_T13_with_restarts_the_others_go_on_and_a_replacement_joins(real: Space):
    gang = await Elastic.submit(real, 2, 3)
    before = await gang.meets(3)
    lost = before[0].member
    os.kill((await gang.agents())[lost], DIES)
    survivors = await gang.meets(2, 60)
    assert {one.member for one in survivors} == {one.member for one in before} - {lost}
    whole = await gang.meets(3, 120, without=lost)
    assert [one.restarts for one in whole] == [0, 0, 0]
    status = await gang.status()
    assert (status.attempt, status.restarts, used(status)["restart"]) == (1, 0, 0)
    assert not (await gang.rendezvous()).charged


@ROW("T13", level="e2e")
async def test_T13_a_deleted_pod_leaves_in_order_and_its_replacement_joins(real: Space):
    gang = await Elastic.submit(real, 2, 2)
    before = await gang.meets(2)
    gone = before[0].member
    pod = await real.site.kube.get("v1", "Pod", gone, real.namespace)
    await real.site.kube.delete("v1", "Pod", gone, real.namespace, uid=pod["metadata"]["uid"])
    after = await gang.meets(2, without=gone)
    assert [one.restarts for one in after] == [0, 0]
    status = await gang.status()
    assert (status.attempt, status.restarts, used(status)["restart"]) == (1, 0, 0)


@ROW("T1", level="e2e")
@ROW("T2", level="e2e")
async def test_T1_T2_it_succeeds_once_all_have_whoever_is_first(real: Space):
    gang = await Elastic.submit(real, 2, 2)
    first, second = await gang.meets(2)
    await gang.signal(first, FINISHES)
    await asyncio.sleep(3)
    assert (await gang.status()).phase == "Running"
    assert second.pid in {one.pid for one in await gang.workers()}, "it has until the barrier"
    await gang.signal(second, FINISHES)
    status = await real.reach(gang.handle, "Succeeded", 1)
    assert "its gang has succeeded" in status.message
    assert status.restarts == 0
    await gang.waits(lambda: _none(gang), 30, "its agents have ended")


@ROW("T1", level="e2e")
@ROW("T10", level="e2e")
async def test_T1_T10_one_that_fails_after_another_has_succeeded_fails_the_gang(real: Space):
    gang = await Elastic.submit(real, 2, 2)
    first, second = await gang.meets(2)
    await gang.signal(first, FINISHES)
    await asyncio.sleep(3)
    await gang.signal(second, FAILS)
    status = await real.ended(gang.handle)
    assert (status.phase, status.reason, status.restarts) == ("Failed", "MemberFailed", 0)


async def _none(gang: Elastic) -> bool:
    return not await gang.processes()
