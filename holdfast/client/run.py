"""One workload's run: read its state, send it requests, wait for it. Reads import no decisions, and start fast."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import ValidationError
from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
    WorkflowUpdateFailedError,
)
from temporalio.common import QueryRejectCondition, SearchAttributeKey, TypedSearchAttributes
from temporalio.exceptions import ApplicationError, TemporalError
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.activities.site.updates import update
from holdfast.client.connection import Place, explained
from holdfast.client.entities.health import unhealthy
from holdfast.client.found import Resubmitted, anew, check_own, check_retry, uid_of
from holdfast.client.patience import Patience
from holdfast.client.pending import activities_of
from holdfast.client.silence import ANSWER_TIMEOUT, Silence, silence_of
from holdfast.client.summary import abandoned
from holdfast.client.views import ActivityView, ExplanationView, StatusView, explanation_from
from holdfast.errors import AlreadyEnded, EndedFirst, HoldfastError, WorkloadFailed, WorkloadNotFound, one_line
from holdfast.model import Explanation, Phase, PodCounts, Reason, Status
from holdfast.model.gang.status import GangStatus
from holdfast.policy.values.edit import edit

if TYPE_CHECKING:
    from holdfast.model import Policy, Workload
    from holdfast.model.life.history import History
    from holdfast.model.life.ledger import Ledger
    from holdfast.past import Story
    from holdfast.policy.loop.change import ComponentsChange, PolicyChange
    from holdfast.policy.values.addressee import Addressed
    from holdfast.policy.values.events import RequeueRequest

T = TypeVar("T")

_POLL_FIRST: Final = 0.2
_POLL_LONGEST: Final = 3.0
_PHASE: Final = SearchAttributeKey.for_keyword(names.SA_PHASE)
_REASON: Final = SearchAttributeKey.for_keyword(names.SA_REASON)
_ATTEMPT: Final = SearchAttributeKey.for_int(names.SA_ATTEMPT)


def _unheard() -> None:
    """Do nothing: nobody listens."""


@dataclass(frozen=True)
class Run:
    """A workload's life, from its submission to its end. It follows its workflow through continue-as-new."""

    client: Client
    place: Place
    workflow_id: str
    uid: str
    run_id: str = ""
    taken: Callable[[], None] = field(default=_unheard, compare=False, repr=False)
    """Called when Temporal, or the workflow for an update, has accepted a request. After that, `Run` only waits."""

    @property
    def cluster(self) -> str:
        """The cluster it runs on."""
        return names.parse_workflow_id(self.workflow_id)[0]

    @property
    def namespace(self) -> str:
        """Its Kubernetes namespace."""
        return names.parse_workflow_id(self.workflow_id)[1]

    @property
    def name(self) -> str:
        """Its name."""
        return names.parse_workflow_id(self.workflow_id)[2]

    @property
    def handle(self) -> WorkflowHandle[Any, Any]:
        """The Temporal handle, for anything that this class does not offer."""
        return self.client.get_workflow_handle(self.workflow_id)

    async def status(self) -> StatusView:
        """Return its current status; if no worker answers within 3 s, the status that its workflow last recorded.

        Raises:
            HoldfastError: if its workflow was ended from outside: what became of its pods is not known.
            WorkloadNotFound: if Temporal no longer knows it.
            NotReachable: if Temporal does not answer.
        """
        answer = await self._ask(names.QUERY_STATUS)
        if answer is not None:
            status = Status.model_validate(answer)
            self._own(status.uid)
            gang = await self.gang() if status.gang is not None else None
            return StatusView(status=status, fresh=True, gang=gang)
        recorded = await self.recorded()
        return recorded if recorded.closed else recorded.model_copy(update={"silence": await self._silence()})

    async def silence(self) -> Silence | None:
        """Return why no worker answers for it, and since when; None if one answers or none has to any more (row D36).

        This takes 3 s if no worker answers.

        Raises:
            WorkloadNotFound: if Temporal no longer knows it.
            NotReachable: if Temporal does not answer.
        """
        if (await self._describe()).status is not WorkflowExecutionStatus.RUNNING:
            return None
        return None if await self._ask(names.QUERY_STATUS) is not None else await self._silence()

    async def _silence(self) -> Silence | None:
        description = await self._describe()
        running = description.status is WorkflowExecutionStatus.RUNNING
        return await silence_of(self.client, description) if running else None

    async def recorded(self) -> StatusView:
        """Return the status that its workflow last recorded. This needs no worker, so waits poll it."""
        description = await self._describe()
        memo = await description.memo()
        closed = description.status is not WorkflowExecutionStatus.RUNNING
        document = memo.get(names.MEMO_STATUS)
        # Whoever starts a workflow gives its memo, and could name anybody there (row X13).
        status = edit(Status.model_validate(document), by="") if isinstance(document, dict) else None
        if closed and (status is None or not status.phase.ended):
            raise await self._abnormal(description, status)
        if status is None:
            raise HoldfastError(
                f"{self._where} has no status yet: it was started without one, and no worker has taken it from the "
                f"task queue {names.QUEUE_WORKFLOWS}: is `holdfast worker` running?"
            )
        if not closed:
            status = _resuming(status, description.typed_search_attributes)
        return StatusView(status=status, fresh=closed, closed=closed)

    async def under_way(self) -> tuple[ActivityView, ...]:
        """Return the activities that its workflow waits for, each with its last heartbeat. This needs no worker."""
        return await activities_of(await self._describe())

    async def explain(self) -> ExplanationView:
        """Return why it is in its current state, what is under way, and what comes next.

        This takes 3 s if no worker answers for the workload. Then its gang and its queue, which could take as long, are
        not queried (row D36). It takes 3 s more if only its gang or its queue does not answer.

        Raises:
            HoldfastError: if its workflow was ended from outside: what became of its pods is not known.
        """
        answer, description = await asyncio.gather(self._ask(names.QUERY_EXPLAIN), self._describe())
        closed = description.status is not WorkflowExecutionStatus.RUNNING
        silence = None
        if answer is None:
            recorded = await self.recorded()
            explanation, fresh = explanation_from(recorded.status), recorded.fresh
            silence = await self._silence()
        else:
            explanation, fresh = Explanation.model_validate(answer), True
        activities = await activities_of(description)
        away = () if closed else await unhealthy(self.client, description, gang=explanation.gang is not None)
        # Do not wait for a queue that cannot answer.
        lost = any(each.entity.type == names.QUEUE_WORKFLOW for each in away)
        asks = answer is not None and not closed
        queued = asks and explanation.reason is Reason.QUEUED and not lost
        gang, queue = await self._elsewhere(description, gang=asks and explanation.gang is not None, queued=queued)
        return ExplanationView(
            explanation=explanation,
            fresh=fresh,
            closed=closed,
            silence=silence,
            gang=gang,
            queue=queue,
            activities=activities,
            entities=tuple(each.sentence for each in away),
        )

    async def _elsewhere(
        self, description: WorkflowExecutionDescription, *, gang: bool, queued: bool
    ) -> tuple[GangStatus | None, str]:
        """Return its gang's status and its place in its queue; query both at the same time."""

        async def of_gang() -> GangStatus | None:
            return await self.gang() if gang else None

        async def of_queue() -> str:
            if not queued:
                return ""
            from holdfast.client.entities.queue import place_of

            return await place_of(self.client, self.place, description)

        return await asyncio.gather(of_gang(), of_queue())

    async def gang(self) -> GangStatus | None:
        """Return the status of its gang: round, members, and restarts charged to them (rows T1 to T14).

        This queries the gang's rendezvous. None if that does not exist, is another workload's, or does not answer.
        """
        place = names.rendezvous_id(self.cluster, self.namespace, self.name)
        try:
            handle = self.client.get_workflow_handle(place)
            async with asyncio.timeout(ANSWER_TIMEOUT.total_seconds()):
                answer = await handle.query(names.QUERY_STATUS, result_type=dict, rpc_timeout=ANSWER_TIMEOUT)
        except (TimeoutError, WorkflowQueryFailedError, RPCError):
            return None
        found = GangStatus.model_validate(answer)
        return found if not self.uid or found.workload_uid == self.uid else None

    async def history(self) -> History:
        """Return its whole life: all causes, attempts, budgets, outcome, over all runs of its workflow (row U12).

        This reads Temporal's record alone, so workers and objects may be gone. A life before a resubmission is another
        life.

        Raises:
            WorkloadNotFound: if Temporal no longer knows it.
            NotReachable: if Temporal does not answer.
        """
        from holdfast.past import history_of

        return history_of(await self.story())

    async def ledger(self) -> Ledger:
        """Return what its time was spent on, up to now: each millisecond of its life in exactly one bucket (row P5).

        This reads Temporal's record alone, as `history` does.

        Raises:
            WorkloadNotFound: if Temporal no longer knows it.
            NotReachable: if Temporal does not answer.
        """
        from holdfast.past import ledger_of

        return ledger_of(await self.story(), datetime.now(UTC))

    async def workload(self) -> Workload:
        """Return the workload as submitted. This reads Temporal's record alone; later changes are not included."""
        from holdfast.client.past import workload_of

        return await self._read(workload_of)

    async def in_force(self) -> Workload:
        """Return the workload with all changes since its submission, and with its policy in force.

        This reads Temporal's record alone.

        Raises:
            HoldfastError: if this release would have decided otherwise, so that it is not known what is in force.
        """
        story = await self.story()
        if story.state is None and not story.contradictions:
            return story.spec  # No worker has taken it yet.
        if story.state is None:
            raise HoldfastError(
                f"{self._where}: what is in force is not known: another release of Holdfast has run it, and decided "
                "otherwise than this one would have: use that release"
            )
        return story.spec.model_copy(update={"policy": story.state.policy})

    async def story(self) -> Story:
        """Return the data behind `history`: the input of each step and its decision."""
        from holdfast.client.past import fetch

        return await self._read(fetch)

    async def _read(self, read: Callable[[Client, Place, str, str], Awaitable[T]]) -> T:
        """Read from the record of the run that was found; once its retention is over, from that of the latest one."""
        try:
            return await read(self.client, self.place, self.workflow_id, self.run_id)
        except WorkloadNotFound:
            if not self.run_id:
                raise
            await self._describe()  # Raises if there is none, or if it is another submission's.
            return await read(self.client, self.place, self.workflow_id, "")

    async def suspend(self, reason: str = "", *, wait: bool = False) -> StatusView:
        """Remove it from the cluster, but keep its place, so it can be resumed. `wait` waits until it is Suspended."""
        return await self._steer(names.SIGNAL_SUSPEND, reason, wait, _suspended)

    async def resume(self, reason: str = "", *, wait: bool = False) -> StatusView:
        """Put a suspended workload back. `wait` waits until it is Running."""
        return await self._steer(names.SIGNAL_RESUME, reason, wait, _running)

    async def preempt(self, reason: str = "", *, within: timedelta | None = None, wait: bool = False) -> StatusView:
        """Remove it from the cluster to make room for another workload. This is no failure and charges no budget.

        Args:
            reason: The reason, recorded in its history.
            within: The longest wait for its checkpoint, if it makes one; None: as long as the workload specifies.
            wait: Whether to return only once it is Suspended.
        """
        await self._signal(names.SIGNAL_PREEMPT, reason, None if within is None else within.total_seconds(), self.uid)
        return await self.until(_suspended) if wait else await self.recorded()

    async def checkpoint(self, note: str = "", *, wait: bool = False) -> StatusView:
        """Have it save its state and run on; its next attempt continues from there. `wait` waits until that has ended.

        Raises:
            HoldfastError: if it makes no checkpoints, or is not running; the message says which.
        """
        from holdfast.policy.attempt.checkpoint import CheckpointAsk

        number = await self._update(names.UPDATE_CHECKPOINT, CheckpointAsk(note=note), int, "a checkpoint")

        def ended(status: Status) -> bool:
            last = status.checkpoint
            return last is not None and (last.number > number or (last.number == number and last.ended_at is not None))

        return await self.until(ended, through_ends=True) if wait else await self.recorded()

    async def cancel(self, reason: str = "", *, wait: bool = False) -> StatusView:
        """End it and remove everything. `wait` waits until everything is proven gone and its workflow is over.

        A workload that already has an outcome keeps it: one that had Succeeded stays Succeeded.
        """
        await self._signal(names.SIGNAL_CANCEL, reason, self.uid)
        if not wait:
            return await self.recorded()
        async for view in self.watch():
            if view.closed:
                return view
        raise AssertionError("a watch ends only with a closed workflow")

    async def retry(self, reason: str = "", *, wait: bool = False) -> Run:
        """Begin again: the next attempt at once, or, if it is over, a new run of the workload as submitted.

        It is over if it has ended other than as Failed, or is being removed after a cancel, or its workflow is over.
        What it still holds is removed first, as `Holdfast.submit` does with `again`.

        Returns:
            The run that continues: this one, or the new one.

        Raises:
            HoldfastError: if it is over, and is a custom resource or a workload of a graph; if Kueue has given its
                quota to others; or if it has failed, and its workflow refuses.
            InvalidWorkload: if it is over, and its cluster has admission queues, but none of the name that it gives.
        """
        description = await self._describe()
        over = await check_retry(self.client, self.place, self._where, description)
        run = self
        if not over:
            await self._signal(names.SIGNAL_RETRY, reason, self.uid)
            if description.typed_search_attributes.get(_PHASE) == Phase.FAILED.value:
                await self._check_retried()
        else:
            from holdfast.client.entities.queue import Directory
            from holdfast.client.submission import begin

            # Its queue may be gone since, or be there by now.
            spec = (await self.submitted()).model_copy(update={"queued": False})
            placed = await Directory(self.client, self.place).placed(spec)
            begun = await begin(self.client, self.place, placed, again=True)
            run = Run(self.client, self.place, begun.workflow_id, begun.uid, begun.run_id)
            self.taken()
        if wait:
            await run.until(_under_way, through_ends=True, through_holds=True)
            await run.until(_running)
        return run

    async def _check_retried(self) -> None:
        """Check that its workflow has not refused a retry. If no worker answers, that is not known.

        Raises:
            HoldfastError: if it has; the message says why.
        """
        from holdfast.policy.values.events import NOT_RETRIED

        answer = await self._ask(names.QUERY_STATUS)
        if answer is None:
            return
        told = [one.message for one in Status.model_validate(answer).causes if one.reason is Reason.RETRY_REQUESTED]
        if told and told[-1].startswith(NOT_RETRIED):
            raise HoldfastError(f"{self._where}: {told[-1]}")

    async def update_policy(self, change: PolicyChange) -> Policy:
        """Change waits and budget limits from now on, and return the resulting policy.

        Raises:
            HoldfastError: if the workflow refuses the change; the message names the field and what is allowed.
        """
        from holdfast.model import Policy

        return Policy.model_validate(await self._update(names.UPDATE_POLICY, change, dict[str, Any], "the policy"))

    async def extend(self, by: str, note: str = "") -> Status:
        """Extend its walltime by a duration, for example `1h`, and return its status (row L18).

        Raises:
            HoldfastError: if it has no walltime, is over, or may not be extended that far; the message says how far.
        """
        from holdfast.policy.verdicts.walltime import WalltimeExtension

        change = WalltimeExtension(by=by, note=note)
        return Status.model_validate(await self._update(names.UPDATE_EXTEND, change, dict[str, Any], "more walltime"))

    async def scale(self, most: int, least: int | None = None, note: str = "") -> tuple[int, int]:
        """Change the size of its gang while it runs, and return the resulting size: least and most (row T6).

        Its Job gains or loses pods, and its members meet in a new round. No restart is charged.

        Args:
            most: The highest number of members in a round.
            least: The lowest number with which it still runs; None: as before, or `most` if that is less.
            note: The reason, recorded in its history.

        Raises:
            HoldfastError: if it has no gang, cannot have that size, or is over; the message says what is allowed.
        """
        from holdfast.policy.sides.gang import GangScale

        try:
            change = GangScale(max=most, min=least, note=note)
        except ValidationError as error:
            raise HoldfastError(f"{self._where} cannot have that size: {one_line(error, GangScale)}") from error
        size = await self._update(names.UPDATE_SCALE, change, dict[str, int], "another size")
        return size["min"], size["max"]

    async def requeue(self, request: RequeueRequest) -> None:
        """Report a node failure. The rules of the workload decide on it, once per expected requeue count (row L25)."""
        document = {**request.model_dump(mode="json", by_alias=True), "uid": self.uid}
        await self._signal(names.SIGNAL_REQUEUE, document)
        await self._describe()  # Raises if another submission has the name by now.

    async def update_components(self, change: ComponentsChange) -> tuple[str, ...]:
        """Change its components, and return the names of those that differ; only these are re-created (row S8).

        The change is in force once this returns. To wait until the components are re-created, watch the workload.

        Raises:
            HoldfastError: if the workflow refuses the change, or if the API server refuses it in a dry run or does not
                answer for a minute. The message names the field and what is allowed; nothing is changed.
        """
        from holdfast.client.submission import check_secrets

        check_secrets(self.client, change.components, "the change")
        return tuple(await self._update(names.UPDATE_COMPONENTS, change, list[str], "the components"))

    async def strip_finalizers(self, note: str = "") -> None:
        """Remove the finalizers from what is left of an attempt whose removal is being forced (row U2).

        Raises:
            HoldfastError: if no removal is being forced, or no finalizer blocks it; the message says what to do.
        """
        from holdfast.policy.verdicts.strip import StripRequest

        await self._update(names.UPDATE_STRIP, StripRequest(note=note), type(None), "to strip finalizers")

    async def _update(self, name: str, change: Addressed, result_type: Any, what: str) -> Any:
        try:
            document = {**change.model_dump(mode="json", by_alias=True), "uid": self.uid}
            answer = await update(self.handle, name, document, returns=result_type)
            self.taken()
            return answer
        except WorkflowUpdateFailedError as error:
            why = error.cause.message if isinstance(error.cause, ApplicationError) else _innermost(error)
            raise HoldfastError(f"{self._where} refuses {what}: {why}") from error
        except TimeoutError as error:
            raise HoldfastError(f"{self._where}: no worker took {what}: {error}") from error
        except RPCError as error:
            raise await self._not_taken(error) from error

    async def submitted(self) -> Workload:
        """Return the workload as submitted, from the history of its run.

        Raises:
            HoldfastError: if it was started with what is no workload; the message names the fields.
        """
        try:
            async for event in self.handle.fetch_history_events(page_size=1):
                payloads = event.workflow_execution_started_event_attributes.input.payloads
                values = await self.client.data_converter.decode(payloads[:1], [dict])
                return self._started_with(values[0])
        except RPCError as error:
            raise self._explained(error) from error
        raise WorkloadNotFound(self.workflow_id, "its history is gone: submit its file again")

    def _started_with(self, document: Any) -> Workload:
        from holdfast.model import Workload

        try:
            return Workload.model_validate(document)
        except ValidationError as error:
            raise HoldfastError(
                f"{self._where} was started with what is no workload: {one_line(error, Workload)}: "
                "correct its file, and submit it again"
            ) from error

    async def result(self) -> Status:
        """Wait for the outcome, Succeeded or Cancelled, and return the status. This does not wait for the cleanup.

        Raises:
            WorkloadFailed: if it failed; the message says why.
        """
        view = await self.until(lambda status: status.phase.ended, through_holds=True)
        if view.phase is Phase.FAILED:
            raise WorkloadFailed(view.status)
        return view.status

    async def closed(self) -> Status:
        """Wait until the workflow is over, when nothing is held or being removed any more, and return its status.

        Raises:
            WorkloadFailed: if it failed; the message says why.
            HoldfastError: if the workload was refused, or its workflow was ended from outside.
        """
        patience = Patience()
        status = await patience.ask(self._result)
        if status is None or status.phase is Phase.FAILED:
            # A later run may be under way: after a reset in Temporal, the run that was followed is closed.
            async for view in self.watch():
                status = view.status
        assert status is not None
        if status.phase is Phase.FAILED:
            raise WorkloadFailed(status)
        return status

    async def _result(self) -> Status | None:
        """Wait for the workflow's last status; None if it ended without one, or its run is not known any more."""
        handle = self.client.get_workflow_handle(
            self.workflow_id, run_id=self.run_id or None, result_type=dict[str, Any]
        )
        try:
            return Status.model_validate(await handle.result())
        except WorkflowFailureError as error:
            cause = error.cause
            if isinstance(cause, ApplicationError) and cause.type == names.ERROR_WORKLOAD_FAILED and cause.details:
                return Status.model_validate(cause.details[0])
            return None
        except RPCError as error:
            told = self._explained(error)
            if not self.run_id or not isinstance(told, WorkloadNotFound):
                raise told from error
            await self._describe()  # Raises if there is no later run, or if it is another submission's.
            return None

    async def until(
        self, reached: Callable[[Status], bool], *, through_ends: bool = False, through_holds: bool = False
    ) -> StatusView:
        """Wait until the recorded status meets a condition, and return it. Use `asyncio.timeout` to bound the wait.

        Args:
            reached: Returns whether a status meets the condition.
            through_ends: Whether to keep waiting once it has an outcome: a retry may follow a failure.
            through_holds: Whether to keep waiting while it is Held: nothing happens to it until a person decides.

        Raises:
            EndedFirst: if the workload ends first; `phase` says how.
            HoldfastError: if it is Held, or a later submission has its name and its end is not known any more.
        """
        async for view in self.watch():
            if reached(view.status):
                return view
            if view.closed or (view.phase.ended and not through_ends):
                raise EndedFirst(self._where, view.phase, view.status.message)
            if view.status.reason is Reason.HELD and not through_holds:
                name = names.name_of(self.workflow_id)
                raise HoldfastError(
                    f"{self._where} is held until a person decides: {view.status.message}; `holdfast retry {name}` "
                    f"removes what is there and begins a new attempt, `holdfast cancel {name}` removes it and ends"
                )
        raise AssertionError("a watch ends only with a closed workflow")

    async def watch(self) -> AsyncIterator[StatusView]:
        """Yield its recorded status at once and whenever it changes, until its workflow is over.

        This continues through an outage of Temporal, and logs it once with the logger `holdfast.client`.

        Raises:
            HoldfastError: if its workflow was ended from outside, or a later submission has its name and its end is
                not known any more.
        """
        pause = _POLL_FIRST
        before: Status | None = None
        patience = Patience()
        while True:
            view = await patience.ask(self.followed)
            if view.status != before or view.closed:
                before = view.status
                pause = _POLL_FIRST
                yield view
            if view.closed:
                return
            await asyncio.sleep(pause)
            pause = min(pause * 1.3, _POLL_LONGEST)

    async def followed(self) -> StatusView:
        """Return the recorded status; once a later submission has its name, the status with which it ended (D46)."""
        try:
            return await self.recorded()
        except Resubmitted:
            if not self.run_id or await self._uid_of_run() != self.uid:
                raise
            status = await self._result()
            if status is None:
                raise
            return StatusView(status=status, fresh=True, closed=True)

    async def _uid_of_run(self) -> str:
        """Return the uid of the run that was found; empty once its retention is over."""
        try:
            return await uid_of(await self.client.get_workflow_handle(self.workflow_id, run_id=self.run_id).describe())
        except RPCError as error:
            told = self._explained(error)
            if isinstance(told, WorkloadNotFound):
                return ""
            raise told from error

    async def _steer(self, signal: str, reason: str, wait: bool, reached: Callable[[Status], bool]) -> StatusView:
        await self._signal(signal, reason, self.uid)
        return await self.until(reached) if wait else await self.recorded()

    async def _signal(self, signal: str, *given: Any) -> None:
        try:
            await self.handle.signal(signal, args=given)
            self.taken()
        except RPCError as error:
            raise await self._not_taken(error) from error

    async def _not_taken(self, error: RPCError) -> HoldfastError:
        """Return why a signal or an update was not taken: Temporal answers alike for what ended and what never was."""
        if error.status is RPCStatusCode.NOT_FOUND and "completed" in error.message.lower():
            phase, remedy = (await self.recorded()).phase, await anew(await self._describe())
            return AlreadyEnded(self.workflow_id, phase.value, remedy)
        return self._explained(error)

    async def _ask(self, query: str) -> dict[str, Any] | None:
        """Return the workflow's answer to a query, or None if no worker answers within `ANSWER_TIMEOUT`.

        Raises:
            HoldfastError: if the workflow was ended from outside: its answer would be its last phase, as if it lived.
        """
        try:
            return await self._answer(query, QueryRejectCondition.NOT_OPEN)
        except WorkflowQueryRejectedError:
            # It has ended, or has just continued as a new run.
            await self.recorded()
            return await self._answer(query, QueryRejectCondition.NONE)

    async def _answer(self, query: str, unless: QueryRejectCondition) -> dict[str, Any] | None:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT.total_seconds()):
                return await self.handle.query(
                    query, result_type=dict, reject_condition=unless, rpc_timeout=ANSWER_TIMEOUT
                )
        except (TimeoutError, WorkflowQueryFailedError):
            return None
        except RPCError as error:
            if error.status in {
                RPCStatusCode.DEADLINE_EXCEEDED,
                RPCStatusCode.CANCELLED,
                RPCStatusCode.FAILED_PRECONDITION,
            }:
                return None
            raise self._explained(error) from error

    async def _describe(self) -> WorkflowExecutionDescription:
        try:
            description = await self.handle.describe()
        except RPCError as error:
            raise self._explained(error) from error
        self._own(str((await description.memo()).get(names.MEMO_UID, "")))
        return description

    def _own(self, uid: str) -> None:
        check_own(self._where, self.uid, uid)

    async def _abnormal(self, description: WorkflowExecutionDescription, status: Status | None) -> HoldfastError:
        """Return the error that says why a workflow is over although its workload has no outcome."""
        word = description.status.name.lower().replace("_", " ") if description.status else "closed"
        if description.status is WorkflowExecutionStatus.FAILED:
            try:
                await self.handle.result()
            except WorkflowFailureError as error:
                return HoldfastError(f"{self._where} was refused: {_innermost(error)}")
        uid = status.uid if status is not None else self.uid
        return HoldfastError(
            f"{self._where}: {abandoned(word)}; "
            f"`kubectl -n {self.namespace} get all -l {names.LABEL_WORKLOAD_UID}={uid}` lists it"
        )

    def _explained(self, error: RPCError) -> HoldfastError:
        translated = explained(error, self.place)
        if error.status is RPCStatusCode.NOT_FOUND and type(translated) is HoldfastError:
            return WorkloadNotFound(self.workflow_id)
        return translated

    @property
    def _where(self) -> str:
        return f"{self.namespace}/{self.name} on cluster {self.cluster}"


