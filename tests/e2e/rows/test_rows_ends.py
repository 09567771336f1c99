"""What stays once the outcome is settled: a failed workload for debugging (A12), a succeeded one for its TTL (A13)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast import names
from holdfast.model import OperationKind, Phase, Status
from tests.e2e.ground.site import appwrapper, job, until
from tests.e2e.ground.space import Handle, Space, pod

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
ENDS = {"time": "6s", "suspend": "1h", "signal": "1h", "anchor": "1h"}
"""What ends the hold of a failed workload, and how long it would last by itself."""


def told(space: Space, workload: str) -> dict[str, bool]:
    """What the anchor's conditions say now."""
    return {kind: status for kind, (status, _) in space.truth.shown(workload)[-1].conditions.items()}


async def failed_and_held(space: Space, end: str) -> Handle:
    """Have a workload fail whose resources are then held, and see that they are there, and the quota too."""
    components = [job(end), pod(f"{end}-beside")]
    document = appwrapper(end, *components, retryLimit="0", deletionOnFailureGracePeriodDuration=ENDS[end])
    handle = await space.submit(document)
    await space.reach(handle, "Running", 1)
    await _fail_one_of(space, end)
    status = await space.reach(handle, "Failed")
    assert (status.reason, status.restarts) == ("RetryLimitExceeded", 0)

    async def reported() -> bool:
        return (await space.anchor(end))["status"]["phase"] == "Failed"

    await until(reported, 30, "the anchor says so")
    if end != "time":
        await space.truth.settle()
        conditions = told(space, end)
        assert (conditions["ResourcesDeployed"], conditions["QuotaReserved"]) == (True, True), "quota is held"
        there = {life.kind for life in space.truth.alive(end, space.truth.shown(end)[-1].version)}
        assert there >= {"Pod", "Job", names.ATTEMPT_KIND}, "what somebody wants to look into is there"
        assert not await space.acts(handle, OperationKind.REMOVE)
    return handle


@ROW("A2", level="e2e")
@ROW("A10", level="e2e")
async def test_A2_a_pod_that_runs_on_after_success_holds_the_quota_until_it_ends(space: Space):
    # Nobody waits for it: a controller of its own has added it, as a RayCluster does for its next job.
    handle = await space.submit(appwrapper("train", pod("lone"), successTTLDuration="1h"))
    await space.reach(handle, "Running", 1)
    await space.add_beside("lone", "extra")
    await space.site.annotate("Pod", "lone", space.namespace, kwok_complete="0s")
    await space.reach(handle, "Succeeded")

    async def says(quota: bool) -> bool:
        status = (await space.anchor("train"))["status"]
        conditions = {one["type"]: one["status"] for one in status["conditions"]}
        return status["phase"] == "Succeeded" and conditions["QuotaReserved"] == str(quota)

    await until(lambda: says(quota=True), 30, "the anchor says that it succeeded and holds its quota")
    await space.site.annotate("Pod", "extra", space.namespace, kwok_complete="0s")
    await until(lambda: says(quota=False), 30, "the anchor says that the quota is free")
    there = {one["metadata"]["name"] for one in await space.pods()}
    assert there == {"lone", "extra"}, "and both are there, to be looked into"
    await handle.signal(names.SIGNAL_CANCEL, "enough")
    assert (await space.ended(handle)).phase is Phase.SUCCEEDED


async def _fail_one_of(space: Space, job: str) -> None:
    """Make one of a Job's running pods fail."""
    pods = await space.site.objects("v1", "Pod", space.namespace, labels=f"job-name={job}")
    name = next(one["metadata"]["name"] for one in pods if one["status"].get("phase") == "Running")
    await space.site.annotate("Pod", name, space.namespace, kwok_exit_code="1", kwok_fail="0s")


async def end_hold(space: Space, end: str, handle: Handle) -> Status:
    match end:
        case "suspend":
            await handle.signal(names.SIGNAL_SUSPEND, "its place is needed")
        case "signal":
            await handle.signal(names.SIGNAL_CANCEL, "looked into")
        case "anchor":
            await space.delete(names.API_VERSION, names.ANCHOR_KIND, end)
        case _:
            pass
    return await space.ended(handle)


@ROW("A12", level="e2e")
async def test_A12_a_failed_workload_is_held_until_time_suspension_or_deletion(space: Space):
    handles = [await failed_and_held(space, end) for end in ENDS]
    statuses = await asyncio.gather(*(end_hold(space, *one) for one in zip(ENDS, handles, strict=True)))
    await space.truth.settle()
    for end, handle, status in zip(ENDS, handles, statuses, strict=True):
        assert (status.phase, status.restarts, status.executions) == (Phase.FAILED, 0, 1), end
        assert all(life.died for life in space.truth.of(1, workload=end)), "nothing of it is left"
        space.truth.assert_told_truly(end)
        (removal,) = await space.acts(handle, OperationKind.REMOVE)
        failed = next(each.time for each in status.causes if each.reason == "RetryLimitExceeded")
        if end == "time":
            assert removal.scheduled - failed >= timedelta(seconds=6)
        gone = space.truth.anchor(end).died is not None
        if not gone:  # Of one that is deleted with the proof, nobody could read a last status (record 0087).
            conditions = told(space, end)
            assert (conditions["ResourcesDeployed"], conditions["QuotaReserved"]) == (False, False), end
        assert gone is (end in {"signal", "anchor"}), "its record ends if it was deleted, and stays to be read if not"


@ROW("A13", level="e2e")
async def test_A13_the_success_ttl_counts_from_success_whatever_workers_come_and_go(alone: Space):
    """The deadline is a moment, not a span that a new worker would begin again."""
    space, site = alone, alone.site
    handle = await space.submit(appwrapper("train", job(complete="0s"), successTTLDuration="60s"))
    before = await space.reach(handle, "Succeeded")
    succeeded = next(each.time for each in before.causes if each.reason == "Completed")
    assert before.next is not None
    assert before.next.at == succeeded + timedelta(seconds=60)
    site.workers[0].kill()
    await site.start_worker()
    after = await space.reach(handle, "Succeeded")
    assert after.next == before.next, "another worker holds the same deadline"
    await space.truth.settle()
    assert [life.kind for life in space.truth.alive("train", 10**15) if life.kind == "Job"] == ["Job"]
    status = await space.ended(handle)
    assert (status.phase, status.restarts) == ("Succeeded", 0)
    (removal,) = await space.acts(handle, OperationKind.REMOVE)
    print(f"MEASURED removed {(removal.scheduled - succeeded).total_seconds():.2f} s after its success")
    assert removal.scheduled - succeeded >= timedelta(seconds=60)
    await space.truth.settle()
    assert all(life.died for life in space.truth.of(1)), "nothing of it is left"
    space.truth.assert_told_truly("train")


@ROW("A13", level="e2e")
async def test_A13_a_ttl_that_ends_while_no_worker_lives_is_kept_when_one_comes(alone: Space):
    space, site = alone, alone.site
    handle = await space.submit(appwrapper("train", job(complete="0s"), successTTLDuration="40s"))
    await space.reach(handle, "Succeeded")
    site.workers[0].kill()
    await asyncio.sleep(43)  # The time that nobody is there for.
    await space.truth.settle()
    assert not any(life.died for life in space.truth.of(1)), "nobody was there to remove it"
    await site.start_worker()
    assert (await space.ended(handle)).phase == "Succeeded"
    await space.truth.settle()
    assert all(life.died for life in space.truth.of(1))
