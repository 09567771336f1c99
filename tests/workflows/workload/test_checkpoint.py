"""Checkpoints on a real Temporal server: what a preemption carries out, what it costs, and that it replays."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError

from holdfast import names
from holdfast.model import Answers, Checkpoint, CheckpointProtocol, Status, Workload
from holdfast.policy.attempt.checkpoint import CheckpointAsk
from holdfast.policy.values.edit import edit
from tests.policy.lives.life import workload
from tests.workflows.conftest import SCALED
from tests.workflows.workload.test_workload import Environment, events, replays

pytestmark = pytest.mark.e2e


def saving(**fields: Any) -> Workload:
    given = Checkpoint(protocol=CheckpointProtocol.ANNOTATION, **fields)
    return edit(workload(timings=SCALED.model_dump(by_alias=False)), checkpoint=given)


def saved(uri: str = "s3://saved/1") -> Answers:
    return Answers(at=datetime.now(UTC), running=2, done=2, uri=uri)


async def ended(run: Any, handle: WorkflowHandle[Any, Status]) -> None:
    await handle.signal(names.SIGNAL_CANCEL, "enough")
    assert (await handle.result()).phase == "Cancelled"
    await replays(handle)


async def test_L32_a_preemption_is_one_activity_more(environment: Environment):
    async with environment() as run:
        run.cluster.saves = saved()
        handle = await run.start(saving())
        await run.running(handle)
        before = await events(handle)
        await handle.signal(names.SIGNAL_PREEMPT, "a larger job")
        status = await run.reach(handle, "Suspended")
        assert (status.checkpoint.state, status.saved.uri) == ("Complete", "s3://saved/1")
        assert run.cluster.entered[-2:] == ["checkpoint", "remove"]
        used = len((await handle.fetch_history()).events) - before
        assert used <= 24, used
        await handle.signal(names.SIGNAL_RESUME)
        await run.running(handle, 2)
        assert run.cluster.resumed == {1: "", 2: "s3://saved/1"}
        await ended(run, handle)


async def test_L32_a_signal_from_another_sdk_gives_the_patience_in_seconds(environment: Environment):
    async with environment() as run:
        handle = await run.start(saving())
        await run.running(handle)
        await handle.signal(names.SIGNAL_PREEMPT, args=["urgent", 0.5])
        status = await run.reach(handle, "Suspended")
        assert (status.checkpoint.state, status.reason) == ("Discarded", "Preempted")
        await ended(run, handle)


async def test_L32_cancelled_or_taken_back_while_it_saves(environment: Environment):
    async with environment() as run:
        handle = await run.start(saving())
        await run.running(handle)
        for number in (1, 2):
            await handle.signal(names.SIGNAL_PREEMPT, "a larger job")
            await run.reach(handle, "Checkpointing")
            await run.entered("checkpoint", number)
            if number == 1:
                await handle.signal(names.SIGNAL_RESUME)
                await run.reach(handle, "Running", 1)
        await ended(run, handle)


async def test_L32_it_survives_continue_as_new_while_it_saves(environment: Environment):
    async with environment(suggest=20) as run:
        handle = await run.start(saving())
        await run.running(handle)
        await handle.signal(names.SIGNAL_PREEMPT, "a larger job")
        await run.entered("checkpoint")
        for _ in range(12):
            await run.cluster.sees(handle, 1, running=2)
        run.cluster.saves = saved()
        status = await run.reach(handle, "Suspended")
        assert (status.checkpoint.number, status.checkpoint.state) == (1, "Complete")
        await ended(run, handle)


async def test_J3_one_that_is_asked_for_runs_on_and_a_second_meanwhile_is_refused(environment: Environment):
    async with environment() as run:
        handle = await run.start(saving())
        await run.running(handle)
        ask = CheckpointAsk(note="nightly").model_dump(mode="json")
        assert await handle.execute_update(names.UPDATE_CHECKPOINT, ask, result_type=int) == 1
        await run.entered("checkpoint")
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await handle.execute_update(names.UPDATE_CHECKPOINT, ask, result_type=int)
        assert "under way already" in str(refused.value.cause)
        run.cluster.saves = saved("s3://nightly")
        status = await run.reach(handle, "Running", 1)
        assert status.saved.uri == "s3://nightly"
        await ended(run, handle)


async def test_J3_what_makes_no_checkpoints_refuses_to_be_asked(environment: Environment):
    async with environment() as run:
        handle = await run.start()
        await run.running(handle)
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await handle.execute_update(names.UPDATE_CHECKPOINT, CheckpointAsk().model_dump(mode="json"))
        assert "it has no checkpoint" in str(refused.value.cause)
        await ended(run, handle)
