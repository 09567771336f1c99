"""Checkpoints asked for by annotation, on fake nodes: before a preemption, in time or not (row L32)."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from holdfast import names
from holdfast.model import OperationKind
from holdfast.policy.attempt.checkpoint import CheckpointAsk
from tests.e2e.ground.site import until
from tests.e2e.ground.space import Handle, Space
from tests.e2e.ground.terminal import command
from tests.e2e.lives.saving import answers, asked, gang, noted, save

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row


def environment(pod: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one for one in pod["spec"]["containers"][0]["env"]}


async def ends(space: Space, handle: Handle) -> None:
    await handle.signal(names.SIGNAL_CANCEL, "enough")
    assert (await space.ended(handle)).phase == "Cancelled"


@ROW("L32", level="e2e")
@ROW("J3", level="e2e")
@ROW("U8", level="e2e")
async def test_L32_a_preempted_gang_saves_is_suspended_and_goes_on_from_there(space: Space):
    handle = await space.submit(gang())
    await space.reach(handle, "Running", 1)
    first = (await space.pods("train"))[0]
    assert environment(first)[names.ENV_RESUME_FROM]["valueFrom"]["fieldRef"]["fieldPath"] == (
        f"metadata.annotations['{names.ANNOTATION_RESUME_FROM}']"
    )
    assert names.ANNOTATION_RESUME_FROM not in noted(first)
    await handle.signal(names.SIGNAL_PREEMPT, "a larger job")
    status = await space.reach(handle, "Checkpointing", 1)
    assert (status.reason, status.pods.running) == ("Preempted", 4)
    await save(space, "s3://saved/7")
    status = await space.reach(handle, "Suspended")
    assert status.checkpoint is not None
    assert (status.checkpoint.state, status.checkpoint.uri) == ("Complete", "s3://saved/7")
    assert (status.restarts, [one.used for one in status.budgets]) == (0, [0])
    await handle.signal(names.SIGNAL_RESUME, "room again")
    status = await space.reach(handle, "Running", 2)
    assert status.resumed_from == "s3://saved/7"
    pods = await space.pods("train")
    assert {noted(one)[names.ANNOTATION_RESUME_FROM] for one in pods} == {"s3://saved/7"}
    await ends(space, handle)
    await space.truth.settle()
    space.truth.assert_told_truly("train")


@ROW("L32", level="e2e")
async def test_L32_a_gang_of_four_with_one_unresponsive_is_never_resumed_from(space: Space):
    handle = await space.submit(gang(checkpointTimeout="30s"))
    await space.reach(handle, "Running", 1)
    await handle.signal(names.SIGNAL_PREEMPT, "a larger job")
    *good, silent = await asked(space)
    for one in good:
        await answers(space, one, "Complete", "s3://saved/7")
    status = await space.reach(handle, "Suspended")
    assert status.checkpoint is not None
    assert (status.checkpoint.state, status.saved) == ("Partial", None)
    assert f"{silent['metadata']['name']} has not answered" in status.checkpoint.why
    await handle.signal(names.SIGNAL_RESUME, "room again")
    status = await space.reach(handle, "Running", 2)
    assert status.resumed_from == ""
    assert all(names.ANNOTATION_RESUME_FROM not in noted(one) for one in await space.pods("train"))
    await ends(space, handle)


@ROW("L32", level="e2e")
async def test_L32_one_unresponsive_is_killed_where_its_profile_says_so(space: Space):
    handle = await space.submit(gang(checkpointTimeout="2s", checkpointOnUnresponsive="Kill"))
    await space.reach(handle, "Running", 1)
    await handle.signal(names.SIGNAL_PREEMPT, "a larger job")
    status = await space.reach(handle, "Suspended")
    assert status.checkpoint is not None
    assert (status.checkpoint.state, status.restarts) == ("Discarded", 0)
    assert await space.acts(handle, OperationKind.FORCE_REMOVE)
    assert not await space.acts(handle, OperationKind.REMOVE)
    await ends(space, handle)


@ROW("L32", level="e2e")
async def test_L32_those_that_are_at_it_get_their_extension(space: Space):
    handle = await space.submit(gang(pods=2, checkpointTimeout="30s", checkpointExtension="60s"))
    await space.reach(handle, "Running", 1)
    await handle.signal(names.SIGNAL_PREEMPT, "a larger job")
    pods = await asked(space, pods=2)
    for one in pods:
        await answers(space, one, "InProgress")
    before = noted(pods[0])[names.ANNOTATION_CHECKPOINT_DEADLINE]

    async def extended() -> bool:
        found = await space.pods("train")
        return any(noted(one).get(names.ANNOTATION_CHECKPOINT_DEADLINE, before) > before for one in found)

    await until(extended, 60, "pods are told of their extension")
    await save(space, "s3://saved/7", pods=2)
    status = await space.reach(handle, "Suspended")
    assert status.checkpoint is not None
    assert (status.checkpoint.state, status.checkpoint.extended_at is not None) == ("Complete", True)
    await ends(space, handle)


@ROW("L32", level="e2e")
async def test_L32_a_natural_finish_first_makes_the_hint_a_no_op(space: Space):
    handle = await space.submit(gang(successTTL="1h"))
    await space.reach(handle, "Running", 1)
    await handle.signal(names.SIGNAL_PREEMPT, "a larger job")
    await asked(space)
    await space.complete("train")
    status = await space.reach(handle, "Succeeded", 1)
    assert status.checkpoint is not None
    assert (status.checkpoint.state, status.saved) == ("Discarded", None)
    await handle.signal(names.SIGNAL_CANCEL, "enough")
    assert (await space.ended(handle)).phase == "Succeeded"


@ROW("L32", level="e2e")
@ROW("A16", level="e2e")
async def test_L32_a_cancellation_waits_for_no_checkpoint(space: Space):
    handle = await space.submit(gang())
    await space.reach(handle, "Running", 1)
    await handle.signal(names.SIGNAL_PREEMPT, "a larger job")
    await asked(space)
    async with asyncio.timeout(60):
        await ends(space, handle)


@ROW("L32", level="e2e")
async def test_L32_taken_back_while_it_saves_it_runs_on(space: Space):
    handle = await space.submit(gang())
    await space.reach(handle, "Running", 1)
    before = {one["metadata"]["uid"] for one in await space.pods("train")}
    await handle.signal(names.SIGNAL_PREEMPT, "a larger job")
    await asked(space)
    await handle.signal(names.SIGNAL_RESUME, "not so large")
    await space.reach(handle, "Running", 1)
    assert {one["metadata"]["uid"] for one in await space.pods("train")} == before
    await handle.signal(names.SIGNAL_PREEMPT, "a larger job again")
    await save(space, "s3://saved/8", number=2)
    await space.reach(handle, "Suspended")
    await ends(space, handle)


@ROW("L32", level="e2e")
async def test_L32_whoever_preempts_may_have_less_patience(space: Space):
    handle = await space.submit(gang())
    await space.reach(handle, "Running", 1)
    await handle.signal(names.SIGNAL_PREEMPT, args=["urgent", 10.0])
    await asked(space)
    async with asyncio.timeout(60):
        status = await space.reach(handle, "Suspended")
    assert status.checkpoint is not None
    assert status.checkpoint.ended_at is not None
    assert status.checkpoint.ended_at - status.checkpoint.at < timedelta(seconds=30)
    await ends(space, handle)


@ROW("J3", level="e2e")
async def test_J3_what_was_saved_on_the_way_is_where_a_reset_goes_on(space: Space):
    handle = await space.submit(gang(pods=2, failureGracePeriod="0s"))
    await space.reach(handle, "Running", 1)
    number: Any = await handle.execute_update(names.UPDATE_CHECKPOINT, CheckpointAsk(note="nightly"))
    assert number == 1
    await save(space, "s3://nightly", pods=2)

    async def saved() -> bool:
        return (await space.site.status(handle)).saved is not None

    await until(saved, 60, "it has saved")
    await space.reach(handle, "Running", 1)
    await space.fail_pod("train")
    status = await space.reach(handle, "Running", 2)
    assert (status.restarts, status.resumed_from) == (1, "s3://nightly")
    await ends(space, handle)


@ROW("L32", level="e2e")
async def test_L32_whoever_types_it_is_told_what_was_saved_and_what_was_not(space: Space):
    handle = await space.submit(gang(pods=2))
    await space.reach(handle, "Running", 1)
    name = f"{space.namespace}/train"
    told, _ = await asyncio.gather(
        command(space.site, "checkpoint", name, "--wait", "--timeout", "60s"), save(space, "s3://saved/1", pods=2)
    )
    assert told.startswith(f"{name} Running: "), "it saves, and runs on"
    shown = json.loads(await command(space.site, "status", name, "-o", "json"))["status"]["checkpoint"]
    assert (shown["state"], shown["uri"]) == ("Complete", "s3://saved/1")
    told, _ = await asyncio.gather(
        command(space.site, "checkpoint", name, "--wait", expect=1), give_up(space, 2, number=2)
    )
    assert told.startswith(f"{name} Running: "), "a checkpoint that failed is an exit code of 1, and no end of it"
    await command(space.site, "preempt", name, "--within", "soon", expect=2)
    told = await command(space.site, "preempt", name, "--within", "1s", "--wait", "--reason", "a larger job")
    assert told.startswith(f"{name} Suspended: ")
    status = await space.site.status(handle)
    assert status.resumed_from == ""
    assert status.restarts == 0
    await command(space.site, "resume", name, "--wait")
    assert (await space.site.status(handle)).resumed_from == "s3://saved/1", "the last that was complete"
    await ends(space, handle)


async def give_up(space: Space, pods: int, number: int) -> None:
    """Answer that nothing was saved, in all pods' places."""
    for one in await asked(space, pods=pods, number=number):
        await answers(space, one, "Failed")
