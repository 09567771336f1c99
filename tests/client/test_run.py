"""Steering a run and asking it: with a worker, and without one."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client

from holdfast import AlreadyEnded, Holdfast, HoldfastError, Phase, PolicyChange, Workload, WorkloadFailed, names
from holdfast.cli.workloads.listing import Listing, Sort, select
from holdfast.cli.workloads.watch import follow
from holdfast.model import Observation, OperationKind, Reason, Source
from holdfast.model.calls.cluster import PlannedComponent
from holdfast.model.labels import KUEUE_QUEUE
from holdfast.policy.values.edit import edit
from holdfast.workflows import start
from tests.client.conftest import a_workload
from tests.e2e.ground.site import until
from tests.fakes.several import Cluster, working

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(300)]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


async def test_without_a_worker_the_memo_answers_and_says_so(holdfast: Holdfast, workload: Workload) -> None:
    run = await holdfast.submit(workload)
    view = await run.status()
    assert not view.fresh
    assert view.phase is Phase.PENDING
    assert "no worker has taken it" in view.status.message
    told = await run.explain()
    assert not told.fresh
    assert told.explanation.phase is Phase.PENDING


async def test_what_was_submitted_is_read_without_a_worker(holdfast: Holdfast, workload: Workload) -> None:
    run = await holdfast.submit(workload)
    found = await run.workload()
    assert (found.name, found.spec_hash()) == (workload.name, workload.spec_hash())
    assert found.uid == run.uid


async def test_a_life_with_suspend_resume_and_cancel(
    holdfast: Holdfast, client: Client, workload: Workload, cluster: Cluster
) -> None:
    async with working(client, cluster):
        run = await holdfast.submit(workload)
        await run.until(lambda status: status.phase is Phase.RUNNING)
        view = await run.status()
        assert view.fresh
        assert view.status.pods.running == 2

        suspended = await run.suspend("making room", wait=True)
        assert suspended.phase is Phase.SUSPENDED
        assert any(cause.message == "suspend was asked for: making room" for cause in (await run.history()).causes)

        assert (await run.resume(wait=True)).phase is Phase.RUNNING
        assert cluster.created[workload.name] == [1, 2]

        preempted = await run.preempt(wait=True)
        assert preempted.status.reason is Reason.PREEMPTED
        assert preempted.status.restarts == 0
        await run.resume(wait=True)

        cancelled = await run.cancel("no longer wanted", wait=True)
        assert cancelled.phase is Phase.CANCELLED
        assert (await run.result()).phase is Phase.CANCELLED
        assert (await run.closed()).phase is Phase.CANCELLED
        with pytest.raises(AlreadyEnded, match="Cancelled"):
            await run.suspend()


class Starting(Cluster):
    """A cluster in which the pods of an attempt after the first do not start."""

    def seen(
        self, uid: str, attempt: int, owner: str, plan: tuple[PlannedComponent, ...], *, live: bool
    ) -> Observation:
        found = super().seen(uid, attempt, owner, plan, live=live)
        if attempt == 1:
            return found
        waiting = {
            name: edit(one, pods=edit(one.pods, running=0, pending=one.pods.running))
            for name, one in found.components.items()
        }
        return edit(found, components=waiting)


async def test_E5_one_that_starts_is_not_taken_for_suspended_as_it_was_before(
    holdfast: Holdfast, client: Client, workload: Workload
) -> None:
    cluster = Starting()
    async with working(client, cluster):
        run = await holdfast.submit(workload)
        await run.until(lambda status: status.phase is Phase.RUNNING)
        await run.suspend("making room", wait=True)
        await run.resume()
        async with asyncio.timeout(30):
            view = await run.until(lambda status: status.phase is Phase.RESUMING)
        assert (view.status.attempt, view.status.unblock) == (2, "")
        cluster.stuck = asyncio.Event()
        for steer in (run.suspend, run.preempt):
            waits = asyncio.create_task(steer(wait=True))
            done, _ = await asyncio.wait([waits], timeout=2)
            assert not done, "its pods are there"
            waits.cancel()
        cluster.stuck.set()
        await run.until(lambda status: status.phase is Phase.SUSPENDED)
        assert (run.uid, 2) in cluster.removed
        await run.resume()
        async with asyncio.timeout(30):
            await run.until(lambda status: status.attempt == 3)
    view = await run.status()
    assert (view.fresh, view.phase, view.status.attempt) == (False, Phase.RESUMING, 3)
    assert (await run.explain()).explanation.why == "it is starting; what came before is recorded last"
    await run.handle.terminate()


async def test_whoever_waits_is_told_that_a_workload_is_held_and_what_a_person_can_do(
    holdfast: Holdfast, client: Client, workload: Workload, cluster: Cluster
) -> None:
    async with working(client, cluster):
        run = await holdfast.submit(workload)
        await run.until(lambda status: status.phase is Phase.RUNNING)
        await run.suspend(wait=True)
        cluster.removed.clear()  # What was proven gone is there again, as after a restoration.
        back = Observation(workload_uid=run.uid, attempt=1, owner_uid="", at=datetime.now(UTC), revision=1000)
        await run.handle.signal(names.SIGNAL_OBSERVE, back)
        await run.until(lambda status: status.reason is Reason.HELD, through_holds=True)
        said = f"is held until a person decides: .*restored.*`holdfast retry research/{workload.name}`"
        with pytest.raises(HoldfastError, match=said):
            await run.resume(wait=True)
        again = await run.retry(wait=True)
        assert (await again.status()).status.attempt == 2


async def test_one_that_kueue_counts_as_finished_is_not_tried_again(
    holdfast: Holdfast, client: Client, cluster: Cluster
) -> None:
    cluster.failing = "OOMKilled"
    plain = a_workload()
    budgets = tuple(budget.model_copy(update={"limit": 0}) for budget in plain.policy.budgets)
    kept = plain.policy.timings.model_copy(update={"deletion_on_failure_grace_period": timedelta(hours=1)})
    policy = plain.policy.model_copy(update={"budgets": budgets, "timings": kept})
    for labels in ({KUEUE_QUEUE: "team"}, {}):
        source = Source(**{**dict(plain.source), "generation": 1, "labels": labels})
        spec = a_workload(uid=str(uuid4()), policy=policy, source=source)
        async with working(client, cluster):
            await client.start_workflow(names.WORKLOAD_WORKFLOW, **start.options(spec, again=False))
            run = await holdfast.get(spec.name, spec.namespace, spec.cluster)
            await run.until(lambda status: status.phase is Phase.FAILED, through_ends=True)
            if labels:
                with pytest.raises(HoldfastError, match="its quota as free: delete the AppWrapper, and apply it"):
                    await run.retry()
            else:
                await run.retry()
            await run.handle.terminate("for the test")


async def test_the_result_comes_at_the_outcome_and_not_after_the_ttl(
    holdfast: Holdfast, client: Client, workload: Workload, cluster: Cluster
) -> None:
    cluster.complete = True
    async with working(client, cluster):
        run = await holdfast.submit(workload)
        async with asyncio.timeout(90):
            assert (await run.result()).phase is Phase.SUCCEEDED
        assert not (await run.recorded()).closed
        await run.cancel()
        async with asyncio.timeout(90):
            await run.closed()


async def test_a_failed_workload_raises_and_says_why(holdfast: Holdfast, client: Client, cluster: Cluster) -> None:
    cluster.failing = "OOMKilled"
    workload = a_workload()
    budgets = tuple(budget.model_copy(update={"limit": 0}) for budget in workload.policy.budgets)
    workload = workload.model_copy(update={"policy": workload.policy.model_copy(update={"budgets": budgets})})
    async with working(client, cluster):
        run = await holdfast.submit(workload)
        async with asyncio.timeout(30):
            with pytest.raises(WorkloadFailed, match="137"):
                await run.result()
            with pytest.raises(WorkloadFailed):
                await run.closed()
        with pytest.raises(HoldfastError, match="ended Failed before"):
            await run.until(lambda status: status.phase is Phase.SUSPENDED)


async def test_explain_shows_what_removal_waits_for(
    holdfast: Holdfast, client: Client, workload: Workload, cluster: Cluster
) -> None:
    cluster.stuck = asyncio.Event()
    async with working(client, cluster):
        run = await holdfast.submit(workload)
        await run.until(lambda status: status.phase is Phase.RUNNING)
        await run.suspend()
        async with asyncio.timeout(90):
            while True:
                told = await run.explain()
                if any(activity.heartbeat for activity in told.activities):
                    break
                await asyncio.sleep(0.2)
        assert told.fresh
        waiting = told.activities[0]
        assert waiting.type == OperationKind.REMOVE
        said = waiting.sentence(datetime.now(UTC))
        assert said == "1 of 2 pods left: Pod worker-0 (finalizer example.com/hold)"
        cluster.stuck.set()
        await run.until(lambda status: status.phase is Phase.SUSPENDED)
        await run.cancel(wait=True)


async def test_a_policy_change_is_answered(
    holdfast: Holdfast, client: Client, workload: Workload, cluster: Cluster
) -> None:
    async with working(client, cluster):
        run = await holdfast.submit(workload)
        policy = await run.update_policy(PolicyChange(budgets={"restart": 7}))
        assert policy.budget("restart").limit == 7
        with pytest.raises(HoldfastError, match=r"budgets\.nonsense"):
            await run.update_policy(PolicyChange(budgets={"nonsense": 7}))
        await run.cancel(wait=True)


async def test_a_workflow_ended_from_outside_is_said_so(holdfast: Holdfast, workload: Workload) -> None:
    run = await holdfast.submit(workload)
    await run.handle.terminate("for the test")
    with pytest.raises(HoldfastError, match="terminated in Temporal"):
        await run.result()


async def test_a_workflow_ended_from_outside_is_said_so_although_a_worker_answers_for_it(
    holdfast: Holdfast, client: Client, workload: Workload, cluster: Cluster
) -> None:
    """Temporal has workers answer queries of closed workflows, as of the moment before the end."""
    async with working(client, cluster):
        run = await holdfast.submit(workload)
        await run.until(lambda status: status.phase is Phase.RUNNING)
        await run.handle.terminate("for the test")
        for told in (run.status, run.explain, lambda: follow(run)):
            async with asyncio.timeout(90):
                with pytest.raises(HoldfastError, match=r"terminated in Temporal.*`holdfast sweep` removes them"):
                    await told()
        assert await run.silence() is None


async def test_after_a_reset_in_temporal_the_end_of_the_run_that_goes_on_is_waited_for(
    holdfast: Holdfast, client: Client, cluster: Cluster
) -> None:
    async with working(client, cluster):
        run = await holdfast.submit(a_workload(namespace="reset"))
        await run.until(lambda status: status.phase is Phase.RUNNING)
        assert run.run_id
        over = asyncio.create_task(run.closed())
        done = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
        first = await anext(one.event_id async for one in run.handle.fetch_history_events() if one.event_type == done)
        await client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=client.namespace,
                workflow_execution=WorkflowExecution(workflow_id=run.workflow_id, run_id=run.run_id),
                reason="for the test",
                workflow_task_finish_event_id=first,
                request_id=uuid4().hex,
            )
        )
        await asyncio.sleep(2)
        assert not over.done()
        await run.cancel("enough")
        assert (await over).phase is Phase.CANCELLED

        listing = Listing(())

        async def are_listed() -> bool:
            nonlocal listing
            listing = await select(holdfast, Sort.AGE, namespace="reset", running=False)
            return sorted(one.execution for one in listing.found) == ["Completed", "Terminated"]

        await until(are_listed, 90, lambda: f"both runs are listed as over: {listing.found}")
        assert listing.notes(100) == []
        told = await run.history()
        assert (told.phase, told.outcome) == (Phase.CANCELLED, Phase.CANCELLED)
        account = await holdfast.account(namespace="reset")
        assert [one.name for one in account.workloads] == [run.name]


async def test_a_workload_that_ended_by_itself_still_explains_itself(
    holdfast: Holdfast, client: Client, workload: Workload, cluster: Cluster
) -> None:
    async with working(client, cluster):
        run = await holdfast.submit(workload)
        await run.until(lambda status: status.phase is Phase.RUNNING)
        await run.cancel("no longer wanted", wait=True)
        await run.closed()
        view, told = await run.status(), await run.explain()
        assert (view.fresh, view.phase) == (True, Phase.CANCELLED)
        assert (told.fresh, told.closed, told.explanation.phase) == (True, True, Phase.CANCELLED)
        assert "no longer wanted" in told.explanation.why
        assert await follow(run)


async def test_a_document_that_is_no_workload_is_refused_with_its_field(holdfast: Holdfast, client: Client) -> None:
    """As another SDK might start it."""
    name = a_workload().name
    async with working(client, Cluster()):
        await client.start_workflow(
            names.WORKLOAD_WORKFLOW,
            {"name": name, "cluster": "dev", "components": []},
            id=f"workload/dev/default/{name}",
            task_queue=names.QUEUE_WORKFLOWS,
        )
        run = await holdfast.get(name)
        with pytest.raises(HoldfastError, match="was refused: InvalidWorkload: components"):
            await run.closed()
