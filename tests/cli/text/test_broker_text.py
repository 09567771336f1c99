"""What people read of a checkpoint broker: pure functions from values to text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.cli.entities.broker_text import shown
from holdfast.model.entities.broker import Asked, Broker, BrokerStatus

MESSAGE = "9 workloads can save their state; 1 saves now; 3 are due: 1 is asked now, 2 wait for their turn"
NOW = datetime(2026, 1, 31, 2, 14, 50, tzinfo=UTC)


def status(**changes: object) -> BrokerStatus:
    told = BrokerStatus(
        broker=Broker(cluster="dev"),
        message=MESSAGE,
        cycle=7,
        looked_at=NOW - timedelta(seconds=30),
        asked=(Asked(workload="workload/dev/team/train", why="it has 8 pods, and has not saved for 2h"),),
        asked_total=12,
    )
    return told.model_copy(update=changes)


def test_a_broker_says_how_many_save_and_whom_it_asked_why() -> None:
    assert shown(status(), NOW).splitlines() == [
        "checkpoint broker of dev  cycle 7, every 1m, last look 30s ago",
        MESSAGE,
        "at most 2 save at once; 12 requests so far",
        "",
        "WORKLOAD    ASKED BECAUSE",
        "team/train  it has 8 pods, and has not saved for 2h",
    ]


def test_who_did_not_answer_is_told_and_nothing_is_made_up() -> None:
    assert "3 did not answer, and are asked again" in shown(status(unheard=3), NOW)
    assert "not looked yet" in shown(status(looked_at=None, asked=()), NOW)
