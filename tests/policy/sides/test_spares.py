"""Checkpoints of a gang with spares, which run none of its programs and so have nothing to save (row L32)."""

from __future__ import annotations

import pytest

from holdfast.model import Answers, CheckpointState, OperationKind, Workload
from holdfast.policy.attempt.checkpoint import is_over
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import GangBegun, Suspended
from tests.policy.lives.life import START, Life
from tests.policy.sides.test_gang_side import spec

ROW = pytest.mark.row
ANNOTATED = {"protocol": "annotation", "extension": "30s"}


def saving(*, shows: bool = True, now: bool = True) -> Life:
    """Return the life of a gang of two members and two spares whose pods are asked to save their state."""
    asked = Workload.model_validate({**spec(most=2, spares=2).model_dump(mode="json"), "checkpoint": ANNOTATED})
    one = Life(spec=asked, hold={OperationKind.CHECKPOINT})
    one.state = edit(one.state, shows_waits=shows)
    one.settle().sees(running=4).tell(GangBegun(1)).tell(Suspended("room", preempted=True))
    assert one.state.operation is not None
    if not now:
        one.now = one.state.operation.until or one.now
    return one


@ROW("L32", level="pure")
def test_L32_the_spares_of_a_gang_have_nothing_to_save_and_are_not_waited_for() -> None:
    one = saving()
    assert is_over(Answers(at=START, running=4, done=2, silent=2), 4, 0, members=2)
    one.answers(done=2, silent=2).settle()
    request, saved = one.state.checkpoint, one.state.saved
    assert request is not None
    assert saved is not None
    assert (request.state, saved.uri) == (CheckpointState.COMPLETE, "s3://saved/1")
    assert request.why == "2 of 2 pods have saved: s3://saved/1"
    assert any("2 pods are asked to save their state" in each.message for each in one.state.causes)


@ROW("L32", level="pure")
@pytest.mark.parametrize(
    ("counts", "running"),
    [
        ({"done": 1, "silent": 3}, 4),
        ({"done": 1, "working": 1, "silent": 2}, 4),
        ({"silent": 4}, 4),
        ({"done": 1, "silent": 1}, 2),
    ],
    ids=["a member is silent", "a member is at it", "nobody", "no spare is there"],
)
def test_L32_each_member_of_a_gang_with_spares_is_waited_for(counts: dict[str, int], running: int) -> None:
    assert not is_over(Answers(at=START, running=running, **counts), running, 0, members=2)  # type: ignore[arg-type]
    one = saving(now=False).answers(**counts).settle()  # type: ignore[arg-type]
    request = one.state.checkpoint
    assert request is not None
    assert request.state is not CheckpointState.COMPLETE


@ROW("L32", level="pure")
def test_L32_members_that_are_all_saving_get_their_extension_beside_silent_spares() -> None:
    one = saving(now=False).answers(done=1, working=1, silent=2).settle()
    request = one.state.checkpoint
    assert request is not None
    assert request.extended_at is not None


@ROW("L32", level="pure")
def test_L32_a_run_of_an_earlier_release_still_waits_for_all_pods_of_a_gang() -> None:
    one = saving(shows=False, now=False).answers(done=2, silent=2).settle()
    request = one.state.checkpoint
    assert request is not None
    assert (request.state, request.why) == (CheckpointState.PARTIAL, "2 of 4 pods have saved in time")
