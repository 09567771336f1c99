"""An admission queue's workflow, and the workload's side of it, on a Temporal server that skips time (rows L9, L26)."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
import pytest_asyncio
from temporalio import activity, workflow
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from holdfast import names
from holdfast.client.connection import Place
from holdfast.client.entities.queue import Directory, QueueRun, apply
from holdfast.errors import HoldfastError, InvalidWorkload
from holdfast.model import Phase, Status
from holdfast.model.calls.queue import LookQueueInput, SeenQueue
from holdfast.model.entities.queue import Queue, QueueNews, QueueOrder, QueueStatus, Standing, StopPolicy
from holdfast.plugin import HoldfastPlugin
from holdfast.workflows.entities.queue import HEARD_MAXIMUM
from tests.e2e.ground.site import until
from tests.policy.lives.life import START, workload
from tests.simulation.server import open_server
from tests.workflows.entities.test_graph import shown
from tests.workflows.workload.test_workload import replays

pytestmark = [
    pytest.mark.temporal,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]
CLUSTER = "local"
HERE = Place("here", "default")


@workflow.defn(name="ToldByQueue", sandboxed=False)
class ToldByQueue:
    """Stands where a workload's workflow would: it keeps what its queue tells it."""

    def __init__(self) -> None:
        self._orders: list[QueueOrder] = []

    @workflow.run
    async def run(self) -> None:
        """Be there until cancelled."""
        await workflow.wait_condition(lambda: False)

    @workflow.signal(name=names.SIGNAL_QUEUE)
    def queue(self, order: QueueOrder) -> None:
        """Be told."""
        self._orders.append(order)

    @workflow.query
    def orders(self) -> list[QueueOrder]:
        """Say what was told."""
        return self._orders


@dataclass
class Cluster:
    """What looks at the cluster come to, by queue."""

    seen: dict[str, SeenQueue] = field(default_factory=dict[str, SeenQueue])
    looks: list[LookQueueInput] = field(default_factory=list[LookQueueInput])

    @activity.defn(name=names.ACTIVITY_LOOK_QUEUE)
    async def look(self, given: LookQueueInput) -> SeenQueue:
        self.looks.append(given)
        return self.seen.get(given.queue, SeenQueue(kueue=False, workloads=(), gone=()))


@dataclass
class Scene:
    """One queue, whose workloads the test speaks for."""

    client: Client
    cluster: Cluster
    queue: Queue
    started: list[str] = field(default_factory=list[str])

    @property
    def run(self) -> QueueRun:
        return QueueRun(self.client, HERE, self.queue.workflow_id)

    @property
    def handle(self) -> WorkflowHandle[Any, Any]:
        return self.client.get_workflow_handle(self.queue.workflow_id)

    async def open(self) -> Scene:
        await apply(self.client, HERE, self.queue)
        return self

    def id(self, name: str) -> str:
        return names.workflow_id(CLUSTER, "team", f"{name}-{self.queue.name}")

    async def stands(self, name: str) -> WorkflowHandle[Any, Any]:
        """Have somebody stand for a workload."""
        return await self.client.start_workflow(ToldByQueue.run, id=self.id(name), task_queue="stubs")

    async def says(self, name: str, standing: Standing, turn: int = 1, pods: int = 2, **fields: Any) -> None:
        news = QueueNews(
            workload=self.id(name), uid=name, turn=turn, standing=standing, demand={"pods": pods * 1000}, **fields
        )
        await self.handle.signal(names.SIGNAL_NEWS, news)

    async def asks(self, name: str, **fields: Any) -> WorkflowHandle[Any, Any]:
        handle = await self.stands(name)
        await self.says(name, Standing.ASKS, **fields)
        return handle

    async def shows(self, admitted: int, waiting: int) -> QueueStatus:
        found = list[QueueStatus]()

        async def check() -> bool:
            found[:] = [await self.run.status()]
            return (found[0].admitted, found[0].waiting) == (admitted, waiting)

        await until(check, 90, f"{admitted} let in, {waiting} wait: {found}")
        return found[0]

    async def begin(self, name: str) -> WorkflowHandle[Any, Status]:
        """Start a real workload that this queue is to let in."""
        spec = workload().model_copy(
            update={"name": f"{name}-{self.queue.name}", "cluster": CLUSTER, "queue": self.queue.name, "queued": True}
        )
        return await self.client.start_workflow(
            names.WORKLOAD_WORKFLOW,
            spec.model_dump(mode="json"),
            id=spec.workflow_id,
            task_queue=names.QUEUE_WORKFLOWS,
            result_type=Status,
        )


