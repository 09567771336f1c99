"""Temporal killed with -9 and started again on the same data: overdue timers fire, nothing is lost or done twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast import names
from holdfast.local import Stack
from tests.e2e.crash.scene import OwnTemporal, Scene, open_scene, pod
from tests.e2e.ground.site import job
from tests.e2e.witness.audit import Request

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

STUBBORN = {"holdfast.dev/kwok-stubborn": "true"}


@dataclass
class Ground:
    temporal: OwnTemporal
    scene: Scene


@pytest.fixture
async def ground(stack: Stack, tmp_path: Path) -> AsyncIterator[Ground]:
    temporal = OwnTemporal(stack, tmp_path)
    await temporal.start()
    try:
        async with open_scene(stack, tmp_path, temporal_address=temporal.address) as scene:
            yield Ground(temporal, scene)
    finally:
        temporal.kill()


def _deletes_owner(each: Request) -> bool:
    return each.worker and each.verb == "delete" and each.resource == "attempts"


async def test_temporal_killed_while_a_failure_grace_runs(ground: Ground):
    temporal, scene = ground.temporal, ground.scene
    await scene.submit(pod(), failureGracePeriodDuration="10s")
    await scene.reach("Running")
    failed = datetime.now(UTC)
    await scene.fail()
    await scene.unhealthy()
    temporal.kill()
    await asyncio.sleep(11)  # The outage itself: longer than the grace, so that its timer is overdue.
    await temporal.start()
    await scene.reach("Running", attempt=2)
    (removed,) = scene.audit.requests(_deletes_owner)
    assert (removed.received - failed).total_seconds() >= 10
    await scene.finish(restarts=1, executions=2)


async def test_temporal_killed_while_an_attempt_is_removed(ground: Ground):
    temporal, scene = ground.temporal, ground.scene
    await scene.submit(job(labels=STUBBORN), forcefulDeletionGracePeriodDuration="120s")
    await scene.reach("Running")
    await scene.handle.signal(names.SIGNAL_SUSPEND, "making room")
    await scene.audit.until(_deletes_owner, 90, "the attempt's owner is deleted")
    temporal.kill()
    # It finishes while its workflow cannot be told.
    await scene.steer_pods(labels={"holdfast.dev/kwok-stubborn": None})
    await scene.gone()
    await temporal.start()
    status = await scene.reach("Suspended")
    assert (status.restarts, status.executions) == (0, 1)
    await scene.handle.signal(names.SIGNAL_RESUME, "room again")
    await scene.reach("Running", attempt=2)
    await scene.steer_pods(labels={"holdfast.dev/kwok-stubborn": None})
    await scene.finish(executions=2)


async def test_a_pod_that_fails_while_temporal_is_away_is_told_when_it_is_back(ground: Ground):
    temporal, scene = ground.temporal, ground.scene
    await scene.submit(pod(), failureGracePeriodDuration="0s")
    await scene.reach("Running")
    temporal.kill()
    await scene.fail()
    await temporal.start()
    await scene.reach("Running", attempt=2)
    await scene.finish(restarts=1, executions=2)
