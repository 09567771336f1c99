"""A cluster of the tests' own: the activities of the contract, answered from memory, and a worker that runs them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

from temporalio import activity
from temporalio.client import Client
from temporalio.worker import Worker

from holdfast import HoldfastPlugin, names
from holdfast.model import ComponentView, Failure, FailureClass, ObjectRef, OperationKind, PodCounts, Remnant, Scope
from holdfast.model.calls.cluster import (
    Created,
    CreateInput,
    Observation,
    ObserveInput,
    PlannedComponent,
    Prepared,
    PrepareInput,
    Progress,
    Removed,
    RemoveInput,
    ReportInput,
    Reset,
    ResetInput,
    planned,
)
from holdfast.policy.loop.promise import is_repeated
from tests.fakes import activities_of


@dataclass
class Cluster:
    """What the cluster is to answer."""

    name: str = "dev"
    complete: bool = False
    endless: tuple[str, ...] = ()
    """If given: workloads that never complete; all others do, soon."""
    failing: str = ""
    stuck: asyncio.Event | None = None
    """Removal does not come to an end before this is set."""
    marks: set[str] = field(default_factory=set)
    """The resets that have begun to remove their attempt."""
    revision: int = 1
    done: set[tuple[str, int]] = field(default_factory=set)
    removed: set[tuple[str, int]] = field(default_factory=set)
    created: dict[str, list[int]] = field(default_factory=dict)
    """Attempts created, by workload; other tests' workloads may find their way here too."""
    client: Client | None = None
    telling: set[asyncio.Task[None]] = field(default_factory=set)

    @activity.defn(name=OperationKind.PREPARE)
    async def prepare(self, given: PrepareInput) -> Prepared:
        return Prepared(cluster_uid="c", anchor_uid="a", owner_uid=str(uuid.uuid4()))

    @activity.defn(name=OperationKind.CREATE)
    async def create(self, given: CreateInput) -> Created:
        self.created.setdefault(given.target.name, []).append(given.attempt)
        plan = tuple(planned(each, given.target.workload_uid, given.attempt) for each in given.components)
        task = asyncio.create_task(self.live(given, plan))
        self.telling.add(task)
        task.add_done_callback(self.telling.discard)
        return Created(objects=(ObjectRef(api_version="batch/v1", kind="Job", name="main", uid="u"),))

    @activity.defn(name=OperationKind.OBSERVE)
    async def observe(self, given: ObserveInput) -> Observation:
        return self.seen(given.target.workload_uid, given.attempt, given.owner_uid, given.plan, live=True)

    @activity.defn(name=OperationKind.RESET)
    async def reset(self, given: ResetInput) -> Reset:
        seen = await self.observe(given.look)
        now = datetime.now(UTC)
        repeated = is_repeated(given.workload, given.memory, given.promise, seen, given.since, now)
        if given.settles or not repeated:
            return Reset(confirmed=given.mark in self.marks, seen=seen)
        self.marks.add(given.mark)
        return Reset(confirmed=True, seen=seen, removed=await self.remove(given.removal))

    @activity.defn(name=OperationKind.REMOVE)
    async def remove(self, given: RemoveInput) -> Removed:
        while self.stuck is not None and not self.stuck.is_set():
            progress = Progress(
                doing="1 of 2 pods left", remaining=("Pod worker-0 (finalizer example.com/hold)",), remaining_total=1
            )
            activity.heartbeat(progress.model_dump(mode="json", by_alias=True))
            await asyncio.sleep(0.2)
            if datetime.now(UTC) > given.until:
                left = Remnant(kind="Pod", name="worker-0", finalizers=("example.com/hold",))
                return Removed(gone=False, remnants=(left,), remnants_total=1)
        self.removed.add((given.target.workload_uid, given.attempt))
        return Removed(gone=True)

    @activity.defn(name=OperationKind.FORCE_REMOVE)
    async def force_remove(self, given: RemoveInput) -> Removed:
        return await self.remove(given)

    @activity.defn(name=OperationKind.REPORT)
    async def report(self, given: ReportInput) -> None:
        return None

    async def live(self, given: CreateInput, plan: tuple[PlannedComponent, ...]) -> None:
        """Signal what becomes of an attempt, as the watch does."""
        uid, number = given.target.workload_uid, given.attempt
        assert self.client is not None
        handle = self.client.get_workflow_handle(given.target.workflow_id)

        async def tell() -> None:
            if (uid, number) not in self.removed:
                await handle.signal(names.SIGNAL_OBSERVE, self.seen(uid, number, given.owner_uid, plan, live=False))

        await asyncio.sleep(0.2)
        await tell()
        if self.endless and given.target.name not in self.endless:
            await asyncio.sleep(1 if number > 1 else 5)  # The first is suspended before, or preempted.
            self.done.add((uid, number))
            await tell()

    def seen(
        self, uid: str, attempt: int, owner: str, plan: tuple[PlannedComponent, ...], *, live: bool
    ) -> Observation:
        """A snapshot, as the watch and a live look give it."""
        self.revision += 1
        now = datetime.now(UTC)
        gone = (uid, attempt) in self.removed
        complete = self.complete or (uid, attempt) in self.done
        views: dict[str, ComponentView] = {}
        for each in plan:
            count = each.expected_pods
            pods = PodCounts(expected=count, running=count)
            if complete:
                pods = PodCounts(expected=count, succeeded=count)
            if self.failing:
                pods = PodCounts(expected=count, running=count - 1, failed=1)
            there = ComponentView(uid="u", complete=complete, pods=pods)
            views[each.name] = ComponentView(found=False) if gone else there
        failures: tuple[Failure, ...] = ()
        if self.failing and not gone:
            failure = Failure(
                cls=FailureClass.APP,
                scope=Scope.MEMBER,
                reason=self.failing,
                time=now,
                component=plan[0].name,
                subject="worker-0",
                exit_code=137,
                node="node-7",
                attempt=attempt,
            )
            failures = (failure,)
        return Observation(
            workload_uid=uid,
            attempt=attempt,
            owner_uid=owner,
            at=now,
            live=live,
            revision=self.revision,
            owner_found=not gone,
            components=views,
            failures=failures,
            failures_total=len(failures),
        )


@asynccontextmanager
async def working(client: Client, cluster: Cluster) -> AsyncGenerator[None]:
    """Run workers for the workflows and for the cluster; whoever asks them waits for the answer."""
    cluster.client = client
    activities = activities_of(cluster)
    shared = {"namespace": client.namespace, "data_converter": client.data_converter}
    deciding = Client(client.service_client, plugins=[HoldfastPlugin(["workflows"])], **shared)
    acting = Client(client.service_client, **shared)
    async with AsyncExitStack() as stack:
        stack.enter_context(patch("holdfast.client.run.ANSWER_TIMEOUT", timedelta(seconds=30)))
        workers = [Worker(deciding, task_queue=names.QUEUE_WORKFLOWS)]
        queues = (names.queue_cluster(cluster.name), names.queue_wait(cluster.name))
        workers += [Worker(acting, task_queue=queue, activities=activities) for queue in queues]
        for worker in workers:
            await stack.enter_async_context(worker)
        yield
