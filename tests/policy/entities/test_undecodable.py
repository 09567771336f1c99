"""An entity whose tasks a worker cannot decode is held: nothing ends it, and no failure's words are stored (row X6)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import ApplicationFailureInfo, Failure
from temporalio.api.history.v1 import HistoryEvent, WorkflowTaskFailedEventAttributes

from holdfast.activities.entities.executions import Streak
from holdfast.policy.entities.health import ENTITIES, Act, Execution, Sight, is_failing, judge, reason_of

pytestmark = pytest.mark.row("X6", level="pure")

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
FAILING = Sight(
    "queue/local/gpus", Execution.RUNNING, "run", since=NOW - timedelta(hours=2), failures=9, failure="planted"
)


@pytest.mark.parametrize("entity", ENTITIES)
def test_X6_an_entity_that_lacks_a_key_is_held_however_long(entity) -> None:
    held = replace(FAILING, undecodable="a payload is encrypted with key 'k'")
    verdict = judge(entity, held, NOW, timedelta(minutes=2), replace(held, failures=3))
    assert (verdict.healthy, verdict.act) == (False, Act.NOTHING)
    assert "key 'k'" in verdict.says
    assert not is_failing(held)
    assert judge(entity, FAILING, NOW, timedelta(minutes=2), replace(FAILING, failures=3)).act is Act.END


def test_X6_the_reason_of_a_termination_has_no_words_of_a_failure() -> None:
    verdict = judge(ENTITIES[0], FAILING, NOW, timedelta(minutes=2), replace(FAILING, failures=3))
    assert "planted" in verdict.says
    assert "planted" not in reason_of(verdict), "Temporal stores it in clear"


def failed(event_id: int, message: str, kind: str = "") -> HistoryEvent:
    failure = Failure(message=message, application_failure_info=ApplicationFailureInfo(type=kind))
    return HistoryEvent(
        event_id=event_id,
        event_type=EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED,
        workflow_task_failed_event_attributes=WorkflowTaskFailedEventAttributes(failure=failure),
    )


@pytest.mark.parametrize(
    ("events", "undecodable", "faults"),
    [
        ([failed(9, "key 'k'", "Undecodable")], "key 'k'", 0),
        ([failed(9, "key 'k'", "Undecodable"), failed(5, "bug")], "key 'k'", 1),
        ([failed(9, "bug"), failed(5, "key 'k'", "Undecodable")], "", 1),
        ([failed(9, "bug")], "", 1),
    ],
)
def test_X6_the_last_failure_says_whether_a_key_is_missing(
    events: list[HistoryEvent], undecodable: str, faults: int
) -> None:
    streak = Streak()
    for event in events:
        streak.take(event)
    assert (streak.undecodable, streak.faults) == (undecodable, faults)
    assert streak.sight("id", "run", 9).undecodable == undecodable
