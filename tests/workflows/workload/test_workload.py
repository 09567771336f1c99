"""The workload workflow on a real Temporal server: what it carries out, in which order, and that histories replay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowFailureError, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError, CancelledError
from temporalio.worker import Replayer

from holdfast import names
from holdfast.formats import read
from holdfast.model import Bounded, Checkpoint, CheckpointProtocol, Explanation, Policy, Status
from holdfast.plugin import HoldfastPlugin
from holdfast.policy.values.edit import edit
from tests.e2e.ground.site import asked
from tests.policy.lives.life import workload
from tests.workflows.conftest import SCALED

pytestmark = pytest.mark.e2e
Environment = Callable[..., Any]


async def replays(handle: WorkflowHandle[Any, Any]) -> None:
    """Every history that a test has written must replay."""
    history = await handle.fetch_history()
    await Replayer(workflows=[], plugins=[HoldfastPlugin(["workflows"])]).replay_workflow(history)


async def events(handle: WorkflowHandle[Any, Any]) -> int:
    """Return how many events there are once nothing is under way any more."""
    while True:
        history = (await handle.fetch_history()).events
        pending = (await handle.describe()).raw_description
        same = pending.workflow_execution_info.history_length == len(history)
        resting = same and history[-1].event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
        closed = (await handle.describe()).close_time is not None
        if closed or (resting and not pending.pending_activities and not pending.HasField("pending_workflow_task")):
            return len(history)
        await asyncio.sleep(0.05)


async def test_happy_path_within_its_history_budget(environment: Environment):
    async with environment() as run:
        run.cluster.at_once = True
        handle = await run.start(client=True)
        await run.running(handle)
        await run.entered("report")
        await run.cluster.sees(handle, 1, succeeded=2, complete=True)
        result = await handle.result()
        assert result.phase == "Succeeded"
        assert run.cluster.entered == ["prepare", "report", "remove"]
        assert run.cluster.reports[-1].phase == "Succeeded"
        count = await events(handle)
        print(f"MEASURED {count} events of a happy life")
        assert count <= 50, count
        await replays(handle)


async def test_what_a_preparation_did_not_create_is_created_after_it(environment: Environment):
    async with environment() as run:
        handle = await run.start()
        await run.running(handle)
        assert run.cluster.entered[:2] == ["prepare", "create"]
        await handle.signal(names.SIGNAL_CANCEL)
        await handle.result()
        await replays(handle)


async def test_reset_within_its_history_budget(environment: Environment):
    async with environment() as run:
        run.cluster.at_once = True
        handle = await run.start(client=True)
        await run.running(handle)
        before = await events(handle)
        await run.cluster.sees(handle, 1, running=1, failed=1)
        await run.reach(handle, "Resetting")
        await run.running(handle, 2)
        await run.entered("report", 2)
        used = await events(handle) - before
        print(f"MEASURED {used} events of a reset")
        assert used <= 45, used
        assert run.cluster.overlaps == 0
        await run.cluster.sees(handle, 2, succeeded=2, complete=True)
        result = await handle.result()
        assert (result.restarts, result.executions) == (1, 2)
        await replays(handle)


async def test_forced_deletion(environment: Environment):
    async with environment() as run:
        run.cluster.stubborn = True
        handle = await run.start()
        await run.running(handle)
        await run.cluster.sees(handle, 1, failed=1, job_failed=True)
        await run.running(handle, 2)
        assert run.cluster.entered.count("force_remove") == 1
        await handle.signal(names.SIGNAL_CANCEL, "enough")
        assert (await handle.result()).phase == "Cancelled"
        await replays(handle)


@pytest.mark.parametrize("signal", [names.SIGNAL_SUSPEND, names.SIGNAL_PREEMPT, names.SIGNAL_CANCEL])
@pytest.mark.parametrize("gate", ["prepare", "create", "observe", "remove", "report"])
async def test_obeyed_while_an_activity_is_under_way(environment: Environment, gate: str, signal: str):
    async with environment() as run:
        run.cluster.close(gate)
        handle = await run.start()
        if gate in {"observe", "remove"}:
            await run.running(handle)
            await run.cluster.sees(handle, 1, failed=1, job_failed=True)
        elif gate == "report":
            await run.running(handle)
        await run.entered(gate)
        await handle.signal(signal, "now")
        if gate == "remove":
            run.cluster.open(gate)
        if signal == names.SIGNAL_CANCEL:
            assert (await handle.result()).phase == "Cancelled"
        else:
            status = await run.reach(handle, "Suspended")
            assert status.reason == ("Preempted" if signal == names.SIGNAL_PREEMPT else "SuspendRequested")
            assert not run.cluster.alive
            run.cluster.gates.clear()
            await handle.signal(names.SIGNAL_RESUME)
            await run.running(handle, 2)
            await handle.signal(names.SIGNAL_CANCEL)
            assert (await handle.result()).phase == "Cancelled"
        assert run.cluster.overlaps == 0
        assert not run.cluster.alive
        await replays(handle)


async def test_native_cancellation_is_cancel(environment: Environment):
    async with environment() as run:
        handle = await run.start()
        await run.running(handle)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as error:
            await handle.result()
        assert isinstance(error.value.cause, CancelledError)
        assert not run.cluster.alive
        assert run.cluster.reports[-1].phase == "Cancelled"
        await replays(handle)


async def test_failure_says_why_and_carries_the_status(environment: Environment):
    async with environment() as run:
        spec = workload(timings=SCALED.model_dump())
        budget = spec.policy.budgets[0].model_copy(update={"limit": 0})
        spec = spec.model_copy(update={"policy": spec.policy.model_copy(update={"budgets": (budget,)})})
        handle = await run.start(spec)
        await run.running(handle)
        await run.cluster.sees(handle, 1, failed=1, job_failed=True)
        with pytest.raises(WorkflowFailureError) as error:
            await handle.result()
        cause = error.value.cause
        assert isinstance(cause, ApplicationError)
        assert cause.type == names.ERROR_WORKLOAD_FAILED
        assert "BackoffLimitExceeded" in cause.message
        assert Status.model_validate(cause.details[0]).phase == "Failed"
        assert not run.cluster.alive
        await replays(handle)


def rerun() -> dict[str, Any]:
    """Return sensitive work whose kubelet runs an init container again, as somebody sends it to Temporal (row D5)."""
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "c", "namespace": "b", "annotations": {"holdfast.dev/sensitive": "true"}},
        "spec": {"template": {"spec": {"containers": [{"name": "main", "image": "i"}]}}},
    }
    (found,) = read([job], cluster="a")
    document = found.model_dump(mode="json", by_alias=True)
    pod = document["components"][0]["template"]["spec"]["template"]["spec"]
    pod["initContainers"] = [{"name": "first", "image": "i", "restartPolicy": "OnFailure"}]
    return document


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"name": "x"}, "components"),
        ([1, 2], "workload"),
        ("text", "workload"),
        ({"name": "X!", "cluster": "c", "components": []}, "name"),
        (rerun(), "components[0].template.spec.template.spec.initContainers[0].restartPolicy: 'OnFailure'"),
    ],
)
async def test_an_invalid_document_is_refused_by_field(environment: Environment, document: Any, said: str):
    async with environment() as run:
        handle = await run.client.start_workflow(
            names.WORKLOAD_WORKFLOW, document, id="workload/a/b/c", task_queue=names.QUEUE_WORKFLOWS
        )
        with pytest.raises(WorkflowFailureError) as error:
            await handle.result()
        assert isinstance(error.value.cause, ApplicationError)
        assert error.value.cause.type == names.ERROR_INVALID_WORKLOAD
        assert said in error.value.cause.message
        assert run.cluster.entered == []


async def test_continue_as_new_at_any_point_loses_nothing(environment: Environment):
    async with environment(suggest=15) as run:
        handle = await run.start()
        await run.running(handle)
        for attempt in (1, 2):
            await run.cluster.sees(handle, attempt, running=1, failed=1)
            await run.running(handle, attempt + 1)
        await handle.signal(names.SIGNAL_SUSPEND)
        await run.reach(handle, "Suspended")
        await handle.signal(names.SIGNAL_RESUME)
        status = await run.running(handle, 4)
        assert (status.restarts, status.executions) == (2, 4)
        assert status.budgets[0].used == 2
        run.cluster.stubborn = True
        await run.cluster.sees(handle, 4, failed=1, job_failed=True)
        await run.running(handle, 5)
        await run.cluster.sees(handle, 5, succeeded=2, complete=True)
        assert (await handle.result()).restarts == 3
        runs = 0
        async for execution in run.client.list_workflows(f'WorkflowId = "{handle.id}"'):
            runs += 1
            await replays(run.client.get_workflow_handle(execution.id, run_id=execution.run_id))
        assert runs >= 4
        assert run.cluster.overlaps == 0


async def test_what_was_started_with_its_document_alone_keeps_its_memo_through_continue_as_new(
    environment: Environment,
):
    async with environment(suggest=15) as run:
        saves = Checkpoint(protocol=CheckpointProtocol.ANNOTATION)
        spec = edit(workload(timings=SCALED.model_dump(by_alias=False)), checkpoint=saves, labels={"team": "a"})
        handle = await run.start(spec)
        first = (await handle.describe()).run_id
        await run.running(handle)
        for attempt in (1, 2):
            await run.cluster.sees(handle, attempt, running=1, failed=1)
            await run.running(handle, attempt + 1)
        described = await handle.describe()
        assert described.run_id != first
        memo = await described.memo()
        assert (memo[names.MEMO_UID], memo[names.MEMO_KIND]) == (first, spec.source.kind)
        assert (memo[names.MEMO_SAVES], memo[names.MEMO_LABELS]) == (True, {"team": "a"})
        second = run.client.get_workflow_handle(handle.id, run_id=described.run_id)
        begun = await anext(aiter(second.fetch_history_events()))
        carried = begun.workflow_execution_started_event_attributes.memo.fields
        assert {names.MEMO_UID, names.MEMO_STATUS} <= set(carried), "it is listed as what it is from its first moment"
        await handle.signal(names.SIGNAL_CANCEL)
        await handle.result()
        await replays(handle)


async def test_the_same_without_a_workflow_cache(environment: Environment):
    async with environment(cached=0) as run:
        handle = await run.start()
        await run.running(handle)
        await run.cluster.sees(handle, 1, running=1, failed=1)
        await run.running(handle, 2)
        await run.cluster.sees(handle, 2, succeeded=2, complete=True)
        assert (await handle.result()).phase == "Succeeded"


async def test_policy_update_is_checked_then_in_force(environment: Environment):
    async with environment() as run:
        handle = await run.start(failure_grace_period=timedelta(hours=1))
        await run.running(handle)
        for bad, says in (
            ({"timings": {"nope": "1s"}}, "timings.nope: expected one of"),
            ({"budgets": {"restart": -1}}, "budgets"),
            ({"timings": {"retryPausePeriod": "soon"}}, "'soon' is not a duration"),
            ({"ruleLimits": {"nope": 1}}, "ruleLimits.nope: expected a rule that restarts"),
            ({"success": {"operator": "Any"}}, "success: cannot be changed under way"),
        ):
            with pytest.raises(WorkflowUpdateFailedError) as refused:
                await handle.execute_update(names.UPDATE_POLICY, bad)
            assert says in str(refused.value.cause), refused.value.cause
        await run.cluster.sees(handle, 1, running=1, failed=1)
        await asyncio.sleep(0.3)
        assert (await run.status(handle)).phase == "Running"
        policy = await handle.execute_update(
            names.UPDATE_POLICY, {"timings": {"failureGracePeriod": "0s"}}, result_type=Policy
        )
        assert policy.timings.failure_grace_period == timedelta(0)
        await run.running(handle, 2)
        await handle.signal(names.SIGNAL_CANCEL)
        await handle.result()
        await replays(handle)


async def test_L18_a_walltime_is_extended_within_bounds_and_two_at_once_are_judged_one_after_the_other(
    environment: Environment,
):
    async with environment() as run:
        bounded = Bounded(walltime=timedelta(hours=1), extendable_to=timedelta(hours=2))
        handle = await run.start(spec=workload(lifecycle=bounded, policy=Policy(timings=SCALED)))
        before = await run.running(handle)
        asked = [handle.execute_update(names.UPDATE_EXTEND, {"by": "40m"}, result_type=Status) for _ in range(2)]
        told = await asyncio.gather(*asked, return_exceptions=True)
        (after,) = [one for one in told if isinstance(one, Status)]
        (refused,) = [one for one in told if isinstance(one, WorkflowUpdateFailedError)]
        assert "the walltime would be 2h20m, and lifecycle.extendableTo allows 2h" in str(refused.cause)
        assert before.walltime_until is not None
        assert after.walltime_until == before.walltime_until + timedelta(minutes=40)
        await handle.signal(names.SIGNAL_REQUEUE, {"expectedRequeueCount": -1})
        await handle.signal(names.SIGNAL_REQUEUE, "nonsense")
        await handle.signal(names.SIGNAL_REQUEUE, {"expectedRequeueCount": 0, "node": "node-7"})
        await run.running(handle, 2)
        await handle.signal(names.SIGNAL_CANCEL)
        status = await handle.result()
        assert [one.reason for one in status.causes].count("RequeueRequested") == 1
        await replays(handle)


async def test_memo_search_attributes_and_summaries_speak_for_themselves(environment: Environment):
    async with environment() as run:
        handle = await run.start(failure_grace_period=timedelta(minutes=10))
        await run.running(handle)
        await run.cluster.sees(handle, 1, running=1, failed=1)
        await asyncio.sleep(0.3)
        explanation = await asked(lambda: handle.query(names.QUERY_EXPLAIN, result_type=Explanation))
        assert "train-0 exited 1 on node-7" in explanation.why
        assert "failure grace" in explanation.next[0].what
        described = await handle.describe()
        memo = await described.memo()
        assert memo[names.MEMO_STATUS]["phase"] == "Running"
        assert described.typed_search_attributes[_keyword(names.SA_PHASE)] == "Running"
        assert described.typed_search_attributes[_keyword(names.SA_NAME)] == "train-llm"
        history = await handle.fetch_history()
        summaries: list[str] = []
        for event in history.events:
            if event.event_type in {
                EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
                EventType.EVENT_TYPE_TIMER_STARTED,
            }:
                summaries.append(event.user_metadata.summary.data.decode())
        assert all(summaries), summaries
        assert any("failure grace" in each for each in summaries)


async def test_a_malformed_signal_harms_nothing(environment: Environment):
    async with environment() as run:
        handle = await run.start()
        await run.running(handle)
        await handle.signal(names.SIGNAL_OBSERVE, "nonsense")
        await handle.signal(names.SIGNAL_OBSERVE, {"workloadUid": 3})
        assert (await run.status(handle)).phase == "Running"
        await handle.signal(names.SIGNAL_CANCEL)
        assert (await handle.result()).phase == "Cancelled"


def _keyword(name: str) -> Any:
    from temporalio.common import SearchAttributeKey

    return SearchAttributeKey.for_keyword(name)
