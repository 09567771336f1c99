"""A workload that waits for its first attempt has an Anchor, which says why; one that begins at once costs nothing."""

from __future__ import annotations

import pytest

from holdfast import names
from holdfast.model import OperationKind, Phase, Reason, Source, Workload
from holdfast.model.entities.graph import GraphOrder, Place
from holdfast.model.entities.queue import QueueOrder
from holdfast.model.life.state import Operation
from holdfast.model.spec.mount import Mount
from holdfast.policy.loop.submission import submitted
from holdfast.policy.status.waits import SHOWN_AFTER
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Cancelled, GraphOrdered, OperationRefused, QueueOrdered, Resumed
from holdfast.policy.values.steps import Sleep
from holdfast.workflows.operations.dispatch import call_of
from tests.policy.lives.life import Life, workload

pytestmark = pytest.mark.row("E10", level="pure")
PREPARE, REPORT, STAGE = OperationKind.PREPARE, OperationKind.REPORT, OperationKind.STAGE
REMOVE = OperationKind.REMOVE
ADMITTED = QueueOrdered(QueueOrder(uid="uid", turn=1, admit=True, why="queue gpus lets it in"))
LET = GraphOrdered(GraphOrder(workload_uid="uid", admit=True, why="extract (Success)"))


def begun(spec: Workload, *hold: OperationKind, closed: bool = False, shows: bool = True) -> Life:
    """Return the life of what a client submits, as its workflow begins it."""
    life = Life(spec, hold=set(hold), closed=closed)
    life.state = edit(submitted(spec, life.now), shows_waits=shows)
    return life.settle()


def queued() -> Workload:
    return workload(queue="gpus", queued=True)


def ran(life: Life) -> list[OperationKind]:
    return [kind for kind, _, _ in life.ran]


def under_way(life: Life) -> Operation:
    assert life.state.operation is not None
    return life.state.operation


@pytest.mark.parametrize(
    ("spec", "reason", "order"),
    [
        (queued(), Reason.QUEUED, ADMITTED),
        (workload(graph=Place(graph="etl", item="train")), Reason.BLOCKED, LET),
    ],
    ids=["queued", "blocked"],
)
def test_a_wait_is_shown_after_two_seconds(spec: Workload, reason: Reason, order: QueueOrdered | GraphOrdered):
    life = begun(spec)
    assert life.ran == []
    assert isinstance(life.step, Sleep)
    assert life.step.until == life.now + SHOWN_AFTER
    life.after(seconds=SHOWN_AFTER.total_seconds())
    assert ran(life) == [REPORT]
    assert life.state.anchored
    assert life.state.told is not None
    assert (life.state.told.phase, life.state.told.reason, life.state.told.attempt) == (Phase.PENDING, reason, 0)
    assert not any(one.status for one in life.state.told.conditions), "nothing exists, and no quota is held"
    assert isinstance(life.step, Sleep)
    assert life.step.until is None, "it is shown once"
    life.after(hours=1)
    assert ran(life) == [REPORT]
    life.tell(order)
    assert ran(life)[:2] == [REPORT, PREPARE]
    assert life.state.phase is Phase.RESUMING


def test_one_that_is_let_in_sooner_has_no_request_more():
    life = begun(queued())
    life.after(seconds=SHOWN_AFTER.total_seconds() / 2)
    life.tell(ADMITTED)
    assert ran(life)[0] is PREPARE
    assert REPORT not in ran(life)


def test_one_that_begins_at_once_does_as_before():
    assert ran(begun(workload())) == ran(begun(workload(), shows=False))


@pytest.mark.parametrize("spec", [queued(), workload(suspend=True)], ids=["queued", "suspended"])
def test_a_run_of_an_earlier_release_shows_no_wait(spec: Workload):
    life = begun(spec, shows=False).after(hours=1)
    assert life.ran == []
    assert not life.state.anchored


def test_one_that_is_submitted_suspended_is_shown_at_once_and_says_when_it_waits_for_something_else():
    life = begun(edit(queued(), suspend=True))
    assert ran(life) == [REPORT]
    assert life.state.told is not None
    assert (life.state.told.phase, life.state.told.reason) == (Phase.SUSPENDED, Reason.SUSPEND_REQUESTED)
    life.tell(Resumed("go"))
    assert ran(life) == [REPORT, REPORT]
    assert (life.state.told.phase, life.state.told.reason) == (Phase.PENDING, Reason.QUEUED)


