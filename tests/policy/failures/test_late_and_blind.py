"""Lateness that blindness excuses, news of the dead, and contradictions that come twice (rows U1, A4, A5, U7)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.model import (
    Attempt,
    ComponentView,
    Failure,
    FailureClass,
    Interval,
    Observation,
    OperationKind,
    Phase,
    PodCounts,
    Reason,
    Scope,
    Stage,
)
from holdfast.policy.attempt.health import failures
from holdfast.policy.loop.fold import fold
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Observed
from holdfast.policy.verdicts.hold import contradiction, hold
from tests.policy.lives.elements import Elements
from tests.policy.lives.life import START, Life
from tests.policy.lives.moments import moment
from tests.policy.verdicts.test_restart import fails, life

ROW = pytest.mark.row
MINUTE = timedelta(minutes=1)


def blind(begin: timedelta, end: timedelta) -> tuple[Interval, ...]:
    return (Interval(begin=START + begin, end=START + end),)


def unhealthy_for(one: Life) -> timedelta | None:
    return one.now - one.state.unhealthy.since if one.state.unhealthy is not None else None


@ROW("U1", level="pure")
@pytest.mark.parametrize(
    ("seen", "late"), [({}, timedelta(minutes=1)), ({"pending": 2}, timedelta(minutes=5))], ids=["admission", "warm-up"]
)
def test_U1_lateness_that_began_a_clock_is_taken_back_once_the_watch_says_it_was_blind(
    seen: dict[str, Any], late: timedelta
):
    one = Life().settle().sees(**seen)
    one.after(seconds=late.total_seconds())
    assert unhealthy_for(one) == timedelta(0)
    one.after(seconds=30).sees(blind=blind(timedelta(seconds=10), timedelta(seconds=30)), **seen)
    assert unhealthy_for(one) == timedelta(seconds=10), "twenty seconds of the grace had passed unseen"
    one.after(seconds=30)
    assert unhealthy_for(one) == timedelta(seconds=40)
    one.after(seconds=20)
    assert (one.attempt, one.state.phase) == (1, Phase.RESETTING)


@ROW("U1", level="pure")
def test_U1_a_grace_that_blindness_makes_longer_than_it_has_lasted_is_lateness_no_more():
    one = Life().settle().sees().after(minutes=1, seconds=30)
    one.sees(blind=blind(timedelta(0), timedelta(seconds=50)))
    assert one.state.unhealthy is None
    assert "admission grace" in one.waits_for


@ROW("U1", level="pure")
def test_U1_what_is_wrong_besides_lateness_begins_its_clock_when_the_lateness_is_taken_back():
    one = Life().settle().sees().after(minutes=1, seconds=30)
    one.sees(failed=1, pending=1, blind=blind(timedelta(0), timedelta(seconds=50)))
    assert unhealthy_for(one) == timedelta(0)


@ROW("U1", level="pure")
def test_U1_blindness_after_the_lateness_takes_nothing_back():
    one = Life().settle().sees().after(minutes=1, seconds=30)
    one.sees(blind=blind(timedelta(seconds=61), timedelta(seconds=71)))
    assert unhealthy_for(one) == timedelta(seconds=30)


@ROW("A3", level="pure")
def test_A3_a_clock_that_a_failed_pod_began_goes_on_with_the_lateness_that_follows_it():
    one = Life().settle().sees(pending=2).after(seconds=30).sees(failed=1, pending=1)
    one.after(seconds=35).sees()
    assert one.state.unhealthy is not None
    assert one.state.unhealthy.failure.reason == Reason.PODS_NOT_ADMITTED
    assert unhealthy_for(one) == timedelta(seconds=35)
    one.after(seconds=5).sees()
    assert unhealthy_for(one) == timedelta(seconds=40)


@ROW("U7", level="pure")
@pytest.mark.parametrize(("counts", "late"), [({}, 60), ({"pending": 1}, 300)], ids=["admission", "warm-up"])
def test_U7_the_lateness_of_one_made_again_is_taken_back_by_its_own_graces(counts: dict[str, int], late: int):
    one = life().after(hours=1)
    assert isinstance(one, Elements)
    fails(one, "pe-1")
    made = one.now
    one.pods("pe-1", **counts)
    one.after(seconds=late)
    assert unhealthy_for(one) == timedelta(0)
    one.after(seconds=20)
    span = (Interval(begin=made, end=made + timedelta(seconds=10)),)
    one.tell(Observed(one.look(blind=span)))
    assert unhealthy_for(one) == timedelta(seconds=10)


# --- who it is of


@pytest.mark.parametrize(
    ("at", "reason", "message"),
    [
        ("pods were not created", Reason.PODS_NOT_ADMITTED, "2 of 2 pods were not created in time"),
        ("pods did not run", Reason.PODS_NOT_RUNNING, "1 of 2 pods did not run in time"),
        ("a pod has gone", Reason.INSUFFICIENT_PODS_READY, "1 of 2 pods do not run"),
    ],
)
def test_lateness_is_a_timeout_of_the_workload(at: str, reason: Reason, message: str):
    one = moment(at)
    time = {"a pod has gone": START}.get(at, one.now)
    assert failures(one.spec, one.state, one.now) == [
        Failure(cls=FailureClass.TIMEOUT, scope=Scope.WORKLOAD, reason=reason, time=time, message=message, attempt=1)
    ]


def test_the_lateness_of_one_made_again_is_its_own():
    one = fails(life(), "pe-1")
    one.after(minutes=5)
    (late,) = failures(one.spec, one.state, one.now)
    assert (late.scope, late.component, late.attempt) == (Scope.COMPONENT, "pe-1", 1)
    assert late.message == "1 of 1 pod did not run in time"


def test_an_owner_deleted_by_another_hand_takes_all_with_it():
    one = Life(hold={OperationKind.OBSERVE}).runs()
    for change in ({"owner_found": False}, {"owner_deleting": True}):
        told = fold(one.state, Observed(one.look().model_copy(update=change)), one.now)
        assert failures(one.spec, told, one.now) == [
            Failure(
                cls=FailureClass.MISSING,
                scope=Scope.WORKLOAD,
                reason=Reason.MISSING_COMPONENT,
                time=one.now,
                message="the object that owns attempt 1 was deleted by another client",
                attempt=1,
            )
        ]


# --- news of what was proven gone


@pytest.mark.parametrize(
    ("news", "doubt"),
    [
        ({}, True),
        ({"owner_found": False}, False),
        ({"owner_deleting": True}, False),
        ({"live": True}, False),
        ({"owner_deleting": True, "live": True}, False),
        ({"owner_found": False, "live": True}, False),
    ],
)
def test_only_news_of_a_living_owner_casts_doubt(news: dict[str, Any], doubt: bool):
    one = Life().runs()
    late = one.look()
    one.sees(running=2, found=False).after(seconds=90).sees(running=2)
    state = fold(one.state, Observed(late.model_copy(update=news)), one.now)
    assert (state.in_doubt, state.dropped) == (doubt, one.state.dropped + 1)


@pytest.mark.parametrize(("at", "doubt"), [("suspended", True), ("pausing", False), ("cancelling", False)])
def test_of_what_is_gone_only_a_suspended_workload_is_in_doubt(at: str, doubt: bool):
    one = moment(at)
    attempt = one.state.attempt
    assert attempt is not None
    alive = Observation(workload_uid="uid", attempt=1, owner_uid=attempt.owner_uid, at=one.now)
    assert fold(one.state, Observed(alive), one.now).in_doubt is doubt


# --- a contradiction


def test_held_twice_it_keeps_its_first_reason_and_the_highest_number():
    one = Life().runs()
    first = hold(one.state, "attempt 7 is there", 7, one.now)
    for newest, highest in ((3, 7), (9, 9)):
        again = hold(first, "another word", newest, one.now + MINUTE)
        assert again.held is not None
        assert first.held is not None
        assert (again.held.why, again.held.since, again.held.newest) == ("attempt 7 is there", one.now, highest)
        assert (again.causes, again.intent) == (first.causes, first.intent)


RESTORED = "either was restored from a backup"
ONE_POD = {"train": ComponentView(pods=PodCounts(expected=2, running=1))}


@pytest.mark.parametrize(
    ("stage", "seen", "why"),
    [
        (Stage.SUBMITTED, {}, ""),
        (Stage.SUBMITTED, {"owner_submitted": True}, ""),
        (
            Stage.SUBMITTED,
            {"others": (1, 5)},
            "the cluster holds attempt 5 of this workload, and this memory ends at attempt 2: "
            f"{RESTORED}, and what lives is not touched",
        ),
        (
            Stage.SUBMITTED,
            {"others": (1,)},
            f"attempt 1, which was proven gone, is there again beside 2: {RESTORED}",
        ),
        (
            Stage.SUBMITTED,
            {"anchor_found": False},
            f"its anchor is gone or was let go of by another hand, and this memory knows of no end: {RESTORED}",
        ),
        (
            Stage.SUBMITTED,
            {"owner_submitted": False},
            f"attempt 2 was submitted, and the cluster says that it was not yet: {RESTORED}",
        ),
        (Stage.SUBMITTED, {"owner_submitted": False, "owner_deleting": True}, ""),
        (Stage.SUBMITTED, {"owner_submitted": False, "owner_found": False}, ""),
        (Stage.PREPARED, {"anchor_found": False}, ""),
        (Stage.GONE, {"owner_submitted": True}, f"attempt 2, which was proven gone, is there again: {RESTORED}"),
        (Stage.GONE, {"owner_submitted": True, "owner_deleting": True}, ""),
        (Stage.GONE, {"owner_submitted": True, "owner_found": False}, ""),
        (Stage.GONE, {"owner_submitted": False}, ""),
        (Stage.GONE, {"components": ONE_POD}, f"attempt 2, which was proven gone, is there again: {RESTORED}"),
    ],
)
def test_what_a_look_finds_that_cannot_be_is_said_in_a_sentence(stage: Stage, seen: dict[str, Any], why: str):
    attempt = Attempt(number=2, stage=stage, begun_at=START)
    found = Observation(workload_uid="uid", attempt=2, owner_uid="o", at=START, live=True)
    assert contradiction(attempt, edit(found, **seen)) == why
