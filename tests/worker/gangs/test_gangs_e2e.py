"""A gang of real agents on a real API server and a real Temporal: who may speak, and what a loss costs."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client import Counter, Gauge

from bench import bill
from holdfast import names
from holdfast.local import Stack
from holdfast.model.calls.gang import GangEnd
from holdfast.model.gang.orders import GangEnding, GangOutcome
from holdfast.model.gang.status import GangPhase
from tests.e2e.ground.billed import counted, quiet
from tests.e2e.ground.site import until
from tests.worker.gangs.crowd import UID, Crowd, hub, open_crowd

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
ROW = pytest.mark.row
REST = 16.0
"""Seconds in which the hub sends two heartbeats, and looks three times at its rendezvous."""


@pytest.fixture
async def crowd(stack: Stack, tmp_path: Path) -> AsyncIterator[Crowd]:
    async with open_crowd(stack, tmp_path) as crowd:
        yield crowd


def _value(metric: Counter | Gauge) -> float:
    return next(iter(next(iter(metric.collect())).samples)).value


@ROW("T9", level="e2e")
async def test_T9_four_agents_meet_one_is_killed_and_the_others_form_the_next_round_within_seconds(crowd: Crowd):
    members = [f"gang-{index}" for index in range(4)]
    for name in members:
        await crowd.pod(name)
    begin = crowd.begin(min=3, last_call=timedelta(seconds=5))
    await crowd.gangs.begin_gang(begin)
    # It may be repeated, whoever else has begun it meanwhile.
    await crowd.gangs.begin_gang(begin)
    for name in members:
        await crowd.agent(name)
    assert sorted((await crowd.ran(4)).values()) == [0, 1, 2, 3]
    before = (await crowd.status()).round
    for file in crowd.folder.glob("gang-*-3-*"):
        file.unlink()  # Of a round before all had joined.
    killed = time.time()
    crowd.agents["gang-2"].send_signal(signal.SIGKILL)
    pod = crowd.pods["gang-2"]["metadata"]
    await crowd.ground.kube.delete("v1", "Pod", "gang-2", crowd.ground.namespace, uid=pod["uid"], grace_period=0)
    ranks = await crowd.ran(3)
    assert sorted(ranks.values()) == [0, 1, 2]
    assert "gang-2" not in ranks
    took = max(float((crowd.folder / f"{name}-3-{rank}").read_text()) for name, rank in ranks.items()) - killed
    print(f"MEASURED {took:.1f} s from the kill until all others ran in the next round")
    status = await crowd.status()
    assert (status.round, status.charged, status.absent) == (before + 1, {}, {"gang-2": "its pod is gone"})
    (crowd.folder / "finish").touch()
    for name in ranks:
        assert await asyncio.wait_for(crowd.agents[name].wait(), 60) == 0
    told = list[GangOutcome]()

    async def is_told() -> bool:
        told[:] = await crowd.ground.client.get_workflow_handle("told").query("told", result_type=list[GangOutcome])
        return bool(told)

    await until(is_told, 60, "the workload is told how its gang ended")
    assert [one.ending for one in told] == [GangEnding.SUCCEEDED]
    await crowd.rendezvous.signal(names.SIGNAL_END, GangEnd(workload_uid=UID, attempt=1))
    await asyncio.wait_for(crowd.rendezvous.result(), 60)
    history = await crowd.rendezvous.fetch_history()
    updates = sum(1 for one in history.events if one.HasField("workflow_execution_update_accepted_event_attributes"))
    print(f"MEASURED {updates} updates and {len(history.events)} events for two rounds of four")
    # A gang that runs costs nothing: what is told is joins, starts, the loss, and the end.
    assert updates <= 10 * (before + 1)


@ROW("D4", level="e2e")
@pytest.mark.parametrize(("size", "dead"), [(2, 1), (4, 2), (4, 3)])
async def test_D4_a_gang_of_which_half_or_more_falls_silent_begins_a_new_round(crowd: Crowd, size: int, dead: int):
    members = [f"gang-{index}" for index in range(size)]
    for name in members:
        await crowd.pod(name)
    settings = {"min": 1, "max": size, "heartbeat": timedelta(seconds=1), "last_call": timedelta(seconds=5)}
    begin = crowd.begin(**settings)
    await crowd.gangs.begin_gang(begin)
    for name in members:
        await crowd.agent(name)
    await crowd.ran(size)
    before = (await crowd.status()).round
    for file in crowd.folder.glob(f"gang-*-{size - dead}-*"):
        file.unlink()  # Of a round before all had joined.
    for name in members[:dead]:
        # Their pods stay as they are: the cluster says nothing of it.
        crowd.agents[name].kill()
    killed = time.monotonic()
    ranks = await crowd.ran(size - dead, begin.gang.keep_alive.total_seconds() + 30)
    print(f"MEASURED {time.monotonic() - killed:.1f} s until {size - dead} of {size} ran in the next round")
    assert set(ranks) == set(members[dead:])
    status = await crowd.status()
    assert status.round > before
    assert (status.charged, set(status.absent)) == ({}, set(members[:dead]))


async def test_a_hub_that_dies_is_followed_by_another_and_nobody_is_lost(crowd: Crowd):
    members = ["gang-0", "gang-1"]
    for name in members:
        await crowd.pod(name)
    await crowd.gangs.begin_gang(crowd.begin(min=2, max=2))
    for name in members:
        await crowd.agent(name)
    await crowd.ran(2)
    before = (await crowd.status()).hub
    await crowd.hubs.aclose()  # With it goes all that it knew.
    async with hub(crowd.ground, crowd.gangs):
        (crowd.folder / "finish").touch()
        for name in members:
            assert await asyncio.wait_for(crowd.agents[name].wait(), 90) == 0
    status = await crowd.status()
    assert status.hub > before
    assert (status.round, status.charged, status.phase) == (1, {}, GangPhase.CLOSED)


async def test_a_hub_that_is_ended_while_the_rendezvous_does_not_answer_ends_and_comes_back_not(crowd: Crowd):
    for name in ("gang-0", "gang-1"):
        await crowd.pod(name)
        await crowd.gangs.begin_gang(crowd.begin(min=1, max=2))
        await crowd.agent(name)
    await crowd.ran(2)
    await crowd.ground.deciding.shutdown()
    pod = crowd.pods["gang-1"]["metadata"]
    await crowd.ground.kube.delete("v1", "Pod", "gang-1", crowd.ground.namespace, uid=pod["uid"], grace_period=0)
    failed, served = crowd.metrics.gang_updates.labels("failed"), crowd.metrics.gangs

    async def in_vain() -> bool:
        return _value(failed) > 0

    async def over() -> bool:
        return _value(served) == 0

    await until(in_vain, 60, "an update has failed")
    await asyncio.sleep(2)  # By now the next is under way.
    # Else it would attach for ever, against whoever serves the gang after it.
    assert _value(served) == 1
    await asyncio.wait_for(crowd.hubs.aclose(), 20)
    await until(over, 5, "the hub has ended")


async def test_only_a_pod_of_the_gang_may_speak_and_only_for_itself(crowd: Crowd):
    for name, attempt, uid in (("gang-0", 1, UID), ("gang-1", 1, UID), ("old-0", 2, UID), ("foreign", 1, "uid-2")):
        await crowd.pod(name, attempt, uid)
    token = await crowd.token("gang-0")
    assert (await crowd.post("gang-0", token))[0] == 421
    await crowd.gangs.begin_gang(crowd.begin())
    await crowd.served()
    assert await crowd.post("gang-0", token) == (200, "Wait")
    assert crowd.keys == "read"
    assert (await crowd.post("gang-0", None))[0] == 401
    assert (await crowd.post("gang-0", "nonsense"))[0] == 401
    assert (await crowd.post("gang-0", await crowd.token("gang-0", "https://kubernetes.default.svc")))[0] == 401
    status, why = await crowd.post("gang-1", token)
    assert (status, "the token is of pod gang-0" in why) == (403, True)
    status, why = await crowd.post("foreign", await crowd.token("foreign"))
    assert (status, "is of workload uid-2" in why) == (403, True)
    status, why = await crowd.post("old-0", await crowd.token("old-0"))
    assert (status, "is of attempt 2" in why) == (403, True)
    assert (await crowd.post("gang-0", token, attempt=0))[0] == 400
    assert (await crowd.post("gang-0", token, workload="uid-2"))[0] == 421


async def test_a_gang_at_rest_costs_heartbeats_alone(crowd: Crowd, stack: Stack):
    members = ["gang-0", "gang-1"]
    for name in members:
        await crowd.pod(name)
    await crowd.gangs.begin_gang(crowd.begin(min=2, max=2))
    for name in members:
        await crowd.agent(name)
    await crowd.ran(2)
    loop, namespace = asyncio.get_running_loop(), crowd.ground.client.namespace
    await quiet(crowd.ground.client, crowd.rendezvous.id)
    await asyncio.sleep(2 * crowd.begin().gang.heartbeat.total_seconds())  # The hub has seen what came last.
    begun, before = loop.time(), await counted(stack, namespace)
    await asyncio.sleep(REST)  # What is measured is that nothing happens meanwhile.
    found, seconds = await counted(stack, namespace) - before, loop.time() - begun
    print(f"MEASURED {dict(found)} in {seconds:.1f} s of a gang at rest")
    assert found.keys() == {"heartbeats"}
    assert found["heartbeats"] <= bill.GANG.actions / 3600 * seconds + 1
