"""Status out: each report once, none over a later one, each Event once (row A10)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError

from holdfast import names
from holdfast.activities.kube.client import Kube
from holdfast.activities.operations.report import events_of, status_of
from holdfast.model import Condition, ConditionType, Event, Phase, Reason, Report
from tests.activities.bench import Bench
from tests.activities.line import Line

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def ready(status: bool) -> Condition:
    reason = Reason.SUFFICIENT_PODS_READY if status else Reason.INSUFFICIENT_PODS_READY
    return Condition(type=ConditionType.PODS_READY, status=status, reason=reason, message="2 of 2")


def of(sequence: int = 1, **more: Any) -> Report:
    return Report(**({"sequence": sequence, "phase": Phase.RUNNING, "reason": Reason.SUBMITTED} | more))


def test_a_condition_keeps_its_time_while_its_status_stays():
    first = status_of(of(conditions=(ready(False),)), {}, NOON)
    later = NOON.replace(hour=13)
    same = status_of(of(2, conditions=(ready(False),)), first, later)
    changed = status_of(of(3, conditions=(ready(True),)), same, later)
    assert first["conditions"][0]["lastTransitionTime"] == "2026-01-01T12:00:00Z"
    assert same["conditions"] == first["conditions"]
    assert changed["conditions"][0]["lastTransitionTime"] == "2026-01-01T13:00:00Z"


def test_an_events_name_says_which_it_is():
    anchor = {"metadata": {"name": "n" * 240, "namespace": "ns", "uid": "u" * 36}}
    report = of(
        7, events=(Event(reason=Reason.SUBMITTED, message="m" * 2000), Event(reason=Reason.COMPLETED, message=""))
    )
    first, second = events_of(report, anchor, NOON)
    assert first["metadata"]["name"].endswith(f".{'u' * 36}.7.0")
    assert second["metadata"]["name"].endswith(".7.1")
    assert len(first["metadata"]["name"]) <= 253
    assert len(first["message"]) == 1024


@pytest.mark.e2e
@pytest.mark.timeout(60)
class TestOnACluster:
    async def test_a_report_shows_on_the_anchor(self, bench: Bench):
        await bench.prepare()
        await bench.send_report(bench.report(attempt=3, restarts=2, message="on we go", conditions=(ready(True),)))
        anchor = await bench.anchor()
        assert anchor is not None
        status = anchor["status"]
        assert (status["phase"], status["attempt"], status["restarts"], status["message"]) == (
            "Running",
            3,
            2,
            "on we go",
        )
        assert status["conditions"][0]["status"] == "True"

    async def test_a_late_report_changes_nothing(self, bench: Bench):
        await bench.prepare()
        late, early = bench.report(message="late"), bench.report(message="early")
        await bench.send_report(early)
        await bench.send_report(late)
        anchor = await bench.anchor()
        assert anchor is not None
        assert anchor["status"]["message"] == "early"

    async def test_events_are_written_once(self, bench: Bench):
        await bench.prepare()
        events = (
            Event(reason=Reason.RESETTING, message="attempt 1 failed"),
            Event(type="Warning", reason=Reason.NODE_LOST, message="node-7"),
        )
        report = bench.report(events=events)
        await bench.send_report(report)
        await bench.send_report(report)
        written = await bench.events()
        assert sorted((one["type"], one["reason"], one["message"]) for one in written) == [
            ("Normal", "Resetting", "attempt 1 failed"),
            ("Warning", "NodeLost", "node-7"),
        ]
        anchor = await bench.anchor()
        assert anchor is not None
        assert {one["involvedObject"]["uid"] for one in written} == {anchor["metadata"]["uid"]}

    async def test_no_anchor_is_no_error_and_none_is_made(self, bench: Bench):
        report = bench.report(events=(Event(reason=Reason.HEALED, message="to nobody"),))
        await bench.send_report(report)
        assert await bench.anchor() is None
        assert await bench.events() == []

    async def test_the_anchor_of_another_workload_is_left_alone(self, bench: Bench):
        await bench.prepare()
        bench.target = bench.target.model_copy(update={"workload_uid": "another"})
        await bench.send_report(bench.report(message="mine?", events=(Event(reason=Reason.HEALED, message=""),)))
        anchor = await bench.anchor()
        assert anchor is not None
        assert anchor["status"]["message"] == ""
        assert await bench.events() == []

    async def test_a_condition_keeps_its_time(self, bench: Bench):
        await bench.prepare()
        await bench.send_report(bench.report(conditions=(ready(False),)))
        before = await bench.anchor()
        await bench.send_report(bench.report(conditions=(ready(False),)))
        after = await bench.anchor()
        assert before is not None
        assert after is not None
        assert before["status"]["conditions"] == after["status"]["conditions"]

    async def test_kubectl_shows_it(self, bench: Bench, stack: Any):
        await bench.prepare()
        await bench.send_report(bench.report(attempt=2, restarts=1))
        lines = stack.kubectl("get", "hf", "-n", bench.namespace).splitlines()
        assert lines[0].split() == ["NAME", "PHASE", "REASON", "ATTEMPT", "RESTARTS", "AGE"]
        assert lines[1].split()[:5] == ["train", "Running", "Submitted", "2", "1"]
        assert "train-a1" in stack.kubectl("get", "hfa", "-n", bench.namespace)

    async def test_a_cluster_that_does_not_answer_is_told_and_retried(
        self, far_kube: Kube, admin: Kube, namespace: str, line: Line
    ):
        bench = await Bench.make(far_kube, admin, namespace)
        line.cut()
        with pytest.raises(ApplicationError) as caught:
            await bench.send_report(bench.report())
        assert caught.value.type == names.ERROR_UNREACHABLE
