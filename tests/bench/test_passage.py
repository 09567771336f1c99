"""How news of a lost node passes, read from a history and the audit log."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from bench.audit import Entry
from bench.passage import changes_of, passage, said_at, told_of
from bench.systems.holdfast import WORKER
from holdfast.model import OperationKind

BEGUN = datetime(2026, 1, 1, tzinfo=UTC)


def event(number: int, kind: int, *, activity: str = "", of: int = 0, attempt: int = 1) -> HistoryEvent:
    """Return an event that came as many seconds after the beginning as its number says."""
    made = HistoryEvent(event_id=number, event_type=kind)  # pyright: ignore[reportArgumentType]
    made.event_time.FromDatetime(BEGUN + timedelta(seconds=number))
    if activity:
        made.activity_task_scheduled_event_attributes.activity_type.name = activity
        given = json.dumps({"attempt": attempt}).encode()
        made.activity_task_scheduled_event_attributes.input.payloads.add(data=given)
    if kind == EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED:
        made.activity_task_started_event_attributes.scheduled_event_id = of
    if kind == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
        made.activity_task_completed_event_attributes.scheduled_event_id = of
    return made


def entry(verb: str, resource: str, name: str, *, by: str = WORKER, namespace: str = "own", at: int = 0) -> Entry:
    return {
        "verb": verb,
        "user": {"username": by},
        "objectRef": {"resource": resource, "name": name, "namespace": namespace},
        "stageTimestamp": (BEGUN + timedelta(seconds=at)).isoformat(),
    }


def test_each_step_towards_the_first_removal_is_found_and_removals_are_counted():
    signal, scheduled = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED, EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    news = [
        event(1, signal),
        event(2, EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED),
        event(3, scheduled, activity=OperationKind.OBSERVE),
        event(4, EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED, of=3),
        event(5, signal),
        event(6, EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED, of=3),
        event(7, EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED),
        event(8, scheduled, activity=OperationKind.REMOVE),
        event(9, EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED),
        event(10, scheduled, activity=OperationKind.OBSERVE),
        event(11, scheduled, activity=OperationKind.REMOVE),
        event(12, scheduled, activity=OperationKind.REMOVE, attempt=2),
    ]
    found = passage(news)
    steps = (found.told, found.asked, found.begun, found.seen, found.decided)
    assert [(at - BEGUN).total_seconds() for at in steps if at is not None] == [1, 3, 4, 6, 7]
    assert (found.removals, found.events) == (2, 12), "one that is begun again is decided once"
    assert told_of(news[:3]) == "1 workflow_execution_signaled, 1 workflow_task_completed, 1 activity_task_scheduled"
    assert passage(news[:6]).decided is None


def test_a_node_is_marked_when_the_worker_first_patches_it():
    entries = [
        entry("get", "nodes", "n1", at=1),
        entry("patch", "nodes", "n1", by="kubelet", at=2),
        entry("patch", "nodes", "n1", at=3),
        entry("patch", "nodes", "n1", at=4),
    ]
    assert said_at(entries) == {"n1": BEGUN + timedelta(seconds=3)}


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (entry("patch", "anchors", "w1"), True),
        (entry("delete", "pods", "w1-abcde"), True),
        (entry("get", "pods", "w1-abcde"), False),
        (entry("delete", "pods", "w10-abcde"), False),
        (entry("delete", "pods", "w1-abcde", by="job-controller"), False),
        (entry("delete", "pods", "w1-abcde", namespace="other"), False),
    ],
)
def test_only_the_workers_own_changes_to_those_workloads_count(asked: Entry, told: bool):
    assert bool(list(changes_of([asked], {"w1"}, "own"))) is told
