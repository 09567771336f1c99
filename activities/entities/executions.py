"""What Temporal shows of an entity's workflow: whether it runs, whether its tasks fail, and what it began with (D2)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.common.v1 import Payloads
from temporalio.api.common.v1 import WorkflowExecution as ExecutionId
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import GetWorkflowExecutionHistoryReverseRequest
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from holdfast.errors import Undecodable
from holdfast.policy.entities.health import TIMED_OUT, Execution, Sight, is_fault

_DEADLINE: Final = timedelta(seconds=5)
_PAGES: Final = (50, 450, 500, 500, 500)
"""Events read per page, back to the last completed workflow task: at most 2,000 in all."""
_RUNS_READ: Final = 10
_EXECUTIONS: Final = {
    WorkflowExecutionStatus.RUNNING: Execution.RUNNING,
    WorkflowExecutionStatus.COMPLETED: Execution.ENDED,
    WorkflowExecutionStatus.CANCELED: Execution.CANCELLED,
    WorkflowExecutionStatus.CONTINUED_AS_NEW: Execution.RUNNING,
    WorkflowExecutionStatus.FAILED: Execution.FAILED,
    WorkflowExecutionStatus.TERMINATED: Execution.LOST,
    WorkflowExecutionStatus.TIMED_OUT: Execution.LOST,
}
_NO_FAULT: Final = {
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_UPDATE,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_STICKY_TASK_QUEUE,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_FAILOVER_CLOSE_COMMAND,
}
"""Causes that occur in normal operation: for example, an event arrived during the task."""


async def described(client: Client, workflow_id: str) -> WorkflowExecutionDescription | None:
    """Describe the latest run of a workflow; None if Temporal knows of none.

    Raises:
        RPCError: if Temporal does not answer.
    """
    try:
        return await client.get_workflow_handle(workflow_id).describe(rpc_timeout=_DEADLINE)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise


async def memo_of(execution: WorkflowExecution) -> Mapping[str, Any] | None:
    """Return a workflow's memo; None if it cannot be read: one workflow must not hold up what reads many."""
    try:
        return await execution.memo()
    except Exception:  # A missing codec can raise any error.
        return None


def word_for(execution: WorkflowExecution) -> str:
    """Return Temporal's own name for the status of a workflow: Running, Completed, TimedOut, ..."""
    return execution.status.name.replace("_", " ").title().replace(" ", "") if execution.status else "Unknown"


async def sight(client: Client, workflow_id: str) -> Sight:
    """Look at an entity.

    Raises:
        RPCError: if Temporal does not answer.
        Undecodable: if the failure of a task is encrypted with a key that is not there.
    """
    found = await described(client, workflow_id)
    if found is None or found.status is None:
        return Sight(workflow_id, Execution.ABSENT)
    execution = _EXECUTIONS.get(found.status, Execution.RUNNING)
    if execution is Execution.RUNNING:
        return await _running(client, workflow_id, found)
    reason = list[str]()
    if execution in {Execution.LOST, Execution.FAILED}:
        reason = [await _reason(client, event) async for event in latest_events(client, workflow_id, found.run_id, 1)]
    return Sight(workflow_id, execution, found.run_id, since=found.close_time, reason="".join(reason[:1]))


async def _running(client: Client, workflow_id: str, found: WorkflowExecutionDescription) -> Sight:
    raw, streak = found.raw_description, Streak()
    if not raw.HasField("pending_workflow_task"):
        return Sight(workflow_id, Execution.RUNNING, found.run_id)
    async for event in latest_events(client, workflow_id, found.run_id, *_PAGES):
        failed = event.workflow_task_failed_event_attributes.failure
        if failed.HasField("encoded_attributes"):
            # What cannot be decoded is not known: it is neither a fault nor none.
            failed.message = str(getattr(await client.data_converter.decode_failure(failed), "message", ""))
        if not streak.take(event):
            break
    return streak.sight(workflow_id, found.run_id, raw.pending_workflow_task.attempt)


@dataclass
class Streak:
    """The workflow tasks of a run that failed since the last completed one, from its events, the latest first.

    When a task is retried at once, Temporal records only its first failure, and counts the tries. If events arrive in
    between, it counts from one again, and records the next failure too. So a busy entity shows its failures only in
    its history.
    """

    faults: int = 0
    since: datetime | None = None
    latest: datetime | None = None
    failure: str = ""
    undecodable: str = ""
    is_whole: bool = field(default=False, init=False)
    """Whether all of these tasks were taken in."""

    def take(self, event: HistoryEvent) -> bool:
        """Take in the next earlier event; return whether to read another one."""
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED or self.is_whole:
            self.is_whole = True
            return False
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
            failed = event.workflow_task_failed_event_attributes
            if failed.failure.application_failure_info.type == Undecodable.__name__:
                self.undecodable = "" if self.faults else self.undecodable or failed.failure.message
            elif failed.cause not in _NO_FAULT and is_fault(failed.failure.message):
                self.faults += 1
                self.since = _time(event.event_time)
                self.latest = self.latest or self.since
                self.failure = failed.failure.message or WorkflowTaskFailedCause.Name(failed.cause)
        self.is_whole = event.event_id == 1
        return not self.is_whole

    def sight(self, workflow_id: str, run_id: str, attempt: int) -> Sight:
        """Return the entity's health, given the attempt number of the current workflow task."""
        return Sight(
            workflow_id,
            Execution.RUNNING,
            run_id,
            since=self.since,
            failures=max(attempt - 1, self.faults),
            failure=self.failure,
            latest=self.latest,
            undecodable=self.undecodable,
            is_cut=not self.is_whole,
        )


