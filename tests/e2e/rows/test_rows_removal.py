"""Removal, whatever it is for: by the collector, then by force, until proven gone (row A8), on real controllers."""

from __future__ import annotations

import pytest

from holdfast import names
from holdfast.model import OperationKind, Phase
from tests.e2e.ground.site import appwrapper, job, until
from tests.e2e.ground.space import FOREIGN_FINALIZER, STUBBORN, Handle, Space, pod

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
FORCE_AFTER = 4.0
BUSY = 1.0
"""The grace counts from the decision; on a busy machine it takes a moment to be carried out."""
DURATIONS = {
    "forcefulDeletionGracePeriodDuration": "4s",
    "failureGracePeriodDuration": "0s",
    "successTTLDuration": "1s",
}


async def remove_for(why: str, space: Space) -> Handle:
    """Have a workload of stubborn pods removed for a reason; return once that has been asked for."""
    annotations = {**DURATIONS, "retryLimit": "0" if why == "failed" else "3"}
    components = [job(pods=3, labels=STUBBORN), pod("lone", labels=STUBBORN)]
    if why == "ttl":
        # Its pods end, but for one that a controller of its own has added and nobody waits for.
        components = [pod("lone")]
    handle = await space.submit(appwrapper("train", *components, **annotations))
    await space.reach(handle, "Running", 1)
    match why:
        case "reset" | "failed":
            await space.fail_pod("train")
        case "suspend":
            await handle.signal(names.SIGNAL_SUSPEND, "maintenance")
        case "ttl":
            await space.add_beside("lone", "extra", **STUBBORN)
            await space.site.annotate("Pod", "lone", space.namespace, kwok_complete="0s")
        case _:
            await handle.signal(names.SIGNAL_CANCEL, "enough")
    return handle


@ROW("A8", level="e2e")
@pytest.mark.parametrize("why", ["reset", "suspend", "failed", "ttl", "delete"])
async def test_A8_the_same_deletion_serves_all_five(space: Space, why: str):
    handle = await remove_for(why, space)
    match why:
        case "reset":
            await space.reach(handle, "Running", 2)
        case "suspend":
            await space.reach(handle, "Suspended")
        case _:
            phase = {"failed": Phase.FAILED, "ttl": Phase.SUCCEEDED, "delete": Phase.CANCELLED}[why]
            assert (await space.ended(handle)).phase is phase
    await space.truth.settle()
    space.truth.assert_one_attempt_at_a_time("train")
    space.truth.assert_told_truly("train")
    first = space.truth.of(1)
    assert all(life.died for life in first), "nothing of the first attempt is left"

    # History: a graceful removal that was given its time, then a forced one that proved it gone.
    removals = await space.acts(handle, OperationKind.REMOVE, OperationKind.FORCE_REMOVE)
    graceful, forced = removals[0], removals[1]
    assert (graceful.name, graceful.result["gone"]) == (OperationKind.REMOVE, False)
    assert (forced.name, forced.result["gone"]) == (OperationKind.FORCE_REMOVE, True)
    assert (forced.scheduled - graceful.scheduled).total_seconds() >= FORCE_AFTER - BUSY

    # The audit log: one deletion by the worker, then none until force; then all pods that were left.
    begun = [one for one in space.truth.requests() if one.time >= graceful.scheduled and one.worker]
    deletions = [one for one in begun if one.verb == "delete" and one.name != "train" and one.name[-3:] != "-a2"]
    assert (deletions[0].resource, deletions[0].name) == ("attempts", "train-a1")
    by_force = [one for one in deletions if one.resource == "pods"]
    assert by_force
    assert min((one.time - graceful.scheduled).total_seconds() for one in by_force) >= FORCE_AFTER - BUSY
    assert all(one.time >= forced.scheduled for one in by_force)
    stuck = {each["name"] for each in graceful.result["remnants"] if each["kind"] == "Pod"}
    assert stuck, "pods that ignored their deletion"
    assert {one.name for one in by_force} >= stuck, "all of them are forced"

    if why == "reset":
        await space.assert_paused(handle, "train", 2, 1.0)
        born = min(life.born for life in space.truth.of(2))
        assert max(life.died or 0 for life in first) < born


@ROW("A8", level="e2e")
async def test_A8_without_force_all_is_left_to_the_collector(space: Space):
    document = appwrapper("train", job(pods=3), pod("lone"), forcefulDeletionGracePeriodDuration="60s")
    handle = await space.submit(document)
    await space.reach(handle, "Running", 1)
    await space.fail_pod("train")
    await space.reach(handle, "Running", 2)
    await space.truth.settle()
    space.truth.assert_one_attempt_at_a_time("train")
    space.truth.assert_told_truly("train")
    await space.assert_paused(handle, "train", 2, 1.0)
    assert not await space.acts(handle, OperationKind.FORCE_REMOVE)
    deletions = [one for one in space.truth.requests() if one.verb == "delete" and one.worker]
    assert [(one.resource, one.name) for one in deletions] == [("attempts", "train-a1")]


@ROW("A8", level="e2e")
async def test_A8_a_foreign_finalizer_blocks_and_is_named_until_it_goes(space: Space):
    handle = await space.submit(appwrapper("train", job(), pod("lone"), **DURATIONS))
    await space.reach(handle, "Running", 1)
    await space.finalize("v1", "Pod", "lone", FOREIGN_FINALIZER)
    await space.fail_pod("train")

    async def named() -> bool:
        explanation = await space.explain(handle)
        return FOREIGN_FINALIZER in explanation.unblock and "Pod lone" in explanation.now

    await until(named, 40, "explain names the finalizer")
    status = await space.site.status(handle)
    assert (status.phase, status.attempt) == ("Resetting", 1)

    async def told() -> bool:
        conditions = {each["type"]: each for each in (await space.anchor("train"))["status"]["conditions"]}
        shown = conditions.get("DeletingResources", {})
        return shown.get("status") == "True" and FOREIGN_FINALIZER in shown["message"]

    await until(told, 40, "the anchor names the finalizer")
    (lone,) = [life for life in space.truth.of(1, "Pod") if life.name == "lone"]
    assert lone.died is None, "a foreign finalizer is not ours to take"
    await space.finalize("v1", "Pod", "lone")
    status = await space.reach(handle, "Running", 2)
    assert status.restarts == 1
    await space.truth.settle()
    space.truth.assert_one_attempt_at_a_time("train")
    space.truth.assert_told_truly("train")
    await space.assert_paused(handle, "train", 2, 1.0)