async def told(handle: WorkflowHandle[Any, Any], count: int = 1) -> list[QueueOrder]:
    found = list[QueueOrder]()

    async def check() -> bool:
        found[:] = await handle.query("orders", result_type=list[QueueOrder])
        return len(found) >= count

    await until(check, 90, f"{handle.id} was told {count} times: {found}")
    return found


@pytest_asyncio.fixture(loop_scope="module")
async def env() -> AsyncIterator[WorkflowEnvironment]:
    # One for each test: a workflow that is terminated amid a task keeps this server from skipping time ever after.
    async with open_server() as env:
        yield env


Opens = Callable[..., Scene]


@pytest_asyncio.fixture(loop_scope="module")
async def opens(env: WorkflowEnvironment) -> AsyncIterator[Opens]:
    plugged = await Client.connect(
        env.client.service_client.config.target_host, plugins=[HoldfastPlugin(roles=["workflows"])]
    )
    cluster = Cluster()
    name = f"q-{secrets.token_hex(3)}"

    def opened(pods: int = 2, **fields: Any) -> Scene:
        return Scene(plugged, cluster, Queue(name=name, cluster=CLUSTER, quota={"pods": str(pods)}, **fields))

    looks = Worker(env.client, task_queue=names.queue_cluster(CLUSTER), activities=[cluster.look])
    own = Worker(plugged, task_queue=names.queue_admission(CLUSTER, name))
    stubs = Worker(env.client, task_queue="stubs", workflows=[ToldByQueue])
    async with Worker(plugged, task_queue=names.QUEUE_WORKFLOWS), own, stubs, looks:
        yield opened


async def test_who_waits_is_let_in_as_others_let_go(opens: Opens):
    scene = await opens().open()
    a = await scene.asks("a")
    (order,) = await told(a)
    assert (order.admit, order.uid, order.turn) == (True, "a", 1)
    b = await scene.asks("b")
    status = await scene.shows(1, 1)
    assert status.message == f"1 waiting; team/b-{scene.queue.name} is first: it requests 2 pods, and 0 of 2 are free"
    await scene.says("a", Standing.RELEASED)
    assert (await told(b))[0].admit
    await scene.says("b", Standing.RELEASED)
    await scene.shows(0, 0)
    await scene.run.cancel("the team moved")
    status = await scene.handle.result()
    assert QueueStatus.model_validate(status).message == "it is to be deleted: the team moved"
    await replays(scene.handle)


async def test_L9_one_that_is_being_deleted_shows_so_and_takes_nothing_until_it_is_applied_again(opens: Opens):
    scene = await opens().open()
    await told(await scene.asks("a"))
    spec = workload().model_copy(update={"cluster": CLUSTER, "queue": scene.queue.name})
    directory = Directory(scene.client, HERE)

    async def is_taken() -> bool:
        directory.forget()
        with contextlib.suppress(InvalidWorkload):
            return (await directory.placed(spec)).queued
        return False

    async def is_refused() -> bool:
        return not await is_taken()

    assert await is_taken()
    await scene.run.cancel("the team moved")
    await until(is_refused, 90, "it takes no more")
    with pytest.raises(InvalidWorkload, match="it is being deleted"):
        await directory.placed(spec)
    await apply(scene.client, HERE, scene.queue)
    await until(is_taken, 90, "it takes workloads again")
    await replays(scene.handle)
    await scene.handle.terminate()


