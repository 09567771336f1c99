"""What a workflow waits for: its pending activities as Temporal reports them, with their last heartbeats."""

from __future__ import annotations

from datetime import UTC
from typing import Final

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import PendingActivityState, TimeoutType
from temporalio.api.failure.v1 import Failure
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import WorkflowExecutionDescription
from temporalio.converter import DataConverter

from holdfast.activities.entities.executions import message_of
from holdfast.client.views import ActivityView

_STATES: Final = {
    PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED: "Scheduled",
    PendingActivityState.PENDING_ACTIVITY_STATE_STARTED: "Started",
    PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED: "CancelRequested",
    PendingActivityState.PENDING_ACTIVITY_STATE_PAUSED: "Paused",
    PendingActivityState.PENDING_ACTIVITY_STATE_PAUSE_REQUESTED: "PauseRequested",
}


_TOO_LONG: Final = "Failure exceeds size limit."
"""The message of a failure that Temporal has truncated; the original failure is then its cause."""


async def activities_of(description: WorkflowExecutionDescription) -> tuple[ActivityView, ...]:
    """Return the pending activities, each with its last heartbeat."""
    converter = description.data_converter
    views: list[ActivityView] = []
    for pending in description.raw_description.pending_activities:
        state = _STATES.get(pending.state, "Unknown")
        begun = pending.last_started_time if state == "Started" else pending.scheduled_time
        next_at = pending.next_attempt_schedule_time
        views.append(
            ActivityView(
                type=pending.activity_type.name,
                state=state,
                attempt=pending.attempt,
                since=begun.ToDatetime(tzinfo=UTC) if begun.seconds else None,
                heartbeat=tuple(await _decoded(converter, _own_words(pending, state))),
                last_failure=await _told(converter, pending.last_failure) if pending.HasField("last_failure") else "",
                next_attempt_at=next_at.ToDatetime(tzinfo=UTC) if next_at.seconds else None,
            )
        )
    return tuple(views)


def _own_words(pending: PendingActivityInfo, state: str) -> list[Payload]:
    """Return the last heartbeat of the current try; Temporal keeps that of the try before, whose worker may be dead."""
    beat, begun = pending.last_heartbeat_time, pending.last_started_time
    if state == "Scheduled" or (beat.seconds, beat.nanos) < (begun.seconds, begun.nanos):
        return []
    return list(pending.heartbeat_details.payloads)


async def _told(converter: DataConverter, failure: Failure) -> str:
    """Return why the last try ended, even if Temporal's own message does not help."""
    if failure.timeout_failure_info.timeout_type == TimeoutType.TIMEOUT_TYPE_HEARTBEAT:
        return "the worker that had it was lost (no heartbeat came)"
    if failure.message == _TOO_LONG and failure.cause.message:
        failure = failure.cause
    return await message_of(converter, failure)


async def _decoded(converter: DataConverter, payloads: list[Payload]) -> list[object]:
    if not payloads:
        return []
    try:
        return await converter.decode(payloads)
    except Exception:  # A heartbeat may hold any value. If it cannot be decoded, the rest can still be shown.
        return []
