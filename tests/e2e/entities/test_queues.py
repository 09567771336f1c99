"""Admission queues as typed, on real controllers: who is let in, what comes back, and a queue whose worker is gone."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml
from temporalio.testing import ActivityEnvironment

from holdfast import formats, names
from holdfast.activities.entities import queues as activity_of_queues
from holdfast.activities.entities.queues import look_queue
from holdfast.activities.site.site import Site as Ground
from holdfast.client import Holdfast
from holdfast.client.connection import Place
from holdfast.client.entities.queue import QueueRun
from holdfast.errors import HoldfastError, InvalidWorkload
from holdfast.local import Stack
from holdfast.model import Limits, Reason, Status, Workload
from holdfast.model.calls.queue import LookQueueInput, QueueHolder, SeenQueue
from holdfast.model.entities.queue import QueueLine, QueueNews, QueueStatus, Standing
from tests.e2e.ground.site import Site, Worker, open_site, until
from tests.e2e.ground.space import Handle, Space, open_space
from tests.e2e.ground.terminal import command
from tests.e2e.lives.lattice import NAME, allocation, loses_its_node

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="session"),
]
ROW = pytest.mark.row
OTHERS = "workflows,cluster,wait,watch"
FAST = {"holdfast.dev/failureGracePeriod": "0s", "holdfast.dev/retryLimit": "0", "holdfast.dev/successTTL": "0s"}


def job(name: str, queue: str, pods: int = 2, **more: Any) -> str:
    """A Job on fake nodes, as its user writes it down."""
    pod = {
        "restartPolicy": "Never",
        "nodeSelector": {"holdfast.dev/node": "fake"},
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": "example.com/train:1"}],
    }
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": {"spec": pod}}
    metadata = {"name": name, "annotations": {**FAST, "holdfast.dev/queue": queue, **more}}
    return yaml.safe_dump({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})


class Queues:
    """Queues as their operator sees them, and workloads as their users do."""

    def __init__(self, space: Space, path: Path) -> None:
        self.space, self.site, self.path = space, space.site, path
        where = Place(self.site.temporal_address, self.site.cluster)
        self.holdfast = Holdfast(self.site.client, where, self.site.cluster)

    async def apply(self, *names_: str, **spec: Any) -> str:
        documents = [
            {"apiVersion": names.API_VERSION, "kind": "Queue", "metadata": {"name": one}, "spec": spec}
            for one in names_
        ]
        file = self.path / "queues.yaml"
        file.write_text(yaml.safe_dump_all(documents))
        return await command(self.site, "queue", "apply", str(file))

    def run(self, name: str) -> QueueRun:
        return self.holdfast.queue(name)

    def read(self, document: str) -> Workload:
        (found,) = formats.read(document, cluster=self.site.cluster, namespace=self.space.namespace)
        return found

    async def submit(self, document: str | Workload) -> Handle:
        workload = self.read(document) if isinstance(document, str) else document
        run = await self.holdfast.submit(workload)
        handle: Handle = self.site.client.get_workflow_handle(run.workflow_id, result_type=Status)
        self.space.handles.append(handle)
        return handle

    async def waits(self, handle: Handle, words: str = "") -> None:
        """Wait until a workload says that it waits in its queue."""

        async def check() -> bool:
            status = await self.site.status(handle)
            return (status.phase, status.reason) == ("Pending", Reason.QUEUED) and words in status.message

        await until(check, 60, f"{handle.id} waits: {words}")

    async def status(self, name: str, seconds: float = 90) -> QueueStatus:
        """Return how a queue stands; a worker that has just begun, or is busy, is asked again."""
        found = list[QueueStatus]()

        async def answers() -> bool:
            with contextlib.suppress(HoldfastError):
                found[:] = [await self.run(name).status()]
            return bool(found)

        await until(answers, seconds, f"queue {name} says how it stands")
        return found[0]

    async def shows(self, name: str, admitted: int, waiting: int, seconds: float = 90) -> QueueStatus:
        found = list[QueueStatus]()

        async def check() -> bool:
            found[:] = [await self.status(name)]
            return (found[0].admitted, found[0].waiting) == (admitted, waiting)

        await until(check, seconds, lambda: f"{name}: {admitted} let in, {waiting} wait: {found}", pause=0.2)
        return found[0]

    async def line(self, queue: str, name: str) -> QueueLine:
        lines = (await self.status(queue)).lines
        return next(one for one in lines if one.name == name)

    def attempts(self) -> list[str]:
        """Return whose attempts were made, in their order, by the audit log."""
        made = [one for one in self.space.truth.requests() if (one.verb, one.resource) == ("create", "attempts")]
        return [one.name for one in sorted(made, key=lambda one: one.time)]


@asynccontextmanager
async def opened(stack: Stack, path: Path) -> AsyncIterator[Queues]:
    """A site of a test's own: queues are seen by all that a site submits."""
    async with open_site(stack, path, prefix="q") as site:
        await site.start_worker("--roles", OTHERS)
        async with open_space(site) as space:
            yield Queues(space, path)


