"""Holdfast: its worker processes, its client, and Temporal's record of what has ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowExecutionDescription, WorkflowHandle

from bench.audit import Entry, received, user
from bench.ground import Ground
from bench.seeing import PATIENCE, Json
from bench.systems.base import Controller
from bench.work import in_flight
from holdfast import names
from holdfast.activities.kube.client import service_account_user
from holdfast.client import Holdfast
from holdfast.formats.appwrapper import reader
from holdfast.model import OperationKind, Phase
from holdfast.model.calls.cluster import Reset
from tests.e2e.ground.site import Site, Worker, open_site, until

WORKER = service_account_user(names.WORKER_NAMESPACE, names.WORKER_SERVICE_ACCOUNT)
POLL = 0.1
"""Seconds between two looks at Temporal's list, which nobody can watch."""


class HoldfastSystem(Controller):
    """Workers under their own rights, and a client that starts workloads as any would."""

    name = "Holdfast"

    def __init__(self, ground: Ground, namespace: str, site: Site, client: Holdfast) -> None:
        super().__init__(ground, namespace)
        self.site = site
        self.client = client
        self.manager = site.managed_by

    @property
    def workers(self) -> list[Worker]:
        """The workers that run."""
        return [worker for worker in self.site.workers if worker.process.poll() is None]

    @property
    def pids(self) -> dict[str, int]:
        """The workers; Temporal is among the stack's processes."""
        found = [worker.process.pid for worker in self.workers]
        return {f"worker{index or ''}": pid for index, pid in enumerate(found)}

    def asks(self, entry: Entry) -> bool:
        """Whatever the worker's account sent, as itself or as a workload's account."""
        return user(entry) == WORKER

    async def start_worker(self) -> Worker:
        """Start one more worker, with the settings of this run, and wait until it is ready."""
        worker = self.site.launch(kubeconfig=None, **self.ground.options.worker)
        await self.site.ready(worker, PATIENCE)
        return worker

    async def submit(self, document: Json) -> None:
        """Read the document and start its workflow, through the client."""
        workload = reader.read(document, cluster=self.site.cluster, namespace=self.namespace)
        await self.client.submit(workload)

    async def recorded(self, count: int) -> float:
        """Wait until Temporal lists so many as Running."""
        query = f"{names.SA_PHASE} = 'Running' AND {names.SA_NAMESPACE} = '{self.namespace}'"
        return await self._listed(query, lambda found: found >= count)

    async def ended(self, count: int) -> float:
        """Wait until Temporal lists so many as Succeeded."""
        query = f"{names.SA_PHASE} = 'Succeeded' AND {names.SA_NAMESPACE} = '{self.namespace}'"
        return await self._listed(query, lambda found: found >= self.past + count)

    async def suspend(self, name: str) -> None:
        """Send the signal."""
        await self._signal(name, names.SIGNAL_SUSPEND)

    async def resume(self, name: str) -> None:
        """Send the signal."""
        await self._signal(name, names.SIGNAL_RESUME)

    async def remove(self, name: str) -> None:
        """Send the signal that cancels it."""
        await self._signal(name, names.SIGNAL_CANCEL)

    async def removed(self) -> float:
        """Wait until no workload's workflow is running: each closes when everything is proven gone."""
        query = f"{names.SA_NAMESPACE} = '{self.namespace}' AND ExecutionStatus = 'Running'"
        return await self._listed(query, lambda found: found == 0)

    async def suspended(self, count: int) -> None:
        """Wait until Temporal lists so many as Suspended."""
        query = f"{names.SA_PHASE} = 'Suspended' AND {names.SA_NAMESPACE} = '{self.namespace}'"
        await self._listed(query, lambda found: found >= count)

    async def in_grace(self, workloads: list[str]) -> None:
        """Ask each until it says that it is Unhealthy, or is past its grace already."""

        async def unhealthy(name: str) -> bool:
            status = await self.site.status(self.site.client.get_workflow_handle(self.workflow_id(name)))
            told = any(each.type == "Unhealthy" and each.status for each in status.conditions)
            return told or status.phase is Phase.RESETTING

        await in_flight(
            [lambda name=name: until(lambda: unhealthy(name), PATIENCE, f"{name} is unhealthy") for name in workloads],
            10,
        )

    def acts(self, entries: Iterable[Entry]) -> list[tuple[str, datetime]]:
        """Return when the removal of each first attempt was asked for, and not refused."""
        return [
            (entry["objectRef"]["name"].rpartition("-a")[0], received(entry))
            for entry in entries
            if self.asks(entry)
            and entry["verb"] == "delete"
            and entry["objectRef"].get("resource") == names.ATTEMPT_PLURAL
            and entry["responseStatus"]["code"] < 300
        ]

    async def decided(self, workloads: list[str]) -> dict[str, datetime]:
        """Return when the workflow task that schedules the first removal was completed, by the history."""
        return await self._read(workloads, removal_decided)

    async def due(self, workloads: list[str]) -> dict[str, datetime]:
        """Return when the last timer before the first removal was to fire, by the history."""
        return await self._read(workloads, removal_due)

    async def history_events(self, workloads: list[str]) -> int | None:
        """Return the lengths of the histories, summed."""
        return await self._sum(workloads, lambda found: found.history_length)

    async def history_bytes(self, workloads: list[str]) -> int | None:
        """Return the sizes of the histories, summed."""
        return await self._sum(
            workloads, lambda found: found.raw_description.workflow_execution_info.history_size_bytes
        )

    async def _sum(self, workloads: list[str], of: Callable[[WorkflowExecutionDescription], int]) -> int:
        found: list[int] = []

        async def read(name: str) -> None:
            found.append(of(await self.site.client.get_workflow_handle(self.workflow_id(name)).describe()))

        await in_flight([lambda name=name: read(name) for name in workloads])
        return sum(found)

    def kill(self) -> None:
        """Kill the workers as a crash would."""
        for worker in self.workers:
            worker.kill()

    async def restart(self) -> None:
        """Start a worker, and wait until it is ready."""
        await self.start_worker()

    def workflow_id(self, name: str) -> str:
        """Return the id of a workload's workflow."""
        return names.workflow_id(self.site.cluster, self.namespace, name)

    async def _read(
        self, workloads: list[str], read: Callable[[WorkflowHandle[Any, Any]], Awaitable[datetime | None]]
    ) -> dict[str, datetime]:
        found: dict[str, datetime] = {}

        async def one(name: str) -> None:
            at = await read(self.site.client.get_workflow_handle(self.workflow_id(name)))
            if at is not None:
                found[name] = at

        await in_flight([lambda name=name: one(name) for name in workloads], 10)
        return found

    async def _signal(self, name: str, signal: str) -> None:
        await self.site.client.get_workflow_handle(self.workflow_id(name)).signal(signal)

    async def _listed(self, query: str, reached: Callable[[int], bool]) -> float:
        deadline = time.monotonic() + PATIENCE
        while True:
            found = (await self.site.client.count_workflows(query)).count
            if reached(found):
                return time.monotonic()
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {PATIENCE:g} s; {found} are there by {query}")
            await asyncio.sleep(POLL)


