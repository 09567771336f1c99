"""Single components made again: which, when, what it costs, and what is remembered of it (rows S7 to S10)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.model import (
    Failure,
    FailureClass,
    ObjectRef,
    OperationKind,
    Phase,
    Reason,
    Scope,
)
from holdfast.model.calls.cluster import Replaced
from holdfast.policy.attempt.replace import backed_off
from holdfast.policy.status.explain import status_of
from holdfast.policy.values.decision import Look, Replace, Wait
from holdfast.policy.values.edit import edit
from holdfast.policy.verdicts.decide import decide
from holdfast.profiles.rules import LAUNCH
from holdfast.profiles.streams import POLICY
from tests.policy.lives.elements import Elements, config, element, replacing, streams
from tests.policy.lives.life import Life

ROW = pytest.mark.row


def limited(limit: int, **rule: Any) -> Elements:
    """Elements of which each may be made again so often."""
    budgets = (edit(POLICY.budgets[0], limit=limit),)
    return Elements(spec=streams(budgets=budgets, replacement=replacing(**rule))).up()


def seen(life: Elements, *looks: OperationKind) -> Elements:
    """Hold what would be carried out, so that what is decided can be asked."""
    life.hold = set(looks or (OperationKind.OBSERVE, OperationKind.REPLACE))
    return life


@ROW("S7", level="pure")
def test_S7_all_that_is_due_is_made_again_together_after_one_look_that_names_it():
    life = seen(Elements().up()).deleted("pe-0", "pe-2")
    why = "Pod pe-0 was deleted; Pod pe-2 was deleted"
    assert decide(life.spec, life.state, life.now) == Look(f"confirming before it is made again: {why}")
    life.state = edit(life.state, looked_at=life.now)
    assert decide(life.spec, life.state, life.now) == Replace(("pe-0", "pe-2"), ("pe-0", "pe-2"), why)


@ROW("S8", level="pure")
def test_S8_a_changed_configuration_needs_no_look_and_charges_nothing():
    life = seen(Elements().up())
    life.spec = life.spec.with_components((config("v2"), *life.spec.components[1:]))
    why = "the configuration of ConfigMap adl has changed; the configuration of Pod pe-0 has changed"
    assert decide(life.spec, life.state, life.now) == Replace(("adl", "pe-0"), (), why)


def test_what_one_is_made_again_for_does_not_keep_the_next_from_it():
    life = seen(Elements().up())
    life.hold = {OperationKind.REPLACE}
    life.deleted("pe-0")
    life.deleted("pe-1")
    life.hold.clear()
    life.finish()
    life.settle()
    assert life.launches() == {"pe-0": 1, "pe-1": 1}


@ROW("S9", level="pure")
@pytest.mark.parametrize(
    ("launches", "seconds"), [(1, 10), (2, 20), (3, 40), (5, 160), (6, 300), (10, 300), (12, 300), (5000, 300)]
)
def test_S9_the_pause_doubles_up_to_five_minutes_whatever_the_number(launches: int, seconds: int):
    life = Elements().up()
    attempt = life.state.attempt
    assert attempt is not None
    again = edit(attempt, launches={"pe-1": launches}, replaced_at=life.now)
    assert backed_off("pe-1", POLICY.replacement, again) == life.now + timedelta(seconds=seconds)
    assert backed_off("pe-0", POLICY.replacement, again) is None


@ROW("S9", level="pure")
def test_S9_the_first_whose_pause_ends_is_waited_for():
    life = Elements().up()
    life.pods("pe-1", failed=1)
    life.pods("pe-1", running=1)
    life.after(seconds=3)
    life.pods("pe-1", "pe-2", failed=1)
    assert life.launches() == {"pe-1": 1, "pe-2": 1}, "the first time there is no pause"
    life.pods("pe-2", running=1)
    decided = decide(life.spec, life.state, life.now)
    assert isinstance(decided, Wait)
    assert decided.why == "back-off before pe-1 is made again"


@ROW("S10", level="pure")
@pytest.mark.parametrize(
    ("counts", "rule", "failure"),
    [
        (
            {"failed": 1},
            {},
            Failure(cls=FailureClass.APP, scope=Scope.MEMBER, reason="Error", time=Life().now, exit_code=1),
        ),
        (
            {"succeeded": 1},
            {"completed": True},
            Failure(
                cls=FailureClass.APP,
                scope=Scope.COMPONENT,
                reason=Reason.LAUNCH_LIMIT_EXCEEDED,
                time=Life().now,
                message="Pod pe-1 has completed",
            ),
        ),
    ],
    ids=["failed", "completed"],
)
def test_S10_a_launch_budget_used_up_ends_it_with_what_was_seen(
    counts: dict[str, int], rule: dict[str, Any], failure: Failure
):
    life = limited(0, **rule)
    life.pods("pe-1", **counts)
    what = "failed" if "failed" in counts else "has completed"
    assert (life.state.phase, life.state.reason) == (Phase.FAILED, Reason.LAUNCH_LIMIT_EXCEEDED)
    assert life.state.message == f"{LAUNCH} budget is used up (0): Pod pe-1 {what}"
    told = life.state.outcome_failure
    assert told is not None
    assert edit(told, subject="") == edit(failure, component="pe-1", attempt=1)


@ROW("S10", level="pure")
@pytest.mark.parametrize("limit", [1, 2])
def test_S10_it_may_be_made_again_as_often_as_its_budget_says_and_no_more(limit: int):
    life = limited(limit)
    for _ in range(limit):
        life.deleted("pe-1").pods(running=1)
    assert (life.launches(), life.state.phase) == ({"pe-1": limit}, Phase.RUNNING)
    life.deleted("pe-1")
    assert (life.launches(), life.state.phase) == ({"pe-1": limit}, Phase.FAILED)


def test_what_was_made_is_remembered_beside_what_was_not_made_again():
    life = Elements(hold={OperationKind.REPLACE}).up()
    ref: dict[str, Any] = {"api_version": "v1", "kind": "Pod"}
    old = tuple(ObjectRef(name=f"pe-{n}", uid=f"old-{n}", **ref) for n in range(2))
    assert life.state.attempt is not None
    life.state = edit(life.state, attempt=edit(life.state.attempt, objects=old))
    life.deleted("pe-1")
    life.hold = {OperationKind.OBSERVE}
    life.tell_result(Replaced(objects=(ObjectRef(name="pe-1", uid="new-1", **ref),)))
    state, attempt = life.state, life.state.attempt
    assert attempt is not None
    assert [one.uid for one in attempt.objects] == ["old-0", "new-1"]
    assert attempt.replacing == ()
    assert (state.observation, state.looked_at, state.in_doubt) == (None, None, True), "nothing is known of it yet"


@ROW("S8", level="pure")
def test_S8_what_an_earlier_release_made_without_a_digest_is_made_again_when_it_changes():
    life = Elements().up()
    assert life.state.attempt is not None
    life.state = edit(life.state, attempt=edit(life.state.attempt, config={}))
    life.settle()
    assert life.launches() == {}, "nothing is known to have changed"
    life.configured(element(1, "pe:2"))
    assert life.launches() == {"pe-1": 1}


def test_a_member_budget_that_nobody_has_used_is_shown_unused():
    life = Elements().up()
    assert [(one.name, one.used) for one in status_of(life.spec, life.state, life.now, "uid").budgets] == [(LAUNCH, 0)]


@ROW("S8", level="pure")
def test_S8_a_changed_configuration_is_acted_on_before_anything_is_seen_of_what_was_made_before():
    life = Elements(hold={OperationKind.REPLACE}).up()
    life.deleted("pe-1")
    life.hold = {OperationKind.OBSERVE}
    life.finish()
    assert life.state.observation is None
    spec = life.spec.with_components((config("v2"), *life.spec.components[1:]))
    decided = decide(spec, life.state, life.now)
    assert isinstance(decided, Replace)
    assert (decided.components, decided.exclude) == (("adl", "pe-0"), ())


@ROW("S9", level="pure")
@pytest.mark.parametrize("counts", [{"failed": 1}, {"succeeded": 1}], ids=["failed", "completed"])
def test_S9_what_ends_a_second_time_is_made_again_after_the_back_off(counts: dict[str, int]):
    life = Elements(spec=streams(replacement=replacing(completed=True))).up()
    life.pods("pe-1", **counts).pods("pe-1", running=1)
    life.pods("pe-1", **counts)
    assert life.launches() == {"pe-1": 1}
    life.after(seconds=10)
    assert life.launches() == {"pe-1": 2}