@pytest_asyncio.fixture(loop_scope="session")
async def queues(stack: Stack, tmp_path: Path) -> AsyncIterator[Queues]:
    """A site with a worker that serves all queues there are."""
    async with opened(stack, tmp_path) as given:
        await given.site.start_worker("--roles", "admission")
        yield given


@pytest_asyncio.fixture(loop_scope="session")
async def bare(stack: Stack, tmp_path: Path) -> AsyncIterator[Queues]:
    """A site where nobody serves queues yet."""
    async with opened(stack, tmp_path) as given:
        yield given


async def serve(site: Site, *queues: str) -> Worker:
    return await site.start_worker("--roles", "admission", "--queues", ",".join(queues))


@ROW("L9", level="e2e")
async def test_L9_a_queue_whose_worker_was_killed_pauses_alone_and_catches_up(bare: Queues):
    space, site = bare.space, bare.site
    alpha, beta = await serve(site, "alpha"), await serve(site, "beta")
    assert "queue alpha" in await bare.apply("alpha", "beta", quota={"pods": 2})
    a1, b1 = await bare.submit(job("a1", "alpha")), await bare.submit(job("b1", "beta"))
    for one in (a1, b1):
        await space.reach(one, "Running", 1)
    a2, b2 = await bare.submit(job("a2", "alpha")), await bare.submit(job("b2", "beta"))
    await bare.waits(a2, "alpha")
    await bare.waits(b2, "beta")
    for queue in ("alpha", "beta"):
        await bare.shows(queue, 1, 1)

    alpha.kill()
    assert beta.process.poll() is None
    a3 = await bare.submit(job("a3", "alpha"))
    for one in ("a1", "b1"):
        await space.complete(one)
    for one in (a1, b1):
        assert (await space.ended(one)).phase == "Succeeded", "what was let in needs its queue no more"
    await space.reach(b2, "Running", 1)
    await space.complete("b2")
    assert (await space.ended(b2)).phase == "Succeeded"
    for one in (a2, a3):
        await bare.waits(one)
    assert await command(site, "queue", "show", "alpha", expect=2) == ""
    explained = " ".join((await command(site, "explain", f"{space.namespace}/a2")).split())
    assert "queue/" in explained
    assert "no worker answer" in explained
    assert "start one: `holdfast worker --roles admission`" in explained

    await serve(site, "alpha")
    await space.reach(a2, "Running", 1)
    await bare.shows("alpha", 1, 1)
    await bare.waits(a3)
    await space.complete("a2")
    assert (await space.ended(a2)).phase == "Succeeded"
    await space.reach(a3, "Running", 1)
    await space.complete("a3")
    assert (await space.ended(a3)).phase == "Succeeded"
    await bare.shows("alpha", 0, 0)
    await space.truth.settle()
    assert [one for one in bare.attempts() if one.startswith("a")] == [
        names.attempt_name(f"a{n}", 1) for n in (1, 2, 3)
    ]


@ROW("L26", level="e2e")
@ROW("L27", level="e2e")
async def test_L26_L27_a_requeue_keeps_its_place_before_what_came_later_and_not_in_its_cycle(queues: Queues):
    space = queues.space
    await queues.apply("gpus", quota={"pods": 2}, strategy="StrictFIFO")
    labelled = allocation("batch", pods=2)
    first = queues.read(labelled).model_copy(update={"queue": "gpus"})
    handle = await queues.submit(first)
    await space.reach(handle, "Running", 1)
    submitted = (await space.site.status(handle)).submitted_at
    later = await queues.submit(job("later", "gpus"))
    await queues.waits(later)
    await queues.shows("gpus", 1, 1)
    await loses_its_node(space)

    async def back() -> bool:
        line = await queues.line("gpus", NAME)
        return (await space.site.status(handle)).requeues == 1 and (line.admitted or "requeued in cycle" in line.why)

    await until(back, 60, "it is in its queue again")
    status = await space.reach(handle, "Running", 2)
    assert (status.requeues, status.submitted_at) == (1, submitted)
    line = await queues.line("gpus", NAME)
    assert line.since == submitted
    await queues.waits(later, "gpus")
    orders = [cause.message for cause in status.causes if cause.reason == "Admitted"]
    assert len(orders) == 2
    await space.complete(NAME)
    assert (await space.ended(handle)).phase == "Succeeded"
    await space.reach(later, "Running", 1)
    await space.truth.settle()
    space.truth.assert_one_attempt_at_a_time(NAME)
    made = queues.attempts()
    assert made == [names.attempt_name(NAME, 1), names.attempt_name(NAME, 2), names.attempt_name("later", 1)]


