"""Start, query and cancel a graph of workloads (row L31)."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, TypeVar, cast

from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowQueryFailedError
from temporalio.common import (
    WorkflowIDConflictPolicy,
    WorkflowIDReusePolicy,
)
from temporalio.exceptions import ApplicationError, TerminatedError, WorkflowAlreadyStartedError
from temporalio.exceptions import TimeoutError as TimedOut
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.activities.entities.executions import word_for
from holdfast.client.connection import Place, explained, refusals
from holdfast.client.found import check_own
from holdfast.client.patience import Patience
from holdfast.client.silence import Silence, answer_of, unanswered, unserved
from holdfast.client.submission import begin, in_the_way, make_way
from holdfast.errors import AlreadyEnded, HoldfastError, SpecConflict
from holdfast.model import Workload
from holdfast.model.entities.graph import Graph, GraphStatus
from holdfast.workflows.start import keywords

R = TypeVar("R")
T = TypeVar("T")

_TOGETHER: Final = 16
"""How many workloads are submitted at the same time."""
_LOOKS: Final = 30
"""How many times, once a second, a graph that was terminated is looked for: a watchdog looks every 10 s."""


@dataclass(frozen=True)
class GraphRun:
    """One graph that was found or started."""

    client: Client
    place: Place
    workflow_id: str
    uid: str = ""
    """Identifies the submission; empty: whichever submission has the name."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.workflow_id.rpartition("/")[2]

    async def status(self) -> GraphStatus:
        """Return its status: each of its workloads, and what the waiting ones wait for.

        Raises:
            HoldfastError: if no graph of this name exists, a later one has the name, or no worker answers.
            NotReachable: if Temporal does not answer.
        """
        try:
            found = await answer_of(
                self.client, self.workflow_id, lambda: self._handle.query(names.QUERY_STATUS, result_type=dict)
            )
        except (TimeoutError, WorkflowQueryFailedError) as error:
            raise await unanswered(self.client, self.workflow_id, "workflows") from error
        except RPCError as error:
            raise explained(error, self.place) from error
        return self._own(GraphStatus.model_validate(found))

    async def silence(self) -> Silence | None:
        """Return why no worker runs it, and since when; None if one polls, or it has ended (row D36).

        Raises:
            HoldfastError: if no graph of this name exists.
            NotReachable: if Temporal does not answer.
        """
        try:
            return await unserved(self.client, self.workflow_id)
        except RPCError as error:
            raise explained(error, self.place) from error

    async def cancel(self, reason: str = "") -> None:
        """End all workloads that have not ended: waiting ones never begin, running ones are removed.

        Raises:
            HoldfastError: if it has ended, it does not exist, or a later graph has its name.
            NotReachable: if Temporal does not answer.
        """
        try:
            # The workflow ignores a signal meant for another submission: one may begin between these two calls.
            await self._handle.signal(names.SIGNAL_CANCEL, args=[reason, self.uid] if self.uid else [reason])
            memo = await (await self._handle.describe()).memo()
        except RPCError as error:
            raise explained(error, self.place) from error
        self._check(str(memo.get(names.MEMO_UID, "")))

    async def result(self) -> GraphStatus:
        """Wait until all of it has ended and holds nothing any more; a failed graph is returned, not raised.

        If its workflow was terminated, it waits 30 s for a watchdog to begin it anew.

        Raises:
            HoldfastError: if its workflow ended without a status, or a later graph has its name.
            NotReachable: if Temporal does not answer.
        """
        return await Patience().ask(self._result)

    async def _result(self) -> GraphStatus:
        while True:
            try:
                return self._own(GraphStatus.model_validate(await self._handle.result()))
            except WorkflowFailureError as error:
                cause = error.cause
                if isinstance(cause, ApplicationError) and cause.type == names.ERROR_GRAPH_FAILED and cause.details:
                    return self._own(GraphStatus.model_validate(cause.details[0]))
                if not isinstance(cause, TerminatedError | TimedOut) or not await self._begun_anew():
                    raise HoldfastError(f"{self.workflow_id} has ended without a status: {cause}") from error
            except RPCError as error:
                raise explained(error, self.place) from error

    async def _begun_anew(self) -> bool:
        """Wait for a run after one that was ended from outside; return whether there is one."""
        for _ in range(_LOOKS):
            try:
                description = await self._handle.describe()
                self._check(str((await description.memo()).get(names.MEMO_UID, "")))
            except RPCError as error:
                raise explained(error, self.place) from error
            if description.status not in {WorkflowExecutionStatus.TERMINATED, WorkflowExecutionStatus.TIMED_OUT}:
                return True
            await asyncio.sleep(1)
        return False

    def _own(self, status: GraphStatus) -> GraphStatus:
        self._check(status.graph.uid)
        return status

    def _check(self, uid: str) -> None:
        check_own(f"graph {self.name}", self.uid, uid)

    @property
    def _handle(self) -> Any:
        return self.client.get_workflow_handle(self.workflow_id, result_type=dict)