async def removal_decided(handle: WorkflowHandle[Any, Any]) -> datetime | None:
    """Return when the task that schedules a workflow's first removal was completed; None if there was none."""

    def decided(event: HistoryEvent, before: datetime | None) -> datetime | None:
        is_task = event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
        return event.event_time.ToDatetime(UTC) if is_task else before

    return await _before_removal(handle, decided)


async def removal_due(handle: WorkflowHandle[Any, Any]) -> datetime | None:
    """Return when the last timer before a workflow's first removal was to fire; None if there is no removal."""

    def due(event: HistoryEvent, before: datetime | None) -> datetime | None:
        if event.event_type != EventType.EVENT_TYPE_TIMER_STARTED:
            return before
        lasts = event.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta()
        return event.event_time.ToDatetime(UTC) + lasts

    return await _before_removal(handle, due)


async def _before_removal(
    handle: WorkflowHandle[Any, Any], read: Callable[[HistoryEvent, datetime | None], datetime | None]
) -> datetime | None:
    """Return the time that was read last of what comes before a workflow's first removal; None if there is none.

    A reset looks, and then removes in the same activity (record 0086). One that only looked does not count.
    """
    last: datetime | None = None
    resets: dict[int, datetime | None] = {}
    async for event in handle.fetch_history_events():
        last = read(event, last)
        match event.event_type:
            case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                kind = event.activity_task_scheduled_event_attributes.activity_type.name
                if kind == OperationKind.REMOVE:
                    return last
                if kind == OperationKind.RESET:
                    resets[event.event_id] = last
            case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                ended = event.activity_task_completed_event_attributes
                scheduled = ended.scheduled_event_id
                if scheduled in resets and Reset.model_validate_json(ended.result.payloads[0].data).confirmed:
                    return resets[scheduled]
            case _:
                pass
    return None


class WatchApart(HoldfastSystem):
    """Holdfast with its watch in a process of its own, which is left alone when the others are killed."""

    name = "Holdfast, watch apart"
    ROLES = "workflows,cluster,wait"

    def __init__(self, ground: Ground, namespace: str, site: Site, client: Holdfast) -> None:
        super().__init__(ground, namespace, site, client)
        self.watch: Worker | None = None

    @property
    def workers(self) -> list[Worker]:
        """The workers that run, the watch aside."""
        return [worker for worker in super().workers if worker is not self.watch]

    async def start_worker(self) -> Worker:
        """Start a worker without the watch; the first time the watch too."""
        if self.watch is None:
            self.watch = self.site.launch(kubeconfig=None, **self.ground.options.worker, HOLDFAST_ROLES="watch")
            await self.site.ready(self.watch, PATIENCE)
        worker = self.site.launch(kubeconfig=None, **self.ground.options.worker, HOLDFAST_ROLES=self.ROLES)
        await self.site.ready(worker, PATIENCE)
        return worker


@asynccontextmanager
async def open_holdfast(
    ground: Ground, workers: int = 1, *, leave: bool = False, kind: type[HoldfastSystem] = HoldfastSystem
) -> AsyncIterator[HoldfastSystem]:
    """Run workers with a Temporal namespace and a Kubernetes namespace of their own.

    `leave`: leave what is there, on a stack that is purged.
    """
    async with open_site(ground.stack, ground.directory, prefix="b", judge=False) as site:
        namespace = await site.namespace()
        async with Holdfast.connect(client=site.client, cluster=site.cluster) as client:
            system = kind(ground, namespace, site, client)
            for _ in range(workers):
                await system.start_worker()
            try:
                yield system
            finally:
                for worker in [worker for worker in site.workers if worker.process.poll() is None]:
                    worker.kill() if leave or ground.options.smoke else worker.stop()
                if leave:
                    site.namespaces.clear()
    if not leave:
        await ground.drop(namespace)
