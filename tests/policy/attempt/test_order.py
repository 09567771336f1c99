"""In which order components are created (row J13), on virtual time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from holdfast.model import (
    Action,
    ActionKind,
    After,
    Attempt,
    Component,
    ComponentView,
    CopyCounts,
    Failure,
    FailureClass,
    Match,
    OperationKind,
    Phase,
    PodCounts,
    Policy,
    Reason,
    Rule,
    StartStatus,
    State,
    Timings,
    Workload,
)
from holdfast.model.calls.cluster import Replaced
from holdfast.policy.status.explain import explain_of, status_of
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Cancelled, Observed, Resumed, Suspended
from holdfast.profiles.streams import POLICY as STREAMS
from tests.policy.lives.elements import Elements, config, element, fresh, job, jobs

ROW = pytest.mark.row
READY, COMPLETE = StartStatus.READY, StartStatus.COMPLETE
MISSING = Rule(name="missing", match=Match(classes=(FailureClass.MISSING,)), action=Action(grace=False))
LAUNCH = Rule(
    name="launch",
    match=Match(classes=(FailureClass.LAUNCH,)),
    action=Action(kind=ActionKind.FAIL, charge=None, grace=False),
)
POLICY = Policy(rules=(MISSING, LAUNCH), timings=Timings())


def after(name: str, *others: str, status: StartStatus = READY, **fields: Any) -> Component:
    return job(name, after=tuple(After(component=other, status=status) for other in others), **fields)


def chain(status: StartStatus = READY, policy: Policy = POLICY) -> Workload:
    """Return first, then second, then third; and one that waits for nobody."""
    second, third = after("second", "first", status=status), after("third", "second", status=status)
    return jobs("first", second, third, "free", policy=policy)


def begun(spec: Workload | None = None) -> Elements:
    one = Elements(spec=spec or chain())
    one.settle()
    return one


def there(one: Elements) -> list[str]:
    return list(one.views)


def run(one: Elements, *names: str) -> Elements:
    for name in names:
        one.pods(name, running=2)
    return one


def told(one: Elements) -> str:
    explanation = explain_of(one.spec, one.state, one.now)
    return " | ".join([explanation.why, explanation.now, *(each.what for each in explanation.next)])


def attempt_of(one: Elements) -> Attempt:
    assert one.state.attempt is not None
    return one.state.attempt


@ROW("J13", level="pure")
def test_J13_each_is_created_as_soon_as_what_it_waits_for_is_ready():
    one = begun()
    assert there(one) == ["first", "free"]
    one.pods("first", running=1)
    assert there(one) == ["first", "free"], "one of its two pods is not all"
    run(one, "first")
    assert there(one) == ["first", "free", "second"]
    run(one, "second")
    assert there(one) == ["first", "free", "second", "third"]
    assert one.state.phase is Phase.RESUMING
    run(one, "free", "third")
    assert (one.state.phase, attempt_of(one).waiting, attempt_of(one).launches) == (Phase.RUNNING, (), {})
    made = [kind for kind, _, _ in one.ran if kind in {OperationKind.CREATE, OperationKind.REPLACE}]
    assert made == [OperationKind.CREATE, OperationKind.REPLACE, OperationKind.REPLACE]


@ROW("J13", level="pure")
def test_J13_it_is_not_told_to_run_before_the_last_that_was_only_to_be_ready_runs():
    one = begun()
    run(one, "free", "first")
    assert (one.state.phase, attempt_of(one).ready_at) == (Phase.RESUMING, None)
    run(one, "second")
    assert one.state.phase is Phase.RESUMING
    run(one, "third")
    assert one.state.phase is Phase.RUNNING
    assert one.phases.count(Phase.RUNNING) == 1


@ROW("J13", level="pure")
def test_J13_ready_is_not_complete_and_complete_is_ready():
    one = begun(chain(COMPLETE))
    run(one, "first", "free")
    assert (there(one), one.state.phase) == (["first", "free"], Phase.RUNNING), "what is not created is not expected"
    one.says(first="Complete")
    assert there(one) == ["first", "free", "second"]
    ready = begun()
    ready.says(first="Complete")
    assert "second" in there(ready)


@ROW("J13", level="pure")
def test_J13_all_that_it_waits_for_must_be_there():
    one = begun(jobs("a", "b", after("c", "a", "b"), policy=POLICY))
    run(one, "a")
    assert "c" not in there(one)
    run(one, "b")
    assert "c" in there(one)


@ROW("J13", level="pure")
def test_J13_what_has_no_pods_is_ready_once_it_is_there():
    given = jobs(config(), after("reader", "adl"), policy=POLICY)
    one = begun(given)
    one.tell(Observed(one.look()))
    assert there(one) == ["adl", "reader"]


@ROW("J13", level="pure")
def test_J13_what_waits_is_neither_missing_nor_late_nor_expected():
    one = begun()
    run(one, "free")
    one.pods("first", pending=2)
    one.views = {**one.views, "second": ComponentView(found=False, pods=PodCounts(expected=2))}
    one.tell(Observed(one.look()))
    assert (one.state.unhealthy, one.state.restarts) == (None, 0), "that it is not there is no news"
    assert status_of(one.spec, one.state, one.now, "uid").pods.expected == 4
    one.views.pop("second")
    one.pods("first", running=1, pending=1)
    one.after(minutes=5)
    assert one.state.unhealthy is not None
    assert one.state.unhealthy.failure.message == "1 of 4 pods did not run in time"
    assert one.state.unhealthy.failure.component == ""


@ROW("J13", level="pure")
def test_J13_graces_count_from_its_own_creation():
    one = begun()
    run(one, "free")
    one.after(minutes=4)
    run(one, "first")
    assert there(one) == ["first", "free", "second"]
    one.after(minutes=4, seconds=59)
    assert one.state.unhealthy is None
    one.after(seconds=1)
    assert one.state.unhealthy is not None
    assert (one.state.unhealthy.failure.component, one.state.unhealthy.failure.reason) == ("second", "PodsNotRunning")


@ROW("J13", level="pure")
def test_J13_the_order_is_kept_in_each_attempt():
    one = begun()
    run(one, "first", "second", "third", "free")
    assert one.state.phase is Phase.RUNNING
    one.deleted("third")
    one.after(seconds=90)
    assert (one.attempt, there(one)) == (2, ["first", "free"])
    assert attempt_of(one).waiting == ("second", "third")
    run(one, "first")
    assert there(one) == ["first", "free", "second"]


@ROW("J13", level="pure")
@pytest.mark.parametrize("event", [Suspended(), Cancelled()])
def test_J13_what_ends_an_attempt_ends_its_order(event: Suspended | Cancelled):
    one = begun()
    one.tell(event)
    one.after(hours=1)
    assert "second" not in there(one)
    assert one.kinds()[-1] == "remove"
    if isinstance(event, Suspended):
        one.tell(Resumed())
        assert attempt_of(one).waiting == ("second", "third")


@ROW("J13", level="pure")
def test_J13_suspended_while_it_is_created_the_creation_is_broken_off():
    one = begun()
    one.hold.add(OperationKind.REPLACE)
    run(one, "first")
    assert (one.state.operation and one.state.operation.kind) is OperationKind.REPLACE
    one.tell(Suspended())
    assert one.state.phase is Phase.SUSPENDED


@ROW("J13", level="pure")
def test_J13_one_deleted_after_it_was_created_is_missing():
    one = begun()
    run(one, "first", "free", "second")
    one.deleted("second")
    assert (one.state.reason, one.state.restarts) == (Reason.RESETTING, 1)


@ROW("J13", level="pure")
def test_J13_what_is_made_again_is_not_ready_meanwhile():
    rule = Rule(name="alone", action=Action(unit="Component", grace=False))  # type: ignore[arg-type]
    spec = jobs("first", after("second", "first", status=COMPLETE), policy=Policy(rules=(LAUNCH, rule)))
    one = begun(spec)
    run(one, "first")
    one.hold.add(OperationKind.REPLACE)
    one.says(first="Failed")
    assert (one.launches(), attempt_of(one).replacing) == ({"first": 1}, ("first",))
    one.says(first="Complete")
    assert "second" in attempt_of(one).waiting
    one.hold.clear()
    one.finish()
    one.settle()
    one.says(first="Complete")
    assert (there(one), one.launches()) == (["first", "second"], {"first": 1})


@ROW("J13", level="pure")
def test_J13_one_that_cannot_be_created_is_ruled_as_any_other():
    one = begun()
    one.hold.add(OperationKind.REPLACE)
    run(one, "first", "free")
    failure = {"cls": "Launch", "scope": "Component", "reason": "Invalid", "component": "second", "time": one.now}
    one.ends(Replaced(failure=failure_of(failure)))
    assert (one.state.phase, one.state.reason) == (Phase.FAILED, Reason.CREATE_FAILED)


def failure_of(fields: dict[str, Any]) -> Failure:
    return Failure(**fields, attempt=1)


@ROW("J13", level="pure")
def test_J13_explain_says_what_waits_for_what_and_the_causes_why_it_went_on():
    one = begun()
    assert (one.state.phase, one.state.reason) == (Phase.RESUMING, Reason.STARTING)
    waits = "Job second is created once Job first is ready; Job third is created once Job second is ready"
    assert one.state.message == waits
    assert f"0 of 4 pods running; {waits}" in told(one)
    one.hold.add(OperationKind.REPLACE)
    run(one, "first")
    assert "creating Job second" in told(one)
    one.hold.clear()
    one.finish()
    one.settle()
    assert "Job third is created once Job second is ready" in told(one)
    said = [each.message for each in one.state.causes if each.reason is Reason.STARTING]
    assert said == ["Job first is ready: creating Job second"]
    run(one, "second", "third", "free")
    assert "is created once" not in told(one)


@ROW("J13", level="pure")
def test_J13_it_succeeds_only_with_all_of_them():
    one = begun(chain(COMPLETE))
    for name in ("free", "first", "second"):
        one.says(**{name: "Complete"})
        assert one.state.outcome is None
    one.says(third="Complete")
    assert one.state.phase is Phase.SUCCEEDED


@ROW("J13", level="pure")
def test_J13_the_order_survives_a_new_run_at_any_point():
    one = begun()
    run(one, "first", "free")
    for state in one.states:
        assert State.model_validate_json(state.model_dump_json(by_alias=True)) == state


@ROW("J13", level="pure")
def test_J13_a_configuration_that_changes_while_it_waits_makes_nothing_again():
    one = begun()
    changed = after("second", "first").model_copy(
        update={"template": {**after("second", "first").template, "spec": {"suspend": False}}}
    )
    one.configured(changed)
    assert (there(one), one.launches()) == (["first", "free"], {})
    run(one, "first", "free")
    assert (there(one), one.launches()) == (["first", "free", "second"], {})
    one.after(hours=1)
    assert one.launches() == {}


@ROW("J13", level="pure")
@ROW("S8", level="pure")
def test_J13_a_configuration_that_changes_while_others_are_made_again_starts_nothing_before_its_turn():
    one = begun(jobs(element(0), element(1, after=(After(component="pe-0", status=COMPLETE),)), element(2)))
    one.state = edit(one.state, policy=STREAMS, shows_waits=True)
    one.up()
    one.hold = {OperationKind.REPLACE}
    one.deleted("pe-2")
    assert (attempt_of(one).replacing, attempt_of(one).waiting) == (("pe-2",), ("pe-1",))
    one.configured(element(1, "pe:2", after=(After(component="pe-0", status=COMPLETE),)))
    operation = one.state.operation
    assert operation is not None
    assert (operation.launches, operation.interrupted) == ({"pe-2": 1}, False)
    assert (attempt_of(one).replacing, attempt_of(one).waiting) == (("pe-2",), ("pe-1",))
    one.configured(element(2, "pe:2"))
    assert attempt_of(one).launches == {"pe-2": 2}, "what is being made again is made from the latest"
    one.hold.clear()
    one.finish()
    one.settle()
    assert there(one) == ["pe-0", "pe-2"]
    one.says(**{"pe-0": "Complete"})
    assert (there(one), attempt_of(one).launches) == (["pe-0", "pe-2", "pe-1"], {"pe-2": 2})
    one.after(hours=1)
    assert attempt_of(one).launches == {"pe-2": 2}


def refusal(*components: Component | str) -> str:
    with pytest.raises(ValidationError) as caught:
        jobs(*components)
    return str(caught.value)


@ROW("J13", level="pure")
@pytest.mark.parametrize(
    ("components", "text"),
    [
        (
            ("a", after("b", "nobody")),
            "components[1].after[0].component: 'nobody' names no component",
        ),
        ((after("a", "a"),), "components[0].after[0].component: 'a' would wait for itself"),
        (("a", after("b", "a", "a")), "components[1].after[1].component: 'a' is given twice"),
        (
            ("a", after("b", "a", "d"), after("c", "b"), after("d", "c")),
            "components[1].after[1].component: 'd': these wait for each other for ever: b, c, d",
        ),
        ((config(), after("b", "adl", status=COMPLETE)), "ConfigMap adl has no pods and says nothing of its end"),
    ],
)
def test_J13_an_order_that_cannot_be_kept_is_refused_with_its_path(components: tuple[Any, ...], text: str):
    assert text in refusal(*components)


def test_a_workload_without_an_order_is_written_and_created_as_before():
    spec = jobs("a", "b")
    assert "after" not in spec.model_dump_json(by_alias=True).replace("resetAfter", "")
    one = begun(spec)
    assert (there(one), attempt_of(one).waiting, one.kinds()) == (["a", "b"], (), ["prepare", "create"])
    assert one.now - attempt_of(one).begun_at == timedelta(0)
    assert fresh(job("a")).awaited is False


@ROW("J13", level="pure")
def test_J13_what_runs_is_not_all_while_a_job_does_not_say_yet_that_it_is_ready():
    after = (After(component="driver", status=StartStatus.READY),)
    one = Elements(spec=jobs(job("driver", 1, copies=1), job("worker", 1, after=after)))
    one.settle()
    pods, copies = PodCounts(expected=1, running=1), CopyCounts(expected=1, ready=0)
    one.views = {"driver": ComponentView(pods=pods, copies=copies)}
    one.tell(Observed(one.look()))
    assert one.state.phase is Phase.RESUMING, "nothing is made yet of what waits for it"