@ROW("L9", level="e2e")
async def test_L9_all_workers_killed_while_workloads_wait_lose_nothing(queues: Queues):
    space, site = queues.space, queues.site
    await queues.apply("gpus", quota={"pods": 4})
    handles = [await queues.submit(job(f"w{n}", "gpus")) for n in range(2)]
    for one in handles:
        await space.reach(one, "Running", 1)
    handles += [await queues.submit(job(f"w{n}", "gpus")) for n in range(2, 5)]
    await queues.shows("gpus", 2, 3)
    for worker in site.workers:
        worker.kill()
    await space.complete("w0")
    await site.start_worker()
    assert (await space.ended(handles[0])).phase == "Succeeded"
    left = set(range(1, 5))
    while left:
        # Those that came together may be let in in any order.
        in_turn = [int(one.name[1:]) for one in (await queues.status("gpus")).lines if one.admitted]
        for n in left & set(in_turn):
            await space.reach(handles[n], "Running", 1)
            await space.complete(f"w{n}")
            assert (await space.ended(handles[n])).phase == "Succeeded"
            left.remove(n)
        await asyncio.sleep(0.2)
    await queues.shows("gpus", 0, 0)
    await space.truth.settle()
    assert sorted(queues.attempts()) == [names.attempt_name(f"w{n}", 1) for n in range(5)]


async def test_priority_goes_first_and_what_is_preempted_makes_room_and_waits_anew(queues: Queues):
    space = queues.space
    await queues.apply("gpus", quota={"pods": 2})
    low = await queues.submit(job("low", "gpus"))
    await space.reach(low, "Running", 1)
    other = await queues.submit(job("other", "gpus"))
    urgent = await queues.submit(queues.read(job("urgent", "gpus")).model_copy(update={"priority": 9}))
    await queues.shows("gpus", 1, 2)
    await low.signal(names.SIGNAL_PREEMPT, "urgent work")
    await space.reach(urgent, "Running", 1)
    await space.reach(low, "Suspended")
    await queues.waits(other)
    await low.signal(names.SIGNAL_RESUME)
    await queues.waits(low, "gpus")
    shown = json.loads(await command(space.site, "queue", "show", "gpus", "-o", "json"))
    assert [one["name"] for one in shown["lines"]] == ["low", "other", "urgent"], "by the time of submission"
    for handle, name in ((urgent, "urgent"), (low, "low"), (other, "other")):
        await space.reach(handle, "Running")
        await space.complete(name)
        assert (await space.ended(handle)).phase == "Succeeded"


async def test_what_its_users_and_its_operator_are_told(queues: Queues):
    space, site = queues.space, queues.site
    assert "no admission queues" in await command(site, "queue", "list")
    free = await queues.submit(job("free", "anything"))
    await space.reach(free, "Running", 1)
    await queues.apply("gpus", quota={"pods": 2})

    async def listed() -> bool:
        return "gpus" in await command(site, "queue", "list")

    await until(listed, 60, "the list has it", pause=0.5)
    with pytest.raises(InvalidWorkload, match=r"there is no such admission queue .*gpus \(found 'another'\)"):
        await queues.submit(job("lost", "another"))
    large = await queues.submit(job("large", "gpus", pods=3))
    await queues.waits(large)
    table = await command(site, "queue", "show", "gpus")
    assert "it cannot be admitted with this quota: it requests 3 pods, and the whole quota is 2" in table
    explained = await command(site, "explain", f"{space.namespace}/large")
    assert "waiting in queue gpus" in explained
    assert "gpus: place 1 of 1: it cannot be admitted with this quota" in explained
    assert "`holdfast queue show gpus` shows who is before it" in explained
    await queues.apply("gpus", quota={"pods": 3})
    await space.reach(large, "Running", 1)
    await command(site, "queue", "delete", "gpus", "--reason", "the team moved")
    late = await queues.submit(job("late", "gpus"))
    await queues.waits(late)
    assert "it is to be deleted: the team moved" in await command(site, "queue", "show", "gpus")
    await queues.apply("gpus", quota={"pods": 3})
    await space.complete("large")
    await space.reach(late, "Running", 1)
    await command(site, "queue", "delete", "gpus")
    await space.complete("late")
    assert (await space.ended(late)).phase == "Succeeded"

    async def ended() -> bool:
        return "no admission queues" in await command(site, "queue", "list")

    await until(ended, 60, "an empty queue ends", pause=0.5)
    with pytest.raises(HoldfastError, match=r"there is no queue .*: holdfast queue list shows which there are"):
        await queues.run("gpus").status()


