"""How many billed actions a history holds, as Temporal Cloud counts them.

Heartbeats and queries are actions too, and stand in no history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from holdfast import names

_ACTIONS: Final = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED: "starts",
    EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED: "activities",
    EventType.EVENT_TYPE_TIMER_STARTED: "timers",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED: "signals",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED: "updates",
    EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES: "columns",
}


def actions(events: Iterable[HistoryEvent]) -> Counter[str]:
    """Return how many actions of each sort a history holds; each try of an activity is one. Pure."""
    found = Counter[str]()
    for event in events:
        sort = _ACTIONS.get(event.event_type)
        if sort == "activities":
            found[sort] += max(1, event.activity_task_started_event_attributes.attempt)
        elif sort == "columns":
            written = event.upsert_workflow_search_attributes_event_attributes.search_attributes.indexed_fields
            found[sort] += bool(set(written) - {names.CHANGE_VERSION})  # Patches cost nothing.
        elif sort is not None:
            found[sort] += 1
    return found