async def submit(client: Client, place: Place, graph: Graph, workloads: Sequence[Workload], *, again: bool) -> GraphRun:
    """Start a graph and all of its workloads, or continue an earlier submission of it that was interrupted."""
    stamped = graph.model_copy(update={"submitted_at": datetime.now(UTC)})
    run, spec_hash = GraphRun(client, place, stamped.workflow_id, stamped.uid), _hash(graph, workloads)
    known = await _under_way(run, spec_hash, again=again)
    if known is None:
        # Report a name conflict before anything begins. Also wait until the leftovers of an earlier graph of this name
        # have sent their final messages, which this graph would take for its own.

        async def is_under_way() -> bool:
            return await _under_way(run, spec_hash, again=again) is not None

        earlier = await _each(
            workloads, lambda one: in_the_way(client, place, one, again=again, is_under_way=is_under_way)
        )
        await _each([one for one in earlier if one is not None], lambda one: make_way(client, place, one))
        known = await _begun(run, stamped, spec_hash, again=again)
    heard = set[str]()
    if known is not None:
        run = replace(run, uid=known)
        heard = {name for name, item in (await run.status()).items.items() if item.uid}
    waiting = [one for one in workloads if one.graph is None or one.graph.item not in heard]
    await _each(waiting, lambda one: begin(client, place, one, again=again))
    await end_unheard(run, waiting)
    return run


async def _each(things: Sequence[T], act: Callable[[T], Awaitable[R]]) -> list[R]:
    """Act on all things, up to `_TOGETHER` at the same time, and return the results; raise the first error."""
    turns = asyncio.Semaphore(_TOGETHER)

    async def one(thing: T) -> R:
        async with turns:
            return await act(thing)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(thing)) for thing in things]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


async def end_unheard(run: GraphRun, workloads: Sequence[Workload]) -> None:
    """End the workloads that were submitted after their graph had ended: nothing will ever let them begin."""
    try:
        description = await run.client.get_workflow_handle(run.workflow_id).describe()
    except RPCError as error:
        raise explained(error, run.place) from error
    if description.status is WorkflowExecutionStatus.RUNNING:
        return
    items = (await run.status()).items
    for one in workloads:
        if one.graph is None or not items[one.graph.item].uid:
            handle = run.client.get_workflow_handle(one.workflow_id)
            try:
                await handle.signal(names.SIGNAL_CANCEL, "its graph had ended before it was handed in")
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:  # It has already ended by itself.
                    raise explained(error, run.place) from error


def _hash(graph: Graph, workloads: Sequence[Workload]) -> str:
    """Return a hash that tells two submissions apart: of the graph and of each workload's specification."""
    told = graph.model_dump_json(exclude={"submitted_at"}) + "".join(one.spec_hash() for one in workloads)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


async def _begun(run: GraphRun, graph: Graph, spec_hash: str, *, again: bool) -> str | None:
    """Start a graph's workflow; if the same graph is already under way, return its uid."""
    try:
        with refusals(run.place):
            await run.client.start_workflow(
                names.GRAPH_WORKFLOW,
                graph.model_dump(mode="json"),
                id=run.workflow_id,
                task_queue=graph.task_queue,
                id_reuse_policy=(
                    WorkflowIDReusePolicy.ALLOW_DUPLICATE if again else WorkflowIDReusePolicy.REJECT_DUPLICATE
                ),
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                memo={names.MEMO_SPEC_HASH: spec_hash, names.MEMO_UID: graph.uid},
                search_attributes=keywords(graph.columns),
                static_summary=graph.summary,
            )
        return None
    except WorkflowAlreadyStartedError:
        return await _under_way(run, spec_hash, again=False)


async def _under_way(run: GraphRun, spec_hash: str, *, again: bool) -> str | None:
    """Return the uid of the same graph if it is under way; empty if an earlier release began it.

    Raises:
        AlreadyEnded: if it has ended, and `again` is not given.
        SpecConflict: if another graph of this name is under way.
    """
    try:
        description = await run.client.get_workflow_handle(run.workflow_id).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise explained(error, run.place) from error
    if description.status is not WorkflowExecutionStatus.RUNNING:
        if again:
            return None
        raise AlreadyEnded(run.workflow_id, word_for(description))
    memo = cast("dict[str, Any]", await description.memo())
    theirs = str(memo.get(names.MEMO_SPEC_HASH, ""))
    if theirs != spec_hash:
        raise SpecConflict(run.workflow_id, theirs, spec_hash)
    return str(memo.get(names.MEMO_UID, ""))