async def test_L26_L27_what_came_back_goes_first_in_the_next_cycle(opens: Opens):
    scene = await opens().open()
    a = await scene.asks("a", submitted_at=START)
    await told(a)
    b = await scene.asks("b", submitted_at=START + timedelta(minutes=1))
    cycle = (await scene.shows(1, 1)).cycle
    await scene.says("a", Standing.ASKS, turn=2, requeued=True, submitted_at=START)
    orders = await told(a, 2)
    assert [(order.turn, order.admit) for order in orders] == [(1, True), (2, True)]
    assert (await scene.shows(1, 1)).cycle >= cycle + 2
    assert await b.query("orders", result_type=list[QueueOrder]) == []
    await scene.handle.terminate()


async def test_a_quota_is_changed_and_a_queue_is_held_while_workloads_wait(opens: Opens):
    scene = await opens().open()
    await told(await scene.asks("a"))
    b = await scene.asks("b")
    await scene.shows(1, 1)
    held = scene.queue.model_copy(update={"quota": {"pods": "8"}, "stop_policy": StopPolicy.HOLD})
    assert (await scene.run.configure(held)).message == "it is held: stopPolicy Hold"
    assert await b.query("orders", result_type=list[QueueOrder]) == []
    await apply(scene.client, HERE, held.model_copy(update={"stop_policy": StopPolicy.NONE}))
    assert (await told(b))[0].admit
    await scene.handle.terminate()


async def test_another_queue_s_configuration_is_refused(opens: Opens):
    scene = await opens().open()
    with pytest.raises(HoldfastError, match=f"expected queue/local/{scene.queue.name}"):
        await scene.run.configure(scene.queue.model_copy(update={"name": "another"}))
    await scene.handle.terminate()


async def test_one_that_was_terminated_before_it_could_be_told_is_counted_out_by_a_look_at_once(opens: Opens):
    scene = await opens().open()
    await told(await scene.asks("a"))
    b, c = await scene.asks("b"), await scene.asks("c")
    await scene.shows(1, 2)
    await b.terminate()
    scene.cluster.seen[scene.queue.name] = SeenQueue(kueue=False, workloads=(scene.id("c"),), gone=("b",))
    await scene.says("a", Standing.RELEASED)
    assert (await told(c))[0].admit
    await scene.shows(1, 0)
    assert [one.uid for one in scene.cluster.looks[-1].holders] == ["b"]
    await scene.handle.terminate()


async def test_what_was_terminated_after_it_was_let_in_is_counted_out_by_a_look(opens: Opens, env: WorkflowEnvironment):
    scene = await opens().open()
    a, b = await scene.asks("a"), await scene.stands("b")
    await told(a)
    await scene.says("b", Standing.ASKS)
    await scene.shows(1, 1)
    scene.cluster.seen[scene.queue.name] = SeenQueue(kueue=False, workloads=(scene.id("b"),), gone=("a",))
    await env.sleep(timedelta(minutes=11))
    assert (await told(b))[0].admit
    assert [one.uid for one in scene.cluster.looks[-1].holders] == ["a"]
    await scene.handle.terminate()


async def test_one_that_has_begun_although_it_waits_is_asked(opens: Opens, env: WorkflowEnvironment):
    scene = await opens().open()
    await told(await scene.asks("a"))
    b = await scene.asks("b")
    await scene.shows(1, 1)
    there = (scene.id("a"), scene.id("b"))
    scene.cluster.seen[scene.queue.name] = SeenQueue(kueue=False, workloads=there, gone=(), begun=("b",))
    await env.sleep(timedelta(minutes=11))
    assert (await told(b))[0].again
    assert scene.cluster.looks[-1].asks_begun
    await scene.says("b", Standing.HOLDS)
    await scene.shows(2, 0)
    await replays(scene.handle)
    await scene.handle.terminate()


async def test_where_kueue_is_installed_all_are_let_in(opens: Opens):
    scene = opens()
    scene.cluster.seen[scene.queue.name] = SeenQueue(kueue=True, workloads=(), gone=())
    await scene.open()
    for name in "abc":
        assert (await told(await scene.asks(name)))[0].admit
    assert "queues are Kueue's" in (await scene.shows(3, 0)).message
    await scene.handle.terminate()


