"""What people read of a gang: pure functions from values to text."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from holdfast.cli.common.gang_text import gang
from holdfast.model.gang.status import CloseReason, GangPhase, GangStatus, RoleFigures

NOW = datetime(2026, 1, 31, 2, 14, 50, tzinfo=UTC)


def status(**changes: Any) -> GangStatus:
    fields: dict[str, Any] = {
        "workload_uid": "u-1",
        "attempt": 1,
        "phase": GangPhase.RUNNING,
        "round": 3,
        "min": 2,
        "max": 4,
        "present": 3,
        "participants": 3,
        "since": NOW,
        "hub": 1,
    }
    return GangStatus(**{**fields, **changes})


def test_a_round_that_runs_says_who_is_in_it_and_why_it_began() -> None:
    assert gang(status(why="local rank 0 of train-1-x exited 3")) == (
        "round 3 is running with 3 members (2 to 4 allowed)\nit began because local rank 0 of train-1-x exited 3"
    )


def test_a_round_that_forms_says_what_it_waits_for() -> None:
    told = gang(status(phase=GangPhase.FORMING, present=1, due=NOW, next="fewer than 2 members have joined"))
    assert told.splitlines() == [
        "round 4 forms: 1 of 2 to 4 members are there",
        "at 02:14:50 UTC: fewer than 2 members have joined",
    ]


def test_who_is_apart_and_who_was_charged_is_named_as_far_as_there_is_room() -> None:
    told = gang(
        status(
            min=4,
            waiting=("a", "b", "c", "d"),
            absent={"train-0-x": "silent for 15s"},
            charged={"train-1-x": 2},
            roles={"trainer": RoleFigures(remaining_restarts=1, flakiness=50)},
        )
    )
    assert told.splitlines() == [
        "round 3 is running with 3 of 4 members",
        "waiting for a place: a, b, c and 1 more",
        "not there: train-0-x (silent for 15s)",
        "restarts used: train-1-x 2; least left by role: trainer 1",
    ]


def test_one_that_nobody_serves_says_so_unless_it_is_closed() -> None:
    assert "nobody serves it" in gang(status(hub=0))
    over = gang(status(hub=0, phase=GangPhase.CLOSED, closed=CloseReason.JOIN_TIMEOUT, absent={"a": "gone"}))
    assert over == "closed after round 3: join_timeout"
