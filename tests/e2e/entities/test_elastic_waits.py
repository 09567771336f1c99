"""Elastic gangs whose members wait, or of whom nothing is known, and what is counted (rows T7, T8, T12, T14)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from temporalio.service import RPCError

from holdfast.local import Stack
from holdfast.model.gang.status import GangPhase, GangStatus
from tests.e2e.entities.elastic import DIES, FAILS, FINISHES, Elastic, open_gangs
from tests.e2e.ground.held import open_real
from tests.e2e.ground.proxy import api_proxy
from tests.e2e.ground.site import Site, free_port, open_site
from tests.e2e.ground.space import Space
from tests.e2e.lives.streams import let_pods

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real_node,
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.timeout(600),
]
ROW = pytest.mark.row
LONG = "10m"
UNKNOWN_FOR = 12.0
"""Seconds, four times the keep-alive of these gangs."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with open_gangs(stack, tmp_path_factory.mktemp("waits")) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="session")
async def real(site: Site) -> AsyncIterator[Space]:
    async with open_real(site) as space:
        yield space


async def forms(gang: Elastic, present: int) -> GangStatus:
    """Wait until so many are there and a round is not formed yet; return where the gang stands."""
    seen: list[GangStatus] = []

    async def gathered() -> bool:
        with suppress(RPCError):  # it has not begun yet
            seen[:] = [await gang.rendezvous()]
        return bool(seen) and seen[0].present == present

    await gang.waits(gathered, 60, f"{present} are there")
    assert seen[0].phase is GangPhase.FORMING
    return seen[0]


@ROW("T8", level="e2e")
async def test_T8_once_there_are_enough_the_last_call_is_waited_for_and_no_longer(real: Space):
    await let_pods(real, 2)
    gang = await Elastic.submit(real, 2, 3, lastCall="8s", joinTimeout=LONG)
    await real.reach(gang.handle, "Resuming", 1)
    told = await forms(gang, 2)
    assert told.due is not None
    assert "last call" in told.next
    assert not await gang.workers(), "nobody runs yet"
    await gang.meets(2)
    formed = (await gang.rendezvous()).since
    assert timedelta(0) <= formed - told.due < timedelta(seconds=5)


@ROW("T8", level="e2e")
async def test_T8_at_the_maximum_a_round_begins_at_once(real: Space):
    gang = await Elastic.submit(real, 1, 2, lastCall=LONG, joinTimeout=LONG)
    assert [one.restarts for one in await gang.meets(2)] == [0, 0]


@ROW("T8", level="e2e")
async def test_T8_too_few_at_the_timeout_fail_the_gang(real: Space):
    await let_pods(real, 1)
    gang = await Elastic.submit(real, 2, 2, lastCall="1s", joinTimeout="15s")
    status = await real.ended(gang.handle)
    assert (status.phase, status.reason, status.restarts) == ("Failed", "JoinTimeout", 0)
    assert "1 of 2" in status.message or "join_timeout" in status.message, status.message


@ROW("T7", level="e2e")
async def test_T7_at_the_maximum_a_newcomer_waits_and_joins_when_a_place_is_free(real: Space):
    gang = await Elastic.submit(real, 2, 2, spares=1)
    before = await gang.meets(2)

    async def waits() -> bool:
        return len((await gang.rendezvous()).waiting) == 1

    await gang.waits(waits, 60, "the third waits")
    (waiting,) = (await gang.rendezvous()).waiting
    assert waiting in await gang.agents()
    assert {one.pid for one in await gang.workers()} == {one.pid for one in before}, "nobody is disturbed by it"
    lost = before[0].member
    os.kill((await gang.agents())[lost], DIES)
    after = await gang.meets(2, 60, without=lost)
    assert {one.member for one in after} == {waiting, before[1].member}
    assert [one.restarts for one in after] == [0, 0]
    await gang.waits(waits, 120, "the lost one's replacement waits in its stead")
    assert {one.pid for one in await gang.workers()} == {one.pid for one in after}


@ROW("T12", level="e2e")
async def test_T12_members_of_whom_the_cluster_says_nothing_run_on_and_nobody_is_charged(stack: Stack, tmp_path: Path):
    async with (
        open_site(stack, tmp_path, prefix="g") as direct,
        api_proxy(direct.kubeconfig, tmp_path) as (proxy, through),
        open_gangs(stack, tmp_path, direct, kubeconfig=through) as site,
        open_real(site) as space,
    ):
        gang = await Elastic.submit(space, 2, 2)
        before = await gang.meets(2)
        await space.reach(gang.handle, "Running", 1)
        proxy.black_hole()
        await asyncio.sleep(UNKNOWN_FOR)
        assert {one.pid for one in await gang.workers()} == {one.pid for one in before}
        await proxy.heal()
        await asyncio.sleep(UNKNOWN_FOR)
        assert {one.pid for one in await gang.workers()} == {one.pid for one in before}
        told = await gang.rendezvous()
        assert (told.round, told.present, dict(told.charged), dict(told.absent)) == (1, 2, {}, {})
        for one in before:
            await gang.signal(one, FINISHES)
        status = await space.reach(gang.handle, "Succeeded", 1)
        assert status.restarts == 0


@ROW("T14", level="e2e")
async def test_T14_restarts_left_flakiness_and_how_runs_ended_are_on_the_metrics_page(stack: Stack, tmp_path: Path):
    page = f"127.0.0.1:{free_port()}"
    async with (
        open_gangs(stack, tmp_path, HOLDFAST_METRICS_ADDRESS=page) as site,
        open_real(site) as space,
    ):
        gang = await Elastic.submit(space, 2, 2, maxRestarts=1)
        flaky = (await gang.meets(2))[0]
        assert await figure(page, "holdfast_gang_remaining_restarts") == 1
        await gang.signal(flaky, FAILS)

        async def restarted() -> bool:
            return any(one.member == flaky.member and one.restarts == 1 for one in await gang.workers())

        await gang.waits(restarted, 60, "it runs for the second time")
        (again,) = [one for one in await gang.meets(2) if one.member == flaky.member]
        assert await figure(page, "holdfast_gang_remaining_restarts") == 0
        assert await figure(page, "holdfast_gang_flakiness") == 50
        assert await figure(page, "holdfast_gang_members") == 2
        await gang.signal(again, FAILS)
        assert (await space.ended(gang.handle)).reason == "MaxRestartsExhausted"
        assert await figure(page, "holdfast_gang_run_total", 'run_failed_with_retries"') == 1


async def figure(page: str, name: str, having: str = "") -> float:
    """Return the only figure of a name on a metrics page."""
    async with aiohttp.ClientSession() as session, session.get(f"http://{page}/metrics") as answer:
        lines = (await answer.text()).splitlines()
    (line,) = [one for one in lines if one.startswith(f"{name}{{") and having in one]
    return float(line.split()[-1])
