"""A look that goes on to the removal if it repeats the promised restart (rows A3, A6; record 0086)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.model import Checkpoint, CheckpointProtocol, Interval, Operation, OperationKind, Phase, Stage, State
from holdfast.model.calls.cluster import Removed, Reset
from holdfast.model.observation import Asked
from holdfast.policy.attempt.checkpoint import check_ask
from holdfast.policy.loop.fold import fold
from holdfast.policy.loop.promise import is_repeated, memory_of
from holdfast.policy.loop.turn import Begin, landed, turn
from holdfast.policy.status.explain import status_of
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import (
    Cancelled,
    Event,
    NotUnderstood,
    Observed,
    OperationInterrupted,
    Retried,
    Suspended,
)
from holdfast.policy.values.steps import Interrupt, Sleep
from holdfast.policy.verdicts.strip import check_strip
from tests.policy.lives.life import Life, workload

ROW = pytest.mark.row
HELD = {OperationKind.RESET, OperationKind.OBSERVE, OperationKind.REMOVE}


def resetting(**fields: Any) -> Life:
    """Return a workload whose failed pod has outlasted its grace: its reset is under way."""
    life = Life(spec=workload(**fields)).runs()
    life.state = edit(life.state, resets_at_once=True)
    life.hold = set(HELD)
    life.sees(running=1, failed=1).after(minutes=1)
    assert under_way(life).kind is OperationKind.RESET
    return life


def under_way(life: Life) -> Operation:
    assert life.state.operation is not None
    return life.state.operation


def repeats(life: Life, **view: Any) -> bool:
    """Whether a look that finds this repeats the promise."""
    life.view = view or life.view
    operation = under_way(life)
    assert operation.restart is not None
    seen = life.look(live=True)
    return is_repeated(life.spec, memory_of(life.state), operation.restart, seen, operation.since, life.now)


def broken_off(life: Life, event: Event) -> Life:
    """Deliver a request that breaks the reset off; its activity has not answered yet."""
    life.state = fold(life.state, event, life.now)
    lived = turn(life.spec, life.state, life.now, full=False)
    assert isinstance(lived.step, Interrupt)
    life.state, life.step = lived.state, lived.step
    assert under_way(life).interrupted
    return life


def returns(life: Life, end: Any) -> Life:
    life.state = landed(life.state, end, life.now)
    return life.settle()


def used(life: Life) -> int:
    return sum(life.state.used.values())


@ROW("A3", level="pure")
def test_A3_the_restart_is_charged_once_and_the_removal_proven_in_one_operation():
    life = resetting()
    begun = life.now
    assert (life.state.phase, used(life)) == (Phase.RUNNING, 0), "nothing is decided before the look"
    seen = life.look(live=True)
    life.now += timedelta(seconds=20)
    returns(life, Reset(confirmed=True, seen=seen, removed=Removed(gone=True)))
    assert (life.state.phase, life.state.restarts, used(life)) == (Phase.RESETTING, 1, 1)
    assert life.state.attempt is not None
    assert (life.state.attempt.stage, life.state.attempt.removing_at) == (Stage.GONE, begun)
    told = life.state.told
    assert told is not None
    assert told.sequence < life.state.sequence, "what the look would have told came after the removal"


@ROW("E7", level="pure")
def test_E7_a_restart_whose_removal_may_have_begun_is_told_as_under_way():
    life = resetting()

    def told() -> list[str]:
        return [one.sentence() for one in status_of(life.spec, life.state, life.now, "uid").budgets]

    assert told() == ["restart 0 of 3, 1 under way"]
    seen = life.look(live=True)
    returns(life, Reset(confirmed=True, seen=seen, removed=Removed(gone=True)))
    assert told() == ["restart 1 of 3"]


@ROW("E7", level="pure")
def test_E7_a_reset_whose_look_finds_it_healthy_leaves_nothing_under_way():
    life = resetting()
    life.view = {"running": 2}
    returns(life, Reset(seen=life.look(live=True)))
    assert life.state.phase is Phase.RUNNING
    assert [one.sentence() for one in status_of(life.spec, life.state, life.now, "uid").budgets] == ["restart 0 of 3"]


@ROW("A6", level="pure")
@pytest.mark.parametrize(
    "view",
    [
        {"running": 2},
        {"succeeded": 2, "complete": True},
        {"running": 1, "failed": 1, "cls": "Hardware"},
        {"found": False},
    ],
    ids=["healed", "succeeded", "another-failure", "missing"],
)
def test_A6_a_look_that_finds_something_else_removes_nothing(view: dict[str, Any]):
    life = resetting()
    assert repeats(life)
    assert not repeats(life, **view)
    returns(life, Reset(seen=life.look(live=True)))
    assert life.state.attempt is not None
    healed = "found" not in view and "failed" not in view
    assert (used(life) == 0) == healed, "then the workflow decides, as after any look"
    if healed:
        assert life.state.attempt.stage is Stage.SUBMITTED


@ROW("A6", level="pure")
def test_A6_a_look_that_finds_the_workload_cancelled_or_its_anchor_lost_removes_nothing():
    life = resetting()
    operation, memory = under_way(life), memory_of(life.state)
    assert operation.restart is not None
    seen = life.look(live=True)
    asked = Asked(kind="AppWrapper", generation=9, deleting=True)
    for other in ({"anchor_found": False}, {"anchor_deleting": True}, {"owner_submitted": False}, {"asked": asked}):
        found = edit(seen, **other)
        assert not is_repeated(life.spec, memory, operation.restart, found, operation.since, life.now), other


@ROW("A6", level="pure")
def test_A6_what_the_watch_sees_of_its_own_removal_decides_nothing():
    """Pods that are told to end may exit 0: that is no success."""
    life = resetting()
    life.view = {"succeeded": 2, "complete": True}
    life.tell(Observed(life.look()))
    assert under_way(life).kind is OperationKind.RESET
    assert (life.state.phase, life.state.outcome) == (Phase.RUNNING, None)
    assert isinstance(life.step, Sleep)


@ROW("A11", level="pure")
def test_A11_a_suspension_breaks_it_off_and_follows_a_restart_that_had_begun():
    life = broken_off(resetting(), Suspended())
    returns(life, Reset(confirmed=True, seen=life.look(live=True)))
    assert (life.state.phase, used(life)) == (Phase.SUSPENDING, 1)
    assert under_way(life).kind is OperationKind.REMOVE


@ROW("A19", level="pure")
def test_A19_one_that_ends_without_a_result_is_settled_before_anything_is_decided():
    life = broken_off(resetting(), Suspended())
    first = under_way(life)
    life.now += timedelta(seconds=5)
    returns(life, OperationInterrupted())
    again = under_way(life)
    assert (again.kind, again.settles, again.interrupted) == (OperationKind.RESET, True, False)
    assert (again.restart, again.removal, again.report) == (first.restart, first.removal, first.report)
    assert again.since == life.now, "what it finds is at least as new"
    assert (life.state.phase, used(life)) == (Phase.RUNNING, 0)
    assert isinstance(life.step, Sleep), "it is not broken off in its turn"
    returns(life, OperationInterrupted())
    assert under_way(life).settles, "until the cluster says"


@ROW("A19", level="pure")
@pytest.mark.parametrize("begun", [True, False])
def test_A19_what_the_anchor_says_decides_whether_the_restart_is_charged(begun: bool):
    life = broken_off(resetting(), Suspended())
    returns(life, OperationInterrupted())
    returns(life, Reset(confirmed=begun, seen=None if begun else life.look(live=True)))
    assert (life.state.phase, used(life)) == (Phase.SUSPENDING, int(begun))
    assert under_way(life).kind is OperationKind.REMOVE


@ROW("L32", level="pure")
def test_L32_pods_are_asked_to_save_if_the_reset_that_a_suspension_breaks_off_never_ran():
    life = resetting(checkpoint=Checkpoint(protocol=CheckpointProtocol.ANNOTATION))
    life.hold.add(OperationKind.CHECKPOINT)
    returns(broken_off(life, Suspended(preempted=True)), OperationInterrupted())
    life.view = {"running": 2}
    returns(life, Reset(seen=life.look(live=True)))
    assert (life.state.phase, used(life)) == (Phase.CHECKPOINTING, 0)
    assert under_way(life).kind is OperationKind.CHECKPOINT


@ROW("A19", level="pure")
def test_A19_a_new_run_that_begins_before_it_is_settled_settles_it():
    life = broken_off(resetting(), Suspended())
    carried = landed(life.state, OperationInterrupted(), life.now)
    assert State.model_validate_json(carried.model_dump_json(by_alias=True)) == carried
    lived = turn(life.spec, carried, life.now, full=True)
    assert isinstance(lived.act, Begin), "it is not put off"
    assert lived.state.operation is not None
    assert lived.state.operation.settles


@ROW("A6", level="pure")
@pytest.mark.parametrize("begun", [True, False])
def test_A6_a_contradiction_seen_meanwhile_holds_it_and_what_had_begun_is_charged(begun: bool):
    life = resetting()
    life.tell(Observed(edit(life.look(), attempt=7)))
    assert under_way(life).interrupted
    returns(life, Reset(confirmed=begun, seen=None if begun else life.look(live=True)))
    assert life.state.held is not None
    assert (life.state.phase, used(life), life.state.restarts) == (Phase.PENDING, int(begun), int(begun))
    assert life.state.attempt is not None
    assert life.state.attempt.stage is (Stage.REMOVING if begun else Stage.SUBMITTED)
    assert life.state.operation is None


@ROW("D53", level="pure")
def test_D53_requests_that_depend_on_the_phase_are_judged_by_the_one_that_is_shown():
    life = resetting(checkpoint=Checkpoint(protocol=CheckpointProtocol.ANNOTATION))
    life.tell(Cancelled("only what runs", phases=(Phase.RUNNING,)))
    assert not life.state.intent.cancel
    with pytest.raises(ValueError, match="it is Resetting: only what runs"):
        check_ask(life.spec, life.state)
    with pytest.raises(ValueError, match="still has its grace"):
        check_strip(life.state)
    life.tell(Cancelled("only what is reset", phases=(Phase.RESETTING,)))
    assert life.state.intent.cancel


@ROW("A10", level="pure")
@pytest.mark.parametrize("begun", [True, False])
def test_A10_a_retry_asked_for_meanwhile_skips_the_pause_of_this_reset_and_of_no_later_one(begun: bool):
    life = resetting()
    life.tell(Retried())
    assert life.state.intent.retry
    assert not under_way(life).interrupted
    if begun:
        life.hold.add(OperationKind.PREPARE)
        returns(life, Reset(confirmed=True, seen=life.look(live=True), removed=Removed(gone=True)))
        assert under_way(life).kind is OperationKind.PREPARE, "it does not wait"
    else:
        life.view = {"running": 2}
        returns(life, Reset(seen=life.look(live=True)))
        assert not life.state.intent.retry


@ROW("A8", level="pure")
def test_A8_what_does_not_go_is_forced_out_after_it():
    life = resetting()
    assert under_way(life).until is not None
    life.now = under_way(life).until or life.now
    life.hold.add(OperationKind.FORCE_REMOVE)
    returns(life, Reset(confirmed=True, seen=None, removed=Removed(gone=False)))
    assert under_way(life).kind is OperationKind.FORCE_REMOVE
    assert used(life) == 1


@ROW("A10", level="pure")
def test_A10_readers_see_it_reset_from_the_look_on_and_holding_its_quota():
    life = resetting()
    status = status_of(life.spec, life.state, life.now, "uid")
    assert (status.phase, status.restarts) == (Phase.RESETTING, 0)
    assert {one.type.value for one in status.conditions if one.status} >= {"QuotaReserved", "DeletingResources"}
    life.view = {"running": 2}
    returns(life, Reset(seen=life.look(live=True)))
    assert status_of(life.spec, life.state, life.now, "uid").phase is Phase.RUNNING


@ROW("A19", level="pure")
def test_A19_a_later_look_reports_above_the_removal_so_that_no_late_worker_removes_what_is_well():
    operation = under_way(resetting())
    assert operation.removal is not None
    assert operation.removal.report_done is not None
    reports = (operation.removal.report, operation.removal.report_done, operation.report)
    assert [one.sequence for one in reports] == sorted({one.sequence for one in reports})


@ROW("A6", level="pure")
def test_A6_what_was_recorded_meanwhile_is_told_after_it():
    life = resetting()
    life.tell(NotUnderstood("observe", "it is no snapshot"))
    recorded = life.state.causes_total
    returns(life, Reset(confirmed=True, seen=life.look(live=True), removed=Removed(gone=True)))
    assert life.state.told_causes < recorded


def test_the_memory_that_is_sent_does_not_grow_with_what_was_seen():
    life = resetting()
    grown = edit(life.state, blind=tuple(Interval(begin=life.now, end=life.now) for _ in range(32)))
    assert len(memory_of(grown).model_dump_json()) < 16_384
    assert memory_of(life.state).observation is None
