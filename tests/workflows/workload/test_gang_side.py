"""A workload's workflow and its gang: a rendezvous is told of each attempt and of its end, and its word is heard."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError

from holdfast import names
from holdfast.model import Workload
from holdfast.model.entities.queue import QueueOrder
from holdfast.model.gang.orders import GangEnding, GangOutcome
from holdfast.model.gang.state import Gang
from holdfast.model.gang.status import CloseReason
from holdfast.profiles.torchelastic import POLICY
from tests.e2e.ground.site import until
from tests.policy.lives.life import workload
from tests.workflows.conftest import SCALED, Run
from tests.workflows.workload.test_workload import replays

pytestmark = pytest.mark.e2e
Environment = Callable[..., Any]
ROW = pytest.mark.row


def elastic(**gang: Any) -> Workload:
    spec = workload(2, policy=POLICY.model_copy(update={"timings": SCALED}))
    return spec.model_copy(update={"gang": Gang(**{"min": 2, "max": 3, **gang})})


async def word(handle: WorkflowHandle[Any, Any], attempt: int, ending: GangEnding, reason: CloseReason) -> None:
    """Say what a gang came to, as its rendezvous does."""
    uid = (await handle.describe()).run_id
    came = GangOutcome(
        workload_uid=uid,
        attempt=attempt,
        ending=ending,
        reason=reason,
        why="in words",
        at=datetime.now(UTC),
        member="train-0-x",
    )
    await handle.signal(names.SIGNAL_GANG, came)


async def begun(run: Run, attempt: int) -> None:
    for _ in range(1000):
        if run.cluster.begun and run.cluster.begun[-1].attempt == attempt:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"attempt {attempt} was not told: {run.cluster.begun}")


async def parted(handle: WorkflowHandle[Any, Any]) -> list[str]:
    """Return to which workflows it has said that an attempt ends."""
    begun = EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED
    told = [one async for one in handle.fetch_history_events() if one.event_type == begun]
    sent = [one.signal_external_workflow_execution_initiated_event_attributes for one in told]
    assert {one.signal_name for one in sent} <= {names.SIGNAL_END}
    return [one.workflow_execution.workflow_id for one in sent]


@ROW("T1", level="e2e")
async def test_T1_it_is_told_of_its_attempt_succeeds_by_its_word_and_says_that_it_ends(environment: Environment):
    async with environment() as run:
        handle = await run.start(elastic())
        status = await run.running(handle)
        assert status.gang is not None
        assert (status.gang.min, status.gang.max) == (2, 3)
        await begun(run, 1)
        (told,) = run.cluster.begun
        assert (told.workload, told.workflow_id, told.gang) == ("train-llm", handle.id, elastic().gang)
        await word(handle, 1, GangEnding.SUCCEEDED, CloseReason.SUCCEEDED)
        assert (await handle.result()).phase == "Succeeded"
        # There is no such workflow here: that is no error.
        assert await parted(handle) == [names.rendezvous_id(run.name, "default", "train-llm")]
        await replays(handle)


@ROW("T9", level="e2e")
async def test_T9_a_loss_is_made_good_by_the_next_attempt_and_charged_once(environment: Environment):
    async with environment() as run:
        handle = await run.start(elastic(max_restarts=0))
        await run.running(handle)
        await begun(run, 1)
        await word(handle, 1, GangEnding.LOST, CloseReason.MEMBER_LOST)
        status = await run.running(handle, 2)
        assert {one.name: one.used for one in status.budgets} == {"restart": 1}
        await begun(run, 2)
        # What comes late of the attempt before is nothing to this one.
        await word(handle, 1, GangEnding.FAILED, CloseReason.JOIN_TIMEOUT)
        await handle.signal(names.SIGNAL_CANCEL, "enough")
        assert (await handle.result()).restarts == 1
        assert len(await parted(handle)) == 2
        await replays(handle)


@ROW("T6", level="e2e")
async def test_T6_it_is_scaled_while_it_runs_and_a_later_attempt_has_that_size(environment: Environment):
    async with environment() as run:
        handle: Any = await run.start(elastic())
        await run.running(handle)
        await begun(run, 1)
        assert await handle.execute_update(names.UPDATE_SCALE, {"max": 5}, result_type=dict) == {"min": 2, "max": 5}
        await run.entered("scale")
        (asked,) = run.cluster.scaled
        assert (asked.min, asked.max, asked.pods, asked.component) == (2, 5, 5, "train")
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await handle.execute_update(names.UPDATE_SCALE, {"max": 2, "min": 3})
        assert "expected at most max, 2" in str(refused.value.cause)
        await word(handle, 1, GangEnding.LOST, CloseReason.MEMBER_LOST)
        await run.running(handle, 2)
        await begun(run, 2)
        assert run.cluster.begun[-1].gang.max == 5
        assert len(run.cluster.scaled) == 1, "it was made with that size"
        await handle.signal(names.SIGNAL_CANCEL)
        await handle.result()
        await replays(handle)


@ROW("L9", level="e2e")
async def test_L9_a_gang_grows_no_further_than_its_queue_has_admitted(environment: Environment):
    async with environment() as run:
        spec = elastic().model_copy(update={"queue": "gpus", "queued": True})
        handle: Any = await run.start(spec)

        async def has_asked() -> bool:
            return "is not there" in (await run.status(handle)).message

        await until(has_asked, 60, "its queue is asked")  # An order that comes before that is of no turn.
        order = QueueOrder(uid=(await handle.describe()).run_id, turn=1, admit=True, why="queue gpus lets it in")
        await handle.signal(names.SIGNAL_QUEUE, order)
        await run.running(handle)
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await handle.execute_update(names.UPDATE_SCALE, {"max": 5})
        assert "max: 5: it would request 5 pods: expected at most 3 pods" in str(refused.value.cause)
        assert await handle.execute_update(names.UPDATE_SCALE, {"max": 2}, result_type=dict) == {"min": 2, "max": 2}
        await handle.signal(names.SIGNAL_CANCEL)
        await handle.result()
        await replays(handle)


@ROW("S8", level="e2e")
@ROW("T6", level="e2e")
async def test_S8_a_file_with_the_size_before_it_was_scaled_changes_what_its_members_are(environment: Environment):
    async with environment() as run:
        handle: Any = await run.start(elastic())
        await run.running(handle)
        await handle.execute_update(names.UPDATE_SCALE, {"max": 6, "min": 3}, result_type=dict)
        assert await run.reconfigure(handle, "v2") == ["train"]
        assert await run.reconfigure(handle, "v2") == []
        await handle.signal(names.SIGNAL_CANCEL)
        await handle.result()
        await replays(handle)


@ROW("D40", level="e2e")
async def test_D40_after_a_refusal_the_document_has_the_size_that_job_and_rendezvous_keep(environment: Environment):
    async with environment() as run:
        handle: Any = await run.start(elastic())
        await run.running(handle)
        await begun(run, 1)
        run.cluster.scale_refused = "Job train: too large"
        assert await handle.execute_update(names.UPDATE_SCALE, {"max": 5}, result_type=dict) == {"min": 2, "max": 5}
        await run.entered("scale")

        async def told() -> bool:
            return any(
                "keeps its size: Job train: too large" in one.message for one in (await run.status(handle)).causes
            )

        for _ in range(500):
            if await told():
                break
            await asyncio.sleep(0.02)
        assert await told()
        status = await run.status(handle)
        assert status.gang is not None
        assert (status.gang.min, status.gang.max) == (2, 3)
        await word(handle, 1, GangEnding.LOST, CloseReason.MEMBER_LOST)
        await run.running(handle, 2)
        await begun(run, 2)
        assert run.cluster.begun[-1].gang.max == 3, "the next attempt has the size that was kept, too"
        await handle.signal(names.SIGNAL_CANCEL)
        await handle.result()
        await replays(handle)


async def test_what_is_told_goes_on_in_the_next_run(environment: Environment):
    async with environment(suggest=40) as run:
        handle = await run.start(elastic())
        await run.running(handle)
        await begun(run, 1)
        first = (await handle.describe()).run_id
        again = run.client.get_workflow_handle(handle.id, result_type=type(await run.status(handle)))
        for number in range(60):
            await run.cluster.sees(again, 1, running=2)
            if (await again.describe()).run_id != first:
                break
            await asyncio.sleep(0.05 * (number % 3))
        assert (await again.describe()).run_id != first
        assert {one.attempt for one in run.cluster.begun} == {1}
        await again.signal(names.SIGNAL_CANCEL)
        assert (await again.result()).phase == "Cancelled"
        assert await parted(again) == [names.rendezvous_id(run.name, "default", "train-llm")]
