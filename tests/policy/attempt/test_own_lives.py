"""Each component's replacement has its own life: one that waits keeps nothing else waiting (row D17)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.model import ObjectRef, OperationKind, Phase, Policy, Reason, Rule, Scope, Timings
from holdfast.model.calls.cluster import Replaced
from holdfast.model.spec.policy import Action
from holdfast.policy.attempt.health import grace_left
from holdfast.policy.loop.fold import fold
from holdfast.policy.status.explain import explain_of
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Observed, OperationInterrupted
from holdfast.policy.values.steps import Sleep
from tests.policy.lives.elements import Elements, config, element, fresh, job, jobs, replacing, streams

pytestmark = pytest.mark.row("D17", level="pure")

TIMINGS = Timings(failure_grace_period=timedelta(minutes=1), warmup_grace_period=timedelta(minutes=5))
ALONE = Rule(name="alone", action=Action(unit=Scope.COMPONENT, grace=False, charge=None))
RESET = Rule(name="reset", action=Action(grace=True))


def waiting(**fields: Any) -> Elements:
    """Return a life in which pe-0 is being made again, which waits: for quota, say."""
    life = Elements(**fields).up()
    life.hold = {OperationKind.REPLACE}
    life.deleted("pe-0").settle()
    assert making(life) == {"pe-0": 1}
    return life


def making(life: Elements) -> dict[str, int]:
    """Return which launches the operation under way makes."""
    operation = life.state.operation
    assert operation is not None
    assert operation.kind is OperationKind.REPLACE
    return operation.launches


def part(life: Elements, made: str, *left: str) -> None:
    """Let the operation come back with one component made, and news of it come by no watch."""
    component = next(one for one in life.spec.components if one.name == made)
    life.views[made] = fresh(component)
    life.tell_result(Replaced(objects=(ref(made),), left=left))
    life.settle()


def ref(name: str) -> ObjectRef:
    return ObjectRef(api_version="v1", kind="Pod", name=name, uid=f"{name}-new")


def test_what_fails_meanwhile_is_made_again_with_it_after_a_look():
    life = waiting()
    ran = len(life.ran)
    life.deleted("pe-1").settle()
    assert making(life) == {"pe-0": 1, "pe-1": 1}
    assert [kind for kind, _, _ in life.ran[ran:]] == [OperationKind.OBSERVE, OperationKind.REPLACE]
    assert life.launches() == {"pe-0": 1, "pe-1": 1}, "what waits is not made a second time"
    assert explain_of(life.spec, life.state, life.now).now == "making again Pod pe-0, Pod pe-1"


def test_what_is_made_again_lives_on_while_the_other_waits():
    life = waiting()
    life.deleted("pe-1").settle()
    part(life, "pe-1", "pe-0")
    assert making(life) == {"pe-0": 1}
    life.pods("pe-1", running=1)
    assert life.state.reason is Reason.REPLACING
    life.after(minutes=30)
    life.deleted("pe-1").settle()
    assert making(life) == {"pe-0": 1, "pe-1": 2}
    life.hold.clear()
    life.finish().settle()
    life.pods("pe-0", "pe-1", running=1)
    attempt = life.state.attempt
    assert attempt is not None
    assert (attempt.replacing, attempt.number, life.state.phase) == ((), 1, Phase.RUNNING)


def test_what_joined_as_the_others_were_done_is_still_made():
    """The end of an operation may come before word that it is to begin anew with more."""
    life = waiting()
    attempt = life.state.attempt
    assert attempt is not None
    joined = edit(attempt, replacing=("pe-0", "pe-1"), launches={"pe-0": 1, "pe-1": 1})
    life.state = edit(life.state, attempt=joined)
    part(life, "pe-0")
    assert making(life) == {"pe-1": 1}


def test_what_is_done_in_part_tells_the_cluster_no_end():
    life = waiting()
    life.deleted("pe-1").settle()
    before = life.state.operation
    assert before is not None
    life.tell_result(Replaced(objects=(ref("pe-1"),), left=("pe-0",)))
    assert life.state.told == before.report


def test_a_failure_that_resets_all_is_not_kept_waiting_and_its_grace_ends_by_itself():
    policy = Policy(timings=TIMINGS, rules=(RESET,))
    spec = streams(3, policy)
    first = edit(element(0), replacement=replacing(charge=None))
    spec = spec.with_components((spec.components[0], first, *spec.components[2:]))
    life = waiting(spec=spec)
    life.pods("pe-1", failed=1)
    assert isinstance(life.step, Sleep)
    assert life.step.until == life.now + timedelta(minutes=1), "its grace is waited for, and not news"
    life.after(minutes=1)
    assert life.state.restarts == 1
    assert life.state.phase is Phase.RESETTING


def test_a_pod_that_does_not_come_is_late_all_the_same():
    life = waiting(spec=streams(3, Policy(timings=TIMINGS, rules=(ALONE,), replacement=replacing(charge=None))))
    life.deleted("pe-1").settle()
    part(life, "pe-1", "pe-0")
    assert making(life) == {"pe-0": 1}
    assert isinstance(life.step, Sleep)
    assert life.step.until == life.now + timedelta(minutes=5)
    life.after(minutes=5)
    assert making(life) == {"pe-0": 1, "pe-1": 2}


def test_a_component_whose_turn_comes_is_made_while_another_waits():
    spec = jobs(
        "pe-0", "pe-1", job("late", after=({"component": "pe-1", "status": "Ready"},)), policy=Policy(timings=TIMINGS)
    )
    first = edit(spec.components[0], replacement=replacing(charge=None))
    life = Elements(spec=spec.with_components((first, *spec.components[1:])))
    life.settle()
    life.pods("pe-0", running=2)
    life.hold = {OperationKind.REPLACE}
    life.deleted("pe-0").settle()
    assert making(life) == {"pe-0": 1}
    life.pods("pe-1", running=2)
    assert making(life) == {"pe-0": 1, "late": 0}


def test_Jobs_that_restart_alone_do_not_wait_for_one_another():
    life = Elements(spec=jobs("pe-0", "pe-1", "pe-2", policy=Policy(timings=TIMINGS, rules=(ALONE,)))).up()
    life.hold = {OperationKind.REPLACE}
    life.pods("pe-0", failed=1)
    assert making(life) == {"pe-0": 1}
    life.pods("pe-2", failed=1)
    assert making(life) == {"pe-0": 1, "pe-2": 1}
    assert life.state.restarts == 2


def test_what_is_back_is_looked_at_though_no_news_comes_and_what_failed_before_is_not_forgotten():
    policy = Policy(timings=TIMINGS, rules=(RESET,), replacement=replacing(charge=None, failed=False))
    life = waiting(spec=streams(4, policy))
    life.deleted("pe-1").settle()
    life.pods("pe-2", failed=1)
    ran = len(life.ran)
    part(life, "pe-1", "pe-0")
    assert [kind for kind, _, _ in life.ran[ran:]] == [OperationKind.OBSERVE, OperationKind.REPLACE]
    assert life.state.unhealthy is not None
    life.after(minutes=1)
    assert life.state.phase is Phase.RESETTING


def test_a_doubt_is_looked_into_once_something_has_waited_long():
    life = waiting()
    ran = len(life.ran)
    life.tell(Observed(life.look(revision=0)))
    assert life.state.in_doubt
    assert len(life.ran) == ran, "what is soon done is not broken off for it"
    life.after(seconds=40)
    assert [kind for kind, _, _ in life.ran[ran:]] == [OperationKind.OBSERVE, OperationKind.REPLACE]
    assert not life.state.in_doubt


def test_others_that_join_take_neither_grace_nor_patience_from_what_waits():
    life = waiting()
    life.after(minutes=3)
    life.deleted("pe-1").settle()
    assert grace_left(life.state, "pe-0", life.now) == 7 * 60
    assert grace_left(life.state, "pe-1", life.now) == 10 * 60
    life.state = fold(life.state, OperationInterrupted(20.0, (ref("pe-1"),)), life.now)
    attempt = life.state.attempt
    assert attempt is not None
    assert (attempt.borne_again, attempt.borne) == (20.0, 0.0)
    assert ref("pe-1") in attempt.objects, "what was made before it was broken off is known"
    life.settle()
    life.tell_result(Replaced(left=("pe-0",), borne=5.0))
    assert life.state.attempt is not None
    assert life.state.attempt.borne_again == 25.0
    life.hold.clear()
    life.settle()
    assert life.state.attempt is not None
    assert life.state.attempt.borne_again == 0.0


def test_a_configuration_that_changes_makes_nothing_again_that_does_not_read_it():
    life = waiting()
    life.deleted("pe-1").settle()
    life.configured(config("v2"))
    assert life.launches() == {"adl": 1, "pe-0": 2, "pe-1": 1}