async def test_a_workload_terminated_by_hand_holds_its_place_until_nothing_of_it_is_left(queues: Queues):
    space, site = queues.space, queues.site
    await queues.apply("gpus", quota={"pods": 2})
    handle = await queues.submit(job("w", "gpus"))
    uid = (await space.reach(handle, "Running", 1)).uid
    ground = Ground(site.kube, site.cluster, "uid", site.cluster, Limits())
    given = LookQueueInput(cluster=site.cluster, queue="gpus", holders=(QueueHolder(workload=handle.id, uid=uid),))

    async def look() -> SeenQueue:
        return await ActivityEnvironment().run(look_queue, ground, site.client, given)

    async def listed() -> bool:
        return (await look()).workloads == (handle.id,)

    async def begun() -> bool:
        other = LookQueueInput(cluster=site.cluster, queue="gpus", holders=(), asks_begun=True)
        return (await ActivityEnvironment().run(look_queue, ground, site.client, other)).begun == (uid,)

    await until(listed, 30, "the list has it")
    await until(begun, 30, "the list says that it has begun")
    await handle.terminate("by hand")
    assert (await look()).gone == (), "its pods run"
    await space.delete("batch/v1", "Job", "w", propagation="Foreground")
    for attempt in await site.objects(names.API_VERSION, names.ATTEMPT_KIND, space.namespace):
        key = (names.API_VERSION, names.ATTEMPT_KIND, attempt["metadata"]["name"])
        await space.patch(*key, {"metadata": {"finalizers": None}})
        await space.delete(*key)

    async def gone() -> bool:
        return (await look()).gone == (uid,)

    await until(gone, 60, "nothing of it is left")


@ROW("D13", level="e2e")
async def test_D13_nobody_is_admitted_beyond_the_quota_while_pods_of_a_terminated_workload_run(bare: Queues):
    space, site = bare.space, bare.site
    first = await serve(site, "gpus")
    await bare.apply("gpus", quota={"pods": 2})
    holder = await bare.submit(job("holder", "gpus"))
    uid = (await space.reach(holder, "Running", 1)).uid
    first.kill()
    # A memory that was restored to an earlier time asks again. Its workflow is closed before the queue can answer.
    asks = QueueNews(
        workload=holder.id,
        uid=uid,
        turn=1,
        standing=Standing.ASKS,
        demand={"pods": 2000},
        submitted_at=datetime.now(UTC),
    )
    await site.client.get_workflow_handle(names.queue_id(site.cluster, "gpus")).signal(names.SIGNAL_NEWS, asks)
    await holder.terminate("by hand")
    late = await bare.submit(job("late", "gpus"))
    await serve(site, "gpus")
    await bare.waits(late, "gpus")
    await bare.shows("gpus", 1, 1)
    end = asyncio.get_running_loop().time() + 20
    while asyncio.get_running_loop().time() < end:
        assert len(await space.pods("holder")) == 2
        status = await bare.status("gpus")
        assert (status.admitted, status.waiting) == (1, 1), "admitted beyond the quota"
        assert not await space.pods("late")
        await asyncio.sleep(0.5)


@pytest.mark.row("F19", level="e2e")
async def test_F19_kueue_is_seen_where_it_has_a_queue(queues: Queues, monkeypatch: pytest.MonkeyPatch):
    ground = Ground(queues.site.kube, queues.site.cluster, "uid", queues.site.cluster, Limits())
    given = LookQueueInput(cluster=queues.site.cluster, queue="gpus", holders=())
    # A kind that is there stands for it: the kind itself, if it were made, would be there for all tests.
    monkeypatch.setattr(activity_of_queues, "KUEUE", (("example.com/v1", "LocalQueue"),))
    seen = await ActivityEnvironment().run(look_queue, ground, queues.site.client, given)
    assert (seen.kueue, seen.kueue_namespaces) == (False, ())
    monkeypatch.setattr(activity_of_queues, "KUEUE", (("v1", "ServiceAccount"),))
    seen = await ActivityEnvironment().run(look_queue, ground, queues.site.client, given)
    assert not seen.kueue
    assert {"default", "kube-system"} <= set(seen.kueue_namespaces), "it decides where it has a queue"
