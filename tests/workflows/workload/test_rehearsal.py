"""A change that is rehearsed before it is taken, on a real Temporal server: refused, overtaken, two at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from holdfast import names
from tests.workflows.conftest import STREAMS, Run
from tests.workflows.workload.test_workload import replays

pytestmark = pytest.mark.e2e
Environment = Callable[..., Any]
Handle = Any
REFUSAL = "spec.components[0].template.spec.text: is not valid (found 'v2')"


def told(error: WorkflowUpdateFailedError) -> str:
    assert isinstance(error.cause, ApplicationError)
    return error.cause.message


async def under_way(run: Run, handle: Handle, text: str) -> asyncio.Task[list[str]]:
    """Ask for a change, and return once the API server is being asked about it."""
    run.cluster.close("rehearse")
    asked = run.cluster.entered.count("rehearse")
    update = asyncio.create_task(run.reconfigure(handle, text))
    await run.entered("rehearse", asked + 1)
    return update


async def full(run: Run, handle: Handle, most: int) -> None:
    """Have so much come that its history is to be continued as new."""
    while (await handle.describe()).history_length < most:
        await run.cluster.sees(handle, 1, running=1, pending=1)
        await run.cluster.sees(handle, 1, running=2)


@pytest.mark.row("U14", level="e2e")
async def test_what_the_api_server_refuses_changes_nothing(environment: Environment):
    async with environment() as run:
        handle = await run.start(policy=STREAMS)
        before = await run.running(handle)
        memo = await (await handle.describe()).memo_value(names.MEMO_SPEC_HASH)
        run.cluster.refusal = REFUSAL
        with pytest.raises(WorkflowUpdateFailedError) as caught:
            await run.reconfigure(handle, "v2")
        assert told(caught.value) == REFUSAL
        status = await run.status(handle)
        assert (status.phase, status.causes_total) == (before.phase, before.causes_total)
        assert await (await handle.describe()).memo_value(names.MEMO_SPEC_HASH) == memo
        run.cluster.refusal = ""
        assert await run.reconfigure(handle, "v3") == ["train"]
        await run.entered("replace")
        assert run.cluster.rehearsed == ["v2", "v3"]
        await handle.signal(names.SIGNAL_CANCEL)
        await handle.result()
        await replays(handle)


@pytest.mark.row("S8", level="e2e")
async def test_two_changes_at_once_are_rehearsed_one_after_the_other(environment: Environment):
    async with environment() as run:
        handle = await run.start(policy=STREAMS)
        await run.running(handle)
        first = await under_way(run, handle, "v2")
        second = asyncio.create_task(run.reconfigure(handle, "v3"))
        same = asyncio.create_task(run.reconfigure(handle, "v3"))
        await asyncio.sleep(0.5)
        run.cluster.open("rehearse")
        assert await first == ["train"]
        assert sorted(await asyncio.gather(second, same)) == [[], ["train"]], "whichever came first"
        assert run.cluster.rehearsed == ["v2", "v3"]
        await run.submitted(handle)
        await handle.signal(names.SIGNAL_CANCEL)
        await handle.result()
        await replays(handle)


async def test_a_workload_that_is_deleted_meanwhile_takes_no_change(environment: Environment):
    async with environment() as run:
        handle = await run.start(policy=STREAMS)
        await run.running(handle)
        update = await under_way(run, handle, "v2")
        await handle.signal(names.SIGNAL_CANCEL)
        await run.entered("remove")
        run.cluster.open("rehearse")
        with pytest.raises(WorkflowUpdateFailedError) as caught:
            await update
        assert "nothing more is made of it: submit it anew instead" in told(caught.value)
        await handle.result()
        assert run.cluster.replaced == []
        await replays(handle)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_run_is_not_left_behind_with_a_rehearsal_under_way(environment: Environment, cancelled: bool):
    """Nor does a cancellation that comes meanwhile end it before its objects are gone."""
    async with environment(suggest=30) as run:
        handle = await run.start(policy=STREAMS)
        await run.running(handle)
        latest = run.client.get_workflow_handle(handle.id)
        update = await under_way(run, latest, "v2")
        begun = (await latest.describe()).run_id
        await full(run, latest, 40)
        assert (await latest.describe()).run_id == begun
        if cancelled:
            await latest.cancel()
            await asyncio.sleep(0.5)
        run.cluster.open("rehearse")
        assert await update == ["train"]
        if cancelled:
            assert (await handle.result()).phase == "Cancelled"
            assert (run.cluster.replaced, run.cluster.alive) == ([], set())
            return
        await run.entered("replace")
        assert run.cluster.replaced == [{"train": 1}]
        assert await run.reconfigure(latest, "v2") == []
        await latest.signal(names.SIGNAL_CANCEL)
        await handle.result()
