"""Decodes a run's history events into values: payloads are read with the client's own data converter and codec."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError, FailureError

from holdfast import names
from holdfast.errors import Undecodable
from holdfast.model import Observation, Phase, State, Status
from holdfast.model.calls.cluster import Probed, ProbeInput, Rehearsed, Scaled, ScaleInput
from holdfast.model.calls.gang import GangBegin
from holdfast.model.calls.operations import OPERATIONS
from holdfast.model.calls.progress import Followed, FollowInput
from holdfast.model.entities.graph import GraphNews, GraphOrder
from holdfast.model.entities.queue import QueueNews, QueueOrder
from holdfast.model.gang.orders import GangOutcome
from holdfast.past.tasks import CancelAsked, Ended, Finished, Fired, Heard, Run, Signalled, Task, Updated
from holdfast.policy.attempt.checkpoint import CheckpointAsk
from holdfast.policy.loop.change import ComponentsChange, PolicyChange
from holdfast.policy.sides.gang import GangScale
from holdfast.policy.values.events import RequeueRequest
from holdfast.policy.verdicts.strip import StripRequest
from holdfast.policy.verdicts.walltime import WalltimeExtension

_RESULTS: Final[dict[str, Any]] = {
    **{kind.value: row.result for kind, row in OPERATIONS.items()},
    names.ACTIVITY_REHEARSE: Rehearsed,
    names.ACTIVITY_PROBE: Probed,
    names.ACTIVITY_FOLLOW: Followed,
    names.ACTIVITY_SCALE: Scaled,
}
_DOCUMENTS: Final[dict[str, Any]] = {
    names.SIGNAL_OBSERVE: Observation,
    names.SIGNAL_REQUEUE: RequeueRequest,
    names.SIGNAL_GANG: GangOutcome,
    names.SIGNAL_GRAPH: GraphOrder,
    names.SIGNAL_QUEUE: QueueOrder,
}
_ASKED: Final[dict[str, Any]] = {
    names.ACTIVITY_PROBE: ProbeInput,
    names.ACTIVITY_FOLLOW: FollowInput,
    names.ACTIVITY_BEGIN_GANG: GangBegin,
    names.ACTIVITY_SCALE: ScaleInput,
}
"""Activities that may complete after another attempt has begun, and the types of their input."""
_CHANGES: Final = {
    names.UPDATE_POLICY: PolicyChange,
    names.UPDATE_COMPONENTS: ComponentsChange,
    names.UPDATE_STRIP: StripRequest,
    names.UPDATE_CHECKPOINT: CheckpointAsk,
    names.UPDATE_EXTEND: WalltimeExtension,
    names.UPDATE_SCALE: GangScale,
}
_SINGLE_BATCH: Final = 2
"""The SDK flag of histories whose workflow tasks get all their jobs in one activation."""


@dataclass(slots=True)
class _Raw:
    """A workflow task, as raw events."""

    started: HistoryEvent
    completed: int
    inputs: list[HistoryEvent]
    batched: bool
    commands: list[HistoryEvent] = field(default_factory=list[HistoryEvent])


async def read_run(events: Sequence[HistoryEvent], converter: DataConverter) -> Run:
    """Return the run with this history.

    Args:
        events: All of the run's events so far, oldest first.
        converter: The data converter of the client that started the run; its codec is applied.

    Raises:
        ValueError: if it is not the history of a workload's workflow.
        Undecodable: if it is encrypted with a key that is not there.
    """
    if not events or events[0].event_type != EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
        raise ValueError("expected the history of one run, from its first event on")
    begun = events[0].workflow_execution_started_event_attributes
    if begun.workflow_type.name != names.WORKLOAD_WORKFLOW:
        raise ValueError(f"workflow type {begun.workflow_type.name!r}: expected {names.WORKLOAD_WORKFLOW}")
    reading = _Reading(converter, {event.event_id: event for event in events})
    payloads = list(begun.input.payloads)
    document = await reading.value(payloads[:1], dict, "the workload")
    carried = await reading.value(payloads[1:2], State | None, "the memory it began with")
    reset = _last_reset(events)
    last = events[-1]
    closed = _CLOSED.get(last.event_type, "")
    return Run(
        workflow_id=begun.workflow_id,
        # A run that a reset has made keeps the original id of the run that it takes the place of.
        run_id=reset.workflow_task_failed_event_attributes.new_run_id if reset else begun.original_execution_run_id,
        first_run_id=begun.first_execution_run_id,
        previous_run_id=begun.continued_execution_run_id,
        next_run_id=last.workflow_execution_continued_as_new_event_attributes.new_execution_run_id,
        began_at=_time(events[0]),
        ended_at=_time(last) if closed else None,
        closed=closed,
        events=len(events),
        document=document,
        carried=carried,
        tasks=tuple([await reading.task(raw) for raw in _raw_tasks(events)]),
        unreadable=tuple(reading.unreadable),
        origin=begun.original_execution_run_id,
        reset_at=_time(reset) if reset else None,
    )


def _last_reset(events: Sequence[HistoryEvent]) -> HistoryEvent | None:
    """Return the event that the last reset in Temporal has left, if the run has come from one."""
    cause = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW
    failed = (one for one in reversed(events) if one.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED)
    return next((one for one in failed if one.workflow_task_failed_event_attributes.cause == cause), None)


_CLOSED: Final = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED: "Completed",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED: "Failed",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED: "Canceled",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED: "Terminated",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT: "TimedOut",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW: "ContinuedAsNew",
}
_INPUTS: Final = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED,
    EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED,
    EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED,
    EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT,
    EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED,
    EventType.EVENT_TYPE_TIMER_FIRED,
    EventType.EVENT_TYPE_EXTERNAL_WORKFLOW_EXECUTION_SIGNALED,
    EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_FAILED,
}


def _raw_tasks(events: Iterable[HistoryEvent]) -> list[_Raw]:
    """Group the events by workflow task; the inputs of a task that failed or timed out go to the next one."""
    tasks: list[_Raw] = []
    inputs: list[HistoryEvent] = []
    started: HistoryEvent | None = None
    batched = False
    for event in events:
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED:
            started = event
        elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED and started is not None:
            flags = event.workflow_task_completed_event_attributes.sdk_metadata.lang_used_flags
            batched = batched or _SINGLE_BATCH in flags
            tasks.append(_Raw(started, event.event_id, inputs, batched))
            inputs, started = [], None
        elif event.event_type in _INPUTS:
            inputs.append(event)
        elif tasks:
            tasks[-1].commands.append(event)
    return tasks


@dataclass(slots=True)
class _Reading:
    """Reads one run; unreadable values are recorded in `unreadable` and left out."""

    converter: DataConverter
    events: dict[int, HistoryEvent]
    unreadable: list[str] = field(default_factory=list[str])

    async def value(self, payloads: Sequence[Payload], type_: Any, what: str) -> Any:
        """Return the single value of these payloads, or None."""
        if not payloads:
            return None
        try:
            return (await self.converter.decode(payloads, [type_]))[0]
        except Undecodable:
            raise
        except Exception as error:  # The codec and the converter are user code, and may raise anything.
            self.unreadable.append(f"{what} cannot be read: {str(error).splitlines()[0] if str(error) else error!r}")
            return None

    async def task(self, raw: _Raw) -> Task:
        wishes: list[tuple[tuple[int, int], Signalled | Updated]] = []
        results: list[Finished | Fired | Heard | CancelAsked] = []
        for event in raw.inputs:
            if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
                signal = await self._signal(event)
                if signal is not None:
                    wishes.append(((event.event_id, 0), signal))
            else:
                result = await self._result(event)
                results += [result] if result is not None else []
        begun: list[str] = []
        timers: list[int] = []
        telling: list[int] = []
        statuses: list[Status] = []
        patches: list[str] = []
        ended: Ended | None = None
        for event in raw.commands:
            match event.event_type:
                case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                    begun.append(event.activity_task_scheduled_event_attributes.activity_type.name)
                case EventType.EVENT_TYPE_TIMER_STARTED:
                    timers.append(event.event_id)
                case EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_INITIATED:
                    told = event.signal_external_workflow_execution_initiated_event_attributes.signal_name
                    telling += [event.event_id] if told == names.SIGNAL_NEWS else []
                case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
                    accepted = event.workflow_execution_update_accepted_event_attributes
                    update = await self._update(event)
                    if update is not None:
                        wishes.append(((accepted.accepted_request_sequencing_event_id, 1), update))
                case EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES:
                    patches += await self._patches(event)
                case EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED:
                    fields = event.workflow_properties_modified_event_attributes.upserted_memo.fields
                    if names.MEMO_STATUS in fields:
                        what = f"the status written at event {event.event_id}"
                        status = await self.value([fields[names.MEMO_STATUS]], Status, what)
                        statuses += [status] if status is not None else []
                case _:
                    ended = await self._ended(event) or ended
        wishes.sort(key=lambda each: each[0])
        return Task(
            event=raw.started.event_id,
            at=_time(raw.started),
            suggested=raw.started.workflow_task_started_event_attributes.suggest_continue_as_new,
            batched=raw.batched,
            wishes=tuple(wish for _, wish in wishes),
            results=tuple(results),
            begun=tuple(begun),
            timers=tuple(timers),
            telling=tuple(telling),
            statuses=tuple(statuses),
            patches=tuple(patches),
            ended=ended,
        )

    async def _patches(self, event: HistoryEvent) -> list[str]:
        """Return the patches that the SDK has written as a search attribute, which it encodes with no codec."""
        written = event.upsert_workflow_search_attributes_event_attributes.search_attributes.indexed_fields
        if names.CHANGE_VERSION not in written:
            return []
        if written[names.CHANGE_VERSION].metadata.get("encoding") == b"json/plain":
            return json.loads(written[names.CHANGE_VERSION].data)
        return (
            await self.value(
                [written[names.CHANGE_VERSION]], list[str], f"the patches written at event {event.event_id}"
            )
            or []
        )

    async def _signal(self, event: HistoryEvent) -> Signalled | None:
        signal = event.workflow_execution_signaled_event_attributes
        name, payloads = signal.signal_name, list(signal.input.payloads)
        what = f"signal {name} at event {event.event_id}"
        if name in _DOCUMENTS:
            value = await self.value(payloads[:1], _DOCUMENTS[name], what)
            if value is None:
                return None
            return Signalled(name, value, uid=value.uid if isinstance(value, RequeueRequest) else "")
        if not payloads:
            return Signalled(name, "")
        text = await self.value(payloads[:1], str, what)
        within: float | None = None
        phases: tuple[Phase, ...] = ()
        at = 1
        if name == names.SIGNAL_PREEMPT:
            within, at = await self.value(payloads[1:2], float | None, what), 2
        elif name == names.SIGNAL_CANCEL:
            phases = await self.value(payloads[2:3], tuple[Phase, ...] | None, what) or ()
        uid = await self._uid(payloads[at : at + 1], what)
        return Signalled(name, text, within, uid, phases) if text is not None else None

    async def _uid(self, payloads: list[Payload], what: str) -> str:
        return await self.value(payloads, str, what) or ""

    async def _update(self, event: HistoryEvent) -> Updated | None:
        asked = event.workflow_execution_update_accepted_event_attributes.accepted_request.input
        type_ = _CHANGES.get(asked.name)
        if type_ is None:
            return None
        what = f"update {asked.name} at event {event.event_id}"
        change = await self.value(list(asked.args.payloads)[:1], type_, what)
        return Updated(change) if change is not None else None

    async def _result(self, event: HistoryEvent) -> Finished | Fired | Heard | CancelAsked | None:
        match event.event_type:
            case EventType.EVENT_TYPE_EXTERNAL_WORKFLOW_EXECUTION_SIGNALED:
                told = event.external_workflow_execution_signaled_event_attributes
                return await self._heard(told.initiated_event_id)
            case EventType.EVENT_TYPE_SIGNAL_EXTERNAL_WORKFLOW_EXECUTION_FAILED:
                untold = event.signal_external_workflow_execution_failed_event_attributes
                return await self._heard(untold.initiated_event_id, missed=True)
            case EventType.EVENT_TYPE_TIMER_FIRED:
                return Fired(event.timer_fired_event_attributes.started_event_id)
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED:
                return CancelAsked()
            case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                done = event.activity_task_completed_event_attributes
                name = self._activity(done.scheduled_event_id)
                what = f"the result of {name} at event {event.event_id}"
                value = await self.value(list(done.result.payloads), _RESULTS.get(name, Any), what)
                attempt = await self._asked_of(done.scheduled_event_id) if name in _ASKED else None
                return Finished(name, value, attempt=attempt)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED:
                failed = event.activity_task_failed_event_attributes
                return await self._failed(self._activity(failed.scheduled_event_id), failed.failure)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
                scheduled = event.activity_task_timed_out_event_attributes.scheduled_event_id
            case _:
                scheduled = event.activity_task_canceled_event_attributes.scheduled_event_id
        return Finished(self._activity(scheduled), broken_off=True)

    async def _heard(self, telling: int, *, missed: bool = False) -> Heard | None:
        """Return the news sent to its graph or its queue; None for any other signal."""
        begun = self.events[telling].signal_external_workflow_execution_initiated_event_attributes
        if begun.signal_name != names.SIGNAL_NEWS:
            return None
        to_queue = begun.workflow_execution.workflow_id.partition("/")[0] == "queue"
        what = f"what its {'queue' if to_queue else 'graph'} was told at event {telling}"
        news = await self.value(list(begun.input.payloads)[:1], QueueNews if to_queue else GraphNews, what)
        return Heard(news, telling, missed) if news is not None else None

    async def _failed(self, activity: str, failure: Failure) -> Finished:
        error = await self._error(failure)
        if not isinstance(error, ApplicationError):
            return Finished(activity, broken_off=True)
        return Finished(
            activity, error=error.type or "", message=error.message, details=tuple(error.details), broken_off=True
        )

    async def _error(self, failure: Failure) -> BaseException | None:
        try:
            copied = Failure()
            copied.CopyFrom(failure)  # Decoding changes it: a second time it would be no encrypted one.
            return await self.converter.decode_failure(copied)
        except Undecodable:
            raise
        except Exception as error:  # As above.
            self.unreadable.append(f"a failure cannot be read: {error!r}")
            return None

    async def _ended(self, event: HistoryEvent) -> Ended | None:
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW:
                payloads = list(event.workflow_execution_continued_as_new_event_attributes.input.payloads)
                return Ended("continued", state=await self.value(payloads[1:2], State, "the memory it handed on"))
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
                payloads = list(event.workflow_execution_completed_event_attributes.result.payloads)
                return Ended("completed", status=await self.value(payloads[:1], Status, "its result"))
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
                return await self._failure(event.workflow_execution_failed_event_attributes.failure)
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED:
                return Ended("cancelled")
            case _:
                return None

    async def _failure(self, failure: Failure) -> Ended:
        details = list(failure.application_failure_info.details.payloads)
        status = await self.value(details[:1], Status, "its last status") if details else None
        error = await self._error(failure)
        message = error.message if isinstance(error, FailureError) else failure.message
        return Ended("failed", status=status, message=message)

    async def _asked_of(self, scheduled: int) -> int | None:
        asked = self.events[scheduled].activity_task_scheduled_event_attributes
        name = asked.activity_type.name
        given = await self.value(
            list(asked.input.payloads), _ASKED[name], f"what {name} was given at event {scheduled}"
        )
        return given.attempt if given is not None else None

    def _activity(self, scheduled: int) -> str:
        return self.events[scheduled].activity_task_scheduled_event_attributes.activity_type.name


def _time(event: HistoryEvent) -> datetime:
    # Computed exactly as `workflow.now()` does.
    return datetime.fromtimestamp(event.event_time.ToNanoseconds() / 1e9, UTC)
