"""Data sets before an attempt: what is waited for, what is charged, what ends it (row L14)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.model import OperationKind, Phase, Reason
from holdfast.model.calls.stage import Staged
from holdfast.model.entities.queue import Standing
from holdfast.model.gang.state import Gang
from holdfast.model.life.facts import Barrier
from holdfast.model.life.state import Meeting, Operation
from holdfast.model.spec.mount import Mount
from holdfast.policy.status.explain import explain_of, status_of
from holdfast.policy.status.report import conditions, quota_of, report_of
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Cancelled, OperationRefused, Resumed, Retried, Suspended
from holdfast.policy.values.steps import Sleep
from holdfast.profiles import lattice
from holdfast.workflows.operations.dispatch import call_of
from holdfast.workflows.operations.gang import Meetings
from tests.policy.lives.life import START, Life, workload
from tests.policy.status.test_queued import Queued

ROW = pytest.mark.row
MOUNT = Mount(name="corpus", source="s3://datasets/corpus", path="/data/corpus")
STORE = "mount corpus (s3://datasets/corpus): http://store:7070 does not answer: Connection refused"
STAGE, CREATE = OperationKind.STAGE, OperationKind.CREATE


def life(**fields: Any) -> Life:
    return Life(workload(mounts=(MOUNT,), **fields), hold={STAGE}).settle()


def away(one: Life, fetched: int = 0) -> Life:
    """Let the staging under way find the store away."""
    one.tell_result(Staged(fetched=fetched, away=STORE))
    return one.settle()


def staged(one: Life) -> Life:
    one.finish()
    return one.settle()


def made(one: Life) -> list[int]:
    return [number for kind, number, _ in one.ran if kind is CREATE]


def pause(one: Life) -> timedelta:
    assert isinstance(one.step, Sleep)
    assert one.step.until is not None
    return one.step.until - one.now


@ROW("L14", level="pure")
def test_L14_nothing_is_made_before_its_data_sets_lie_ready() -> None:
    one = life()
    assert [kind for kind, *_ in one.ran] == [STAGE]
    assert (one.state.phase, one.state.reason) == (Phase.PENDING, Reason.STAGING)
    assert explain_of(one.spec, one.state, one.now).now == (
        "staging what attempt 1 reads: corpus (s3://datasets/corpus); nothing of it is in the cluster"
    )
    staged(one)
    assert made(one) == [1]
    told = status_of(one.spec, one.state, one.now, "uid")
    assert [(one.mount, one.digest) for one in told.data] == [("corpus", "d" * 64)]
    assert Reason.STAGED in [cause.reason for cause in one.state.causes]


@ROW("L14", level="pure")
def test_L14_a_store_that_is_away_is_waited_for_with_back_off_and_charges_nothing() -> None:
    one = away(life())
    spans = [pause(one)]
    for _ in range(8):
        one.after(seconds=spans[-1].total_seconds())
        away(one)
        spans.append(pause(one))
    assert [span.total_seconds() for span in spans] == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    state = one.state
    assert (state.phase, state.reason) == (Phase.PENDING, Reason.STAGING)
    assert (state.executions, state.restarts, state.used, state.attempt) == (0, 0, {}, None)
    assert [cause.reason for cause in state.causes] == [Reason.STORAGE_UNAVAILABLE], "said once, not with each try"
    one.after(seconds=300)
    staged(one)
    assert made(one) == [1]
    assert one.state.executions == 1


@ROW("S10", level="pure")
@ROW("X4", level="pure")
def test_S10_a_namespace_where_nothing_may_begin_is_waited_for_up_to_the_submission_timeout() -> None:
    patient = edit(lattice.BATCH.timings, submission_timeout=timedelta(minutes=3))
    one = life(policy=edit(lattice.BATCH, timings=patient))
    while one.state.outcome is None:
        one.tell_result(Staged(away="namespace team is not enabled", closed=True))
        one.settle()
        assert one.now - START <= timedelta(minutes=3)
        if one.state.outcome is None:
            one.after(seconds=pause(one).total_seconds())
    assert one.now - START == timedelta(minutes=3)
    assert (one.state.outcome, one.state.reason) == (Phase.FAILED, Reason.SUBMISSION_TIMEOUT)
    assert one.state.message.endswith("not submitted in time: namespace team is not enabled")
    assert Reason.STORAGE_UNAVAILABLE not in [cause.reason for cause in one.state.causes]


@ROW("L14", level="pure")
def test_L14_it_says_what_is_away_since_when_and_when_it_is_tried_again() -> None:
    one = away(life())
    told = explain_of(one.spec, one.state, one.now)
    assert told.why == f"{STORE}, since 2026-01-01 00:00:00 UTC"
    assert told.now == "waiting for the store; nothing of it is in the cluster, and nothing is charged"
    assert [(each.at - one.now, each.what) for each in told.next] == [
        (timedelta(seconds=5), f"staging pause: {told.why}, and is tried again"),
        (timedelta(seconds=5), "once all lies ready: attempt 1"),
    ]
    assert (
        told.unblock == "repair the store: `holdfast doctor` says what is wrong with it; "
        "`holdfast retry default/train-llm` skips the pause"
    )


@ROW("L14", level="pure")
def test_L14_what_came_before_the_store_went_away_begins_the_back_off_anew() -> None:
    one = away(life())
    for _ in range(4):
        one.after(seconds=pause(one).total_seconds())
        away(one)
    assert pause(one) == timedelta(seconds=80)
    one.after(seconds=80)
    away(one, fetched=4096)
    assert pause(one) == timedelta(seconds=5)
    assert "since 2026-01-01 00:02:35 UTC" in one.state.message


@ROW("L14", level="pure")
def test_L14_retry_skips_the_pause() -> None:
    one = away(life())
    one.tell(Retried())
    assert one.kinds() == ["stage", "stage"]
    staged(one)
    assert made(one) == [1]


@ROW("L14", level="pure")
@pytest.mark.parametrize("paused", [False, True], ids=["under way", "paused"])
def test_L14_suspension_and_deletion_wait_for_no_store(paused: bool) -> None:
    one = away(life()) if paused else life()
    one.tell(Suspended("making room"))
    assert one.state.phase is Phase.SUSPENDED
    assert one.state.operation is None
    one.tell(Resumed())
    one.after(seconds=10)
    assert (one.state.phase, one.state.reason) == (Phase.PENDING, Reason.STAGING)
    one.tell(Cancelled())
    assert one.ended is Phase.CANCELLED
    assert made(one) == []


@ROW("L14", level="pure")
def test_L14_a_bad_data_set_is_a_failure_and_charges_nothing() -> None:
    one = life()
    problem = "mount corpus (s3://datasets/corpus): no object lies there"
    one.tell_result(Staged(problem=problem))
    one.settle()
    assert one.ended is Phase.FAILED
    assert (one.state.reason, one.state.message) == (Reason.STAGING_FAILED, problem)
    failure = one.state.outcome_failure
    assert failure is not None
    assert (failure.attempt, failure.reason) == (1, Reason.STAGING_FAILED)
    assert (one.state.executions, one.state.restarts, one.state.used, made(one)) == (0, 0, {}, [])


@ROW("L14", level="pure")
def test_L14_what_is_refused_is_refused_before_anything_is_made() -> None:
    one = life()
    one.tell_result(OperationRefused("Refused", "mount corpus: source s3://datasets/corpus is not granted"))
    one.settle()
    assert one.ended is Phase.FAILED
    assert one.state.reason is Reason.REFUSED
    assert not one.state.anchored


@ROW("L14", level="pure")
def test_L14_its_next_attempt_looks_in_the_cache_and_keeps_its_quota_meanwhile() -> None:
    one = staged(life()).runs()
    one.sees(job_failed=True)
    one.after(minutes=30)
    assert one.state.operation is not None
    assert one.state.operation.kind is STAGE
    assert one.state.phase is Phase.RESETTING
    assert quota_of(conditions(one.spec, one.state))
    before = one.state.staging
    staged(one)
    assert made(one) == [1, 2]
    assert before is not None
    assert one.state.staging == edit(before, staged=2), "it reads what it has begun with"
    ready = [cause.message for cause in one.state.causes if cause.reason is Reason.STAGED]
    assert ready == [
        "attempt 1 has corpus ready: 3 files, 2 KiB, 2 KiB of it fetched",
        "attempt 2 has corpus ready: 3 files, 2 KiB, all of it from the cache",
    ]


@ROW("L14", level="pure")
def test_L14_one_whose_cache_is_lost_gives_its_quota_back_while_the_store_is_away() -> None:
    one = staged(life()).runs()
    one.sees(job_failed=True)
    one.after(minutes=30)
    used = dict(one.state.used)
    away(one)
    assert (one.state.phase, one.state.reason) == (Phase.PENDING, Reason.STAGING)
    assert not quota_of(conditions(one.spec, one.state))
    assert one.kinds()[-1] == "report", "the cluster is told"
    one.after(seconds=5)
    staged(one)
    assert made(one) == [1, 2]
    assert one.state.used == used


@ROW("L14", level="pure")
@ROW("L9", level="pure")
def test_L14_it_does_not_ask_its_queue_before_its_data_sets_lie_ready() -> None:
    one = Queued(hold={STAGE}, mounts=(MOUNT,))
    assert one.kinds() == ["stage"]
    assert one.hears() is None
    away(one)
    assert one.hears() is None, "who waits for the store keeps nobody waiting in the queue"
    one.after(seconds=5)
    staged(one)
    news = one.hears()
    assert news is not None
    assert news.standing is Standing.ASKS
    assert made(one) == []
    one.told()
    assert made(one) == [1]


@ROW("L14", level="pure")
@ROW("L26", level="pure")
def test_L14_a_requeue_keeps_its_place_and_gives_it_back_only_if_the_store_must_be_waited_for() -> None:
    one = Queued(hold={STAGE}, mounts=(MOUNT,))
    staged(one)
    one.hears()
    one.told()
    one.sees(running=2).sees(running=1, failed=1, cls="NodeLost", why="NodeLost")
    one.after(minutes=30)
    one.hears()
    assert one.said[-1] == (2, Standing.ASKS), "it asks at once: what it reads lies in the cache, most likely"
    assert one.kinds().count("stage") == 1
    one.told()
    assert one.kinds().count("stage") == 2
    away(one)
    one.hears()
    assert one.said[-1] == (2, Standing.RELEASED)
    one.after(seconds=5)
    staged(one)
    one.hears()
    assert one.said[-1] == (3, Standing.ASKS)
    one.told()
    assert made(one) == [1, 2]


@ROW("X4", level="pure")
def test_X4_what_lets_more_pods_run_is_told_what_they_read(monkeypatch: pytest.MonkeyPatch) -> None:
    one = staged(life()).runs()
    attempt = one.state.attempt
    assert attempt is not None
    state = edit(one.state, attempt=edit(attempt, barrier=Barrier(attempt=1)))

    def sources(argument: Any) -> list[str]:
        return [each.source for each in argument.data]

    for kind in (OperationKind.CREATE, OperationKind.UNPARK, OperationKind.BARRIER):
        begun = edit(state, operation=Operation(kind=kind, attempt=1, since=one.now, report=report_of(one.spec, state)))
        assert sources(call_of(one.spec, begun, "uid", one.now).argument) == [MOUNT.source]
    gang = Gang(min=1, max=4)
    spec, attempt = edit(one.spec, gang=gang), edit(attempt, meeting=Meeting(gang=gang))
    asked = list[Any]()
    monkeypatch.setattr(Meetings, "_act", lambda _, _name, given, *_rest, **_more: asked.append(given))
    Meetings()._scaled(spec, state, attempt, edit(gang, max=8), "uid")
    assert sources(*asked) == [MOUNT.source]
