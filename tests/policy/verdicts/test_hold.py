"""Cluster and memory contradict each other: nothing that lives is touched until a person says what (invariant 2)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast import names
from holdfast.model import ConditionType, Observation, OperationKind, Phase, Reason, Stage
from holdfast.model.calls.cluster import Reported
from holdfast.policy.loop.fold import observed
from holdfast.policy.status.explain import explain_of
from holdfast.policy.status.report import conditions
from holdfast.policy.values.events import Cancelled, Observed, OperationRefused, Resumed, Retried, Suspended
from holdfast.policy.values.steps import Sleep
from tests.policy.lives.life import Life, workload

REMOVALS = frozenset({OperationKind.REMOVE, OperationKind.FORCE_REMOVE})


def sees(life: Life, **fields: Any) -> Life:
    """A live look finds this."""
    found = life.look(live=True).model_copy(update=fields)
    life.state = observed(life.state, found, life.now, life.now)
    return life.settle()


def removed(life: Life) -> list[int]:
    return [number for kind, number, _ in life.ran if kind in REMOVALS]


def assert_held(life: Life, *words: str) -> None:
    assert (life.state.phase, life.state.reason) == (Phase.PENDING, Reason.HELD)
    assert isinstance(life.step, Sleep)
    assert life.step.until is None
    for word in words:
        assert word in life.state.message
    told = {each.type: each.status for each in conditions(life.spec, life.state)}
    assert told[ConditionType.QUOTA_RESERVED], "pods may live"
    assert told[ConditionType.RESOURCES_DEPLOYED]
    explained = explain_of(life.spec, life.state, life.now)
    assert "retry" in explained.unblock
    assert "cancel" in explained.unblock


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"others": (3,)}, ("attempt 3", "ends at attempt 1")),
        ({"anchor_found": False}, ("anchor",)),
        ({"owner_submitted": False}, ("was submitted", "not yet")),
    ],
)
def test_what_a_live_look_finds_against_the_memory_holds_it(found: dict[str, Any], words: tuple[str, ...]):
    life = sees(Life().runs(), **found)
    assert_held(life, *words)
    ran = len(life.ran)
    life.after(days=30)
    assert life.kinds()[ran:] in ([], ["report"]), "nothing is done about it"


def test_an_earlier_attempt_that_is_there_again_holds_it():
    life = Life().runs().sees(running=2, found=False).after(seconds=90).sees(running=2)
    assert life.attempt == 2
    before = len(removed(life))
    sees(life, others=(1,))
    assert_held(life, "attempt 1", "proven gone")
    assert len(removed(life)) == before


def test_a_snapshot_of_a_later_attempt_is_not_dropped_and_not_acted_on():
    life = Life().runs()
    later = life.look().model_copy(update={"attempt": 4, "owner_uid": "another"})
    life.tell(Observed(later))
    assert_held(life, "attempt 4", "ends at attempt 1")
    assert removed(life) == []


@pytest.mark.parametrize("event", [Suspended("for room"), Suspended(preempted=True)])
def test_a_removal_that_meets_a_later_attempt_is_held(event: Suspended):
    life = Life(hold=set(REMOVALS)).runs()
    life.tell(event)
    life.hold.clear()
    life.tell_result(OperationRefused(names.ERROR_FOREIGN_ATTEMPT, "the cluster holds attempt 2", 2))
    life.settle()
    assert_held(life, "attempt 2")


def test_a_preparation_that_meets_a_later_attempt_is_held():
    life = Life(hold={OperationKind.PREPARE}).settle()
    life.tell_result(OperationRefused(names.ERROR_FOREIGN_ATTEMPT, "the cluster holds attempt 2", 2))
    life.settle()
    assert_held(life, "attempt 2")
    assert "create" not in life.kinds()


def test_retry_removes_all_that_is_there_and_begins_beyond_it():
    life = sees(Life().runs(), others=(3,))
    life.hold = set(REMOVALS)
    life.tell(Retried("the old ones may go"))
    attempt = life.state.attempt
    assert attempt is not None
    assert (attempt.number, attempt.stage, attempt.everything) == (3, Stage.REMOVING, True)
    life.hold.clear()
    life.finish()
    life.settle()
    assert life.attempt == 4
    assert life.state.attempt is not None
    assert not life.state.attempt.everything
    life.sees(running=2)
    assert (life.state.phase, life.state.restarts, life.state.used) == (Phase.RUNNING, 0, {})


def test_cancel_removes_all_that_is_there_and_ends():
    life = sees(Life().runs(), others=(3,))
    life.tell(Cancelled("let it go"))
    assert life.ended is Phase.CANCELLED
    assert removed(life)[0] == 3


def test_suspend_is_remembered_and_obeyed_once_it_is_no_longer_held():
    life = sees(Life().runs(), others=(2,))
    life.tell(Suspended("for room"))
    assert_held(life)
    life.tell(Retried())
    assert (life.state.phase, life.attempt) == (Phase.SUSPENDED, 2)
    life.tell(Resumed())
    assert life.attempt == 3


def test_what_is_under_way_is_broken_off():
    life = Life(hold={OperationKind.REMOVE}).runs().tell(Suspended())
    later = Observation(workload_uid="uid", attempt=9, owner_uid="another", at=life.now, revision=99)
    life.tell(Observed(later))
    assert_held(life, "attempt 9")
    assert life.state.operation is None


# --- news that may be old, and a look that tells


def test_late_news_of_an_earlier_attempt_is_looked_into_and_then_let_be():
    life = Life().runs()
    late = life.look()
    life.sees(running=2, found=False).after(seconds=90).sees(running=2)
    looks = life.kinds().count("observe")
    life.tell(Observed(late))
    assert life.kinds().count("observe") == looks + 1
    assert (life.state.phase, life.attempt, life.state.held) == (Phase.RUNNING, 2, None)


def test_a_suspended_workload_whose_attempt_lives_again_is_held_after_a_look():
    life = Life().runs()
    alive = life.look()
    life.tell(Suspended())
    assert life.state.phase is Phase.SUSPENDED
    life.hold = {OperationKind.OBSERVE}
    life.tell(Observed(alive))
    assert life.kinds()[-1] == "observe"
    operation = life.state.operation
    assert operation is not None
    life.hold.clear()
    life.state = life.state.model_copy(update={"operation": None})
    sees(life, owner_found=True)
    assert_held(life, "attempt 1", "proven gone")


def test_a_suspended_workload_whose_old_news_comes_late_stays_suspended():
    life = Life().runs()
    late = life.look()
    life.tell(Suspended())
    life.hold = {OperationKind.OBSERVE}
    life.tell(Observed(late))
    life.hold.clear()
    life.state = life.state.model_copy(update={"operation": None})
    sees(life, owner_found=False)
    assert (life.state.phase, life.state.in_doubt, life.state.held) == (Phase.SUSPENDED, False, None)


# --- what was wished before is no word about what is found


def test_a_retry_from_before_is_no_leave_to_remove_what_is_found():
    life = Life(hold={OperationKind.REMOVE}).runs().sees(failed=1, job_failed=True)
    life.tell(Retried("do not wait"))
    life.hold.clear()
    life.tell_result(OperationRefused(names.ERROR_FOREIGN_ATTEMPT, "the cluster holds attempt 9", 9))
    life.settle()
    assert_held(life, "attempt 9")


def test_a_failed_workload_that_is_held_begins_anew_when_a_person_says_retry():
    timings = {"deletion_on_failure_grace_period": timedelta(hours=1)}
    life = Life(spec=workload(timings=timings))
    for _ in range(4):
        life.runs().sees(failed=1, job_failed=True).after(seconds=90)
    assert life.state.outcome is Phase.FAILED
    later = life.look().model_copy(update={"attempt": 9, "owner_uid": "another"})
    life.tell(Observed(later))
    assert life.state.held is not None
    life.tell(Retried("the old ones may go"))
    assert (life.state.outcome, life.attempt, life.state.used) == (None, 10, {})


def test_a_held_workload_whose_outcome_stands_ends_with_it():
    timings = {"success_ttl": timedelta(hours=1)}
    life = Life(spec=workload(timings=timings)).runs().sees(succeeded=2, complete=True)
    later = life.look().model_copy(update={"attempt": 9, "owner_uid": "another"})
    life.tell(Observed(later)).tell(Cancelled("let it go"))
    assert (life.ended, life.state.phase) == (Phase.SUCCEEDED, Phase.SUCCEEDED)


def test_what_a_restored_memory_tells_is_told_again_with_its_events():
    life = Life(hold={OperationKind.REPORT}).runs()
    life.tell(Observed(life.look().model_copy(update={"attempt": 9, "owner_uid": "another"})))
    first = life.state.operation
    assert first is not None
    life.tell_result(Reported(sequence=50))
    life.settle()
    second = life.state.operation
    assert second is not None
    assert second.report.sequence > 50
    assert Reason.HELD in {event.reason for event in second.report.events}
