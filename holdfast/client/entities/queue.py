"""Admission queues: create, query and end one, and find the queue that admits a submission (row L9)."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Final

from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.activities.entities.executions import memo_of
from holdfast.client.connection import Place, explained, refusals
from holdfast.client.entities.configured import Configured
from holdfast.client.found import describe
from holdfast.errors import HoldfastError, InvalidWorkload, Problem
from holdfast.model import Workload
from holdfast.model.entities.queue import CLOSING, Queue, QueueStatus

_QUEUE: Final = SearchAttributeKey.for_keyword(names.SA_QUEUE)
_KNOWN_SECONDS: Final = 5.0
"""How long a program caches which queues exist."""
_SHOWN: Final = 20
_DEFAULT: Final = "default"
"""The queue of a workload that does not name one."""


@dataclass(frozen=True)
class QueueRun(Configured[Queue, QueueStatus]):
    """One admission queue. A new configuration evicts no admitted workload. If cancelled, the queue ends once empty."""

    type = names.QUEUE_WORKFLOW
    remedy = "holdfast queue list shows which there are, and holdfast queue apply FILE makes one"
    role = "admission"
    told = QueueStatus

    @property
    def name(self) -> str:
        """Its name."""
        return names.parse_queue_id(self.workflow_id)[1]


async def apply(client: Client, place: Place, queue: Queue) -> QueueRun:
    """Create a queue, or change the existing one (see `Holdfast.apply_queue`)."""
    run = QueueRun(client, place, queue.workflow_id)
    await run.apply(queue)
    return run


async def place_of(client: Client, place: Place, workload: WorkflowExecutionDescription) -> str:
    """Return a workload's place in its queue and why it is not admitted; empty if no queue admits it."""
    memo: dict[str, Any] = dict(await workload.memo())
    queue = workload.typed_search_attributes.get(_QUEUE)
    if not memo.get(names.MEMO_QUEUED) or not queue:
        return ""
    cluster, _, _ = names.parse_workflow_id(workload.id)
    try:
        told = await QueueRun(client, place, names.queue_id(cluster, queue)).status()
    except HoldfastError as error:
        return str(error)
    mine = next((one for one in told.lines if one.uid == memo.get(names.MEMO_UID)), None)
    if mine is not None and mine.admitted:
        return f"{queue}: it was admitted; it has not received that yet"
    if mine is None:
        listed = sum(not one.admitted for one in told.lines)
        if listed < told.waiting:
            return f"{queue}: it is not among the first {listed} of {told.waiting} that wait"
        return f"{queue}: it is not among the {told.waiting} that wait: the queue has not received it yet"
    return f"{queue}: place {mine.position} of {told.waiting}: {mine.why}"


async def of_cluster(client: Client, place: Place, cluster: str) -> list[QueueRun]:
    """Return the existing queues of a cluster, sorted by name."""
    query = (
        f"WorkflowType = '{names.QUEUE_WORKFLOW}' AND ExecutionStatus = 'Running' AND {names.SA_CLUSTER} = '{cluster}'"
    )
    with refusals(place):
        found = [QueueRun(client, place, one.id) async for one in client.list_workflows(query)]
    return sorted(found, key=lambda one: one.name)


@dataclass
class Directory:
    """Finds the queue that admits a submission. Caches for some seconds: a program may submit hundreds at once."""

    client: Client
    place: Place
    _known: dict[str, tuple[float, bool]] = field(default_factory=dict[str, tuple[float, bool]])

    def forget(self) -> None:
        """Clear the cache."""
        self._known.clear()

    async def placed(self, workload: Workload) -> Workload:
        """Return the workload to submit, with `queued` set if its queue's workflow admits it.

        If a cluster has no queues at all, a queue is only a name to list workloads by, and each workload begins by
        itself. A workload that names no queue also begins by itself, unless a queue named `default` exists.

        Raises:
            InvalidWorkload: if its cluster has queues, but none of that name, or its queue is being deleted.
            NotReachable: if Temporal does not answer.
        """
        workflow_id = names.queue_id(workload.cluster, workload.queue)
        seen, queued = self._known.get(workflow_id, (0.0, False))
        if not seen or time.monotonic() - seen > _KNOWN_SECONDS:
            queued = await self._takes(workflow_id, workload)
            if not queued and workload.queue != _DEFAULT:
                await self._refuse_unknown(workload)
            self._known[workflow_id] = (time.monotonic(), queued)
        # Keep `queued` if the program has set it: the workload may wait for a queue that does not exist yet.
        return workload.model_copy(update={"queued": True}) if queued else workload

    async def _takes(self, workflow_id: str, workload: Workload) -> bool:
        """Whether there is such a queue; one that is told to end takes no other workload than it has."""
        try:
            description = await self.client.get_workflow_handle(workflow_id).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise explained(error, self.place) from error
        runs = description.status is WorkflowExecutionStatus.RUNNING
        # What cannot be read tells nothing: the queue itself says what it does with the workload.
        if runs and (await memo_of(description) or {}).get(names.MEMO_CLOSING):
            present = await describe(self.client, self.place, workload.workflow_id)
            if present is not None and present.status is WorkflowExecutionStatus.RUNNING:
                return True
            raise InvalidWorkload([Problem("queue", CLOSING, workload.queue)], f"workload {workload.name}")
        return runs

    async def _refuse_unknown(self, workload: Workload) -> None:
        if workload.queued:
            return
        there = [one.name for one in await of_cluster(self.client, self.place, workload.cluster)]
        if there:
            more = ("...",) if len(there) > _SHOWN else ()
            problem = Problem(
                "queue",
                f"there is no such admission queue on cluster {workload.cluster}",
                workload.queue,
                (*there[:_SHOWN], *more),
            )
            raise InvalidWorkload([problem], f"workload {workload.name}")
