"""The API server away: nothing is charged for what could not be seen, nothing healthy restarts, nothing comes twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast import names
from holdfast.local import Stack
from holdfast.model import OperationKind, Status
from tests.e2e.crash.scene import Scene, open_scene, pod
from tests.e2e.ground.site import job, until
from tests.e2e.rows.test_rows_reset import quiet
from tests.e2e.witness.audit import Request
from tests.quotas import limited

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

OURS = {"attempts", "jobs", "pods"}
AWAY = 12.0
LONG_AWAY = 120.0
"""The two minutes of the contract."""


@pytest.fixture
async def scene(stack: Stack, tmp_path: Path) -> AsyncIterator[Scene]:
    async with open_scene(stack, tmp_path) as opened:
        yield opened


def _deletes_owner(each: Request) -> bool:
    return each.worker and each.verb == "delete" and each.resource == "attempts"


def _touched(scene: Scene) -> list[str]:
    """Return what workers did to a workload's objects; the anchor's status may be told late."""
    return [f"{each.verb} {each.resource}/{each.name}" for each in scene.audit.worker_writes() if each.resource in OURS]


def _healthy(status: Status) -> bool:
    return all(not each.status for each in status.conditions if each.type == "Unhealthy")


async def _seeing(scene: Scene) -> None:
    """Wait until the worker sees the cluster again: it is ready, and a change reaches the workflow."""
    await scene.site.ready(scene.worker)
    await scene.until_status(lambda status: not status.pods.failed, 90, "what has healed is known to have")


@pytest.mark.parametrize(("how", "seconds"), [("black hole", LONG_AWAY), ("refuse", AWAY), ("reset", AWAY)])
async def test_away_while_running(scene: Scene, how: str, seconds: float):
    await scene.submit(job())
    await scene.reach("Running")
    writes = _touched(scene)
    length = len(await quiet(scene.handle))
    if how == "black hole":
        scene.proxy.black_hole()
    elif how == "refuse":
        await scene.proxy.refuse()
    else:
        scene.proxy.reset()
    await asyncio.sleep(seconds)  # The outage itself.
    status = await scene.reach("Running", attempt=1)
    assert (status.restarts, status.executions) == (0, 1)
    await scene.proxy.heal()
    healed = datetime.now(UTC)
    await _seeing(scene)
    grown = (await scene.handle.describe()).history_length - length
    print(f"MEASURED seen again after {(datetime.now(UTC) - healed).total_seconds():.1f} s; history +{grown}")
    assert grown <= 8
    assert _touched(scene) == writes
    await scene.finish(executions=1)


async def test_away_while_a_failure_grace_runs_extends_it(scene: Scene):
    await scene.submit(pod(), failureGracePeriodDuration="10s")
    await scene.reach("Running")
    await scene.fail()
    status = await scene.unhealthy()
    assert status.next is not None
    would = status.next.at
    scene.proxy.black_hole()
    begun = datetime.now(UTC)
    await asyncio.sleep(AWAY)  # The outage itself, longer than the grace.
    await scene.proxy.heal()
    away = (datetime.now(UTC) - begun).total_seconds()
    await scene.reach("Running", attempt=2)
    (removed,) = scene.audit.requests(_deletes_owner)
    late = (removed.received - would).total_seconds()
    print(f"MEASURED away for {away:.1f} s: the grace ended {late:.1f} s later")
    assert late >= away - 3
    await scene.finish(restarts=1, executions=2)


async def test_what_heals_unseen_is_not_restarted(scene: Scene):
    await scene.submit(job(backoffLimit=5), failureGracePeriodDuration="15s")
    await scene.reach("Running")
    quota = await limited(scene.site.kube, scene.namespace, {"pods": "1"})  # Its Job cannot replace what fails.
    await scene.fail()
    would = (await scene.unhealthy()).next
    assert would is not None
    await scene.proxy.refuse()
    await asyncio.sleep((would.at - datetime.now(UTC)).total_seconds() + 1)  # The grace is over, and nobody can look.
    await scene.site.kube.delete("v1", "ResourceQuota", "limit", scene.namespace, uid=quota["metadata"]["uid"])

    async def replaced() -> bool:
        running = [each for each in await scene.pods() if each["status"].get("phase") == "Running"]
        return len(running) == 2

    await until(replaced, 90, "the pod is replaced")
    assert (await scene.status()).restarts == 0
    await scene.proxy.heal()
    await _seeing(scene)
    status = await scene.until_status(_healthy, 90, "it is healthy again")
    assert (status.attempt, status.restarts) == (1, 0)
    await scene.finish(executions=1)


@pytest.mark.parametrize("lose", [True, False], ids=["what was sent is lost", "what was sent arrives late"])
async def test_away_while_creating(scene: Scene, lose: bool):
    made = await limited(scene.site.kube, scene.namespace, {"count/jobs.batch": "1"}, name="jobs")
    # What is borne of refusals by an API server that answers is shorter than the outage.
    await scene.submit(job("first", 1), job("second", 1), job("third", 1), admissionGracePeriodDuration="8s")
    await scene.audit.until(
        lambda each: each.worker and each.resource == "jobs" and each.code == 403, 90, "the second job is refused"
    )
    scene.proxy.black_hole()
    await scene.site.kube.delete("v1", "ResourceQuota", "jobs", scene.namespace, uid=made["metadata"]["uid"])
    await asyncio.sleep(AWAY)  # The outage itself.
    await scene.proxy.heal(lose=lose)
    status = await scene.reach("Running", attempt=1)
    assert (status.restarts, status.executions) == (0, 1)
    jobs = sorted(one for one in scene.audit.created() if one.startswith("jobs/"))
    assert jobs == ["jobs/first", "jobs/second", "jobs/third"]
    await scene.finish(executions=1)


@pytest.mark.parametrize("how", ["black hole", "refuse"])
async def test_away_while_removing(scene: Scene, how: str):
    await scene.submit(job(labels={"holdfast.dev/kwok-stubborn": "true"}), forcefulDeletionGracePeriodDuration="60s")
    await scene.reach("Running")
    await scene.handle.signal(names.SIGNAL_SUSPEND, "making room")
    await scene.audit.until(_deletes_owner, 90, "the attempt's owner is deleted")
    if how == "black hole":
        scene.proxy.black_hole()
    else:
        await scene.proxy.refuse()
    await scene.steer_pods(labels={"holdfast.dev/kwok-stubborn": None})
    await scene.gone()
    await asyncio.sleep(AWAY)  # The outage itself.
    assert (await scene.status()).phase == "Suspending", "nothing is called gone that could not be seen to be"
    await scene.proxy.heal()
    status = await scene.reach("Suspended")
    assert (status.restarts, status.executions) == (0, 1)
    assert not any(each.reason == "DeletionForced" for each in status.causes)
    await scene.finish("Cancelled", executions=1)


async def test_away_beyond_the_end_of_a_graceful_removal(scene: Scene):
    await scene.submit(job(), forcefulDeletionGracePeriodDuration="5s")
    await scene.reach("Running")
    scene.proxy.black_hole()
    await scene.handle.signal(names.SIGNAL_SUSPEND, "making room")
    await scene.doing(OperationKind.REMOVE)
    await asyncio.sleep(AWAY)  # The outage itself: the deletion was never even sent.
    status = await scene.status()
    assert status.phase == "Suspending"
    await scene.proxy.heal()
    status = await scene.reach("Suspended")
    print(f"MEASURED causes: {[each.message for each in status.causes]}")
    for each in status.causes:
        assert not each.message.rstrip().endswith(":"), f"says nothing: {each.message!r}"
    await scene.finish("Cancelled", executions=1)


@pytest.mark.row("U1", level="e2e")
async def test_U1_25_failing_observations_restart_nothing(scene: Scene):
    await scene.submit(job(backoffLimit=5), failureGracePeriodDuration="25s")
    await scene.reach("Running")
    quota = await limited(scene.site.kube, scene.namespace, {"pods": "1"})  # Its Job cannot replace what fails.
    await scene.fail()
    await scene.unhealthy()
    scene.proxy.reset()
    await scene.doing(OperationKind.OBSERVE)  # The grace is over: before it acts it looks, and cannot see.
    await scene.site.kube.delete("v1", "ResourceQuota", "limit", scene.namespace, uid=quota["metadata"]["uid"])

    async def enough() -> bool:
        running = [each for each in await scene.pods() if each["status"].get("phase") == "Running"]
        return scene.proxy.turned_away >= 25 and len(running) == 2

    await until(enough, 120, "25 observations have failed, and the Job has replaced its pod meanwhile")
    assert (await scene.status()).restarts == 0
    await scene.proxy.heal()
    await _seeing(scene)
    status = await scene.until_status(_healthy, 90, "it is healthy again")
    print(f"MEASURED {scene.proxy.turned_away} failing observations, {status.restarts} restarts")
    assert (status.attempt, status.restarts, status.executions) == (1, 0, 1)
    assert all(budget.used == 0 for budget in status.budgets)
    await scene.finish(executions=1)


@pytest.mark.row("U1", level="e2e")
async def test_U1_25_failing_observations_of_a_healthy_job_cost_nothing(scene: Scene):
    await scene.submit(job(), failureGracePeriodDuration="0s", warmupGracePeriodDuration="3s")
    await scene.reach("Running")
    length = len(await quiet(scene.handle))
    scene.proxy.reset()

    async def enough() -> bool:
        return scene.proxy.turned_away >= 25

    await until(enough, 120, "25 observations have failed")
    assert (await scene.status()).restarts == 0
    await scene.proxy.heal()
    await _seeing(scene)
    status = await scene.reach("Running", attempt=1)
    assert (status.restarts, status.executions) == (0, 1)
    assert (await scene.handle.describe()).history_length - length <= 8
    await scene.finish(executions=1)
