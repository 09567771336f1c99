"""One activity follows the steps of an attempt: begun and ended with it, and begun again after news (rows P1, P2)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowHandle

from holdfast import names
from holdfast.model import Action, Condition, FailureClass, Match, Policy, Progress, Rule, Workload
from holdfast.past.decode import read_run
from holdfast.past.story import story_of
from tests.policy.lives.life import RULES, workload
from tests.workflows.conftest import SCALED, Run
from tests.workflows.workload.test_workload import replays

pytestmark = pytest.mark.e2e
Environment = Callable[..., Any]


def training() -> Workload:
    return workload(policy=Policy(rules=RULES, timings=SCALED), progress=Progress())


async def followed(run: Run, times: int) -> None:
    """Wait until steps have begun to be followed so often."""
    for _ in range(3000):
        if len(run.cluster.follows) >= times:
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"followed {len(run.cluster.follows)} times, not {times}")


async def unhealthy(run: Run, handle: WorkflowHandle[Any, Any]) -> list[Condition]:
    """Return the condition Unhealthy, if it is true."""
    return [one for one in (await run.status(handle)).conditions if one.type == "Unhealthy" and one.status]


async def test_P2_a_stall_resets_and_the_next_attempt_knows_what_was_learned(environment: Environment):
    async with environment() as run:
        handle = await run.start(training())
        await run.running(handle)
        await followed(run, 1)
        run.cluster.hangs_in = 1
        status = await run.running(handle, 2)
        assert status.restarts == 1
        assert any("NoProgress: no new step for 5m (rule no-progress)" in one.message for one in status.causes)
        await followed(run, 2)
        first, second = run.cluster.follows[:2]
        assert (first.attempt, first.known, second.attempt) == (1, None, 2)
        assert second.known is not None
        await handle.signal(names.SIGNAL_CANCEL, "enough")
        assert (await handle.result()).phase == "Cancelled"
        await replays(handle)
        past = (await handle.fetch_history()).events
        story = story_of([await read_run(past, run.client.data_converter)])
        assert story.exact, "its past reads as it was lived"
        assert any("NoProgress" in told.cause.message for told in story.causes.values())


async def test_P2_a_stall_is_withdrawn_when_steps_go_on_and_the_history_replays(environment: Environment):
    rule = Rule(name="stall", match=Match(classes=(FailureClass.NO_PROGRESS,)), action=Action())
    patient = SCALED.model_copy(update={"failure_grace_period": timedelta(hours=1)})
    spec = workload(policy=Policy(rules=(rule,), timings=patient), progress=Progress())
    async with environment() as run:
        handle = await run.start(spec)
        await run.running(handle)
        run.cluster.hangs_in = 1
        await followed(run, 2)
        assert [one.stalled for one in run.cluster.follows] == [False, True]
        assert [one.message for one in await unhealthy(run, handle)] == ["NoProgress: no new step for 5m"]
        run.cluster.hangs_in = 0
        await followed(run, 3)
        assert not run.cluster.follows[2].stalled
        assert await unhealthy(run, handle) == []
        status = await run.status(handle)
        assert (status.phase, status.attempt, status.restarts) == ("Running", 1, 0)
        await handle.signal(names.SIGNAL_CANCEL, "enough")
        assert (await handle.result()).phase == "Cancelled"
        await replays(handle)
        story = story_of([await read_run((await handle.fetch_history()).events, run.client.data_converter)])
        assert story.exact, "its past reads as it was lived"


async def test_P1_each_news_costs_the_same_events_and_the_next_run_knows_what_was_learned(environment: Environment):
    async with environment(suggest=80) as run:
        run.cluster.news = 12
        handle = await run.start(training())
        first = (await handle.describe()).run_id
        await run.running(handle)
        await followed(run, 13)
        assert [one.known.step for one in run.cluster.follows[1:13] if one.known] == list(range(1, 13))
        again = run.client.get_workflow_handle(handle.id)
        assert (await again.describe()).run_id != first, "it has continued as new meanwhile"
        assert (await run.status(again)).steps.startswith("step 12 at ")
        past = await run.client.get_workflow_handle(handle.id, run_id=first).fetch_history()
        scheduled = [one.activity_task_scheduled_event_attributes.activity_type.name for one in past.events]
        assert len(past.events) <= 45 + 6 * scheduled.count(names.ACTIVITY_FOLLOW)
        await again.signal(names.SIGNAL_CANCEL)
        await again.result()
        await replays(run.client.get_workflow_handle(handle.id, run_id=first))
