"""What people read of admission queues: pure functions from values to text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.cli.entities.queue_text import listed, shown
from holdfast.model.entities.queue import Queue, QueueLine, QueueStatus

WAITS = "it requests 16 nvidia.com/gpu, and 0 of 16 are free"
NOW = datetime(2026, 1, 31, 2, 14, 50, tzinfo=UTC)


def line(name: str, position: int, why: str) -> QueueLine:
    return QueueLine(
        namespace="team",
        name=name,
        uid=name,
        admitted=not position,
        position=position,
        priority=5,
        since=NOW - timedelta(hours=2),
        demand={"pods": "2", "nvidia.com/gpu": "16"},
        why=why,
    )


def status(**changes: Any) -> QueueStatus:
    fields: dict[str, Any] = {
        "queue": Queue(name="research", cluster="dev", quota={"nvidia.com/gpu": "16"}),
        "message": f"1 waiting; team/next is first: {WAITS}",
        "cycle": 7,
        "used": {"nvidia.com/gpu": "16", "pods": "2"},
        "admitted": 1,
        "waiting": 1,
        "lines": (line("next", 1, WAITS), line("now", 0, "admitted in cycle 6")),
    }
    return QueueStatus(**{**fields, **changes})


def test_a_queue_says_what_is_used_who_waits_why_and_who_is_admitted() -> None:
    assert shown(status(), NOW).splitlines() == [
        "research  1 admitted, 1 waiting  (BestEffortFIFO, cycle 7)",
        f"1 waiting; team/next is first: {WAITS}",
        "",
        "RESOURCE        USED  QUOTA",
        "nvidia.com/gpu  16    16",
        "pods            2     no limit",
        "",
        "POSITION  WAITING WORKLOAD  PRIORITY  AGE  REQUESTS                   REASON",
        f"1         team/next         5         2h   2 pods, 16 nvidia.com/gpu  {WAITS}",
        "",
        "ADMITTED WORKLOAD  PRIORITY  AGE  REQUESTS                   STATUS",
        "team/now           5         2h   2 pods, 16 nvidia.com/gpu  admitted in cycle 6",
    ]


def test_what_is_not_shown_is_counted() -> None:
    assert shown(status(waiting=7), NOW).count("and 6 more") == 1


def test_queues_are_listed_one_a_line() -> None:
    assert listed([status()]).splitlines()[1].split()[:4] == ["research", "1", "1", "16/16"]
    assert listed([]) == "no admission queues: every workload begins as soon as it is submitted"


def test_one_queue_that_does_not_answer_is_a_line_beside_the_others() -> None:
    text = listed([], {"research": "queue/dev/research: no worker answers: last poll 2m ago"})
    assert "research" in text
    assert "does not answer: queue/dev/research: no worker answers: last poll 2m ago" in text
    assert "no admission queues" not in text