async def test_a_queue_that_begins_anew_asks_who_is_there_before_it_lets_anybody_in(opens: Opens):
    scene = opens()
    a = await scene.stands("a")
    scene.cluster.seen[scene.queue.name] = SeenQueue(kueue=False, workloads=(scene.id("a"),), gone=())
    await scene.open()
    assert (await told(a))[0].again
    b = await scene.asks("b")
    assert (await scene.shows(0, 1)).lines[0].why.startswith("its queue has just started")
    await scene.says("a", Standing.HOLDS)
    assert (await scene.shows(1, 1)).lines[0].why == "it requests 2 pods, and 0 of 2 are free"
    assert await b.query("orders", result_type=list[QueueOrder]) == []
    await scene.handle.terminate()


async def test_what_it_knows_outlives_its_runs(opens: Opens):
    scene = await opens().open()
    first = (await scene.handle.describe()).run_id
    await told(await scene.asks("a"))
    b = await scene.asks("b")
    await asyncio.gather(*(scene.says("b", Standing.ASKS) for _ in range(HEARD_MAXIMUM)))

    async def again() -> bool:
        return (await scene.handle.describe()).run_id != first

    await until(again, 30, "a new run has begun")
    await scene.shows(1, 1)
    await scene.says("a", Standing.RELEASED)
    assert (await told(b))[0].admit
    await scene.handle.terminate()


async def test_a_document_that_is_no_queue_ends_it_before_anybody_is_let_in(opens: Opens):
    scene = opens()
    handle = await scene.client.start_workflow(
        names.QUEUE_WORKFLOW,
        {**scene.queue.model_dump(mode="json"), "quota": {"pods": "many"}},
        id=scene.queue.workflow_id,
        task_queue=names.queue_admission(CLUSTER, scene.queue.name),
    )
    with pytest.raises(WorkflowFailureError) as refused:
        await handle.result()
    assert isinstance(refused.value.cause, ApplicationError)
    assert refused.value.cause.type == names.ERROR_INVALID_QUEUE
    assert "quota: Value error, pods: 'many' is not a quantity" in refused.value.cause.message


async def test_L9_a_real_workload_waits_says_why_and_begins_as_its_queue_lets_it(opens: Opens):
    scene = await opens().open()
    await told(await scene.asks("a"))
    b = await scene.begin("b")
    assert (await shown(b, f"Queued: it waits in queue {scene.queue.name}")).phase is Phase.PENDING
    await scene.shows(1, 1)
    await scene.says("a", Standing.RELEASED)
    status = await shown(b, "attempt 1")
    assert "Admitted" in [cause.reason.value for cause in status.causes]
    await b.terminate()
    await scene.handle.terminate()


async def test_a_workload_that_is_cancelled_while_it_waits_asks_no_more(opens: Opens):
    scene = await opens().open()
    await told(await scene.asks("a"))
    b = await scene.begin("b")
    await scene.shows(1, 1)
    await b.signal(names.SIGNAL_CANCEL, "not wanted")
    assert (await b.result()).phase is Phase.CANCELLED
    await scene.shows(1, 0)
    await replays(b)
    await scene.handle.terminate()


async def test_a_workload_without_its_queue_says_so_and_looks_again(opens: Opens, env: WorkflowEnvironment):
    scene = opens()
    a = await scene.begin("a")
    await shown(a, "is not there: `holdfast queue apply` brings it back; it is looked for again")
    await env.sleep(timedelta(minutes=1))
    await shown(a, "is not there")
    await scene.open()
    # Once it is let in an activity waits for a worker, and time is not skipped any more.
    skipped = asyncio.create_task(env.sleep(timedelta(minutes=2)))
    await scene.shows(1, 0)
    await a.terminate()
    await scene.handle.terminate()
    skipped.cancel()
    await asyncio.gather(skipped, return_exceptions=True)
