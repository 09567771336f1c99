"""What the events of a run say of the tasks that failed (row D2)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from temporalio.api.enums.v1 import EventType, WorkflowTaskFailedCause
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent, WorkflowTaskFailedEventAttributes

from holdfast.activities.entities.executions import Streak
from holdfast.policy.entities.health import Execution, Sight

ROW = pytest.mark.row("D2", level="pure")
NOW = datetime(2026, 1, 31, 2, 15, tzinfo=UTC)
FAILED = EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED
SIGNALED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
FAULT = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR
UNHANDLED = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND


def event(
    number: int, kind: EventType.ValueType, message: str = "", cause: WorkflowTaskFailedCause.ValueType = FAULT
) -> HistoryEvent:
    found = HistoryEvent(event_id=number, event_type=kind)
    found.event_time.FromDatetime(NOW + timedelta(seconds=number))
    if kind == FAILED:
        failure = WorkflowTaskFailedEventAttributes(cause=cause, failure=Failure(message=message))
        found.workflow_task_failed_event_attributes.CopyFrom(failure)
    return found


def sight(*events: HistoryEvent, attempt: int = 1) -> Sight:
    """Return what is seen of a run, given its events in their order."""
    streak = Streak()
    for each in reversed(events):
        if not streak.take(each):
            break
    return streak.sight("queue/local/gpus", "run", attempt)


@ROW
def test_D2_failures_of_a_busy_entity_are_counted_in_its_history():
    """Temporal counts tries from one again whenever an event came in between."""
    old = (event(1, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED), event(2, FAILED, "long ago"))
    done = event(3, EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED)
    busy = [each for at in range(4, 12, 2) for each in (event(at, FAILED, f"fault {at}"), event(at + 1, SIGNALED))]
    assert sight(*old, done, *busy) == Sight(
        "queue/local/gpus",
        Execution.RUNNING,
        "run",
        since=NOW + timedelta(seconds=4),
        failures=4,
        failure="fault 4",
        latest=NOW + timedelta(seconds=10),
    )
    assert sight(*busy).is_cut, "neither its beginning nor a task that was carried out was read"
    assert sight(*old, done, attempt=7).failures == 6
    assert sight(*old).failures == 1
    assert not sight(*old).is_cut


@ROW
def test_D2_neither_an_overloaded_worker_nor_the_course_of_things_is_a_fault():
    seen = sight(
        event(3, EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED),
        event(4, FAILED, "[TMPRL1101] Potential deadlock detected: workflow didn't yield within 2 second(s)."),
        event(5, FAILED, cause=UNHANDLED),
        attempt=5,
    )
    assert (seen.failures, seen.failure, seen.since) == (4, "", None)
