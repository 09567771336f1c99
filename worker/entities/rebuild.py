"""Restarts an entity that a document began: from that document, and from the present state of its workloads.

The state of its last run is not trusted: it may be the very thing that no worker can read. The document is in the
history of its runs, which Temporal keeps for its retention period. Everything is prepared before a run that still holds
the id is terminated: an entity that could not be restarted is left as it is. Several workers may do this at once:
Temporal starts one run of an id, and rejects the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import structlog
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowQueryFailedError
from temporalio.common import (
    SearchAttributeKey,
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.activities.entities.executions import PastRun, described, past_runs
from holdfast.activities.entities.last_documents import (
    NotNow,
    attempt_is_over,
    configured,
    graph_document,
    latest_begin,
    parsed,
    queue_memory,
    rendezvous_memory,
    sized,
)
from holdfast.model import Status
from holdfast.model.calls.gang import GangBegin, RendezvousInput, RendezvousMemory
from holdfast.model.entities.broker import Broker
from holdfast.model.entities.document import EntityDocument
from holdfast.model.entities.graph import Graph
from holdfast.model.entities.queue import Queue
from holdfast.model.gang.state import GangState
from holdfast.model.packed import packed
from holdfast.policy.entities.graph_rebuild import Found, found_closed, found_open, rebuilt
from holdfast.policy.entities.queue_rebuild import rebuilt as rebuilt_queue
from holdfast.policy.rendezvous.rebuild import beyond
from holdfast.policy.rendezvous.rebuild import rebuilt as rebuilt_gang
from holdfast.policy.rendezvous.step import begun
from holdfast.policy.values.edit import edit
from holdfast.worker.entities.begin import TASK_TIMEOUT
from holdfast.workflows.start import keywords

_ANSWER: Final = timedelta(seconds=5)
_PHASE: Final = SearchAttributeKey.for_keyword(names.SA_PHASE)
_AT_ONCE: Final = 8
"""Workloads that are queried at the same time."""
_TRIES: Final = 20
"""How often a graph's workload that does not answer is asked once its graph has begun, while Temporal itself does."""
_AWAY: Final = frozenset({RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.RESOURCE_EXHAUSTED})
"""What Temporal answers while it is away: this passes."""
_PAUSE: Final = 1.0
"""Seconds between two such tries."""
_CUT_OFF: Final = frozenset({WorkflowExecutionStatus.TERMINATED, WorkflowExecutionStatus.TIMED_OUT})
"""How a workflow closes that has not removed its workload."""
_SKEW: Final = timedelta(minutes=5)
"""How far the clock of a graph's submitter may be ahead of the server's."""

Start = Callable[[], Awaitable[None]]
"""Starts an entity, once nothing runs under its id."""

Log: Any = structlog.stdlib.get_logger("holdfast.worker.entities.watchdog")


async def prepare_queue(client: Client, workflow_id: str) -> Start | None:
    """Prepare to restart a queue. The queue asks all of its workloads what they hold before it admits any.

    Raises:
        NotNow: if no document of the queue is left.
        RPCError: if Temporal does not answer.
    """
    queue, closing, runs = await configured(client, workflow_id, Queue)
    state = rebuilt_queue(queue, *queue_memory(runs))
    begin = partial(_begin_document, client, queue, [queue.model_dump(mode="json"), state.model_dump(mode="json")])

    async def start() -> None:
        await begin()
        if closing is not None:  # It was closing, and continues to close.
            await client.get_workflow_handle(workflow_id).signal(names.SIGNAL_CANCEL, closing)

    return start


async def prepare_broker(client: Client, workflow_id: str) -> Start | None:
    """Prepare to restart a checkpoint broker. It considers all running workloads in its first cycle.

    Raises:
        NotNow: if no document of the broker is left.
        RPCError: if Temporal does not answer.
    """
    broker, closing, _ = await configured(client, workflow_id, Broker)
    if closing is not None:
        return None
    return partial(_begin_document, client, broker, [broker.model_dump(mode="json")])


async def prepare_graph(client: Client, workflow_id: str) -> Start | None:
    """Prepare to restart a graph with the present state of its workloads.

    A workload does not repeat what it told the previous run. So all workloads are asked first, and those that had not
    ended are asked again after the start: no run received what they told in between.

    Raises:
        NotNow: if no document of the graph is left, or one of its workloads does not answer.
        RPCError: if Temporal does not answer.
    """
    graph, known, cancelled, memo = await graph_document(client, workflow_id)
    found = await _workloads(client, graph)
    state = rebuilt(graph, known, found, cancelled)
    begin = partial(
        _begin_document,
        client,
        graph,
        [packed(graph.model_dump(mode="json")), state.model_dump(mode="json")],
        memo=memo,
    )

    async def start() -> None:
        await begin()
        await _tell_since(client, graph, {name: one for name, one in found.items() if not one.is_over})

    return start


async def prepare_rendezvous(client: Client, workflow_id: str) -> Start | None:
    """Prepare to restart a gang's rendezvous. Its members announce themselves again, and meet for a later round.

    Raises:
        NotNow: if no run is left that shows its input.
        RPCError: if Temporal does not answer.
    """
    now, events, runs = datetime.now(UTC), 0, list[PastRun]()
    begin: GangBegin | None = None
    async for run in past_runs(client, workflow_id):
        events += run.length
        runs.append(run)
        begin = begin or latest_begin(run)
        memory, sure = rendezvous_memory(run)
        if begin is None or not sure:
            continue  # Only the run before it shows how far this run had come.
        if attempt_is_over(runs, begin):
            return None
        attempt = sized(begin, runs)
        state = _state_of(attempt, memory, events, now)
        generation = beyond(memory.generation if memory is not None else 0, events)
        left = RendezvousMemory(state=state, generation=generation)
        return partial(
            _begin,
            client,
            names.RENDEZVOUS_WORKFLOW,
            [RendezvousInput(**dict(attempt), memory=left)],
            workflow_id,
            task_queue=names.QUEUE_WORKFLOWS,
            summary=f"the gang of {attempt.namespace}/{attempt.workload}",
        )
    raise NotNow("no run of it is left that says which gang it is")


