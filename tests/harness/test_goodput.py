"""The judge of ledgers, on a simulated life and an audit log made by hand: it holds, and each difference is noticed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.model.life.ledger import Bucket
from holdfast.past import Story, ledger_of
from tests.audited import BEGUN, CONTROLLER, Log
from tests.e2e.witness import goodput
from tests.e2e.witness.goodput import LATE, Verdict, judge
from tests.e2e.witness.ledger import read
from tests.past.test_simulated_lives import document, lived, script

NOW = datetime(2100, 1, 1, tzinfo=UTC)
LONG = LATE.total_seconds() + 2
# The life: starting 10 s, lost 60, detecting 60, removing 5, pausing 90, starting 10, productive 60.
TIMES = {
    "made": 0.1,
    "ran": 9.9,
    "ended": 70.0,
    "asked": 130.1,
    "gone": 134.8,
    "again": 225.1,
    "ran again": 234.9,
}


@pytest.fixture(scope="module")
def story() -> Story:
    return lived(document("pods"), script("failed-pod-reset"))


def judged(story: Story, timed: bool = True, unanswered: int = 0, /, **moved: float) -> Verdict:
    """Judge the life beside an audit log in which some times are moved by seconds.

    So many pods of the second attempt were made although their creation was not answered.
    """
    at = {what: time + moved.get(what.replace(" ", "_"), 0) for what, time in TIMES.items()}
    begun = (story.runs[0].began_at - BEGUN).total_seconds()
    log = Log(namespace=story.spec.namespace, workload=story.uid)

    def status(pod: str, when: float, phase: str, **container: object) -> None:
        sent = {"status": {"phase": phase, "containerStatuses": [{"state": container}]}}
        log.entry("patch", "pods", pod, begun + when, subresource="status", sent=sent, user="kwok", takes=0.01)

    log.create("attempts", "owner-1", 1, begun + at["made"], takes=0.01)
    for pod in ("one-1", "two-1"):
        log.create("pods", pod, 1, begun + at["made"] + 0.1, user=CONTROLLER, takes=0.01)
        status(pod, at["ran"], "Running", running={})
    ended = story.runs[0].began_at + timedelta(seconds=at["ended"])
    status("one-1", at["ended"] + 0.5, "Failed", terminated={"finishedAt": ended.isoformat()})
    log.begin_deletion("attempts", "owner-1", 1, begun + at["asked"], finalizers=["foregroundDeletion"])
    for pod in ("one-1", "two-1"):
        log.delete("pods", pod, begun + at["gone"], user="kwok", takes=0.01)
    log.let_go("attempts", "owner-1", 1, begun + at["gone"] + 0.05, takes=0.01)
    log.create("attempts", "owner-2", 2, begun + at["again"], takes=0.01)
    for index, pod in enumerate(("one-2", "two-2")):
        if index < unanswered:
            log.time_out("pods", 2, begun + at["again"] + 0.1, user=CONTROLLER)
        else:
            log.create("pods", pod, 2, begun + at["again"] + 0.1, user=CONTROLLER, takes=0.01)
        status(pod, at["ran again"], "Running", running={})
    return judge(story, NOW, read(log.lines), timed=timed)


@pytest.mark.row("P5", level="pure")
def test_P5_a_ledger_that_agrees_with_the_audit_log_holds(story: Story):
    assert judged(story) == Verdict(counted=1, beside=1, timed=1)


@pytest.mark.parametrize(
    ("moved", "what"),
    [
        ({"gone": 1.0}, "pausing of attempt 1"),
        ({"gone": 150.0}, "was there"),
        ({"ran": 0.5}, "0 of 2 pods had run by then"),
        ({"ran_again": 3.0}, "0 of 2 pods had run by then"),
        ({"again": -5.0}, "was there"),
        ({"again": -5.0}, "was asked for before"),
    ],
)
def test_a_ledger_ahead_of_the_cluster_is_noticed_wherever_news_was_kept_away(
    story: Story, moved: dict[str, float], what: str
):
    broken = judged(story, False, **moved).broken
    assert broken
    assert any(what in text for text in broken)


@pytest.mark.parametrize("unanswered", [1, 2])
def test_a_pod_whose_creation_was_not_answered_may_have_run(story: Story, unanswered: int):
    assert not judged(story, False, unanswered).broken


def test_the_others_must_have_run_all_the_same(story: Story):
    broken = judged(story, False, 1, ran_again=3.0).broken
    assert any("0 of 2 pods had run by then" in text for text in broken)


@pytest.mark.parametrize(
    ("moved", "what"),
    [
        ({"ended": -LONG}, "its container ended"),
        ({"again": LONG}, "its first object was asked for"),
    ],
)
def test_a_ledger_far_behind_the_cluster_is_noticed(story: Story, moved: dict[str, float], what: str):
    assert any(what in text for text in judged(story, **moved).broken)


def stretched(story: Story, bucket: Bucket, seconds: float) -> Story:
    """Let a workflow hear of all that follows a bucket so much later."""
    begin = next(span.end for span in ledger_of(story, NOW).spans if span.bucket is bucket)
    shift = timedelta(seconds=seconds)
    turns = [dataclasses.replace(turn, at=turn.at + shift) if turn.at >= begin else turn for turn in story.turns]
    return dataclasses.replace(story, turns=turns, runs=(dataclasses.replace(story.runs[0], ended_at=turns[-1].at),))


@pytest.mark.parametrize(
    ("bucket", "what"),
    [
        (Bucket.STARTING, "its last pod ran"),
        (Bucket.REMOVING, "the last of it was gone"),
    ],
)
def test_a_workflow_that_hears_late_is_noticed(story: Story, bucket: Bucket, what: str):
    late = stretched(story, bucket, LONG)
    assert any(what in text for text in judged(late).broken)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda found: {"age": found.age + 1},
        lambda found: {"milliseconds": found.milliseconds | {Bucket.LOST: -1}},
        lambda found: {"spans": found.spans[:2] + found.spans[3:]},
        lambda found: {"begun_at": found.begun_at + timedelta(seconds=1)},
        lambda found: {"until": found.until + timedelta(days=1)},
    ],
)
def test_a_ledger_that_does_not_add_up_is_noticed(
    story: Story, monkeypatch: pytest.MonkeyPatch, wrong: Callable[..., dict[str, object]]
):
    right = ledger_of(story, NOW)
    monkeypatch.setattr(goodput, "ledger_of", lambda *_: right.model_copy(update=wrong(right)))
    assert judged(story).broken


@pytest.mark.parametrize("namespace", ["planted-x", "act-x"])
def test_where_a_test_breaks_the_law_only_the_sum_counts(story: Story, namespace: str):
    spec = story.spec.model_copy(update={"namespace": namespace})
    assert judged(dataclasses.replace(story, spec=spec), gone=150.0) == Verdict(counted=1)
