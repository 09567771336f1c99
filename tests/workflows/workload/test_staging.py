"""Staging on a real Temporal server: what it costs, what interrupts it, what later attempts are told (row L14)."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import names
from holdfast.model import Reason, Workload
from holdfast.model.calls.stage import Staged
from holdfast.model.spec.mount import Mount
from tests.policy.lives.life import workload
from tests.workflows.conftest import SCALED
from tests.workflows.workload.test_workload import Environment, replays

pytestmark = pytest.mark.e2e
MOUNT = Mount(name="corpus", source="s3://datasets/corpus", path="/data/corpus")
AWAY = Staged(away="mount corpus (s3://datasets/corpus): the store does not answer")


def reading() -> Workload:
    return workload(timings=SCALED.model_dump(by_alias=False), mounts=(MOUNT,))


async def test_L14_staging_is_one_activity_more_and_each_try_that_finds_the_store_away_one_timer(
    environment: Environment,
):
    async with environment() as run:
        run.cluster.staging = [AWAY]
        handle = await run.start(reading())
        await run.entered("stage")
        status = await run.reach(handle, "Pending")
        while status.reason is not Reason.STAGING or "does not answer" not in status.message:
            await asyncio.sleep(0.05)
            status = await run.status(handle)
        assert (status.executions, status.attempt) == (0, 0)
        assert status.next is not None
        assert status.next.what.startswith("staging pause: mount corpus")
        before = len((await handle.fetch_history()).events)
        await handle.signal(names.SIGNAL_RETRY, "it is back")
        await run.running(handle)
        assert run.cluster.entered[:5] == ["report", "stage", "stage", "prepare", "create"], "kubectl shows it first"
        await run.cluster.sees(handle, 1, running=1, failed=1)
        await run.running(handle, 2)
        assert [one.versions for one in run.cluster.staged] == [{}, {}, {"corpus": "d" * 64}]
        assert run.cluster.data[1] == run.cluster.data[2] != ()
        (volume,) = run.cluster.data[2]
        assert (volume.digest, volume.path, volume.components) == ("d" * 64, "/data/corpus", ("train",))
        assert before <= 24, before
        await handle.signal(names.SIGNAL_CANCEL, "enough")
        assert (await handle.result()).phase == "Cancelled"
        await replays(handle)


async def test_L14_a_suspension_breaks_staging_off_and_a_cancellation_ends_it(environment: Environment):
    async with environment() as run:
        run.cluster.close("stage")
        handle = await run.start(reading())
        await run.entered("stage")
        await handle.signal(names.SIGNAL_SUSPEND, "for now")
        await run.reach(handle, "Suspended")
        await handle.signal(names.SIGNAL_RESUME)
        await run.entered("stage", 2)
        await handle.signal(names.SIGNAL_CANCEL, "enough")
        assert (await handle.result()).phase == "Cancelled"
        assert "prepare" not in run.cluster.entered
        await replays(handle)
