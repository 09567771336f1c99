"""Lives of a gang that saves its state before it makes room, for the crash harness (rows L19, L32)."""

from __future__ import annotations

from holdfast import names
from holdfast.activities.site.saves import told_of
from holdfast.model import OperationKind
from holdfast.model.calls.cluster import Progress
from tests.e2e.ground.site import until
from tests.e2e.ground.space import STUBBORN, Handle, Space
from tests.e2e.lives.lattice import NAME
from tests.e2e.lives.saving import answers, asked, gang, save

PODS = 2


async def saves_and_goes_on(space: Space, handle: Handle) -> None:
    """Save, make room, and go on from there."""
    await space.reach(handle, "Running", 1)
    await handle.signal(names.SIGNAL_PREEMPT, "a larger job")
    await save(space, "s3://saved/1", NAME, pods=PODS)
    await space.reach(handle, "Suspended", 1)
    await _goes_on(space, handle)


def has_a_walltime() -> str:
    """Return a gang whose walltime is longer than a worker needs to come back, and shorter than its patience."""
    return gang(NAME, pods=PODS, profile="lattice-batch", walltime="60s")


async def saves_after_its_walltime(space: Space, handle: Handle) -> None:
    """Have its walltime end while it saves, save in the grace after that, and go on from there with a new one."""
    await space.reach(handle, "Running", 1)
    saving = [one["metadata"]["name"] for one in await space.pods(NAME)]
    for name in saving:
        await space.patch("v1", "Pod", name, {"metadata": {"labels": STUBBORN}})
    await handle.signal(names.SIGNAL_PREEMPT, "a larger job")

    async def told_to_end() -> bool:
        return all("deletionTimestamp" in one["metadata"] for one in await space.pods(NAME))

    await until(told_to_end, 180, "its pods are told to end")
    for one in await asked(space, NAME, PODS):
        await answers(space, one, "Complete", "s3://saved/1")
    await until(lambda: _seen_saved(handle), 120, "it is seen that they have saved")
    for name in saving:
        await space.patch("v1", "Pod", name, {"metadata": {"labels": dict.fromkeys(STUBBORN)}})
    status = await space.reach(handle, "Suspended", 1)
    assert status.checkpoint is not None
    assert status.checkpoint.conflict is not None, "its walltime was over while it saved"
    await _goes_on(space, handle)


async def _goes_on(space: Space, handle: Handle) -> None:
    await handle.signal(names.SIGNAL_RESUME, "room again")
    status = await space.reach(handle, "Running", 2)
    assert status.resumed_from == "s3://saved/1"
    await space.complete(NAME)


async def _seen_saved(handle: Handle) -> bool:
    """Whether the removal has said in a heartbeat that all have saved: that outlives the worker that saw it."""
    described = await handle.describe()
    for one in described.raw_description.pending_activities:
        if one.activity_type.name == OperationKind.REMOVE and one.heartbeat_details.payloads:
            said = Progress.model_validate_json(one.heartbeat_details.payloads[0].data)
            return len(told_of(said)) == PODS
    return False
