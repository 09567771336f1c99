"""A workload's side of its gang on virtual time: its rendezvous begins, ends, is resized; what its word comes to."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.model import (
    Attempt,
    Component,
    FailureClass,
    OperationKind,
    Phase,
    Reason,
    Stage,
    StatusRule,
    Workload,
)
from holdfast.model.gang.orders import GangOutcome
from holdfast.model.gang.state import Gang
from holdfast.model.gang.status import CloseReason
from holdfast.policy.rendezvous.outcome import ending
from holdfast.policy.sides.gang import REASONS, GangScale, beginning, parting, resizing, scaled, size_of, unsized
from holdfast.policy.status.report import WARNINGS
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import (
    Cancelled,
    GangBegun,
    GangParted,
    GangResized,
    GangScaled,
    GangTold,
    GangUnsized,
    Observed,
    RequeueAsked,
    RequeueRequest,
    Retried,
    StepsRead,
)
from holdfast.policy.verdicts.progress import stall
from holdfast.profiles import lattice, torchelastic
from tests.policy.lives.life import START, Life

ROW = pytest.mark.row
NO_FAILURE = {CloseReason.SUCCEEDED, CloseReason.ENDED}


def spec(least: int = 2, most: int = 4, **fields: Any) -> Workload:
    template = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": {"template": {}}}
    component = Component(
        name="train",
        template=template,
        pod_sets=({"path": "template.spec.template", "replicas": least},),  # type: ignore[arg-type]
        status=StatusRule(complete=("Complete",), failed=("Failed",)),
    )
    policy = fields.pop("policy", torchelastic.POLICY)
    gang = Gang(min=least, max=most, **fields)
    return Workload(name="train-llm", cluster="dev", components=(component,), policy=policy, gang=gang)


def gang(**fields: Any) -> Life:
    """Return the life of a workload whose gang has met."""
    one = Life(spec=spec(**fields)).settle().sees(running=2)
    return one.tell(GangBegun(1))


def attempt(one: Life) -> Attempt:
    assert one.state.attempt is not None
    return one.state.attempt


def told(one: Life, reason: CloseReason, why: str = "worker-3 failed") -> Life:
    return one.tell(word(attempt(one).number, reason, why))


def word(number: int, reason: CloseReason, why: str = "worker-3 failed") -> GangTold:
    came = ending(reason)
    assert came is not None
    return GangTold(
        GangOutcome(workload_uid="uid", attempt=number, ending=came, reason=reason, why=why, at=START, node="node-7")
    )


def used(one: Life) -> int:
    return one.state.used.get("restart", 0)


@ROW("T4", level="pure")
@pytest.mark.parametrize("reason", [one for one in CloseReason if one not in {*NO_FAILURE, CloseReason.MEMBER_LOST}])
def test_T4_a_gang_that_has_failed_fails_the_workload_and_its_word_is_the_reason(reason: CloseReason) -> None:
    one = told(gang(), reason)
    assert one.state.outcome is Phase.FAILED
    assert one.state.reason is REASONS[reason]
    assert one.state.outcome_failure is not None
    assert (
        one.state.outcome_failure.sentence()
        == f"its gang: {REASONS[reason]} on node-7: {reason.value}: worker-3 failed"
    )
    assert used(one) == 0


@ROW("T1", level="pure")
def test_T1_the_workload_succeeds_once_its_gang_has() -> None:
    one = told(gang(), CloseReason.SUCCEEDED, "all 4 members have succeeded")
    assert (one.state.outcome, one.state.reason) == (Phase.SUCCEEDED, Reason.COMPLETED)
    assert "its gang has succeeded: all 4 members have succeeded" in one.state.message


@ROW("T9", level="pure")
def test_T9_a_loss_that_no_round_makes_good_is_charged_to_the_workload_and_nothing_else_is() -> None:
    one = gang(max_restarts=0)
    one = one.sees(running=1, failed=1, why="Error")
    assert (attempt(one).number, used(one)) == (1, 0), "what befalls pods is the rendezvous' to judge"
    one = told(one, CloseReason.MEMBER_LOST, "train-0-x was lost: silent for 15s")
    one = one.after(seconds=60).sees(running=2)
    assert (attempt(one).number, used(one), one.state.phase) == (2, 1, Phase.RUNNING)
    assert any(
        "its gang: MemberLost on node-7: member_lost: train-0-x was lost" in each.message for each in one.state.causes
    )


def asked_to_requeue(**fields: Any) -> Life:
    """Return the life of a gang whose node a monitor has told about, as `docs/how-to/allocations.md` says."""
    one = gang(**fields)
    one.state = edit(one.state, shows_waits=True)
    return one.tell(RequeueAsked(RequeueRequest(expected_requeue_count=0, cls=FailureClass.NODE_LOST, node="node-7")))


@ROW("T1", level="pure")
@ROW("T4", level="pure")
@ROW("T9", level="pure")
@ROW("L25", level="pure")
@pytest.mark.parametrize(
    ("reason", "outcome", "number"),
    [
        (CloseReason.SUCCEEDED, Phase.SUCCEEDED, 1),
        (CloseReason.RESTARTS_EXHAUSTED, Phase.FAILED, 1),
        (CloseReason.MEMBER_LOST, None, 2),
    ],
)
def test_T4_a_request_on_which_no_rule_acts_takes_nothing_from_what_the_gang_comes_to(
    reason: CloseReason, outcome: Phase | None, number: int
) -> None:
    one = asked_to_requeue(max_restarts=0)
    assert (attempt(one).told, one.state.dropped, one.state.phase) == (None, 1, Phase.RUNNING)
    assert one.state.causes[-1].message.startswith("requeue 1 was asked for, but no rule acts on it: ")
    one = told(one, reason).after(seconds=60)
    assert (one.state.outcome, attempt(one).number, one.state.dropped) == (outcome, number, 1)


@ROW("L25", level="pure")
def test_L25_a_gang_that_fails_meanwhile_does_not_undo_a_request_on_which_a_rule_acts() -> None:
    one = gang(policy=lattice.BATCH)
    one.hold = {OperationKind.OBSERVE, OperationKind.RESET}
    one.state = edit(one.state, shows_waits=True)
    one.tell(RequeueAsked(RequeueRequest(expected_requeue_count=0, cls=FailureClass.HARDWARE, node="node-7")))
    told(one, CloseReason.RESTARTS_EXHAUSTED)
    now = attempt(one).told
    assert now is not None
    assert (now.cls, now.node) == (FailureClass.HARDWARE, "node-7")
    assert one.state.dropped == 1
    told(one, CloseReason.SUCCEEDED)
    assert one.state.outcome is Phase.SUCCEEDED, "what is done is done"


@ROW("T4", level="pure")
def test_T4_a_gang_that_fails_while_a_stall_is_told_has_failed() -> None:
    one = gang()
    one.hold = {OperationKind.OBSERVE, OperationKind.RESET}
    one.state = edit(one.state, shows_waits=True)
    one.tell(StepsRead(1, None, stall(1, one.now, "train-0", "node-7")))
    told(one, CloseReason.RESTARTS_EXHAUSTED)
    now = attempt(one).told
    assert now is not None
    assert now.reason == Reason.MAX_RESTARTS_EXHAUSTED


@ROW("T9", level="pure")
def test_T9_the_fourth_such_loss_is_one_too_many() -> None:
    one = gang(max_restarts=0)
    for _ in range(3):
        one = told(one, CloseReason.MEMBER_LOST).after(seconds=60).sees(running=2)
        one = one.tell(GangBegun(attempt(one).number))
    assert (attempt(one).number, used(one)) == (4, 3)
    one = told(one, CloseReason.MEMBER_LOST)
    assert (one.state.outcome, one.state.reason) == (Phase.FAILED, Reason.RETRY_LIMIT_EXCEEDED)


@ROW("T9", level="pure")
def test_T9_other_profiles_make_a_loss_good_by_their_own_rules() -> None:
    batch = gang(policy=lattice.BATCH)
    batch = told(batch, CloseReason.MEMBER_LOST).after(seconds=60).sees(running=2)
    assert (attempt(batch).number, used(batch)) == (2, 1), "as a lost node: it is requeued"
    failed = told(gang(policy=lattice.BATCH), CloseReason.EXIT_BARRIER_TIMEOUT)
    assert failed.state.outcome is Phase.FAILED, "as an application that fails"


@ROW("T13", level="pure")
@ROW("T8", level="pure")
def test_T13_pods_that_fail_or_are_missing_are_nobodys_failure() -> None:
    one = gang().sees(running=1, failed=3, why="Error").after(seconds=3600)
    one = one.sees(running=0).after(seconds=3600)
    assert (one.state.outcome, attempt(one).number, used(one)) == (None, 1, 0)


def test_a_gang_runs_once_as_many_pods_do_as_it_needs() -> None:
    one = Life(spec=spec(least=2, most=4)).settle()
    assert one.sees(running=1, pending=1).state.phase is Phase.RESUMING
    assert one.sees(running=2).state.phase is Phase.RUNNING


def test_the_rendezvous_is_told_of_an_attempt_once_it_is_submitted_and_that_it_ends_once_it_is_removed() -> None:
    one = Life(spec=spec())
    one.settle()
    assert beginning(one.state) is not None
    assert parting(one.state) is None, "it knows of none yet"
    one.tell(GangBegun(1))
    assert (beginning(one.state), parting(one.state)) == (None, None)
    told(one, CloseReason.MEMBER_LOST)
    assert attempt(one).number == 1
    assert attempt(one).stage is Stage.GONE
    assert parting(one.state) is attempt(one)
    one.tell(GangParted(1))
    assert parting(one.state) is None
    one.after(seconds=60)
    assert attempt(one).number == 2
    assert beginning(one.state) is attempt(one)


@pytest.mark.parametrize("under_way", [OperationKind.PREPARE, OperationKind.CREATE])
def test_the_rendezvous_is_told_of_no_attempt_that_is_still_made(under_way: OperationKind) -> None:
    one = Life(spec=spec(), hold={under_way}).settle()
    assert attempt(one).meeting is not None
    assert beginning(one.state) is None


def test_the_rendezvous_of_what_has_ended_is_told_so() -> None:
    for reason in (CloseReason.SUCCEEDED, CloseReason.JOIN_TIMEOUT):
        one = told(gang(), reason)
        assert parting(one.state) is attempt(one)
        assert beginning(one.state) is None


@ROW("T6", level="pure")
def test_T6_after_a_success_the_rendezvous_stays_for_pods_that_start_late_until_all_have_ended() -> None:
    one = gang()
    one.state = edit(one.state, shows_waits=True)
    told(one, CloseReason.SUCCEEDED, "all 2 members have succeeded")
    assert one.state.outcome is Phase.SUCCEEDED
    assert parting(one.state) is None, "its pods still run"
    one.sees(succeeded=2, pending=2)
    assert parting(one.state) is None, "two are still to come"
    one.sees(succeeded=4)
    assert parting(one.state) is None, "its Job may still make some"
    one.sees(succeeded=4, complete=True)
    assert parting(one.state) is attempt(one)
    one.sees(found=False)
    assert parting(one.state) is attempt(one), "its Job was deleted"


@ROW("T6", level="pure")
def test_T6_the_rendezvous_of_a_success_is_told_when_it_is_removed_at_the_latest() -> None:
    one = gang()
    one.state = edit(one.state, shows_waits=True)
    told(one, CloseReason.SUCCEEDED, "all 2 members have succeeded").sees(succeeded=2, pending=2)
    one.tell(Cancelled())
    assert parting(one.state) is attempt(one)


def test_a_word_of_another_attempt_or_a_second_one_changes_nothing() -> None:
    one = gang()
    before = one.state
    one.tell(word(2, CloseReason.JOIN_TIMEOUT))
    one.tell(word(0, CloseReason.SUCCEEDED))
    assert edit(one.state, dropped=before.dropped) == before
    assert one.state.dropped == before.dropped + 2
    told(one, CloseReason.SUCCEEDED)
    told(one, CloseReason.JOIN_TIMEOUT)
    assert one.state.outcome is Phase.SUCCEEDED


@ROW("T6", level="pure")
def test_T6_scaling_changes_the_workload_at_once_and_the_attempt_once_its_job_has_followed() -> None:
    one = gang(spares=1)
    after = scaled(one.spec, one.state, GangScale(max=6))
    assert after.gang is not None
    assert (after.gang.min, after.gang.max, after.gang.pods) == (2, 6, 7)
    assert after.config_hashes == one.spec.config_hashes, "its Job is not made again"
    assert after.spec_hash() != one.spec.spec_hash()
    one.spec = after
    one.tell(GangScaled(after.gang, "more room"))
    assert any(each.message == "more room: the gang is to have 2 to 6 members and 1 spare" for each in one.state.causes)
    assert resizing(one.spec, one.state) is attempt(one)
    one.tell(GangResized(1, after.gang))
    assert resizing(one.spec, one.state) is None
    assert used(one) == 0


def raised() -> Life:
    """Return the life of a gang of two that is to need four, before its Job has followed."""
    one = Life(spec=spec(policy=lattice.BATCH))
    one.state = edit(one.state, shows_waits=True)
    one.settle().sees(running=2).tell(GangBegun(1))
    after = scaled(one.spec, one.state, GangScale(min=4, max=4))
    assert after.gang is not None
    one.hold = {OperationKind.RESET, OperationKind.REMOVE}
    one.spec = after
    return one.tell(GangScaled(after.gang, ""))


def lives(one: Life) -> bool:
    return one.state.outcome is None and attempt(one).number == 1 and one.state.unhealthy is None


@ROW("T6", level="pure")
def test_T6_a_gang_that_is_to_need_more_members_needs_as_many_as_before_until_its_job_has_followed() -> None:
    one = raised()
    assert (lives(one), one.state.phase) == (True, Phase.RUNNING)
    one.sees(running=2)  # By its new plan, which is written before the gang counts as resized.
    assert lives(one)
    one.after(minutes=10)
    assert lives(one)
    one.sees(running=1)
    assert one.state.outcome_failure is not None
    assert one.state.outcome_failure.reason == Reason.INSUFFICIENT_PODS_READY


@ROW("T6", level="pure")
def test_T6_the_members_that_a_gang_needs_from_now_on_have_their_graces_once_it_is_resized() -> None:
    one = raised()
    earlier = one.look()
    assert one.spec.gang is not None
    one.tell(GangResized(1, one.spec.gang, "train"))
    assert earlier.components["train"].declared == 4
    old = edit(earlier.components["train"], pods=edit(earlier.components["train"].pods, expected=2))
    one.tell(Observed(edit(one.look(), components={"train": old})))
    assert lives(one), "what is seen is of its earlier size"
    one.sees(running=2)
    assert (lives(one), one.waits_for) == (True, "admission grace: 2 pods of Job train are not created yet")
    one.sees(running=2, pending=2).after(seconds=61)
    assert lives(one)
    one.sees(running=4)
    assert (lives(one), attempt(one).warming) == (True, {})
    one.sees(running=3)
    assert not lives(one)


@ROW("T6", level="pure")
def test_T6_members_that_never_come_after_a_gang_was_resized_are_late() -> None:
    one = raised()
    assert one.spec.gang is not None
    one.tell(GangResized(1, one.spec.gang, "train")).sees(running=2).after(hours=1)
    assert one.state.outcome_failure is not None
    assert one.state.outcome_failure.reason == Reason.PODS_NOT_ADMITTED


@ROW("D40", level="pure")
def test_D40_after_a_refusal_the_workload_keeps_the_size_of_its_attempt_unless_another_was_asked_for() -> None:
    one = gang()
    after = scaled(one.spec, one.state, GangScale(max=6))
    assert after.gang is not None
    refused = GangUnsized(1, after.gang, "Job train: too large")
    assert unsized(after, one.state, refused) == one.spec
    later = scaled(after, one.state, GangScale(max=5))
    assert unsized(later, one.state, refused) == later
    assert unsized(after, one.state, GangUnsized(2, after.gang, "of another attempt")) == after


def test_fewer_than_needed_so_far_lowers_what_is_needed() -> None:
    one = gang()
    after = scaled(one.spec, one.state, GangScale(max=1))
    assert (after.gang and (after.gang.min, after.gang.max), after.expected_pods) == ((1, 1), 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (GangScale(max=2, min=3), "min: 3: expected at most max, 2"),
        (GangScale.model_validate({"max": 2, "size": 3}), "size: expected one of max, min, note"),
    ],
)
def test_a_size_that_no_gang_can_have_is_refused_in_words(change: GangScale, words: str) -> None:
    one = gang()
    with pytest.raises(ValueError, match=words):
        scaled(one.spec, one.state, change)


def test_what_has_no_gang_or_is_over_is_not_scaled() -> None:
    plain = Life().settle()
    with pytest.raises(ValueError, match="it has no gang: expected a workload with `gang`"):
        scaled(plain.spec, plain.state, GangScale(max=2))
    over = told(gang(), CloseReason.JOIN_TIMEOUT)
    with pytest.raises(ValueError, match="it is Failed: nothing of it runs any longer"):
        scaled(over.spec, over.state, GangScale(max=2))


def test_every_way_to_fail_has_a_reason_of_its_own_that_is_a_warning() -> None:
    assert set(REASONS) == set(CloseReason) - NO_FAILURE
    assert len(set(REASONS.values())) == len(REASONS)
    assert set(REASONS.values()) <= WARNINGS


def test_sizes_in_words() -> None:
    told = [
        size_of(Gang(min=least, max=most, spares=spares)) for least, most, spares in ((1, 1, 0), (2, 2, 2), (1, 3, 1))
    ]
    assert told == ["1 member", "2 members and 2 spares", "1 to 3 members and 1 spare"]


def test_a_failed_gang_can_be_retried_as_anything_else() -> None:
    held = edit(torchelastic.POLICY, timings=edit(torchelastic.POLICY.timings, deletion_on_failure_grace_period=None))
    one = told(gang(policy=held), CloseReason.JOIN_TIMEOUT)
    assert one.state.outcome is Phase.FAILED
    one.tell(Retried("again"))
    assert (one.state.outcome, attempt(one).number) == (None, 2)
