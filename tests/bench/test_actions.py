"""How many billed actions a history holds."""

from __future__ import annotations

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory

from bench.actions import actions
from holdfast import names
from tests.replay.record import HISTORIES


def test_the_actions_of_a_life_with_one_reset():
    text = (HISTORIES / "created-at-once.json").read_text()
    found = actions(WorkflowHistory.from_json("life", text).events)
    assert found == {"starts": 1, "activities": 7, "timers": 4, "signals": 4, "columns": 8}


def test_each_try_of_an_activity_is_an_action_and_a_patch_is_none():
    tried = HistoryEvent(event_type=EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED)
    tried.activity_task_started_event_attributes.attempt = 3
    patched = HistoryEvent(event_type=EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES)
    written = patched.upsert_workflow_search_attributes_event_attributes.search_attributes.indexed_fields
    written[names.CHANGE_VERSION].data = b"[]"
    assert actions([tried, patched]) == {"activities": 3, "columns": 0}
