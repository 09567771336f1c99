"""When a removal was due and decided, read from a workflow's history."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from bench.systems.holdfast import removal_decided, removal_due
from holdfast.model.calls.cluster import Reset

BEGUN = datetime(2026, 1, 1, tzinfo=UTC)


class History:
    """A workflow whose events come a second apart."""

    def __init__(self) -> None:
        self.events: list[HistoryEvent] = []

    def add(self, kind: str, **attributes: dict[str, Any]) -> int:
        number = len(self.events) + 1
        time = Timestamp()
        time.FromDatetime(BEGUN + timedelta(seconds=number))
        word = EventType.Value(f"EVENT_TYPE_{kind}")
        self.events.append(HistoryEvent(event_id=number, event_time=time, event_type=word, **cast("Any", attributes)))
        return number

    def decides(self, timer: int) -> None:
        """End a task that sets a timer."""
        self.add("WORKFLOW_TASK_COMPLETED")
        lasts = {"start_to_fire_timeout": Duration(seconds=timer)}
        self.add("TIMER_STARTED", timer_started_event_attributes=lasts)

    def schedules(self, activity: str) -> int:
        """End a task that schedules an activity."""
        self.add("WORKFLOW_TASK_COMPLETED")
        named = {"activity_type": {"name": activity}}
        return self.add("ACTIVITY_TASK_SCHEDULED", activity_task_scheduled_event_attributes=named)

    def ends(self, scheduled: int, *, removed: bool = True) -> None:
        result = Payload(data=Reset(confirmed=removed).model_dump_json().encode())
        of = {"scheduled_event_id": scheduled, "result": {"payloads": [result]}}
        self.add("ACTIVITY_TASK_COMPLETED", activity_task_completed_event_attributes=of)

    async def fetch_history_events(self) -> AsyncIterator[HistoryEvent]:
        for event in self.events:
            yield event

    async def read(self) -> list[float | None]:
        found = [await read(cast("Any", self)) for read in (removal_due, removal_decided)]
        return [(at - BEGUN).total_seconds() if at is not None else None for at in found]


@pytest.mark.parametrize("activity", ["reset", "remove"])
async def test_the_last_timer_and_the_task_before_a_removal_count(activity: str):
    history = History()
    assert await history.read() == [None, None]
    history.decides(45)  # Until 47.
    history.ends(history.schedules(activity))
    history.ends(history.schedules("remove"))
    assert await history.read() == [47, 3]


async def test_a_reset_that_only_looked_is_no_removal():
    history = History()
    history.decides(5)
    history.ends(history.schedules("reset"), removed=False)
    history.decides(45)  # Set at 7.
    history.ends(history.schedules("reset"))
    assert await history.read() == [52, 8]
