"""What does not go when it is deleted is forced in order, and what holds it or what is risked is said (row U2)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.model import OperationKind, Phase, Reason, Remnant, Stage
from holdfast.model.calls.cluster import Removed
from holdfast.policy.loop.advance import FIRST_FORCED_ROUND, LATER_FORCED_ROUND
from holdfast.policy.status.explain import explain_of
from holdfast.policy.values.events import Suspended
from tests.policy.lives.life import Life, workload

ROW = pytest.mark.row
GRACE = timedelta(seconds=60)
FINISHED = Remnant(kind="Pod", name="train-0")
HELD = Remnant(kind="Pod", name="train-1", finalizers=("example.com/hold",))
LOST = Remnant(kind="Pod", name="train-2", node="node-7", unreachable=True)


def removing() -> Life:
    """Return a life whose removal is under way, and ends only as a test says."""
    life = Life(workload(timings={"forceful_deletion_grace_period": GRACE})).settle().runs()
    life.hold = {OperationKind.REMOVE, OperationKind.FORCE_REMOVE}
    return life.tell(Suspended("making room"))


def leaves(life: Life, *remnants: Remnant) -> Life:
    """Let the removal under way come back when its time is up, with this left."""
    operation = life.state.operation
    assert operation is not None
    assert operation.until is not None
    life.now = max(life.now, operation.until)
    life.tell_result(Removed(gone=not remnants, remnants=remnants, remnants_total=len(remnants)))
    return life.settle()


@ROW("U2", level="pure")
def test_U2_force_comes_once_the_grace_has_ended_and_again_until_all_is_gone():
    life = removing()
    begun = life.now
    assert life.after(seconds=59).state.operation is not None
    assert not [each for each in life.ran if each[0] is OperationKind.FORCE_REMOVE], "not before its grace has ended"
    leaves(life, FINISHED)
    leaves(life, FINISHED)
    leaves(life, FINISHED)
    forced = [at for kind, _, at in life.ran if kind is OperationKind.FORCE_REMOVE]
    first = begun + GRACE
    assert forced == [first, first + FIRST_FORCED_ROUND, first + FIRST_FORCED_ROUND + LATER_FORCED_ROUND]
    assert life.state.phase is Phase.SUSPENDING, "what is still there is never taken for gone"
    leaves(life)
    assert life.state.phase is Phase.SUSPENDED
    assert life.state.attempt is not None
    assert life.state.attempt.stage is Stage.GONE


@ROW("U2", level="pure")
def test_U2_the_risk_of_a_node_that_does_not_answer_is_said():
    life = leaves(removing(), LOST)
    risk = "Pod train-2 (node node-7 does not answer: its processes may still run)"
    told = explain_of(life.spec, life.state, life.now)
    assert risk in told.now
    assert told.unblock == "a node does not answer: power it off or repair it; a process may still run there"
    # The deletion itself succeeds at once by force: the record of the risk is what remains of it.
    leaves(life)
    assert [one.message for one in life.state.causes if one.reason is Reason.DELETION_FORCED] == [
        f"forcing the deletion of what is left: {risk}"
    ]


@ROW("U2", level="pure")
def test_U2_finalizers_are_named_and_waited_for():
    life = leaves(removing(), HELD, LOST)
    told = explain_of(life.spec, life.state, life.now)
    assert "Pod train-1 (finalizer example.com/hold)" in told.now
    assert "does not answer: its processes may still run" in told.now, "the one does not hide the other"
    assert "finalizer example.com/hold" in told.unblock
    leaves(life, HELD)
    assert life.state.causes[-1].reason is Reason.DELETION_BLOCKED
    assert life.state.causes[-1].message == "still there: Pod train-1 (finalizer example.com/hold)"
    assert life.state.operation is not None
    assert life.state.operation.kind is OperationKind.FORCE_REMOVE
