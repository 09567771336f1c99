"""Whoever steers, waits for or submits again what has moved meanwhile (rows D46, D52 to D54, D59, D60)."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from temporalio import activity
from temporalio.client import Client, RetryConfig
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from holdfast import Holdfast, HoldfastError, NotReachable, Phase, Run, Workload, names
from holdfast.client import submission
from holdfast.worker.entities import queues
from holdfast.worker.entities.queues import Admission
from holdfast.worker.runtime.settings import Settings
from tests.e2e.ground.proxy import Proxy
from tests.e2e.ground.site import appwrapper, job, until
from tests.e2e.ground.space import FOREIGN_FINALIZER, Space

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400), pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row


@pytest_asyncio.fixture(loop_scope="session")
async def session(space: Space) -> AsyncIterator[Holdfast]:
    async with Holdfast.connect(client=space.site.client, cluster=space.site.cluster) as opened:
        yield opened


def workload(space: Space, **settings: str) -> Workload:
    return space.site.read(appwrapper("train", job(), **settings), space.namespace)


async def begun(space: Space, session: Holdfast, found: Workload, *, again: bool = False) -> Run:
    run = await session.submit(found, again=again)
    space.handles.append(run.handle)
    return run


# --- D46


@ROW("D46", level="e2e")
async def test_D46_an_old_run_cancels_and_preempts_nobody_who_has_its_name_now(space: Space, session: Holdfast):
    old = await begun(space, session, workload(space))
    await old.until(lambda status: status.phase is Phase.RUNNING)
    await old.cancel(wait=True)
    new = await begun(space, session, workload(space), again=True)
    await new.until(lambda status: status.phase is Phase.RUNNING)
    pods = {pod["metadata"]["uid"] for pod in await space.pods("train")}
    for wish in (old.cancel, old.preempt, old.suspend):
        with pytest.raises(HoldfastError, match=f"was submitted again.*{new.uid}"):
            await wish("for another")
    for question in (old.status, old.explain):
        with pytest.raises(HoldfastError, match=f"was submitted again.*{new.uid}"):
            await question()
    status = (await new.status()).status
    assert (status.phase, status.attempt) == (Phase.RUNNING, 1)
    assert {pod["metadata"]["uid"] for pod in await space.pods("train")} == pods
    assert (await new.cancel(wait=True)).phase is Phase.CANCELLED


@ROW("D46", level="e2e")
async def test_D46_a_wish_that_is_overtaken_on_its_way_is_refused_by_the_workflow(space: Space, session: Holdfast):
    run = await begun(space, session, workload(space))
    await run.until(lambda status: status.phase is Phase.RUNNING)
    old = "00000000-0000-4000-8000-000000000000"
    await run.handle.signal(names.SIGNAL_CANCEL, args=["no longer wanted", old])
    causes = (await run.status()).status.causes
    said = f"signal cancel was dropped: it is meant for the workload of uid {old}, and this is {run.uid}"
    assert [cause.message for cause in causes if "cancel" in cause.message] == [said]
    life = await run.history()
    assert life.exact, "what is read from its record refuses the same"
    assert said in {cause.message for cause in life.causes}
    await run.cancel(wait=True)


# --- D52


@ROW("D52", level="e2e")
async def test_D52_whoever_waits_goes_on_through_an_outage_of_temporal_and_says_so_once(
    space: Space, session: Holdfast, caplog: pytest.LogCaptureFixture
):
    run = await begun(space, session, workload(space))
    host, _, port = space.site.client.service_client.config.target_host.rpartition(":")
    proxy = Proxy(host, int(port))
    await proxy.start()
    try:
        # It gives up soon, so that a short outage is longer than its own tries.
        client = await Client.connect(
            f"127.0.0.1:{proxy.own_port}",
            namespace=space.site.client.namespace,
            data_converter=space.site.client.data_converter,
            retry_config=RetryConfig(max_retries=1, max_elapsed_time_millis=200, initial_interval_millis=50),
        )
        async with Holdfast.connect(client=client, cluster=space.site.cluster) as far:
            there = await far.get("train", space.namespace)
            await there.until(lambda status: status.phase is Phase.RUNNING)
            waits = [asyncio.create_task(there.result()), asyncio.create_task(there.closed())]
            with caplog.at_level(logging.WARNING, "holdfast.client"):
                await proxy.refuse()
                with pytest.raises(NotReachable):
                    await there.status()
                await run.cancel("while nobody sees it", wait=True)
                assert not any(wait.done() for wait in waits), [wait.exception() for wait in waits if wait.done()]
                await proxy.heal()
                results = await asyncio.wait_for(asyncio.gather(*waits), 90)
            assert [one.phase for one in results] == [Phase.CANCELLED] * 2
            said = [one.getMessage() for one in caplog.records if one.name == "holdfast.client"]
            assert sum("does not answer" in one for one in said) == len(waits), said
            await proxy.refuse()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1):
                    await there.result()
    finally:
        await proxy.close()


# --- D53


def kept(space: Space) -> Workload:
    """A workload that fails at its first failure, and is held then."""
    settings = {"deletionOnFailureGracePeriodDuration": "1h", "forcefulDeletionGracePeriodDuration": "1h"}
    document = appwrapper("train", job(), failureGracePeriodDuration="0s", retryLimit="0", **settings)
    return space.site.read(document, space.namespace)


async def failed(space: Space, run: Run) -> None:
    await run.until(lambda status: status.phase is Phase.RUNNING)
    await space.fail_pod("train")
    await run.until(lambda status: status.phase is Phase.FAILED)


@ROW("D53", level="e2e")
async def test_D53_what_was_revived_in_between_is_not_cancelled_by_another_submission(
    space: Space, session: Holdfast, monkeypatch: pytest.MonkeyPatch
):
    run = await begun(space, session, kept(space))
    await failed(space, run)
    settled = submission._settled
    looked = list[Any]()

    def then_revived(description: Any) -> bool:
        looked.append(settled(description))
        return looked[-1]

    original = submission.make_way

    async def make_way(*arguments: Any) -> None:
        # A person revives it right after the other has seen its outcome.
        await run.handle.signal(names.SIGNAL_RETRY, "it deserves another try")
        await original(*arguments)

    monkeypatch.setattr(submission, "_settled", then_revived)
    monkeypatch.setattr(submission, "make_way", make_way)
    with pytest.raises(HoldfastError, match="has been revived meanwhile"):
        await asyncio.wait_for(session.submit(kept(space), again=True), 60)
    assert looked == [True]
    await run.until(lambda status: status.phase is Phase.RUNNING, through_ends=True)
    status = (await run.status()).status
    assert (status.uid, status.attempt) == (run.uid, 2)
    assert not any(cause.message == "it is submitted again" for cause in status.causes)
    await run.cancel(wait=True)


@ROW("D53", level="e2e")
async def test_D53_the_wait_for_an_earlier_submission_is_bounded_and_says_what_it_waits_for(
    space: Space, session: Holdfast, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(submission, "MAKING_WAY", timedelta(seconds=8), raising=False)
    run = await begun(space, session, kept(space))
    await failed(space, run)
    await space.finalize("batch/v1", "Job", "train", FOREIGN_FINALIZER)  # It does not go.
    waits_for = r"still being removed after 8s: .*(example\.com/hold|remove is under way).*Nothing was submitted"
    with pytest.raises(HoldfastError, match=waits_for):
        await asyncio.wait_for(session.submit(kept(space), again=True), 90)
    await space.finalize("batch/v1", "Job", "train")
    assert (await asyncio.wait_for(session.submit(kept(space), again=True), 60)).uid != run.uid


@ROW("D53", level="e2e")
async def test_D53_what_is_being_removed_is_waited_for_and_never_taken_for_the_new_run(space: Space, session: Holdfast):
    old = await begun(space, session, workload(space))
    await old.until(lambda status: status.phase is Phase.RUNNING)
    await space.finalize("batch/v1", "Job", "train", FOREIGN_FINALIZER)  # It does not go.
    await old.cancel("no longer wanted")
    await old.until(lambda status: status.phase is Phase.TERMINATING)
    with pytest.raises(HoldfastError, match="is being removed: submit it with --again"):
        await session.submit(workload(space))
    again = asyncio.create_task(session.submit(workload(space), again=True))
    done, _ = await asyncio.wait([again], timeout=3)
    assert not done, "its Job is still there"
    await space.finalize("batch/v1", "Job", "train")
    new = await asyncio.wait_for(again, 90)
    space.handles.append(new.handle)
    assert new.uid != old.uid
    await new.until(lambda status: status.phase is Phase.RUNNING)
    assert (await new.cancel(wait=True)).phase is Phase.CANCELLED


@ROW("D53", level="e2e")
async def test_D53_a_cancel_that_did_not_arrive_is_an_error_and_not_waited_for(
    space: Space, session: Holdfast, monkeypatch: pytest.MonkeyPatch
):
    run = await begun(space, session, kept(space))
    await failed(space, run)

    async def lost(*_: Any, **__: Any) -> None:
        raise RPCError("connection reset", RPCStatusCode.UNAVAILABLE, b"")

    monkeypatch.setattr("temporalio.client.WorkflowHandle.signal", lost)
    with pytest.raises(NotReachable, match="connection reset"):
        await asyncio.wait_for(session.submit(kept(space), again=True), 90)
    monkeypatch.undo()
    await dataclasses.replace(run).cancel(wait=True)


# --- D54, D60: on the command line


async def command(space: Space, *argv: str) -> tuple[int, str, str]:
    program, environment = space.site.command()
    process = await asyncio.create_subprocess_exec(
        *program,
        *argv,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode is not None
    return process.returncode, out.decode(), " ".join(err.decode().split())


@ROW("D54", level="e2e")
async def test_D54_a_foreign_workflow_of_our_type_is_left_out_of_the_list_and_counted(space: Space, session: Holdfast):
    run = await begun(space, session, workload(space))
    foreign: Any = await space.site.client.start_workflow("Workload", id="nightly-batch", task_queue="another-team")
    space.handles.append(foreign)
    listed = set[str]()
    async with asyncio.timeout(60):  # Visibility is a moment behind.
        while not {run.workflow_id, foreign.id} <= listed:
            query = "WorkflowType = 'Workload' AND ExecutionStatus = 'Running'"
            listed = {one.id async for one in space.site.client.list_workflows(query)}
    code, out, err = await command(space, "list", "--running")
    assert code == 0, err
    assert "train" in out
    assert "nightly-batch" not in out
    assert "left out: 1 workflow of type Workload that Holdfast did not begin (nightly-batch)" in err
    await run.cancel(wait=True)


@ROW("D60", level="e2e")
async def test_D60_of_several_files_each_is_told_as_it_begins_and_on_an_error_what_was_not_begun(
    space: Space, session: Holdfast, tmp_path: Path
):
    taken = await begun(space, session, workload(space))
    files = list[str]()
    for name in ("first", "train", "last"):
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(appwrapper(name, job(name, pods=1), failureGracePeriodDuration="9s")))
        files.append(str(path))
    where = space.namespace
    code, out, err = await command(space, "submit", *files, "-n", where)
    assert code == 2, err
    assert f"{where}/first" in out
    assert f"begun: {where}/first; not begun: {where}/train, {where}/last; refused: {where}/train" in err
    assert "runs already with another specification" in err
    first = await session.get("first", where)
    space.handles.append(first.handle)
    for one in (first, taken):
        await one.cancel(wait=True)


# --- D59: visibility


class Lagging:
    """Temporal as it is, but for a visibility store that may be empty for a while."""

    def __init__(self, client: Client) -> None:
        self.client, self.empty, self.lists = client, False, 0

    def get_workflow_handle(self, workflow_id: str) -> Any:
        return self.client.get_workflow_handle(workflow_id)

    async def list_workflows(self, query: str) -> AsyncIterator[Any]:
        self.lists += 1
        if not self.empty:
            async for one in self.client.list_workflows(query):
                yield one


@activity.defn
async def nothing() -> None: ...


@ROW("D59", level="e2e")
async def test_D59_one_empty_list_of_visibility_ends_no_admission(
    space: Space, session: Holdfast, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(queues, "LOOK_SECONDS", 0.2)
    name = f"q-{space.namespace}"
    client, task_queue = space.site.client, names.queue_admission(space.site.cluster, name)
    document = {"name": name, "cluster": space.site.cluster, "quota": {"cpu": "1"}}
    handle: Any = await client.start_workflow(
        names.QUEUE_WORKFLOW,
        document,
        id=names.queue_id(space.site.cluster, name),
        task_queue="nobody-decides-here",
        search_attributes=TypedSearchAttributes(
            [SearchAttributePair(SearchAttributeKey.for_keyword(names.SA_CLUSTER), space.site.cluster)]
        ),
    )
    lagging: Any = Lagging(client)
    settings = Settings(cluster=space.site.cluster, queues=(name,))
    admission = Admission(lagging, settings, lambda queue: Worker(client, task_queue=queue, activities=[nothing]))
    running = asyncio.create_task(admission.run())

    async def serves(wanted: bool) -> None:
        async def found() -> bool:
            return (task_queue in admission._served) is wanted

        await until(found, 60, f"a worker serves the queue: {wanted}")

    try:
        await serves(True)
        served, lagging.empty = admission._served[task_queue], True
        seen = lagging.lists

        async def looked() -> bool:
            return lagging.lists > seen + 3

        await until(looked, 30, "it has looked")
        assert admission._served.get(task_queue) is served
        assert not served.task.done()
        await handle.terminate("the queue ends")
        await serves(False)
    finally:
        await admission.shutdown()
        await running
