"""Submitting: what Temporal is told, and what happens where a workload of that name is or was there."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import uuid4

import pytest
from temporalio.client import Client
from temporalio.common import SearchAttributeKey

from holdfast import (
    AlreadyEnded,
    Holdfast,
    HoldfastError,
    InvalidWorkload,
    NotReachable,
    Phase,
    SpecConflict,
    Summary,
    Workload,
    WorkloadFailed,
    WorkloadNotFound,
    names,
)
from holdfast.cli.submission.apply import _apply  # pyright: ignore[reportPrivateUsage] - without its files
from holdfast.formats.jobset import reader
from holdfast.model import Source
from holdfast.model.entities.graph import Place
from holdfast.model.entities.queue import Queue
from holdfast.workflows import start
from holdfast.workflows.start import document, summary
from tests.client.conftest import a_workload
from tests.client.server import temporal_server
from tests.e2e.ground.site import until
from tests.e2e.peers.jobsets import jobset as manifest
from tests.e2e.peers.jobsets import replicated
from tests.fakes.several import Cluster, working

pytestmark = [pytest.mark.temporal, pytest.mark.timeout(90)]


async def test_a_start_tells_temporal_who_it_is(holdfast: Holdfast, workload: Workload) -> None:
    run = await holdfast.submit(workload)

    assert run.workflow_id == f"workload/dev/research/{workload.name}"
    description = await run.handle.describe()
    assert description.workflow_type == "Workload"
    assert description.task_queue == names.QUEUE_WORKFLOWS
    memo = await description.memo()
    assert memo[names.MEMO_UID] == run.uid
    assert memo[names.MEMO_KIND] == "AppWrapper"
    assert memo[names.MEMO_SPEC_HASH] == workload.spec_hash()
    columns = description.typed_search_attributes
    assert columns.get(SearchAttributeKey.for_keyword(names.SA_PHASE)) == "Pending"
    assert columns.get(SearchAttributeKey.for_keyword(names.SA_NAME)) == workload.name
    assert columns.get(SearchAttributeKey.for_int(names.SA_ATTEMPT)) == 0
    assert await description.static_summary() == (
        f"AppWrapper {workload.name}: 1 Job, 2 pods, in namespace research on cluster dev"
    )
    assert "holdfast explain" in (await description.static_details() or "")
    submitted = await run.submitted()
    assert submitted.uid == run.uid
    assert submitted.submitted_at is not None
    assert submitted.spec_hash() == workload.spec_hash()


async def test_the_same_workload_again_is_the_same_run(holdfast: Holdfast, workload: Workload) -> None:
    first = await holdfast.submit(workload)
    assert await holdfast.submit(workload) == first
    assert await holdfast.submit(workload, again=True) == first


async def test_another_workload_of_that_name_is_a_conflict(holdfast: Holdfast, workload: Workload) -> None:
    await holdfast.submit(workload)
    with pytest.raises(SpecConflict, match=f"{workload.name} runs already with another specification"):
        await holdfast.submit(workload.model_copy(update={"priority": 9}))


async def test_one_that_has_ended_runs_again_only_if_told(holdfast: Holdfast, workload: Workload) -> None:
    first = await holdfast.submit(workload)
    await first.handle.terminate("for the test")
    with pytest.raises(AlreadyEnded, match="--again"):
        await holdfast.submit(workload)
    with pytest.raises(HoldfastError, match=r"was terminated in Temporal.*`holdfast sweep`"):
        await _apply(holdfast, first, workload, "", dry_run=False)
    second = await holdfast.submit(workload, again=True)
    assert second.uid != first.uid
    assert second.run_id != first.run_id


async def test_one_that_has_ended_and_is_kept_runs_again_only_if_told(
    holdfast: Holdfast, client: Client, workload: Workload
) -> None:
    cluster = Cluster(complete=True)
    async with working(client, cluster):
        first = await holdfast.submit(workload)
        await first.until(lambda status: status.phase is Phase.SUCCEEDED)
        with pytest.raises(AlreadyEnded, match=r"has ended: Succeeded; .* --again"):
            await holdfast.submit(workload)
        assert not (await first.recorded()).closed
        second = await holdfast.submit(workload, again=True)
        assert second.uid != first.uid
        assert (await second.result()).phase is Phase.SUCCEEDED
        await second.cancel(wait=True)


async def test_D53_one_that_is_being_removed_is_waited_for_if_told_and_never_taken_for_the_new_run(
    holdfast: Holdfast, client: Client, workload: Workload
) -> None:
    cluster = Cluster(stuck=asyncio.Event())
    changed = workload.model_copy(update={"priority": 9})
    async with working(client, cluster):
        first = await holdfast.submit(workload)
        await first.until(lambda status: status.phase is Phase.RUNNING)
        await first.cancel("no longer wanted")
        await first.until(lambda status: status.phase is Phase.TERMINATING)
        for wanted in (workload, changed):
            with pytest.raises(HoldfastError, match=r"is being removed: submit it with --again"):
                await holdfast.submit(wanted)
            with pytest.raises(HoldfastError, match=r"is being removed: submit it with --again"):
                await _apply(holdfast, first, wanted, "", dry_run=False)
        again = asyncio.create_task(holdfast.submit(changed, again=True))
        done, _ = await asyncio.wait([again], timeout=2)
        assert not done, "its pods are not gone yet"
        assert cluster.stuck is not None
        cluster.stuck.set()
        second = await again
        assert second.uid != first.uid
        await second.until(lambda status: status.phase is Phase.RUNNING)
        assert (first.uid, 1) in cluster.removed
        await second.cancel(wait=True)


async def test_D53_one_that_was_cancelled_is_never_taken_for_the_new_run_before_a_worker_has_heard_of_it(
    holdfast: Holdfast, client: Client, workload: Workload
) -> None:
    first = await holdfast.submit(workload)
    await first.cancel("no longer wanted")
    with pytest.raises(HoldfastError, match=r"is being removed: submit it with --again"):
        await holdfast.submit(workload)
    with pytest.raises(HoldfastError, match=r"is being removed: submit it with --again"):
        await _apply(holdfast, first, workload, "", dry_run=False)
    again = asyncio.create_task(holdfast.submit(workload, again=True))
    async with working(client, Cluster()):
        second = await again
        assert second.uid != first.uid
        await second.until(lambda status: status.phase is Phase.RUNNING)
        await second.cancel(wait=True)


async def test_D53_one_that_was_cancelled_during_a_reset_is_never_taken_for_the_new_run(
    holdfast: Holdfast, client: Client, workload: Workload
) -> None:
    cluster = Cluster(failing="Error", stuck=asyncio.Event())
    async with working(client, cluster):
        first = await holdfast.submit(workload)
        await first.until(lambda status: status.phase is Phase.RESETTING)
        await first.cancel("no longer wanted")
        with pytest.raises(HoldfastError, match=r"is being removed: submit it with --again"):
            await holdfast.submit(workload)
        again = asyncio.create_task(holdfast.submit(workload, again=True))
        done, _ = await asyncio.wait([again], timeout=2)
        assert not done, "its pods are not gone yet"
        cluster.failing = ""
        assert cluster.stuck is not None
        cluster.stuck.set()
        second = await again
        assert second.uid != first.uid
        await second.until(lambda status: status.phase is Phase.RUNNING)
        await second.cancel(wait=True)


async def test_retry_after_the_end_runs_what_was_submitted(
    holdfast: Holdfast, client: Client, workload: Workload
) -> None:
    cluster = Cluster(complete=True)
    workload = a_workload(policy=workload.policy.model_copy(update={"timings": _no_ttl(workload)}))
    async with working(client, cluster):
        first = await holdfast.submit(workload)
        assert (await first.closed()).phase is Phase.SUCCEEDED
        second = await first.retry()
        assert second.uid != first.uid
        assert (await second.result()).phase is Phase.SUCCEEDED
        assert (await second.submitted()).spec_hash() == workload.spec_hash()


async def test_retry_of_one_that_has_succeeded_and_is_kept_removes_it_and_runs_it_once_more(
    holdfast: Holdfast, client: Client, workload: Workload
) -> None:
    cluster = Cluster(complete=True)
    async with working(client, cluster):
        first = await holdfast.submit(workload)
        assert (await first.result()).phase is Phase.SUCCEEDED
        assert not (await first.recorded()).closed, "its resources are kept"
        cluster.complete = False
        second = await first.retry(wait=True)
        assert second.uid != first.uid
        assert (first.uid, 1) in cluster.removed
        assert (await second.recorded()).phase is Phase.RUNNING
        assert await second.retry() == second, "there is nothing to retry, and it runs on"
        assert (await second.status()).status.attempt == 1
        await second.cancel(wait=True)


async def test_retry_of_one_that_has_failed_and_is_being_removed_is_refused_until_that_has_ended(
    holdfast: Holdfast, client: Client
) -> None:
    cluster = Cluster(failing="OOMKilled", stuck=asyncio.Event())
    plain = a_workload()
    budgets = tuple(budget.model_copy(update={"limit": 0}) for budget in plain.policy.budgets)
    workload = a_workload(policy=plain.policy.model_copy(update={"budgets": budgets}))
    async with working(client, cluster):
        first = await holdfast.submit(workload)
        await first.until(lambda status: status.phase is Phase.FAILED)
        with pytest.raises(HoldfastError, match="what is left of it is being removed: retry it once that has ended"):
            await first.retry()
        assert cluster.stuck is not None
        cluster.stuck.set()
        with pytest.raises(WorkloadFailed):
            await first.closed()
        cluster.failing = ""
        second = await first.retry(wait=True)
        assert second.uid != first.uid
        await second.cancel(wait=True)


async def test_retry_after_the_end_begins_no_stranger_to_a_custom_resource_or_a_graph(
    holdfast: Holdfast, client: Client
) -> None:
    source = Source(api_version="jobset.x-k8s.io/v1alpha2", kind="JobSet", generation=1)
    applied = a_workload(uid=str(uuid4()), source=source)
    member = a_workload(uid=str(uuid4()), graph=Place(graph="g", item="train"))
    remedies = ((applied, "delete the JobSet, and apply it again"), (member, "submit its graph again"))
    for one, remedy in remedies:
        await client.start_workflow(names.WORKLOAD_WORKFLOW, **start.options(one, again=False))
        run = await holdfast.get(one.name, one.namespace)
        await run.handle.terminate("for the test")
        with pytest.raises(HoldfastError, match=f"has ended: {remedy}"):
            await run.retry()
        assert (await holdfast.get(one.name, one.namespace)).uid == one.uid


async def test_L9_retry_after_the_end_asks_the_queue_that_is_there_by_then(holdfast: Holdfast, client: Client) -> None:
    cluster = f"dev-{uuid4().hex[:8]}"
    workload = a_workload(cluster=cluster, queue="gpus")
    first = await holdfast.submit(workload)
    await first.handle.terminate("for the test")
    queue = await holdfast.apply_queue(Queue(name="gpus", cluster=cluster, quota={"pods": "4"}))
    second = await first.retry()
    assert (await (await second.handle.describe()).memo())[names.MEMO_QUEUED] is True
    await second.handle.terminate("for the test")

    other = await holdfast.apply_queue(Queue(name="others", cluster=cluster, quota={"pods": "4"}))
    await client.get_workflow_handle(queue.workflow_id).terminate("for the test")

    async def listed() -> bool:
        return [one.name for one in await holdfast.queues(cluster)] == ["others"]

    await until(listed, 90, "Temporal lists the queue that is left")
    with pytest.raises(InvalidWorkload, match=r"no such admission queue.*others"):
        await second.retry()
    await client.get_workflow_handle(other.workflow_id).terminate("for the test")

    async def none() -> bool:
        return not await holdfast.queues(cluster)

    await until(none, 90, "Temporal lists no queue any more")
    third = await second.retry()
    assert names.MEMO_QUEUED not in await (await third.handle.describe()).memo()
    await third.handle.terminate("for the test")


async def test_get_finds_the_run_or_says_there_is_none(holdfast: Holdfast, workload: Workload) -> None:
    run = await holdfast.submit(workload)
    assert await holdfast.get(workload.name, "research") == run
    with pytest.raises(WorkloadNotFound, match="holdfast list"):
        await holdfast.get("nobody", "research")


async def test_a_name_needs_a_cluster(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_CLUSTER", raising=False)
    async with Holdfast.connect(address) as session:
        with pytest.raises(HoldfastError, match="HOLDFAST_CLUSTER"):
            await session.get("x")


async def test_an_address_where_nobody_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    with pytest.raises(NotReachable, match=r"127\.0\.0\.1:1.*holdfast dev up"):
        async with Holdfast.connect():
            pass


async def test_a_temporal_namespace_that_is_not_there(address: str, workload: Workload) -> None:
    async with Holdfast.connect(address, "nowhere") as session:
        with pytest.raises(NotReachable, match="temporal operator namespace create --namespace nowhere"):
            await session.submit(workload)


async def test_missing_search_attributes_are_named_and_can_be_added(workload: Workload) -> None:
    from holdfast.client.connection import add_search_attributes, missing_search_attributes

    with temporal_server(search_attributes=False) as bare:
        async with Holdfast.connect(bare) as session:
            with pytest.raises(HoldfastError, match="holdfast doctor --fix"):
                await session.submit(workload)
            missing = await missing_search_attributes(session.client)
            assert missing == names.SEARCH_ATTRIBUTES
            await add_search_attributes(session.client, missing)
            assert await missing_search_attributes(session.client) == {}


async def test_a_given_client_is_used_as_it_is(client: Client, workload: Workload) -> None:
    async with Holdfast.connect(client=client, cluster="dev") as session:
        assert session.client is client
        await session.submit(workload)
        assert (await session.get(workload.name, "research")).uid


async def test_an_account_of_the_newest_counts_the_newest(holdfast: Holdfast) -> None:
    older, newer = [await holdfast.submit(a_workload(namespace="newest")) for _ in range(2)]
    await newer.handle.terminate("for the test")

    async def listed() -> bool:
        found = [each.execution async for each in holdfast.list(namespace="newest")]
        return found == ["Running", "Terminated"]

    await until(listed, 30, "Temporal lists what runs first")
    account = await holdfast.account(namespace="newest", limit=1)
    told = " ".join((*(one.name for one in account.workloads), *account.notes))
    assert newer.name in told
    assert older.name not in told
    assert "Only the newest 1 workloads are counted." in account.notes


async def test_list_filters_by_what_the_columns_hold(holdfast: Holdfast) -> None:
    import asyncio

    queue = "q-" + a_workload().name
    runs = {(await holdfast.submit(a_workload(queue=queue))).name for _ in range(3)}
    await holdfast.submit(a_workload())
    found: list[Summary] = []
    for _ in range(300):
        found = [each async for each in holdfast.list(queue=queue, phase=Phase.PENDING, running=True)]
        if len(found) == 3:
            break
        await asyncio.sleep(0.1)
    assert {each.name for each in found} == runs
    one = found[0]
    assert (one.kind, one.namespace, one.cluster, one.execution) == ("AppWrapper", "research", "dev", "Running")
    assert one.uid
    assert one.spec_hash
    assert [each async for each in holdfast.list(queue=queue, limit=1)]
    assert [each async for each in holdfast.list(queue="it's another")] == []


def test_the_document_is_plain_json_and_reads_back(workload: Workload) -> None:
    assert Workload.model_validate(document(workload)) == workload


def test_a_summary_counts_kinds() -> None:
    assert summary(a_workload(name="x")) == "AppWrapper x: 1 Job, 2 pods, in namespace research on cluster dev"
    several = reader.read(manifest("y", replicated("driver"), replicated("workers", replicas=5, pods=2)), cluster="dev")
    assert summary(several) == "JobSet y: 1 Service, 6 Jobs, 11 pods, in namespace default on cluster dev"


def _no_ttl(workload: Workload) -> object:
    return workload.policy.timings.model_copy(update={"success_ttl": timedelta(0)})