def _resuming(status: Status, columns: TypedSearchAttributes) -> Status:
    """Return a recorded status; in Resuming, for which none is recorded, as its columns say (record 0007)."""
    if columns.get(_PHASE) != Phase.RESUMING.value or status.phase is Phase.RESUMING:
        return status
    return edit(
        status,
        phase=Phase.RESUMING,
        reason=next((one for one in Reason if one == columns.get(_REASON)), status.reason),
        attempt=columns.get(_ATTEMPT) or 0,
        message="it is starting; what came before is recorded last",
        conditions=(),
        pods=PodCounts(expected=status.pods.expected),
        copies={},
        steps="",
        barrier=None,
        resumed_from="",
        walltime_until=None,
        waiting=(),
        failure=None,
        next=None,
        later=(),
        unblock="",
    )


def _suspended(status: Status) -> bool:
    return status.phase is Phase.SUSPENDED


def _running(status: Status) -> bool:
    return status.phase in {Phase.RUNNING, Phase.FINISHING, Phase.SUCCEEDED}


def _under_way(status: Status) -> bool:
    return status.phase not in {Phase.FAILED, Phase.CANCELLED} and status.reason is not Reason.HELD


def _innermost(error: BaseException) -> str:
    while isinstance(error, TemporalError) and error.__cause__ is not None:
        error = error.__cause__
    return str(error)
