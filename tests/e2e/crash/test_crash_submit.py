"""Submitting twice: the same is the same run, another is refused, one that has ended begins again only if asked to."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import AlreadyEnded, Holdfast, SpecConflict
from holdfast.model import Phase
from tests.e2e.ground.site import Site, appwrapper, job, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


async def test_the_same_twice_another_and_again(site: Site):
    namespace = await site.namespace()
    workload = site.read(appwrapper("train", job()), namespace)
    other = site.read(appwrapper("train", job(pods=3)), namespace)
    async with Holdfast.connect(client=site.client, cluster=site.cluster) as holdfast:
        first, second = await asyncio.gather(holdfast.submit(workload), holdfast.submit(workload))
        assert (first.run_id, first.uid) == (second.run_id, second.uid)
        await site.reach(first.handle, "Running")
        third = await holdfast.submit(site.read(appwrapper("train", job()), namespace))
        assert (third.run_id, third.uid) == (first.run_id, first.uid)
        with pytest.raises(SpecConflict, match="runs already with another specification") as conflict:
            await holdfast.submit(other)
        assert conflict.value.running == workload.spec_hash()
        assert conflict.value.submitted == other.spec_hash()
        assert len(await site.objects("batch/v1", "Job", namespace)) == 1

        assert (await first.cancel("no longer wanted", wait=True)).phase is Phase.CANCELLED
        await asyncio.wait_for(first.closed(), 30)
        with pytest.raises(AlreadyEnded, match="--again"):
            await holdfast.submit(workload)
        with pytest.raises(AlreadyEnded):
            await holdfast.submit(other)

        again = await holdfast.submit(other, again=True)
        assert again.run_id != first.run_id
        assert again.uid != first.uid
        status = await site.reach(again.handle, "Running", attempt=1)
        assert status.pods.expected == 3
        assert (await holdfast.submit(other, again=True)).run_id == again.run_id, "what runs is not begun again"
        await again.cancel(wait=True)
        await asyncio.wait_for(again.closed(), 30)
        await until(lambda: site.gone(namespace), 30, "all is gone")