def _state_of(begin: GangBegin, memory: RendezvousMemory | None, events: int, now: datetime) -> GangState:
    state = begun(begin.gang, begin.run_id, begin.attempt, now)
    if memory is not None:
        same = memory.state.run_id == begin.run_id
        state = edit(memory.state, gang=begin.gang) if same else edit(state, revision=memory.state.revision)
    return rebuilt_gang(state, events, now)


# The state of a graph's workloads.


async def _workloads(client: Client, graph: Graph) -> dict[str, Found]:
    """Return the state of a graph's workloads, by item; one that does not answer raises."""
    turns = asyncio.Semaphore(_AT_ONCE)

    async def find(item: str) -> tuple[str, Found | None]:
        async with turns:
            return item, await _workload(client, graph, item)

    found = await asyncio.gather(*map(find, graph.items))
    return {item: workload for item, workload in found if workload is not None}


async def _tell_since(client: Client, graph: Graph, before: Mapping[str, Found]) -> None:
    """Tell a graph that has begun what its workloads told nobody since they were found; each by itself.

    No later look finds that: the graph runs, and is well. So what Temporal does not answer is asked until it does.
    """
    turns = asyncio.Semaphore(_AT_ONCE)
    handle = client.get_workflow_handle(graph.workflow_id)

    async def once(item: str) -> None:
        async with turns:
            workload = await _workload(client, graph, item)
            if workload is not None and workload.outcome is not None and workload != before[item]:
                await handle.signal(names.SIGNAL_NEWS, workload.news(item))

    async def tell(item: str) -> None:
        left = _TRIES
        while left:
            try:
                await once(item)
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return  # The graph has ended meanwhile.
                left, why = left - (error.status not in _AWAY), str(error)
            except Exception as error:  # A codec may raise any; one that never answers must not hold up the others.
                left, why = left - 1, str(error) or type(error).__name__
            else:
                return
            Log.warning("a graph was not told of a workload: tried again", workflow_id=graph.workflow_id, why=why)
            await asyncio.sleep(_PAUSE)

    await asyncio.gather(*map(tell, before))


async def _workload(client: Client, graph: Graph, item: str) -> Found | None:
    place = names.workflow_id(graph.cluster, graph.namespace, graph.workload(item))
    latest = await described(client, place)
    if latest is None:
        return None
    memo: dict[str, Any] = dict(await latest.memo())
    uid = str(memo.get(names.MEMO_UID) or latest.raw_description.workflow_execution_info.first_run_id)
    if latest.status is not WorkflowExecutionStatus.RUNNING:
        if graph.submitted_at is not None and latest.start_time < graph.submitted_at - _SKEW:
            return None  # It belonged to an earlier graph of this name.
        status = parsed(Status, memo.get(names.MEMO_STATUS))
        failed = latest.status is WorkflowExecutionStatus.FAILED
        phase = latest.typed_search_attributes.get(_PHASE)
        return found_closed(uid, status, failed=failed, cut_off=latest.status in _CUT_OFF, phase=phase)
    handle: Any = client.get_workflow_handle(place)
    try:
        status = await handle.query(names.QUERY_STATUS, result_type=Status, rpc_timeout=_ANSWER)
    except (RPCError, WorkflowQueryFailedError) as error:
        raise NotNow(f"{graph.workload(item)} does not answer: whether it was let in is not known") from error
    if not isinstance(status, Status):
        raise NotNow(f"{graph.workload(item)} has no status yet")
    return found_open(status)


async def _begin_document(
    client: Client, document: EntityDocument, arguments: list[Any], memo: Mapping[str, Any] | None = None
) -> None:
    await _begin(
        client,
        document.workflow,
        arguments,
        document.workflow_id,
        task_queue=document.task_queue,
        summary=document.summary,
        columns=document.columns,
        memo=memo,
    )


async def _begin(
    client: Client,
    workflow: str,
    arguments: list[Any],
    workflow_id: str,
    *,
    task_queue: str,
    summary: str,
    columns: Mapping[str, str] | None = None,
    memo: Mapping[str, Any] | None = None,
) -> None:
    try:
        await client.start_workflow(
            workflow,
            args=arguments,
            id=workflow_id,
            task_queue=task_queue,
            task_timeout=TASK_TIMEOUT,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            search_attributes=keywords(columns or {}),
            memo={**(memo or {}), names.MEMO_REBUILT: True},
            static_summary=summary,
        )
    except WorkflowAlreadyStartedError:
        Log.info("another worker has begun it", workflow_id=workflow_id)


PREPARE: Final[Mapping[str, Callable[[Client, str], Awaitable[Start | None]]]] = {
    names.QUEUE_WORKFLOW: prepare_queue,
    names.BROKER_WORKFLOW: prepare_broker,
    names.GRAPH_WORKFLOW: prepare_graph,
    names.RENDEZVOUS_WORKFLOW: prepare_rendezvous,
}
"""Prepares the restart of each kind that a document begins; returns None if it was about to end, and stays ended."""
