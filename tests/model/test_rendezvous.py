"""The wire between agents and their rendezvous: what is refused, and what is bounded."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from holdfast.model.gang.wire import (
    ERROR_MAXIMUM,
    Announcement,
    Directive,
    Join,
    Report,
    bounded,
)

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
JOIN: dict[str, Any] = {
    "member": "train-1",
    "podUid": "6f1b",
    "attempt": 1,
    "incarnation": "a1",
    "startedAt": AT,
    "address": "10.0.0.7",
    "port": 29500,
}
FAILED: dict[str, Any] = {"localRank": 0, "exitCode": 3, "at": AT}


def test_an_announcement_comes_back_from_the_wire_as_it_was_and_lets_what_is_newer_pass() -> None:
    said = Announcement.model_validate({"join": JOIN, "report": {"state": "INIT", "since": AT}, "wait": "20s"})
    assert Announcement.model_validate_json(said.model_dump_json()) == said
    newer = {**said.model_dump(mode="json"), "mood": "good"}
    assert Announcement.model_validate(newer) == said


@pytest.mark.parametrize(
    ("report", "words"),
    [
        ({"state": "FAILED", "round": 1}, "FAILED names at least one"),
        ({"state": "HEALTHY", "round": 1, "failures": [FAILED]}, "expected none in state HEALTHY"),
        ({"state": "SUCCEEDED"}, "expected the round whose workers are SUCCEEDED"),
        ({"state": "FAILED", "round": 1, "failures": [FAILED] * 5}, "at most 4"),
        ({"state": "FAILED", "round": 1, "failures": [{**FAILED, "exitCode": 0}]}, "has not failed"),
        ({"state": "FAILED", "round": 1, "failures": [{**FAILED, "signal": 9}]}, "expected none beside exit code 3"),
        ({"state": "FAILED", "round": 1, "failures": [{**FAILED, "error": "x" * 1025}]}, "at most 1024"),
        ({"state": "RUNNING", "round": 1}, "'UNKNOWN'"),
    ],
)
def test_a_report_that_contradicts_itself_is_refused(report: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Report.model_validate({"since": AT, **report})


@pytest.mark.parametrize("change", [{"member": "Train 1"}, {"localWorldSize": 0}, {"port": 0}, {"attempt": 0}])
def test_a_join_that_names_no_place_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Join.model_validate({**JOIN, **change})


@pytest.mark.parametrize("kind", ["Run", "Finish"])
def test_a_directive_without_what_it_is_about_is_refused(kind: str) -> None:
    with pytest.raises(ValidationError, match=f"found {kind}"):
        Directive.model_validate({"revision": 1, "kind": kind})


def test_an_error_is_told_by_its_end() -> None:
    assert bounded("short") == "short"
    told = bounded("x" * 5000 + "CUDA out of memory")
    assert len(told) == ERROR_MAXIMUM
    assert told.endswith("CUDA out of memory")
