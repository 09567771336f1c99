"""What of a workload stays once it has ended, and what is deleted then (row J12), on virtual time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.model import (
    Action,
    ActionKind,
    AtEnd,
    ComponentView,
    ConditionType,
    CopyCounts,
    Deletion,
    Evidence,
    Failure,
    FailureClass,
    Observation,
    OperationKind,
    Phase,
    PodCounts,
    Policy,
    Reason,
    Scope,
    Success,
    SuccessOperator,
    Timings,
)
from holdfast.model.calls.cluster import Cleared, Created
from holdfast.model.entities.graph import Place
from holdfast.policy.attempt.ending import active_in, idle
from holdfast.policy.attempt.evidence import evidence_of
from holdfast.policy.loop.fold import fold
from holdfast.policy.status.blocked import owed
from holdfast.policy.status.explain import explain_of, status_of
from holdfast.policy.status.report import quota_in
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import (
    Cancelled,
    GraphTold,
    Observed,
    OperationInterrupted,
    PolicyChanged,
    Retried,
    Suspended,
)
from holdfast.policy.values.steps import Sleep
from holdfast.workflows.operations.dispatch import call_of
from tests.policy.attempt.test_order import after
from tests.policy.lives.elements import Elements, config, element, job, jobs

ROW = pytest.mark.row
FAILS = Action(kind=ActionKind.FAIL, charge=None, grace=False)
ACTIVE = Deletion(at_end=AtEnd.ACTIVE)
HOUR = timedelta(hours=1)


def policy(*, ttl: timedelta | None = HOUR, operator: SuccessOperator = SuccessOperator.ANY, **fields: Any) -> Policy:
    given: dict[str, Any] = {
        "success": Success(operator=operator),
        "deletion": ACTIVE,
        "default": FAILS,
        "timings": Timings(success_ttl=ttl, deletion_on_failure_grace_period=ttl),
    }
    return Policy(**(given | fields))


def life(given: Policy | None = None, *components: Any, hold: bool = False) -> Elements:
    spec = jobs(*(components or ("driver", "worker", "helper")), policy=given or policy())
    return Elements(spec=spec, hold={OperationKind.CLEAR} if hold else set()).up()


def quota(one: Elements) -> bool:
    told = {each.type: each.status for each in status_of(one.spec, one.state, one.now, "uid").conditions}
    return told[ConditionType.QUOTA_RESERVED]


def deleting(one: Elements) -> tuple[bool, str] | None:
    found = status_of(one.spec, one.state, one.now, "uid").conditions
    each = next((each for each in found if each.type is ConditionType.DELETING_RESOURCES), None)
    return (each.status, each.reason) if each is not None else None


def ends(one: Elements, how: str) -> Elements:
    """Let one Job end, and its pods with it."""
    done = PodCounts(expected=2, succeeded=2) if how == "success" else PodCounts(expected=2)
    one.views["driver"] = edit(one.views["driver"], pods=done)
    return one.says(driver="Complete" if how == "success" else "Failed")


@ROW("J12", level="pure")
@pytest.mark.parametrize("how", ["success", "failure"])
def test_J12_at_the_end_what_is_active_is_deleted_and_the_rest_stays_until_its_time_is_over(how: str):
    one = ends(life(), how)
    outcome = Phase.SUCCEEDED if how == "success" else Phase.FAILED
    assert (one.state.phase, one.kinds()[-1]) == (outcome, "clear")
    attempt = one.state.attempt
    assert attempt is not None
    assert (attempt.cleared, attempt.removing_at) == (True, None)
    assert one.reasons()[-2:] == ["DeletionInitiated", "DeletionComplete"]
    assert one.state.causes[-2].message == (
        "deleting what is still active of Job worker, Job helper; what has ended is kept"
    )
    assert "remove" not in one.kinds()
    one.after(hours=2)
    assert (one.ended, one.kinds()[-1]) == (outcome, "remove")


@ROW("J12", level="pure")
@pytest.mark.parametrize("how", ["success", "failure"])
def test_J12_quota_is_kept_until_what_was_active_is_gone_and_then_let_go_although_the_rest_stays(how: str):
    one = ends(life(hold=True), how)
    assert one.state.operation is not None
    assert one.state.operation.kind is OperationKind.CLEAR
    assert quota(one)
    assert quota_in(one.state.operation.report), "told when it begins"
    done = one.state.operation.report_done
    assert done is not None
    assert not quota_in(done), "told by the same operation when it ends"
    assert deleting(one) == (True, Reason.DELETION_INITIATED)
    one.ends(Cleared(done=True))
    assert not quota(one)
    assert deleting(one) == (False, Reason.DELETION_COMPLETE)
    one.tell(Cancelled())
    assert not any(quota_in(state.told) for state in one.states[-3:] if state.told is not None), "it is not taken again"


@ROW("J12", level="pure")
def test_J12_what_all_ended_by_itself_needs_no_deletion():
    one = life(policy(operator=SuccessOperator.ALL)).pods(succeeded=2)
    assert one.state.phase is Phase.SUCCEEDED
    assert OperationKind.CLEAR not in [kind for kind, _, _ in one.ran]
    assert "DeletionInitiated" not in one.reasons()
    assert not quota(one)


@ROW("J12", level="pure")
@pytest.mark.parametrize("how", ["success", "failure"])
def test_J12_by_default_all_of_it_stays_and_nothing_is_deleted_alone(how: str):
    one = ends(life(policy(deletion=Deletion())), how)
    assert OperationKind.CLEAR not in [kind for kind, _, _ in one.ran]
    assert quota(one)
    assert one.state.attempt is not None
    assert "cleared" not in one.state.attempt.model_dump(by_alias=True)
    assert "deletion" not in one.state.policy.model_dump(by_alias=True)


def test_J12_where_nothing_is_held_all_of_it_is_removed_at_once():
    one = ends(life(policy(ttl=timedelta(0))), "failure")
    assert (one.ended, OperationKind.CLEAR in [kind for kind, _, _ in one.ran]) == (Phase.FAILED, False)


def test_J12_without_an_end_of_its_time_it_stays_until_somebody_cancels_it():
    one = ends(life(policy(ttl=None)), "success").after(days=400)
    assert one.ended is None
    assert isinstance(one.step, Sleep)
    one.tell(Cancelled())
    assert one.ended is Phase.SUCCEEDED


@ROW("J12", level="pure")
@ROW("A13", level="pure")
def test_J12_what_hangs_as_it_is_deleted_goes_with_the_rest_when_a_changed_time_is_over():
    one = life(policy(ttl=None), hold=True)
    one.state = edit(one.state, shows_waits=True)
    due = ends(one, "success").now + HOUR
    one.after(minutes=9).tell(PolicyChanged(policy(ttl=HOUR)))
    assert isinstance(one.step, Sleep)
    assert one.step.until == due
    assert one.state.operation is not None
    assert (one.state.operation.kind, one.state.operation.interrupted) == (OperationKind.CLEAR, False)
    one.after(minutes=52)
    assert (one.ended, one.kinds()[-1]) == (Phase.SUCCEEDED, "remove")


@ROW("J12", level="pure")
def test_J12_of_copies_each_stays_or_goes_by_itself():
    one = life(None, job("driver"), job("worker", 1, copies=4))
    counts = CopyCounts(expected=4, succeeded=2, failed=1, active=1)
    view = ComponentView(pods=PodCounts(expected=4, running=1, succeeded=2), copies=counts, failed=True)
    one.views["worker"] = view
    one.hold = {OperationKind.CLEAR}
    one.says(driver="Complete")
    assert active_in(one.spec, one.state) == ("worker",)
    one.ends(Cleared(done=True))
    seen = status_of(one.spec, one.state, one.now, "uid").copies["worker"]
    assert (seen.succeeded, seen.failed, seen.active) == (2, 1, 0)
    done = edit(view, copies=edit(counts, active=0, succeeded=3))
    one.tell(Observed(edit(one.look(), components={**one.views, "worker": done})))
    assert active_in(one.spec, one.state) == ()


def test_what_brings_no_pods_and_what_has_failed_is_not_active():
    one = life(None, job("driver"), config(), element(1), element(2), hold=True)
    one.pods("pe-1", failed=1)
    one.pods("pe-2", running=1)
    assert one.state.phase is Phase.FAILED
    assert active_in(one.spec, one.state) == ("driver", "pe-2")


def test_J12_the_time_may_be_over_while_what_is_active_still_goes():
    one = ends(life(hold=True), "success")
    operation = one.state.operation
    assert operation is not None
    assert operation.until == one.now + HOUR
    one.now += HOUR
    one.ends(Cleared(done=False))
    assert (one.ended, one.kinds()[-2:]) == (Phase.SUCCEEDED, ["clear", "remove"])


@ROW("J12", level="pure")
@ROW("J15", level="pure")
@pytest.mark.parametrize("cleared", [True, False])
@pytest.mark.parametrize("ttl", [HOUR, None])
def test_J12_a_suspension_removes_nothing_that_is_kept_after_a_failure(ttl: timedelta | None, cleared: bool):
    one = life(policy(ttl=ttl), hold=True)
    one.state = edit(one.state, shows_waits=True)
    ends(one, "failure")
    if cleared:
        one.ends(Cleared(done=True))
    one.tell(Suspended())
    if not cleared:
        one.ends(Cleared(done=True))
    assert (one.state.phase, one.kinds()[-1]) == (Phase.FAILED, "clear")
    assert not quota(one), "what is active is released all the same"
    one.after(hours=2)
    assert ("remove" in one.kinds()) is (ttl is not None)


@ROW("A12", level="pure")
def test_A12_a_suspension_ends_the_hold_of_what_is_kept_whole():
    one = ends(life(policy(deletion=Deletion())), "failure")
    one.state = edit(one.state, shows_waits=True)
    one.tell(Suspended())
    assert one.kinds()[-1] == "remove"


def test_a_run_of_an_earlier_release_still_removes_all_at_a_suspension():
    one = ends(life(hold=True), "failure")
    one.tell(Suspended())
    assert one.kinds()[-2:] == ["clear", "remove"]


@pytest.mark.parametrize("event", [Cancelled(), Retried()])
def test_a_wish_breaks_off_the_deletion_of_what_is_active_and_removes_all(event: Any):
    one = ends(life(hold=True), "failure")
    one.hold = {OperationKind.REMOVE}
    one.tell(event)
    assert one.kinds()[-2:] == ["clear", "remove"]
    assert quota(one), "nothing is proven gone yet"
    assert one.state.attempt is not None
    assert not one.state.attempt.cleared


def test_a_broken_off_deletion_is_begun_again():
    one = ends(life(hold=True), "success")
    one.ends(OperationInterrupted())
    assert one.kinds()[-2:] == ["clear", "clear"]
    assert one.state.attempt is not None
    assert one.state.attempt.cleared


def test_J12_what_is_being_made_again_is_broken_off_first():
    one = life(policy(default=Action(grace=False, charge=None, unit="Component")))  # type: ignore[arg-type]
    one.hold = {OperationKind.REPLACE, OperationKind.CLEAR}
    one.says(worker="Failed")
    assert one.state.operation is not None
    assert one.state.operation.kind is OperationKind.REPLACE
    one.says(helper="Complete")
    assert one.state.phase is Phase.SUCCEEDED
    assert one.kinds()[-2:] == ["replace", "clear"]
    assert one.state.attempt is not None
    assert one.state.attempt.replacing == ()


def test_what_was_made_too_late_is_deleted_too():
    one = ends(life(), "success")
    assert one.kinds()[-1] == "clear"
    late = edit(one.views["worker"], uid="late", pods=PodCounts(expected=2, running=1))
    one.views["worker"] = late
    one.tell(Observed(one.look()))
    assert one.kinds()[-2:] == ["clear", "clear"]
    assert one.state.causes[-2].message == "Job worker: made too late, and deleted"


def test_what_was_not_made_yet_is_not_active():
    one = Elements(spec=jobs("driver", after("worker", "driver"), policy=policy())).settle()
    assert active_in(one.spec, one.state) == ("driver",)


def test_what_is_gone_is_shown_as_idle_and_what_has_ended_as_it_was():
    kept = ComponentView(complete=True, pods=PodCounts(expected=1, running=1))
    gone = ComponentView(pods=PodCounts(expected=2, running=1, pending=1))
    seen = Observation(workload_uid="u", attempt=1, owner_uid="o", at=Elements().now, components={"a": kept, "b": gone})
    after = idle(seen)
    assert after.components["a"] == kept, "a cluster that idles on after its job still holds its quota"
    assert after.components["b"].pods == PodCounts(expected=2)


def test_explain_says_what_is_deleted_and_what_is_kept():
    one = ends(life(hold=True), "success")
    told = explain_of(one.spec, one.state, one.now)
    assert told.now == (
        "deleting what is still active of Job worker, Job helper; what has ended is kept, "
        "and its quota until that is gone"
    )
    assert [each.what for each in told.next] == ["success TTL ends, then its resources are removed"]
    one.ends(Cleared(done=True))
    assert explain_of(one.spec, one.state, one.now).now == ("it has succeeded; its resources are kept")


def test_J12_a_set_that_failed_before_all_of_it_was_made_is_cleared_too():
    one = Elements(spec=jobs("driver", "worker", policy=policy()), hold={OperationKind.CREATE})
    one.settle()
    failure = Failure(
        cls=FailureClass.LAUNCH, scope=Scope.COMPONENT, reason="Invalid", time=one.now, component="worker", attempt=1
    )
    one.ends(Created(failure=failure))
    assert (one.state.phase, one.kinds()[-1]) == (Phase.FAILED, "clear")
    assert not quota(one)


@ROW("J12", level="pure")
@pytest.mark.parametrize("how", ["success", "failure"])
def test_J12_quota_is_kept_while_it_is_deleted_also_where_no_pod_was_seen(how: str):
    """A Job that has no pod yet may bring some until it is gone."""
    one = life(hold=True)
    for name in ("worker", "helper"):
        one.views[name] = edit(one.views[name], pods=PodCounts(expected=2))
    ends(one, how)
    assert quota(one)
    one.ends(Cleared(done=True))
    assert not quota(one)


def test_a_deletion_that_came_back_undone_has_told_nothing_of_its_end():
    one = ends(life(hold=True), "success")
    operation = one.state.operation
    assert operation is not None
    after = fold(one.state, Cleared(done=False), one.now)
    assert after.told == operation.report, "its good end's report never reached the cluster"
    assert after.attempt is not None
    assert not after.attempt.cleared


def test_one_whose_preparation_was_refused_has_nothing_to_delete():
    one = Elements(spec=jobs("driver", policy=policy()), hold={OperationKind.PREPARE})
    one.settle()
    one.refused("Refused", "may not create jobs.batch")
    assert one.state.phase is Phase.FAILED
    assert "clear" not in one.kinds()


@ROW("L31", level="pure")
@pytest.mark.parametrize("in_graph", [True, False])
def test_L31_one_that_its_graph_counts_as_gone_is_begun_anew_by_no_retry(in_graph: bool):
    spec = jobs("driver", "worker", policy=policy(), graph=Place(graph="etl", item="train") if in_graph else None)
    one = Elements(spec=spec).up()
    for outcome in (False, True):
        if outcome:
            ends(one, "failure")
        news = owed(one.spec, one.state, "uid")
        assert (news is not None) is in_graph
        if news is not None:
            assert news.released is outcome
            one.tell(GraphTold(news))
    assert one.state.outcome is Phase.FAILED
    one.tell(Retried("again"))
    assert one.state.attempt is not None
    assert (one.state.attempt.number, one.state.outcome) == ((1, Phase.FAILED) if in_graph else (2, None))
    assert owed(one.spec, one.state, "uid") is None, "what excludes it may run by now"
    if in_graph:
        assert one.state.causes[-1].message.endswith("its graph counts it as ended: submit the graph again")


KEPT = Evidence(link="s3://kept/attempt-1", digest="0" * 64, size=900, pods=2, logs=3)


@ROW("P3", level="pure")
@pytest.mark.parametrize(("how", "asked"), [("success", None), ("failure", ("driver-0",))])
def test_P3_evidence_of_a_failure_is_asked_for_before_what_is_active_goes(how: str, asked: tuple[str, ...] | None):
    one = ends(life(hold=True), how)
    seen = one.state.observation
    assert seen is not None
    decided = tuple(edit(each, scope=Scope.MEMBER, subject="driver-0") for each in seen.failures)
    state = edit(one.state, observation=edit(seen, failures=decided))
    assert call_of(one.spec, state, "uid", one.now).argument.evidence_of == asked


@ROW("P3", level="pure")
@pytest.mark.parametrize("done", [True, False])
def test_P3_what_was_kept_before_the_deletion_is_told_and_not_taken_again(done: bool):
    one = ends(life(hold=True), "failure")
    one.ends(Cleared(done=done, evidence=KEPT))
    assert one.kinds()[-1] == "clear", "no operation more"
    assert explain_of(one.spec, one.state, one.now).kept == KEPT.sentence()
    if done:
        assert one.state.causes[-1].reason is Reason.DELETION_COMPLETE
        assert one.state.causes[-1].message.endswith(KEPT.sentence())
    assert evidence_of(one.state) is None
