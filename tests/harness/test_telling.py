"""What anchors tell, judged on snapshots made by hand: the truth holds, and each lie is noticed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast import names
from tests.e2e.witness.sampler import report
from tests.e2e.witness.telling import FOR_EVER, LATE, PREPARED, WIPED, Snapshot, Thing, Told, Verdict, thing_of, told_by

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def told(namespace: str = "ns", **more: Any) -> Told:
    given: dict[str, Any] = {"phase": "Suspended", "reason": "", "attempt": 1, "deployed": False, "quota": False}
    return Told(namespace=namespace, name="train", workload="w", **(given | more))


def thing(kind: str, attempt: int = 1, *, workload: str = "w", live: bool = True) -> Thing:
    return Thing(kind, f"ns/{kind.lower()}", workload, attempt, live)


def judged(said: Told, *things: Thing, after: timedelta = timedelta(0), verdict: Verdict | None = None) -> Verdict:
    verdict = verdict or Verdict()
    verdict.take(Snapshot(100, NOON + after, [said], list(things)))
    return verdict


def test_nothing_told_and_nothing_there_is_true():
    verdict = judged(told())
    assert (verdict.judged, verdict.undeployed, verdict.released, verdict.lies) == (1, 1, 1, [])


def test_another_workloads_things_are_not_its_own():
    assert not judged(told(), thing("Pod", workload="another")).lies


@pytest.mark.parametrize("kind", ["Pod", "Job", names.ATTEMPT_KIND])
@pytest.mark.parametrize("phase", ["Suspended", "Resetting", "Resuming", "Failed", "Cancelled", "Succeeded"])
def test_whatever_is_there_while_nothing_is_said_to_be_deployed_is_a_lie(phase: str, kind: str):
    verdict = judged(told(phase=phase, quota=True), thing(kind))
    if (phase, kind) == ("Resuming", names.ATTEMPT_KIND):
        assert not verdict.lies
        assert verdict.excused[PREPARED] == 1
    else:
        assert len(verdict.lies) == 1


def test_the_owner_of_an_attempt_before_is_not_that_of_the_one_being_prepared():
    assert judged(told(phase="Resuming", attempt=2, quota=True), thing(names.ATTEMPT_KIND, 1)).lies


def test_a_new_anchor_may_stand_beside_its_first_attempts_owner_and_nothing_else():
    new = told(phase="", attempt=0)
    verdict = judged(new, thing(names.ATTEMPT_KIND, 1))
    assert (verdict.lies, verdict.excused[PREPARED]) == ([], 1)
    assert judged(new, thing(names.ATTEMPT_KIND, 2)).lies
    assert judged(new, thing(names.ATTEMPT_KIND, 1), thing("Job", 1)).lies


def test_an_owner_with_a_component_is_more_than_prepared():
    assert judged(told(phase="Resuming", quota=True), thing(names.ATTEMPT_KIND), thing("Job")).lies


def test_what_a_fenced_worker_had_sent_may_land_late_alone_and_only_where_workers_are_fenced():
    verdict = judged(told("fence-1"), thing("Pod"))
    assert (verdict.lies, verdict.excused[LATE]) == ([], 1)
    assert judged(told(), thing("Pod")).lies
    assert judged(told("fence-1"), thing("Job")).lies
    assert judged(told("fence-1"), thing("Pod"), Thing("Pod", "ns/another", "w", 1)).lies
    assert judged(told("fence-1", deployed=True), thing("Pod")).lies


def test_quota_released_while_a_pod_may_run_is_a_lie():
    (lie,) = judged(told(deployed=True), thing("Pod")).lies
    assert "Pod ns/pod of attempt 1" in lie
    assert "version 100" in lie


def test_pods_that_have_ended_hold_no_quota():
    assert not judged(told(phase="Succeeded", deployed=True), thing("Pod", live=False), thing("Job")).lies


def test_resources_said_to_be_there_for_ever_are_a_lie_and_for_a_while_are_not():
    said = told(deployed=True, quota=True)
    verdict = judged(said)
    judged(said, after=FOR_EVER, verdict=verdict)
    assert not verdict.lies
    judged(said, after=FOR_EVER + timedelta(seconds=1), verdict=verdict)
    assert len(verdict.lies) == 1


def test_what_is_there_now_and_then_is_no_lie():
    said = told(deployed=True, quota=True)
    verdict = judged(said)
    judged(said, thing("Job"), after=FOR_EVER, verdict=verdict)
    judged(said, after=FOR_EVER * 1.5, verdict=verdict)
    assert not verdict.lies


def test_a_held_workload_is_taken_to_be_there():
    said = told(phase="Pending", reason="Held", deployed=True, quota=True)
    assert not judged(said, after=FOR_EVER * 2, verdict=judged(said)).lies


def test_a_status_that_another_hand_has_wiped_is_no_word_of_ours():
    silent = told(phase="", attempt=0)
    assert judged(silent, thing("Pod")).lies, "one that has said nothing yet says that there is nothing"
    verdict = judged(told(phase="Running", deployed=True, quota=True), thing("Pod"))
    lies = len(judged(silent, thing("Pod"), verdict=verdict).lies)
    assert (lies, verdict.excused[WIPED]) == (0, 1)


def test_planted_faults_are_set_aside_and_counted():
    verdict = judged(told("planted-1"), thing("Pod"))
    assert not verdict.lies
    assert verdict.judged == 0
    assert sum(verdict.excused.values()) == 1


def test_a_lie_fails_and_so_does_having_seen_too_little(capsys: pytest.CaptureFixture[str]):
    assert report(judged(told(), thing("Pod")), some=True) == 1
    assert "lie: at version 100" in capsys.readouterr().out
    assert report(judged(told()), some=True) == 0
    assert report(judged(told())) == 1
    enough = Verdict()
    for _ in range(30):
        judged(told(), verdict=enough)
    assert report(enough) == 0


def test_an_anchor_and_an_object_are_read_as_the_cluster_has_them():
    conditions = [{"type": "ResourcesDeployed", "status": "True"}, {"type": "QuotaReserved", "status": "False"}]
    anchor = {
        "metadata": {"namespace": "ns", "name": "train"},
        "spec": {"workloadUid": "w"},
        "status": {"phase": "Running", "reason": "", "attempt": 3, "conditions": conditions},
    }
    assert told_by(anchor) == told(phase="Running", attempt=3, deployed=True)
    assert told_by({"metadata": anchor["metadata"], "spec": anchor["spec"]}) == told(phase="", attempt=0)
    labels = {names.LABEL_WORKLOAD_UID: "w", names.LABEL_ATTEMPT: "3"}
    item = {"metadata": {"namespace": "ns", "name": "train-0", "labels": labels}}
    assert thing_of("Pod", item, live=False) == Thing("Pod", "ns/train-0", "w", 3, live=False)