async def latest_events(client: Client, workflow_id: str, run_id: str, *pages: int) -> AsyncIterator[HistoryEvent]:
    """Yield the latest events of a run, the latest first, read in pages of at most these sizes."""
    token = b""
    for size in pages:
        request = GetWorkflowExecutionHistoryReverseRequest(
            namespace=client.namespace,
            execution=ExecutionId(workflow_id=workflow_id, run_id=run_id),
            maximum_page_size=size,
            next_page_token=token,
        )
        answer = await client.workflow_service.get_workflow_execution_history_reverse(request, timeout=_DEADLINE)
        for event in answer.history.events:
            yield event
        token = answer.next_page_token
        if not token:
            return


async def message_of(converter: DataConverter, failure: Failure) -> str:
    """Return a failure's message; as it stands there if it cannot be decoded."""
    if not failure.HasField("encoded_attributes"):
        return failure.message
    copied = Failure()
    copied.CopyFrom(failure)  # Decoding changes it: a second time it would be no encrypted one.
    try:
        return str(getattr(await converter.decode_failure(copied), "message", ""))
    except Exception as error:  # A codec may raise anything.
        return f"{failure.message} ({error})" if isinstance(error, Undecodable) else failure.message


async def _reason(client: Client, event: HistoryEvent) -> str:
    match event.event_type:
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
            return event.workflow_execution_terminated_event_attributes.reason
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
            return await message_of(client.data_converter, event.workflow_execution_failed_event_attributes.failure)
        case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT:
            return TIMED_OUT
        case _:
            return ""


def _time(stamp: Timestamp) -> datetime:
    return stamp.ToDatetime(tzinfo=UTC)


# The input of a run, and the messages it received: for an entity whose state can no longer be queried.


@dataclass(frozen=True, slots=True)
class Word:
    """A signal or an update that a run took in."""

    name: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class PastRun:
    """One run, as its history shows it."""

    run_id: str
    arguments: tuple[Any, ...]
    """Its input, as plain JSON values."""
    memo: dict[str, Any]
    words: tuple[Word, ...] = ()
    """Signals and accepted updates, in their order."""
    length: int = 0
    """Events of its history."""

    def latest(self, name: str) -> Word | None:
        """Return the last signal or update of a name."""
        return next((word for word in reversed(self.words) if word.name == name), None)


async def past_runs(client: Client, workflow_id: str) -> AsyncIterator[PastRun]:
    """Yield the runs of a workflow whose history Temporal still has, the latest first; at most ten.

    Raises:
        RPCError: if Temporal does not answer.
    """
    latest = await described(client, workflow_id)
    seen = set[str]()
    if latest is not None:
        seen.add(latest.run_id)
        yield await _read(client, workflow_id, latest.run_id, dict(await latest.memo()))
    async for execution in client.list_workflows(f"WorkflowId = '{workflow_id}'", limit=_RUNS_READ):
        if execution.run_id not in seen:
            seen.add(execution.run_id)
            try:
                yield await _read(client, workflow_id, execution.run_id, dict(await execution.memo()))
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise


async def input_of(client: Client, workflow_id: str, run_id: str) -> tuple[Any, ...]:
    """Return the input of a run, as plain JSON values.

    Raises:
        RPCError: if Temporal does not answer.
        Undecodable: if a key is missing.
    """
    async for event in client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history_events(page_size=1):
        return await plain(client, event.workflow_execution_started_event_attributes.input)
    return ()


async def _read(client: Client, workflow_id: str, run_id: str, memo: dict[str, Any]) -> PastRun:
    arguments: tuple[Any, ...] = ()
    words, length = list[Word](), 0
    async for event in client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history_events():
        length = event.event_id
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            arguments = await plain(client, event.workflow_execution_started_event_attributes.input)
        elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
            signal = event.workflow_execution_signaled_event_attributes
            words.append(Word(signal.signal_name, await plain(client, signal.input)))
        elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
            request = event.workflow_execution_update_accepted_event_attributes.accepted_request.input
            words.append(Word(request.name, await plain(client, request.args)))
    return PastRun(run_id, arguments, memo, tuple(words), length)


async def plain(client: Client, payloads: Payloads) -> tuple[Any, ...]:
    """Return payloads as plain values; None for a payload that no worker may be able to read.

    Raises:
        Undecodable: if a key is missing: another worker can read it.
    """
    found = list[Any]()
    for payload in payloads.payloads:
        try:
            found += await client.data_converter.decode([payload])
        except Undecodable:
            raise
        except Exception:  # A codec or a converter may raise anything: no worker may be able to read this payload.
            found.append(None)
    return tuple(found)
