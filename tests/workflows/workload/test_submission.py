"""Submission on a real Temporal server: interrupted, changed in place, made again alone, held."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from temporalio.client import WorkflowUpdateFailedError

from holdfast import names
from holdfast.model import Explanation
from holdfast.policy.loop.change import ComponentsChange
from tests.e2e.ground.site import asked
from tests.policy.lives.life import workload
from tests.workflows.conftest import STREAMS
from tests.workflows.workload.test_workload import events, replays

pytestmark = pytest.mark.e2e
Environment = Callable[..., Any]


@pytest.mark.row("S4", level="e2e")
async def test_S4_an_interrupted_submission_is_removed_and_made_anew_as_often_as_it_takes(environment: Environment):
    async with environment() as run:
        run.cluster.interruptions = 2
        handle = await run.start(policy=STREAMS)
        status = await run.running(handle, 3)
        assert (status.executions, status.restarts, [each.used for each in status.budgets]) == (3, 0, [0])
        assert run.cluster.entered.count("remove") == 2
        assert run.cluster.overlaps == 0
        told = [event.reason for report in run.cluster.reports for event in report.events]
        assert told.count("SubmissionFailed") == 2
        assert told.count("SubmissionSucceeded") == 1
        await run.cluster.sees(handle, 3, succeeded=2, complete=True)
        await handle.result()
        await replays(handle)


@pytest.mark.row("S2", level="e2e")
async def test_S2_submitted_is_a_column_before_anything_runs(environment: Environment):
    async with environment() as run:
        handle = await run.start(admission_grace_period=timedelta(hours=1), warmup_grace_period=timedelta(hours=1))
        await run.submitted(handle)
        attributes = (await handle.describe()).typed_search_attributes
        found = {pair.key.name: pair.value for pair in attributes}
        assert (found[names.SA_SUBMITTED], found[names.SA_PHASE]) == (True, "Resuming")
        explained = await asked(lambda: handle.query(names.QUERY_EXPLAIN, result_type=Explanation))
        assert explained.now == "0 of 2 pods running"
        await handle.signal(names.SIGNAL_CANCEL)
        await handle.result()


@pytest.mark.row("S8", level="e2e")
async def test_S8_a_changed_component_is_made_again_alone(environment: Environment):
    async with environment() as run:
        handle = await run.start(policy=STREAMS)
        await run.running(handle)
        before = await events(handle)
        assert await run.reconfigure(handle, "v2") == ["train"]
        await run.entered("replace")
        await run.submitted(handle)
        await run.cluster.sees(handle, 1, running=2)
        status = await run.reach(handle, "Running", 1)
        print(f"MEASURED {await events(handle) - before} events for a change in place")
        assert run.cluster.replaced == [{"train": 1}]
        assert (status.attempt, status.restarts) == (1, 0)
        assert await run.reconfigure(handle, "v2") == [], "the same again is no change"
        await run.cluster.sees(handle, 1, succeeded=2, complete=True)
        await handle.result()
        await replays(handle)


@pytest.mark.row("S8", level="e2e")
async def test_S8_a_changed_component_is_still_known_after_continuing_as_new(environment: Environment):
    async with environment(suggest=20) as run:
        handle = await run.start(policy=STREAMS)
        await run.running(handle)
        await run.reconfigure(handle, "v2")
        await run.entered("replace")
        for _ in range(3):
            await run.cluster.sees(handle, 1, running=1)
            await run.cluster.sees(handle, 1, running=2)
        latest = run.client.get_workflow_handle(handle.id)
        assert await run.reconfigure(latest, "v2") == []
        assert run.cluster.replaced == [{"train": 1}]
        await latest.signal(names.SIGNAL_CANCEL)
        await handle.result()


@pytest.mark.row("S8", level="e2e")
@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("kind", "CronJob", "template.kind: expected 'Job' as before"),
        ("metadata", {"name": "other"}, "template.metadata.name: expected 'train' as before"),
    ],
)
async def test_S8_a_change_that_would_be_another_object_is_refused(
    environment: Environment, field: str, value: Any, told: str
):
    async with environment() as run:
        handle = await run.start()
        component = workload().components[0]
        changed = component.model_copy(update={"template": {**component.template, field: value}})
        change = ComponentsChange(components=(changed,)).model_dump(mode="json")
        with pytest.raises(WorkflowUpdateFailedError) as error:
            await handle.execute_update(names.UPDATE_COMPONENTS, change)
        assert told in str(error.value.cause)
        await handle.signal(names.SIGNAL_CANCEL)
        await handle.result()


@pytest.mark.row("D5", level="e2e")
async def test_D5_a_change_by_which_a_kubelet_would_run_sensitive_work_again_is_refused(environment: Environment):
    async with environment() as run:
        handle = await run.start(workload(sensitive=True))
        component = workload().components[0]
        first = {"name": "first", "image": "i", "restartPolicy": "OnFailure"}
        pods = {"spec": {"initContainers": [first], "containers": [{"name": "main", "image": "i"}]}}
        changed = component.model_copy(update={"template": {**component.template, "spec": {"template": pods}}})
        change = ComponentsChange(components=(changed,)).model_dump(mode="json")
        with pytest.raises(WorkflowUpdateFailedError) as error:
            await handle.execute_update(names.UPDATE_COMPONENTS, change)
        told = "components.train.template.spec.template.spec.initContainers[0].restartPolicy: 'OnFailure'"
        assert told in str(error.value.cause)
        await handle.signal(names.SIGNAL_CANCEL)
        await handle.result()


async def test_a_later_attempt_in_the_cluster_holds_it_until_a_person_says_retry(environment: Environment):
    async with environment() as run:
        handle = await run.start()
        await run.running(handle)
        run.cluster.foreign = 4
        await handle.signal(names.SIGNAL_SUSPEND, "make room")
        status = await run.reach(handle, "Pending")
        assert (status.reason, status.message) == ("Held", "the cluster holds attempt 4")
        await handle.signal(names.SIGNAL_RESUME)
        await handle.signal(names.SIGNAL_RETRY, "what is there may go")
        status = await run.running(handle, 5)
        assert status.restarts == 0
        await run.cluster.sees(handle, 5, succeeded=2, complete=True)
        await handle.result()
        await replays(handle)
