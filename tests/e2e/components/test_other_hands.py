"""What others do to a workload's objects: deleted by hand, they are missed, or taken as the wish they are."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import names
from tests.e2e.ground.site import Site, appwrapper, job, until

pytestmark = pytest.mark.e2e


async def test_an_attempt_deleted_by_another_hand_is_missed_and_made_again(site: Site):
    namespace = await site.namespace()
    slow = {"failureGracePeriodDuration": "10m"}
    handle = await site.submit(site.read(appwrapper("train-llm", job(), **slow), namespace))
    await site.reach(handle, "Running")
    owner = await site.kube.get(names.API_VERSION, names.ATTEMPT_KIND, "train-llm-a1", namespace)
    await site.kube.delete(
        names.API_VERSION, names.ATTEMPT_KIND, "train-llm-a1", namespace, uid=owner["metadata"]["uid"]
    )
    status = await site.reach(handle, "Running", attempt=2)
    assert status.restarts == 1
    assert any("another client" in cause.message for cause in status.causes)


async def test_an_anchor_deleted_in_the_cluster_cancels_the_workload(site: Site):
    namespace = await site.namespace()
    handle = await site.submit(site.read(appwrapper("train-llm", job()), namespace))
    await site.reach(handle, "Running")
    anchor = await site.kube.get(names.API_VERSION, names.ANCHOR_KIND, "train-llm", namespace)
    await site.kube.delete(names.API_VERSION, names.ANCHOR_KIND, "train-llm", namespace, uid=anchor["metadata"]["uid"])
    result = await asyncio.wait_for(handle.result(), 60)
    assert (result.phase, result.reason) == ("Cancelled", "AnchorDeleted")

    async def no_anchor() -> bool:
        return await site.kube.find(names.API_VERSION, names.ANCHOR_KIND, "train-llm", namespace) is None

    await until(no_anchor, 60, "the anchor is gone")
    assert await site.gone(namespace)
