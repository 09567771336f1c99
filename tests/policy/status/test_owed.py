"""What a look leaves to be told, since a decision hangs on it, and who tells it then (rows L4, L8, A10)."""

from __future__ import annotations

import pytest

from holdfast.model import ConditionType, Operation, OperationKind, Phase, Policy, Reason, Report
from holdfast.model.calls.cluster import Removed, Reported
from holdfast.policy.loop.fold import fold, observed
from holdfast.policy.values.events import Looked, OperationInterrupted
from holdfast.profiles import appwrapper, lattice
from tests.policy.lives.life import Life, workload

ROW = pytest.mark.row
FAULT = ("node-7",)


def looking(policy: Policy = lattice.BATCH) -> Life:
    """Return a workload that looks for itself, since one of its nodes is marked as broken."""
    life = Life(spec=workload(policy=policy), hold={OperationKind.OBSERVE, OperationKind.REMOVE})
    life.runs()
    return life.sees(running=2, marked=FAULT)


def under_way(life: Life) -> Operation:
    assert life.state.operation is not None
    return life.state.operation


def leaves_untold(life: Life) -> Report:
    """Let the look come back without having told what it was given to tell; return that."""
    operation = under_way(life)
    life.state = fold(life.state, Looked(untold=True), life.now)
    life.state = observed(life.state, life.look(live=True), operation.since, life.now)
    life.settle()
    return operation.report


def unhealthy(report: Report) -> bool:
    return any(one.status for one in report.conditions if one.type is ConditionType.UNHEALTHY)


@ROW("L8", level="pure")
def test_L8_what_a_look_has_left_is_told_by_the_removal_that_was_decided_on_it():
    life = looking()
    assert under_way(life).decides, "what it confirms is acted on at once"
    owed = leaves_untold(life)
    assert unhealthy(owed)
    removal = under_way(life)
    assert (removal.kind, removal.report.before) == (OperationKind.REMOVE, owed)
    assert removal.report.sequence > owed.sequence, "so that both are applied, one after the other"
    assert not unhealthy(removal.report)
    assert [one.reason for one in removal.report.events] == [Reason.REQUEUED], "what the look tells is not told twice"
    assert removal.report_done is not None
    assert removal.report_done.before is None
    life.tell(Removed(gone=True))
    assert life.state.owed is None


@ROW("L8", level="pure")
def test_L8_a_removal_that_was_broken_off_may_not_have_told_it_so_the_next_one_does():
    life = looking()
    owed = leaves_untold(life)
    life.tell(OperationInterrupted())
    assert under_way(life).kind is OperationKind.REMOVE
    assert under_way(life).report.before == owed


@ROW("A10", level="pure")
def test_A10_what_a_look_has_left_is_told_by_itself_where_nothing_follows_from_it():
    life = looking(appwrapper.POLICY)
    life.hold.add(OperationKind.REPORT)
    life.view = {"running": 1, "failed": 1}  # The mark is gone, and a pod has failed: that has its grace.
    owed = leaves_untold(life)
    assert under_way(life).kind is OperationKind.REPORT
    assert under_way(life).report.before == owed
    life.tell(Reported())
    assert life.state.owed is None
    assert life.state.operation is None
    assert "failure grace" in life.waits_for


def test_a_look_that_settles_a_doubt_tells_what_it_has_first():
    life = Life(spec=workload(policy=lattice.BATCH), hold={OperationKind.OBSERVE}).runs()
    life.state = life.state.model_copy(update={"in_doubt": True})
    life.settle()
    assert not under_way(life).decides


def test_what_is_told_first_does_not_make_two_reports_differ():
    life = looking()
    owed = leaves_untold(life)
    report = under_way(life).report
    assert report.says_the_same_as(report.model_copy(update={"before": None}))
    assert report.model_validate_json(report.model_dump_json(by_alias=True)) == report
    assert "before" not in owed.model_dump(by_alias=True), "what owes nothing is on the wire as it ever was"
    assert life.state.phase is Phase.RESETTING
