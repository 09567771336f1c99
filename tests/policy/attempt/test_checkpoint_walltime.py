"""The walltime ends while pods are saving: what they save in their termination grace counts (rows L19, L20)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.model import (
    Answers,
    Bounded,
    CheckpointState,
    FailureClass,
    OperationKind,
    Phase,
    Reason,
    Workload,
)
from holdfast.model.calls.cluster import Removed
from holdfast.policy.attempt.checkpoint import is_conflict
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Cancelled, CheckpointAsked, Resumed, Suspended
from holdfast.policy.verdicts.walltime import WalltimeExtension, check_extension, extension
from tests.policy.attempt.test_checkpoint import PREEMPTED, come, quota, resumed_from, saving
from tests.policy.lives.life import Life

ROW = pytest.mark.row
WALLTIME = timedelta(minutes=30)


def bounded(**fields: Any) -> Workload:
    return edit(saving(**fields), lifecycle=Bounded(walltime=WALLTIME))


def expiring(event: Any = PREEMPTED, spec: Workload | None = None) -> Life:
    """Return a gang that is preempted 5 minutes before its walltime is over, and still saves when it is."""
    life = Life(spec or bounded(), hold={OperationKind.CHECKPOINT, OperationKind.REMOVE}).runs()
    life.after(minutes=25)
    life.tell(event)
    life.after(minutes=5)
    return life


def removed(life: Life, *, gone: bool = True, **counts: Any) -> Life:
    """Let the removal end, with what the pods have answered in their termination grace."""
    alive = sum(value for name, value in counts.items() if name != "finished")
    told = Answers(at=life.now, running=alive, uri="s3://saved/7" if counts.get("done") else "", **counts)
    life.hold.discard(OperationKind.REMOVE)
    life.tell_result(Removed(gone=gone, answers=told))
    life.settle()
    return life


@ROW("L19", level="pure")
@ROW("L20", level="pure")
def test_L19_at_its_walltime_it_is_ended_as_ever_and_never_waits_for_the_checkpoint():
    life = expiring()
    assert (life.state.phase, life.state.reason) == (Phase.CHECKPOINTING, Reason.WALLTIME_EXCEEDED)
    assert life.kinds()[-1] == "remove"
    assert come(life) is CheckpointState.REQUESTED
    assert is_conflict(life.state)
    assert quota(life)
    assert life.state.outcome is None


@ROW("L19", level="pure")
def test_L19_saved_in_its_grace_it_is_suspended_and_resumes_from_there():
    life = removed(expiring(), done=4)
    assert (life.state.phase, come(life), life.state.outcome) == (Phase.SUSPENDED, CheckpointState.COMPLETE, None)
    assert not quota(life)
    life.tell(Resumed("more time"))
    assert (life.attempt, resumed_from(life)) == (2, "s3://saved/7")
    life.sees(running=4)
    assert life.state.attempt is not None
    assert life.state.attempt.walltime_until == life.now + WALLTIME, "each attempt has its own"


@ROW("L19", level="pure")
def test_L19_one_that_nobody_preempted_is_suspended_too():
    life = removed(expiring(CheckpointAsked("nightly")), done=4)
    assert (life.state.phase, life.state.reason) == (Phase.SUSPENDED, Reason.WALLTIME_EXCEEDED)
    life.tell(Resumed())
    assert (life.attempt, resumed_from(life)) == (2, "s3://saved/7")


@ROW("L20", level="pure")
@pytest.mark.parametrize("counts", [{"working": 4}, {"silent": 4}, {"done": 3, "silent": 1}, {"done": 3}, {}])
def test_L20_anything_less_is_discarded_and_it_has_failed(counts: dict[str, Any]):
    life = removed(expiring(), **counts)
    assert (life.ended, life.state.reason) == (Phase.FAILED, Reason.WALLTIME_EXCEEDED)
    assert (come(life), life.state.saved) == (CheckpointState.DISCARDED, None)
    failure = life.state.outcome_failure
    assert failure is not None
    assert (failure.cls, failure.reason) == (FailureClass.DEADLINE, Reason.WALLTIME_EXCEEDED)
    assert life.state.used == {}


@ROW("L20", level="pure")
def test_L20_it_is_final_though_an_earlier_checkpoint_is_whole():
    life = Life(bounded(), hold={OperationKind.CHECKPOINT}).runs()
    life.tell(CheckpointAsked("nightly"))
    life.answers(done=4, uri="s3://saved/1").settle()
    life.after(minutes=25)
    life.hold.add(OperationKind.REMOVE)
    life.tell(PREEMPTED).after(minutes=5)
    removed(life, silent=4)
    assert life.ended is Phase.FAILED
    assert life.state.saved is not None
    assert life.state.saved.uri == "s3://saved/1"


@ROW("L19", level="pure")
def test_L19_what_does_not_go_is_judged_by_what_it_saved_before_it_is_forced():
    life = expiring()
    life.after(minutes=11)
    removed(life, gone=False, done=4)
    assert (life.state.phase, come(life)) == (Phase.SUSPENDED, CheckpointState.COMPLETE)
    assert "force_remove" in life.kinds()


@ROW("L19", level="pure")
def test_L19_a_checkpoint_that_is_done_before_the_walltime_is_no_conflict():
    life = Life(bounded(), hold={OperationKind.CHECKPOINT}).runs()
    life.after(minutes=25)
    life.tell(PREEMPTED)
    life.answers(done=4).settle()
    life.after(minutes=10)
    assert (life.state.phase, is_conflict(life.state)) == (Phase.SUSPENDED, False)


@ROW("L18", level="pure")
def test_L18_with_no_checkpoint_under_way_it_fails_as_ever():
    life = Life(bounded()).runs().after(minutes=30)
    assert (life.ended, is_conflict(life.state)) == (Phase.FAILED, False)


@ROW("L20", level="pure")
def test_L20_a_cancellation_in_its_grace_is_a_cancellation():
    life = expiring()
    life.tell(Cancelled("no longer wanted"))
    life.hold.clear()
    removed(life, done=4)
    life.settle()
    assert life.state.outcome is Phase.CANCELLED


@ROW("L19", level="pure")
def test_L19_a_suspension_in_its_grace_changes_nothing():
    life = expiring(CheckpointAsked())
    life.tell(Suspended("maintenance"))
    removed(life, done=4)
    assert (life.state.phase, life.state.reason) == (Phase.SUSPENDED, Reason.SUSPEND_REQUESTED)


@ROW("L19", level="pure")
def test_L19_the_operation_itself_comes_back_as_the_walltime_ends():
    life = Life(bounded(), hold={OperationKind.CHECKPOINT}).runs()
    until = life.now + WALLTIME
    life.after(minutes=25)
    life.tell(PREEMPTED)
    assert life.state.operation is not None
    assert life.state.operation.until == until
    life.now = until
    life.hold.add(OperationKind.REMOVE)
    life.answers(working=4).settle()
    assert is_conflict(life.state)
    assert life.kinds()[-2:] == ["observe", "remove"]


@ROW("L18", level="pure")
@ROW("L19", level="pure")
def test_L18_L19_what_is_ending_is_extended_only_once_it_has_saved_and_is_suspended():
    life = Life(
        edit(saving(), lifecycle=Bounded(walltime=WALLTIME, extendable_to=2 * WALLTIME)),
        hold={OperationKind.CHECKPOINT, OperationKind.REMOVE},
    ).runs()
    more = WalltimeExtension(by="30m")
    life.after(minutes=25)
    life.tell(PREEMPTED)
    assert check_extension(life.spec, life.state, more) == WALLTIME.total_seconds()
    life.after(minutes=5)
    with pytest.raises(ValueError, match="its walltime is over") as refused:
        check_extension(life.spec, life.state, more)
    assert str(refused.value) == (
        "its walltime is over, and its pods are ending: extend it once it is suspended, if they save"
    )
    assert extension(life.spec, life.state, more), "what an earlier release has accepted stays readable"
    removed(life, done=4)
    assert life.state.phase is Phase.SUSPENDED
    assert check_extension(life.spec, life.state, more) == WALLTIME.total_seconds()
    life.tell(Resumed()).sees(running=4)
    assert check_extension(life.spec, life.state, more) == WALLTIME.total_seconds()
