"""A graceful removal is given back the time in which nobody could see it (invariant 4)."""

from __future__ import annotations

from datetime import timedelta

from holdfast.model import Interval, OperationKind, Reason, Remnant, Stage
from holdfast.model.calls.cluster import Removed
from holdfast.policy.values.events import Suspended
from tests.policy.lives.life import Life, workload

GRACE = timedelta(seconds=60)
LEFT = (Remnant(kind="Pod", name="train-0"),)


def _suspending() -> Life:
    life = Life(workload(timings={"forceful_deletion_grace_period": GRACE})).settle().runs()
    life.hold = {OperationKind.REMOVE, OperationKind.FORCE_REMOVE}
    return life.tell(Suspended("making room"))


def test_what_passed_unseen_is_given_back_before_force():
    life = _suspending()
    begun = life.now
    life.now = begun + timedelta(seconds=90)
    dark = Interval(begin=begun + timedelta(seconds=10), end=life.now)
    life.tell_result(Removed(gone=False, blind=(dark,)))
    life.settle()
    assert life.state.attempt is not None
    assert life.state.attempt.stage is Stage.REMOVING
    assert life.state.operation is not None
    assert life.state.operation.kind is OperationKind.REMOVE
    until = begun + GRACE + timedelta(seconds=80)
    assert life.state.operation.until == until

    life.now = until
    life.tell_result(Removed(gone=False, remnants=LEFT, remnants_total=1, blind=(dark,)))
    life.settle()
    assert life.state.attempt.stage is Stage.FORCING
    assert life.state.causes[-1].reason is Reason.DELETION_FORCED
    assert life.state.causes[-1].message == "forcing the deletion of what is left: Pod train-0"


def test_what_was_dark_before_the_removal_gives_nothing_back():
    life = _suspending()
    begun = life.now
    dark = Interval(begin=begun - timedelta(seconds=50), end=begun - timedelta(seconds=5))
    life.now = begun + GRACE
    life.tell_result(Removed(gone=False, remnants=LEFT, remnants_total=1, blind=(dark,)))
    life.settle()
    assert life.state.attempt is not None
    assert life.state.attempt.stage is Stage.FORCING
