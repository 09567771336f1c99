"""What people read of a checkpoint broker: pure functions from values to text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.cli.entities.broker_text import shown
from holdfast.model.entities.broker import Asked, Broker, BrokerStatus

NOW = datetime(2026, 1, 31, 2, 14, 50, tzinfo=UTC)


def status(**changes: object) -> BrokerStatus:
    told = BrokerStatus(
        broker=Broker(cluster="dev"),
        message="9 can save their state: 1 saving, 3 due, 2 of these waiting",
        cycle=7,
        looked_at=NOW - timedelta(seconds=30),
        asked=(Asked(workload="workload/dev/team/train", why="2h of 8 pods are unsaved"),),
        asked_total=12,
    )
    return told.model_copy(update=changes)


def test_a_broker_says_how_many_save_and_whom_it_asked_why() -> None:
    assert shown(status(), NOW).splitlines() == [
        "checkpoint broker of dev  cycle 7, every 1m, looked 30s ago",
        "9 can save their state: 1 saving, 3 due, 2 of these waiting; 12 asked so far, at most 2 at a time",
        "",
        "WORKLOAD    ASKED BECAUSE",
        "team/train  2h of 8 pods are unsaved",
    ]


def test_who_did_not_answer_is_told_and_nothing_is_made_up() -> None:
    assert "3 did not answer, and are asked again" in shown(status(unheard=3), NOW)
    assert "not looked yet" in shown(status(looked_at=None, asked=()), NOW)
