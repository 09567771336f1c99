"""One activity asks a service's pods for as long as it runs: begun and ended with its attempt (rows L28, L29)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.client import WorkflowHandle

from holdfast import names
from holdfast.activities.kube.priority import Precedence
from holdfast.model import Policy, Probe, Unbounded, Workload
from holdfast.plugin import with_passthrough
from holdfast.worker.entities.queues import Admission
from holdfast.worker.gangs.hub import GangActivities
from holdfast.worker.gangs.sessions import Gangs
from holdfast.worker.roles import Site, workers
from holdfast.worker.runtime.metrics import Metrics
from holdfast.worker.runtime.settings import Role, Settings
from tests.fakes import activities_of
from tests.fakes.scripted import ScriptedCluster
from tests.policy.lives.life import RULES, workload
from tests.workflows.conftest import SCALED, Run
from tests.workflows.workload.test_workload import events, replays

pytestmark = pytest.mark.e2e
Environment = Callable[..., Any]
SERVICES = 12


def service(name: str = "train") -> Workload:
    spec = workload(policy=Policy(rules=RULES, timings=SCALED), probe=Probe(port=8080), lifecycle=Unbounded())
    return spec.model_copy(update={"name": name})


async def asked(run: Run, times: int) -> None:
    """Wait until pods have begun to be asked so often."""
    for _ in range(3000):
        if len(run.cluster.probes) >= times:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"asked {len(run.cluster.probes)} times, not {times}")


async def pending(handle: WorkflowHandle[Any, Any]) -> list[str]:
    described = (await handle.describe()).raw_description
    return [one.activity_type.name for one in described.pending_activities]


async def test_L29_silence_resets_and_the_next_attempt_is_asked_anew(environment: Environment):
    async with environment() as run:
        handle = await run.start(service())
        await run.running(handle)
        await asked(run, 1)
        assert names.ACTIVITY_PROBE in await pending(handle)
        run.cluster.silent_in = 1
        status = await run.running(handle, 2)
        assert status.restarts == 1
        assert any("train-0: ProbeFailed on node-7: no answer" in each.message for each in status.causes)
        await asked(run, 2)
        assert [one.attempt for one in run.cluster.probes] == [1, 2]
        await handle.signal(names.SIGNAL_CANCEL, "enough")
        assert (await handle.result()).phase == "Cancelled"
        await replays(handle)


async def test_L28_a_suspension_ends_it_and_a_resumption_begins_it_again(environment: Environment):
    async with environment() as run:
        handle = await run.start(service())
        await run.running(handle)
        await asked(run, 1)
        await handle.signal(names.SIGNAL_SUSPEND)
        await run.reach(handle, "Suspended")
        for _ in range(200):
            if not await pending(handle):
                break
            await asyncio.sleep(0.05)
        assert await pending(handle) == []
        assert run.cluster.broken_off == 1
        await handle.signal(names.SIGNAL_RESUME)
        await run.running(handle, 2)
        await asked(run, 2)
        assert run.cluster.probes[-1].failing == {}, "another attempt's pods"
        await handle.signal(names.SIGNAL_CANCEL)
        assert (await handle.result()).restarts == 0
        await replays(handle)


async def test_L28_it_costs_no_history_however_long_it_lasts(environment: Environment):
    async with environment() as run:
        handle = await run.start(service())
        await run.running(handle)
        await asked(run, 1)
        for _ in range(200):
            if await pending(handle) == [names.ACTIVITY_PROBE]:
                break
            await asyncio.sleep(0.05)
        history = [0]
        while history[-20:] != history[-1:] * 20:  # Twenty looks in a row: each heartbeat is more often than that.
            history.append(len((await handle.fetch_history()).events))
            await asyncio.sleep(0.05)
        assert history[-1] <= 40
        await handle.signal(names.SIGNAL_CANCEL)
        await handle.result()
        assert await events(handle) <= 60


async def test_L28_what_was_counted_goes_on_in_the_next_run(environment: Environment):
    async with environment(suggest=45) as run:
        handle = await run.start(service())
        await run.running(handle)
        await asked(run, 1)
        first = (await handle.describe()).run_id
        for number in range(40):
            await run.cluster.sees(handle, 1, running=2)
            if len(run.cluster.probes) > 1:
                break
            await asyncio.sleep(0.05 * (number % 3))
        await asked(run, 2)
        again = run.client.get_workflow_handle(handle.id)
        assert (await again.describe()).run_id != first
        assert [one.failing for one in run.cluster.probes[:2]] == [{}, {"uid": 2}]
        assert [one.attempt for one in run.cluster.probes[:2]] == [1, 1]
        await again.signal(names.SIGNAL_CANCEL)
        await again.result()
        await replays(run.client.get_workflow_handle(handle.id, run_id=first))


async def test_L28_services_that_are_asked_leave_a_removal_its_slot(environment: Environment):
    async with environment() as run, AsyncExitStack() as stack:
        # Beside the workers of the test's own environment: this cluster's are Holdfast's own, with one slot for waits.
        name, cluster = f"{run.name}-few", ScriptedCluster()
        gangs = GangActivities(run.client, cast(Any, None), cluster_uid="", metrics=Metrics(), gangs=Gangs())
        site = Site(cluster=_acting(cluster), watch=cast(Any, None), nodes=cast(Any, None), gangs=gangs)
        settings = Settings(
            roles=(Role.CLUSTER, Role.WAIT),
            cluster=name,
            max_fresh_activities=SERVICES,
            max_concurrent_waits=1,
            max_concurrent_probes=SERVICES,
            max_fresh_waits=SERVICES,
        )
        for worker in workers(run.client, settings, site, with_passthrough(None)):
            assert not isinstance(worker, Admission)
            await stack.enter_async_context(worker)
        few = Run(run.client, cluster, name)
        handles = await asyncio.gather(*(few.start(service(f"train-{number}")) for number in range(SERVICES)))
        for handle in handles:
            await few.submitted(handle)
            await cluster.sees(handle, 1, running=cluster.pods)
        for _ in range(4000):
            if len(cluster.probes) >= SERVICES:
                break
            await asyncio.sleep(0.02)
        assert len(cluster.probes) == SERVICES, "all of them are asked at once"
        for handle in (handles[0], handles[-1]):
            await handle.signal(names.SIGNAL_CANCEL, "enough")
            assert (await handle.result()).phase == "Cancelled", "its removal was not kept waiting"
        # A probe hears of it with its next heartbeat, which may be after the end.
        for _ in range(1000):
            if cluster.broken_off >= 2:
                break
            await asyncio.sleep(0.02)
        assert cluster.broken_off == 2, "those two are asked no more, and the others are asked on"


def _acting(cluster: ScriptedCluster) -> Any:
    """Return a scripted cluster in the place of the activities that act on a real one; gangs are begun by their own."""
    acting = activities_of(cluster, "begin_gang", "look_queue")
    return SimpleNamespace(
        all=acting, probe=cluster.probe, follow_progress=cluster.follow_progress, precedence=Precedence()
    )
