"""What a review or the field once found, and what must not happen again."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import ValidationError

from holdfast.model import (
    ActionKind,
    ConditionType,
    FailureClass,
    Interval,
    Match,
    OperationKind,
    Phase,
    Policy,
    Rule,
    Workload,
)
from holdfast.model.spec.policy import Action
from holdfast.policy.failures.blindness import due, union
from holdfast.policy.failures.rules import matches
from holdfast.policy.loop.fold import fold
from holdfast.policy.status.report import conditions
from holdfast.policy.values.events import Cancelled, Observed, Resumed, Retried, Suspended
from holdfast.policy.values.steps import Sleep
from holdfast.workflows.operations.dispatch import call_of
from tests.policy.lives.life import START, Life, workload


def test_a_loss_told_with_an_older_version_is_looked_at_and_not_dropped_for_good():
    """A watch that has begun anew knows only what is left, whose versions may be old."""
    life = Life().runs().after(hours=1)
    life.view = {"running": 2, "found": False}
    seen = life.look().model_copy(update={"revision": 1})
    life.tell(Observed(seen))
    assert "observe" in life.kinds()
    assert life.state.phase is Phase.RESETTING


def test_a_late_snapshot_costs_one_look_and_nothing_else():
    life = Life().runs()
    stale = life.look().model_copy(update={"revision": 1})
    life.tell(Observed(stale))
    assert life.kinds().count("observe") == 1
    assert life.state.phase is Phase.RUNNING
    life.after(hours=5)
    assert life.kinds().count("observe") == 1


def test_a_snapshot_that_speaks_of_no_component_makes_nothing_ready():
    life = Life().settle()
    life.hold.add(OperationKind.OBSERVE)
    lost = life.look().model_copy(update={"components": {}, "owner_found": False})
    life.tell(Observed(lost))
    assert life.state.phase is Phase.RESUMING
    assert life.state.attempt is not None
    assert life.state.attempt.ready_at is None
    ready = [each.status for each in conditions(life.spec, life.state) if each.type is ConditionType.PODS_READY]
    assert ready == [False]


@pytest.mark.parametrize("first", ["suspend", "retry"])
def test_a_retry_never_undoes_a_suspension_that_came_with_it(first: str):
    life = Life().runs().sees(failed=1, job_failed=True)
    both = [Suspended(preempted=True), Retried()]
    for event in both if first == "suspend" else reversed(both):
        life.state = fold(life.state, event, life.now)
    assert life.settle().state.phase is Phase.SUSPENDED


def test_a_removal_whose_sequel_changes_does_not_report_what_no_longer_follows():
    life = Life(hold={OperationKind.REMOVE}).runs().tell(Suspended())
    first = life.state.operation
    assert first is not None
    assert first.report_done is not None
    assert first.report_done.phase is Phase.SUSPENDED
    life.tell(Resumed())
    second = life.state.operation
    assert second is not None
    assert second.report_done is not None
    assert second.report_done.phase is Phase.SUSPENDING, "it never comes to be Suspended"
    assert next(c.status for c in second.report_done.conditions if c.type is ConditionType.QUOTA_RESERVED)
    life.hold.clear()
    life.finish()
    assert life.settle().attempt == 2


def test_a_cancel_during_a_removal_lets_go_of_the_anchor_with_the_same_removal():
    life = Life(hold={OperationKind.REMOVE}).runs().sees(failed=1, job_failed=True).tell(Cancelled())
    assert life.state.operation is not None
    assert life.state.operation.releases
    life.hold.clear()
    life.finish()
    assert life.settle().ended is Phase.CANCELLED


def test_a_rule_that_lets_lateness_be_makes_no_timer_of_the_past():
    lazy = Rule(
        name="lazy",
        match=Match(classes=(FailureClass.TIMEOUT,)),
        action=Action(kind=ActionKind.IGNORE, charge=None),
    )
    life = Life(spec=workload(policy=Policy(rules=(lazy,)))).settle().sees(pending=1)
    life.after(minutes=10)
    assert isinstance(life.step, Sleep)
    assert life.step.until is None


def test_memory_stays_small_whatever_it_is_told():
    life = Life().runs()
    for _ in range(40):
        life.tell(Suspended(note="x" * 100_000)).tell(Resumed(note="y" * 100_000))
    assert len(life.state.model_dump_json()) < 256 * 1024


def test_old_blindness_is_not_forgotten():
    blinks = [
        Interval(begin=START + timedelta(seconds=6 * n), end=START + timedelta(seconds=6 * n + 3)) for n in range(50)
    ]
    kept = union(blinks, 32)
    assert len(kept) == 32
    assert due(START, timedelta(minutes=5), kept) >= due(START, timedelta(minutes=5), union(blinks, 100))


def test_deleting_a_workload_that_is_still_held_deletes_its_anchor_too():
    life = Life(hold={OperationKind.REMOVE}).runs().sees(succeeded=2, complete=True).tell(Cancelled())
    argument = call_of(life.spec, life.state, "uid", life.now).argument
    assert argument.release_anchor
    assert argument.delete_anchor


def test_no_pattern_holds_up_a_worker():
    from holdfast.model import Failure

    match = Match(message_pattern="(a+)+$")
    failure = Failure(cls="App", scope="Member", reason="Error", time=START, message="a" * 5000 + "b")  # type: ignore[arg-type]
    assert not matches(match, failure), "a backtracking engine would not come back from this"


@pytest.mark.parametrize("pattern", ["(", "(a)\\1", "(?=x)"])
def test_a_pattern_that_is_none_is_refused_at_submission(pattern: str):
    document = workload().model_dump(mode="json")
    document["policy"]["rules"] = [{"name": "r", "match": {"messagePattern": pattern}}]
    with pytest.raises(ValidationError, match="messagePattern"):
        Workload.model_validate(document)