def test_another_reason_within_pending_is_told():
    life = begun(edit(queued(), graph=Place(graph="etl", item="train"))).after(seconds=2)
    assert life.state.told is not None
    assert life.state.told.reason is Reason.BLOCKED
    life.tell(LET)
    assert life.state.told.reason is Reason.QUEUED
    assert ran(life) == [REPORT, REPORT]


def test_what_stages_its_data_is_shown_before_that_begins():
    mount = Mount(name="corpus", source="s3://datasets/corpus", path="/data")
    life = begun(workload(mounts=(mount,)), STAGE)
    assert ran(life) == [REPORT, STAGE]
    assert life.state.told is not None
    assert (life.state.told.phase, life.state.told.reason) == (Phase.PENDING, Reason.STAGING)


def test_where_it_may_not_begin_there_is_no_anchor_and_nothing_is_tried_again():
    life = begun(queued(), closed=True).after(hours=1)
    assert ran(life) == [REPORT]
    assert not life.state.anchored
    assert life.state.told_causes == 0, "its first attempt tells them"
    life.tell(Cancelled("enough"))
    assert (ran(life), life.ended) == ([REPORT], Phase.CANCELLED), "nothing is there to remove"


def test_one_that_is_cancelled_as_it_waits_lets_its_anchor_go():
    life = begun(queued()).after(seconds=2)
    life.hold.add(REMOVE)
    life.tell(Cancelled("enough"))
    operation = under_way(life)
    assert (operation.kind, operation.releases, operation.attempt) == (REMOVE, True, 0)
    call = call_of(life.spec, life.state, "uid", life.now)
    assert call.argument.delete_anchor
    assert call.argument.plan == (), "its account may not even read what it never made"
    life.finish().settle()
    assert life.ended is Phase.CANCELLED


def test_an_anchor_that_may_have_been_made_is_let_go_too():
    life = begun(queued(), REPORT).after(seconds=2)
    assert under_way(life).anchors
    life.tell(Cancelled("enough"))
    assert ran(life) == [REPORT, REMOVE]
    assert life.ended is Phase.CANCELLED


def test_the_report_is_broken_off_once_it_may_begin():
    life = begun(queued(), REPORT, PREPARE).after(seconds=2)
    life.tell(ADMITTED)
    assert ran(life) == [REPORT, PREPARE]
    assert call_of(life.spec, life.state, "uid", life.now).argument.anchored, "it may be there"


def test_its_anchor_stays_as_it_is_refused_and_it_ends_at_once():
    life = begun(queued(), PREPARE).after(seconds=2)
    life.tell(ADMITTED)
    life.hold.add(REMOVE)
    life.tell_result(OperationRefused(names.ERROR_REFUSED, "spec.template: is not valid"))
    life.settle()
    operation = under_way(life)
    assert (operation.kind, operation.releases) == (REMOVE, True)
    assert (operation.report.phase, operation.report.reason) == (Phase.FAILED, Reason.REFUSED)
    call = call_of(life.spec, life.state, "uid", life.now)
    assert not call.argument.delete_anchor, "it says what became of it"
    assert call.argument.plan == (), "its account may not even read what it never made"
    life.finish().settle()
    assert life.ended is Phase.FAILED


def test_only_a_report_before_the_first_attempt_makes_an_anchor():
    life = begun(workload(), REPORT).sees(running=2)
    assert under_way(life).kind is REPORT
    call = call_of(life.spec, life.state, "uid", life.now)
    assert call.argument.anchor is None


def test_the_anchor_says_what_the_workload_is_made_of():
    life = begun(queued(), REPORT).after(seconds=2)
    given = call_of(life.spec, life.state, "uid", life.now).argument
    assert given.anchor.spec_hash == life.spec.spec_hash()
    assert [(one.name, one.kind, one.expected_pods) for one in given.anchor.plan] == [("train", "Job", 2)]


def test_a_custom_resource_is_never_made():
    spec = edit(queued(), source=Source(api_version="example.com/v1", kind="Train", generation=1))
    life = begun(spec, REPORT)
    assert under_way(life).kind is REPORT
    assert not under_way(life).anchors
    life.finish()
    assert life.state.anchored
