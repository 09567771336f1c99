"""Why pods are not created, as their controllers' Events say it."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.activities.facts.refused_pods import words
from tests.activities.shapes import planned, stamp, time

PLAN = (planned("main"), planned("web", "Deployment", "apps/v1"))


def event(name: str, message: str, second: int = 9, reason: str = "FailedCreate") -> dict[str, Any]:
    return {"reason": reason, "message": message, "lastTimestamp": stamp(second), "involvedObject": {"name": name}}


@pytest.mark.row("D34", level="pure")
def test_D34_the_latest_event_of_a_component_or_of_what_was_made_from_it_is_taken():
    events = [
        event("main-0", "exceeded quota: old", 5),
        event("main-0", "exceeded quota: new", 9),
        event("web-0-5d9c", 'admission webhook "x" denied the request', 7),
        event("main-01", "of another Job"),
        event("other", "of another Job"),
        event("main-0", "not this", 11, reason="SuccessfulCreate"),
    ]
    found = words(events, PLAN, time(2))
    assert found == {"main": "exceeded quota: new", "web": 'admission webhook "x" denied the request'}


def test_what_was_said_of_an_earlier_attempt_is_not_said_of_this():
    assert words([event("main-0", "exceeded quota", 5)], PLAN, time(6)) == {}


def test_an_event_of_a_series_counts_by_its_last_time():
    series = event("main-0", "exceeded quota", 5) | {"lastTimestamp": None, "series": {"lastObservedTime": stamp(8)}}
    assert words([series], PLAN, time(6)) == {"main": "exceeded quota"}
    assert words([event("main-0", "never") | {"lastTimestamp": None}], PLAN, time(6)) == {}
