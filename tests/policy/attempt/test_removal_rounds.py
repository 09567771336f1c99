"""A removal that does not get rid of all of it: what is remembered, told and tried again, round by round (row A8)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.model import Interval, Observation, OperationKind, Phase, Reason, Remnant, Stage
from holdfast.model.calls.cluster import Removed
from holdfast.model.spec.volume_claim import VolumeClaim
from holdfast.policy.loop.fold import fold
from holdfast.policy.status.explain import explain_of
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Cancelled, Observed, Suspended
from holdfast.policy.values.steps import Run
from holdfast.policy.verdicts.hold import hold
from tests.policy.lives.advanced import advance
from tests.policy.lives.life import Life, workload
from tests.policy.lives.moments import moment

ROW = pytest.mark.row
REMOVALS = {OperationKind.REMOVE, OperationKind.FORCE_REMOVE}
MINUTE = timedelta(minutes=1)


def pods(*names: str) -> tuple[Remnant, ...]:
    return tuple(Remnant(kind="Pod", name=name) for name in names)


def removing() -> Life:
    return Life(hold=set(REMOVALS)).runs().tell(Suspended("for room"))


def comes_back(life: Life, *left: str, after: timedelta = 10 * MINUTE, total: int | None = None) -> Life:
    """Let the removal under way come back with what is left, or with the proof that nothing is."""
    life.now += after
    life.tell_result(Removed(gone=not left, remnants=pods(*left), remnants_total=len(left) if total is None else total))
    return life.settle()


def last(life: Life) -> tuple[Reason, str]:
    return life.state.causes[-1].reason, life.state.causes[-1].message


@ROW("A8", level="pure")
@pytest.mark.parametrize(
    ("left", "total", "told"),
    [
        (("a",), 1, "Pod a"),
        (("a", "b"), 2, "Pod a; Pod b"),
        (("a", "b", "c"), 3, "Pod a; Pod b; Pod c"),
        (("a", "b", "c"), 4, "Pod a; Pod b; Pod c and 1 more"),
        (("a", "b", "c", "d"), 9, "Pod a; Pod b; Pod c and 6 more"),
    ],
)
def test_A8_force_begins_with_the_names_of_the_first_three_and_the_number_of_the_others(
    left: tuple[str, ...], total: int, told: str
):
    life = comes_back(removing(), *left, total=total)
    assert last(life) == (Reason.DELETION_FORCED, f"forcing the deletion of what is left: {told}")
    attempt = life.state.attempt
    assert attempt is not None
    assert (attempt.stage, attempt.remnants, attempt.remnants_total) == (Stage.FORCING, pods(*left), total)


@ROW("A8", level="pure")
def test_A8_what_stays_is_told_once_and_again_when_it_is_less():
    life = comes_back(removing(), "a", "b")
    told = len(life.state.causes)
    comes_back(life, "a", "b", after=timedelta(seconds=30))
    assert len(life.state.causes) == told, "nothing has changed"
    comes_back(life, "b")
    assert last(life) == (Reason.DELETION_BLOCKED, "still there: Pod b")
    assert life.state.causes[-1].time == life.now
    comes_back(life)
    assert last(life) == (Reason.DELETION_COMPLETE, "attempt 1 is proven gone")
    assert life.state.phase is Phase.SUSPENDED


@ROW("A8", level="pure")
def test_A8_the_first_forced_round_is_told_of_after_half_a_minute_the_later_ones_after_ten():
    life = comes_back(removing(), "a")
    spans: list[timedelta] = []
    for _ in range(3):
        operation = life.state.operation
        assert operation is not None
        assert operation.until is not None
        spans.append(operation.until - life.now)
        comes_back(life, "a", after=spans[-1])
    assert spans == [timedelta(seconds=30), 10 * MINUTE, 10 * MINUTE]
    assert life.state.attempt is not None
    assert life.state.attempt.forced_rounds == 3


@ROW("J22", level="pure")
@ROW("A8", level="pure")
def test_J22_a_claim_that_somebody_mounts_is_waited_for_and_holds_neither_the_proof_nor_the_quota():
    claim = VolumeClaim(name="cache", spec={"accessModes": ["ReadWriteOnce"]})
    life = Life(spec=edit(workload(), volume_claims=(claim,)), hold=set(REMOVALS))
    life.state = edit(life.state, shows_waits=True)  # As every run does that begins now.
    life.runs().tell(Cancelled())
    comes_back(life)
    assert life.state.attempt is not None
    assert life.state.attempt.stage is Stage.GONE
    told = len(life.state.causes)
    for _ in range(5):
        life.now += 10 * MINUTE
        left = (Remnant(kind="PersistentVolumeClaim", name="cache"),)
        life.tell_result(Removed(gone=False, remnants=left, remnants_total=1))
        life.settle()
        operation, attempt = life.state.operation, life.state.attempt
        assert operation is not None
        assert (operation.kind, operation.releases) == (OperationKind.REMOVE, True)
        assert operation.until == life.now + 10 * MINUTE
        assert (attempt.stage, attempt.remnants, len(life.state.causes)) == (Stage.GONE, left, told)
    life.now += 10 * MINUTE
    life.tell_result(Removed(gone=False, remnants=pods("made-too-late"), remnants_total=1))
    assert life.state.attempt.stage is Stage.FORCING, "whatever else is left is forced as ever"


@ROW("U1", level="pure")
def test_U1_time_in_which_a_removal_could_not_be_seen_is_given_back_to_it():
    life = removing()
    begun = life.now
    life.now += 10 * MINUTE
    blind = (Interval(begin=begun, end=begun + 4 * MINUTE),)
    life.tell_result(Removed(gone=False, remnants=pods("a", "b"), remnants_total=7, blind=blind))
    attempt = life.state.attempt
    assert attempt is not None
    assert (attempt.stage, attempt.remnants, attempt.remnants_total) == (Stage.REMOVING, pods("a", "b"), 7)
    life.settle()
    operation = life.state.operation
    assert operation is not None
    assert (operation.kind, operation.until) == (OperationKind.REMOVE, begun + 14 * MINUTE)
    comes_back(life, "a", after=4 * MINUTE)
    assert life.state.attempt is not None
    assert life.state.attempt.stage is Stage.FORCING


@ROW("A8", level="pure")
def test_A8_the_proof_leaves_nothing_behind_of_what_was_seen():
    life = Life(hold=set(REMOVALS)).runs().sees(failed=1, job_failed=True)
    comes_back(life, "a")
    life.state = edit(life.state, in_doubt=True, looked_at=life.now)
    comes_back(life)
    state, attempt = life.state, life.state.attempt
    assert attempt is not None
    assert (attempt.stage, attempt.gone_at) == (Stage.GONE, life.now)
    assert (attempt.remnants, attempt.remnants_total) == ((), 0)
    assert (state.observation, state.looked_at, state.in_doubt, state.unhealthy) == (None, None, False, None)
    assert state.pause_until == life.now + timedelta(seconds=90), "measured from the proof"


@ROW("A8", level="pure")
@pytest.mark.parametrize("gone", [True, False])
def test_A8_the_proof_is_told_by_the_removal_that_brought_it_and_by_no_other(gone: bool):
    life = Life(hold=set(REMOVALS)).runs().sees(failed=1, job_failed=True)
    operation = life.state.operation
    assert operation is not None
    assert operation.report_done is not None
    told = fold(life.state, Removed(gone=gone), life.now).told
    assert told == (operation.report_done if gone else operation.report)


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (0, "proven gone"),
        (3, "gone from the API; it may still run on n0, n1, n2 until they are heard again or powered off"),
        (
            4,
            "gone from the API; it may still run on n0, n1, n2 and 1 more until they are heard again or powered off",
        ),
    ],
)
def test_the_proof_names_three_nodes_where_processes_may_be_left(count: int, said: str):
    life = Life(hold=set(REMOVALS)).runs().sees(failed=1, job_failed=True)
    assert life.state.attempt is not None
    stranded = tuple(f"n{number}" for number in range(count))
    life.state = edit(life.state, attempt=edit(life.state.attempt, stranded=stranded))
    life.state = fold(life.state, Removed(gone=True), life.now)
    assert life.state.causes[-1].message == f"attempt 1 is {said}"


@pytest.mark.parametrize("wish", [Suspended(), Cancelled()])
def test_only_a_reset_is_followed_by_a_pause(wish: Suspended | Cancelled):
    life = Life().runs().tell(wish)
    assert life.state.attempt is not None
    assert (life.state.pause_until, life.state.attempt.pause_after) == (None, False)


def test_a_forced_removal_says_that_it_is_one():
    life = Life(hold={OperationKind.REMOVE, OperationKind.FORCE_REMOVE}).runs().tell(Suspended())
    life.now += 10 * MINUTE
    life.tell_result(Removed(gone=False, remnants=pods("a"), remnants_total=1))
    _, step = advance(life.spec, life.state, life.now)
    assert step == Run(
        OperationKind.FORCE_REMOVE, "forcing out what is left of attempt 1", life.now + timedelta(seconds=30)
    )


# --- a removal at a person's word, of what contradicts the memory


def test_what_a_person_lets_go_is_removed_whole_and_all_that_was_known_of_it_forgotten():
    life = moment("held")
    life.hold = set(REMOVALS)
    life.now += MINUTE
    life.state = edit(life.state, in_doubt=True, looked_at=life.now, anchored=False)
    begun = life.state.attempt
    life.tell(Cancelled("let it go"))
    state, attempt = life.state, life.state.attempt
    assert begun is not None
    assert attempt is not None
    assert (attempt.number, attempt.stage, attempt.everything) == (4, Stage.REMOVING, True)
    assert (attempt.begun_at, attempt.removing_at) == (begun.begun_at, life.now)
    assert (state.held, state.anchored, state.in_doubt) == (None, True, False)
    assert (state.observation, state.looked_at) == (None, None)


@pytest.mark.parametrize(("found", "number"), [(0, 1), (1, 1), (5, 5)])
def test_a_memory_without_an_attempt_removes_up_to_the_newest_that_was_found(found: int, number: int):
    life = Life(hold=set(REMOVALS))
    if found:
        seen = Observation(workload_uid="uid", attempt=found, owner_uid="another", at=life.now)
        life.tell(Observed(seen))
    else:
        life.state = hold(life.state, "the cluster holds another", 0, life.now)
        life.settle()
    life.now += MINUTE
    life.tell(Cancelled())
    attempt = life.state.attempt
    assert attempt is not None
    assert (attempt.number, attempt.begun_at, attempt.removing_at) == (number, life.now, life.now)
    assert explain_of(life.spec, life.state, life.now).now == f"deleting attempt {number}"
