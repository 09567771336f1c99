"""A Job's own ways: it replaces its failed pods by itself (row A18), and works in waves (row A2)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.model import OperationKind
from holdfast.profiles.appwrapper import POLICY
from tests.e2e.ground.site import PREFIX, appwrapper, job, until
from tests.e2e.ground.space import Handle, Space
from tests.quotas import limited

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row


async def healthy_again(space: Space, handle: Handle, failed: int) -> None:
    """Wait until the Job has replaced its failed pods, which stay there to be seen, and the workload is well."""

    async def check() -> bool:
        phases = [each["status"].get("phase") for each in await space.pods("train")]
        status = await space.site.status(handle)
        well = not any(one.type == "Unhealthy" and one.status for one in status.conditions)
        return well and phases.count("Failed") == failed and phases.count("Running") == 1

    await until(check, 90, f"it is well again beside {failed} failed pods")


GRACE = timedelta(seconds=8)
"""The operator's default, shorter than any pause of the Job, as a minute is than the one after a fourth failure."""


@ROW("A18", level="e2e")
@ROW("D22", level="e2e")
async def test_A18_a_jobs_replaced_failed_pods_never_reset_it_and_the_last_one_does(space: Space):
    """The Job itself waits 10 s before it replaces its first failed pod, and 20 s before the second."""
    document = appwrapper("train", job(pods=1, backoffLimit=2))
    del document["metadata"]["annotations"][f"{PREFIX}failureGracePeriodDuration"]
    timings = POLICY.timings.model_copy(update={"failure_grace_period": GRACE})
    handle = await space.submit(document, defaults=POLICY.model_copy(update={"timings": timings}))
    await space.reach(handle, "Running", 1)
    for failed in (1, 2):
        await space.fail_pod("train")
        await space.unhealthy(handle)
        await healthy_again(space, handle, failed)
        status = await space.site.status(handle)
        assert (status.phase, status.attempt, status.restarts) == ("Running", 1, 0)
        assert status.pods.failed == 0, "a failed pod that its Job has replaced does not count"
    assert not await space.acts(handle, OperationKind.REMOVE)
    lost = await space.fail_pod("train")
    status = await space.reach(handle, "Running", 2)
    assert (status.restarts, [each.used for each in status.budgets]) == (1, [1])
    (why,) = [each.message for each in status.causes if each.reason == "Resetting"]
    assert lost in why or "train: BackoffLimitExceeded" in why, why
    await space.truth.settle()
    assert len(space.truth.of(1, "Pod")) == 3
    space.truth.assert_one_attempt_at_a_time("train")


@ROW("A2", level="e2e")
async def test_A2_between_the_waves_of_a_job_it_has_not_succeeded(space: Space):
    """A quota on the number of pods holds the second wave: all pods there are have succeeded, and work is left."""
    await limited(space.site.kube, space.namespace, {"count/pods": "2"}, name="pods")
    component = job(pods=2, complete="1s", completions=4)
    handle = await space.submit(appwrapper("train", component, successTTLDuration="1h"))

    async def between() -> bool:
        found = await space.site.kube.find("batch/v1", "Job", "train", space.namespace)
        status = (found or {}).get("status") or {}
        return (status.get("succeeded", 0), status.get("active", 0)) == (2, 0)

    await until(between, 60, "the first wave has succeeded, and the second cannot begin")
    assert [each["status"]["phase"] for each in await space.pods("train")] == ["Succeeded"] * 2
    await asyncio.sleep(3)  # Time enough for the watch to say what it takes for news.
    status = await space.site.status(handle)
    assert (status.phase, status.attempt) == ("Running", 1)
    await space.delete("v1", "ResourceQuota", "pods")
    status = await space.reach(handle, "Succeeded")
    assert (status.attempt, status.restarts, status.executions) == (1, 0, 1)

    async def told() -> bool:
        return (await space.anchor("train"))["status"]["phase"] == "Succeeded"

    await until(told, 30, "the anchor says so")
    await space.truth.settle()
    pods = space.truth.of(1, "Pod")
    assert [life.object["status"]["phase"] for life in pods] == ["Succeeded"] * 4
    succeeded = next(each.version for each in space.truth.shown("train") if each.phase == "Succeeded")
    assert all(life.born < succeeded for life in pods)
