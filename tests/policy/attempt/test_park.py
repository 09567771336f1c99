"""Suspended where it is: the same attempt, without a pod, and resumed with what it had (rows J14, J20)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.model import (
    Action,
    ActionKind,
    Budget,
    Component,
    ConditionType,
    CopyCounts,
    Deletion,
    FailureClass,
    Match,
    OperationKind,
    Phase,
    Policy,
    Reason,
    Rule,
    Scope,
    StartStatus,
    SuspendMode,
    Timings,
    Workload,
)
from holdfast.model.calls.cluster import Parked, Reported, Unparked
from holdfast.policy.attempt.park import park, parked, waits_to_return
from holdfast.policy.loop.fold import fold, observed
from holdfast.policy.status.explain import explain_of, status_of
from holdfast.policy.status.report import quota_in
from holdfast.policy.values.decision import Suspend
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Cancelled, Observed, OperationInterrupted, Resumed, Suspended
from holdfast.policy.verdicts.progress import stall
from tests.fakes.ledger import Kind
from tests.policy.attempt.test_order import after
from tests.policy.lives.elements import Elements, config, element, job, jobs
from tests.policy.lives.play import Play
from tests.policy.lives.submitted import PARKED_ORDERED

ROW = pytest.mark.row
MISSING = Rule(
    name="missing",
    match=Match(classes=(FailureClass.MISSING,), scopes=(Scope.COMPONENT,)),
    action=Action(unit=Scope.COMPONENT, charge=None, grace=False),
)
FAILED = Rule(
    name="failed",
    match=Match(classes=(FailureClass.APP,), scopes=(Scope.COMPONENT,)),
    action=Action(charge="restart", grace=False),
)
POLICY = Policy(
    rules=(MISSING, FAILED),
    default=Action(kind=ActionKind.IGNORE, charge=None, grace=False),
    budgets=(Budget(name="restart", limit=2),),
    timings=Timings(retry_pause_period=timedelta(0)),
    deletion=Deletion(suspend=SuspendMode.IN_PLACE),
)
GRACES = edit(POLICY, rules=(MISSING,), default=Action())


def life(*components: Component | str, policy: Policy = POLICY, hold: OperationKind | None = None) -> Elements:
    spec = jobs(*(components or ("driver", "worker")), policy=policy)
    return Elements(spec=spec, hold={hold} if hold else set()).up()


def quota(one: Elements) -> bool:
    return condition(one, ConditionType.QUOTA_RESERVED)


def condition(one: Elements, type_: ConditionType) -> bool:
    told = {each.type: each.status for each in status_of(one.spec, one.state, one.now, "uid").conditions}
    return told[type_]


def attempt(one: Elements) -> Any:
    assert one.state.attempt is not None
    return one.state.attempt


def explained(one: Elements) -> str:
    found = explain_of(one.spec, one.state, one.now)
    return " | ".join([found.now, *(each.what for each in found.next), found.unblock])


@ROW("J14", level="pure")
def test_J14_it_is_suspended_where_it_is_and_goes_on_as_the_same_attempt():
    one = life()
    one.tell(Suspended("make room"))
    assert (one.state.phase, one.attempt, one.kinds()[-1]) == (Phase.SUSPENDED, 1, "park")
    assert not {"remove", "force_remove"} & set(one.kinds())
    assert one.reasons()[-1] == "SuspendedInPlace"
    one.tell(Resumed())
    assert (one.state.phase, one.attempt, one.kinds()[-2:]) == (Phase.RESUMING, 1, ["unpark", "observe"])
    assert (attempt(one).parking, attempt(one).parking_at) == (None, None)
    assert not condition(one, ConditionType.PODS_READY)
    one.pods(running=2)
    assert (one.state.phase, one.state.executions, one.state.restarts) == (Phase.RUNNING, 1, 0)
    assert one.kinds().count("create") == 1


@ROW("P2", level="pure")
@pytest.mark.parametrize("shows_waits", [True, False])
@pytest.mark.parametrize("cls", [FailureClass.NO_PROGRESS, FailureClass.APP])
def test_P2_what_is_suspended_where_it_is_does_not_stand_still(cls: FailureClass, shows_waits: bool):
    one = life()
    one.state = edit(one.state, shows_waits=shows_waits)
    told = edit(stall(1, one.now), cls=cls)
    state = park(one.spec, edit(one.state, attempt=edit(attempt(one), told=told)), one.now)
    assert state.attempt is not None
    ends = shows_waits and cls is FailureClass.NO_PROGRESS
    assert state.attempt.told == (None if ends else told), "workflows of 0.2 keep it"


@ROW("J14", level="pure")
def test_J14_its_quota_is_let_go_only_once_no_pod_is_left_and_taken_again_as_it_is_resumed():
    one = life(hold=OperationKind.PARK)
    one.tell(Suspended("make room", preempted=True))
    assert (one.state.phase, quota(one)) == (Phase.SUSPENDING, True)
    operation = one.state.operation
    assert operation is not None
    assert quota_in(operation.report)
    assert operation.report_done is not None
    assert not quota_in(operation.report_done), "told by the same operation once it is proven"
    assert one.state.preempted_at is not None
    assert explained(one) == (
        "suspending Job driver, Job worker in place: 4 pods left; its quota is kept until no pod is left | "
        "pods that have not ended by then are deleted by force | "
        "once no pod is left: the workload's quota is released, and the workload waits for resume | "
    )
    one.ends(Parked(done=True))
    assert (one.state.phase, one.state.reason, quota(one)) == (Phase.SUSPENDED, Reason.PREEMPTED, False)
    assert one.state.preempted_at is None
    assert not condition(one, ConditionType.PODS_READY)
    assert explained(one) == (
        "Job driver, Job worker: suspended in place, no pod is left; its quota is released | "
        "`holdfast resume default/train-llm`"
    )
    one.hold = {OperationKind.UNPARK}
    one.tell(Resumed())
    assert (one.state.phase, quota(one)) == (Phase.RESUMING, True)
    assert explained(one).startswith("resuming Job driver, Job worker in place")
    assert one.state.message == "resuming Job driver, Job worker in place"


@ROW("J20", level="pure")
def test_J20_budgets_are_what_they_were():
    one = life()
    one.says(worker="Failed")
    one.up()
    assert (one.attempt, one.state.used, one.state.restarts) == (2, {"restart": 1}, 1)
    one.tell(Suspended()).tell(Resumed())
    one.up()
    assert (one.attempt, one.state.used, one.state.restarts, one.state.executions) == (2, {"restart": 1}, 1, 2)
    one.says(worker="Failed")
    one.up()
    one.tell(Suspended()).tell(Resumed())
    one.up()
    one.says(worker="Failed")
    assert (one.state.outcome, one.state.reason) == (Phase.FAILED, Reason.RETRY_LIMIT_EXCEEDED)


@ROW("J20", level="pure")
def test_J20_health_before_a_suspension_renews_and_suspension_itself_is_no_health():
    policy = edit(POLICY, budgets=(Budget(name="restart", limit=2, reset_after=timedelta(hours=1)),))
    one = life(policy=policy)
    one.says(worker="Failed")
    one.up()
    one.after(minutes=50)
    one.tell(Suspended())
    one.after(hours=5)
    one.tell(Resumed())
    one.up()
    assert one.state.used == {"restart": 1}
    one.after(hours=1)
    one.tell(Suspended())
    assert one.state.used == {}


@ROW("J14", level="pure")
def test_J14_what_fails_or_is_missing_meanwhile_is_noticed_once_it_is_resumed():
    one = life()
    one.tell(Suspended())
    one.deleted("worker")
    assert (one.state.phase, one.state.unhealthy) == (Phase.SUSPENDED, None)
    one.tell(Resumed())
    assert [kind for kind in one.kinds() if kind != "observe"][-3:] == ["park", "unpark", "replace"]
    assert (one.attempt, one.launches(), one.state.used) == (1, {"worker": 1}, {})


def test_pods_that_go_by_a_suspension_are_no_failure_although_rules_mind_missing_pods():
    one = life(policy=GRACES, hold=OperationKind.PARK)
    one.tell(Suspended())
    one.pods("worker", running=0)
    one.after(hours=2)
    assert (one.state.phase, one.state.unhealthy, one.state.used) == (Phase.SUSPENDING, None, {})
    one.ends(Parked(done=True)).after(days=3)
    assert (one.state.phase, one.state.unhealthy, one.kinds()[-1]) == (Phase.SUSPENDED, None, "park")
    one.tell(Resumed())
    assert one.waits_for.startswith("warm-up grace"), "they have their graces anew"
    one.after(minutes=4)
    assert one.state.unhealthy is None
    one.after(minutes=2)
    assert (one.attempt, one.state.used) == (2, {"restart": 1}), "and no longer"


@pytest.mark.parametrize("when", ["going", "parked", "coming"])
def test_a_cancellation_removes_all_of_it_whenever_it_comes(when: str):
    one = life(hold=OperationKind.PARK if when == "going" else None)
    one.tell(Suspended())
    if when == "coming":
        one.hold = {OperationKind.UNPARK}
        one.tell(Resumed())
    assert one.ended is None
    one.tell(Cancelled())
    assert (one.ended, one.kinds()[-1]) == (Phase.CANCELLED, "remove")
    assert (attempt(one).parking, attempt(one).parked) == (None, ())


def test_resumed_while_it_is_being_suspended_it_goes_back_at_once():
    one = life(hold=OperationKind.PARK)
    one.tell(Suspended())
    one.tell(Resumed())
    assert one.kinds()[-3:] == ["park", "unpark", "observe"]
    assert (one.state.phase, one.attempt, attempt(one).turns) == (Phase.RUNNING, 1, 2)


def test_suspended_while_it_is_being_resumed_it_goes_back_at_once():
    one = life()
    one.tell(Suspended())
    one.hold = {OperationKind.UNPARK}
    one.tell(Resumed())
    one.tell(Suspended("again"))
    assert (one.state.phase, one.kinds()[-2:]) == (Phase.SUSPENDED, ["unpark", "park"])
    assert attempt(one).turns == 3
    one.hold.clear()
    one.tell(Resumed())
    one.pods(running=2)
    assert (one.state.phase, one.attempt, attempt(one).turns) == (Phase.RUNNING, 1, 4)


def test_a_second_suspension_changes_only_what_is_told_of_it():
    one = life(hold=OperationKind.PARK)
    one.tell(Suspended())
    one.tell(Suspended("a larger job needs the nodes", preempted=True))
    assert attempt(one).turns == 1
    assert one.kinds()[-2:] == ["park", "park"], "begun anew, since it tells another reason at its end"
    one.ends(Parked(done=True))
    assert (one.state.phase, one.state.reason) == (Phase.SUSPENDED, Reason.PREEMPTED)


@pytest.mark.parametrize("event", [OperationInterrupted(), Parked(done=False)])
def test_a_suspension_that_is_broken_off_or_taken_over_from_is_begun_anew(event: Any):
    one = life(hold=OperationKind.PARK)
    one.tell(Suspended())
    one.ends(event)
    assert (one.state.phase, one.kinds()[-2:]) == (Phase.SUSPENDED, ["park", "park"])


@pytest.mark.parametrize("event", [OperationInterrupted(), Unparked(done=False)])
def test_a_resumption_that_is_broken_off_or_taken_over_from_is_begun_anew(event: Any):
    one = life()
    one.tell(Suspended())
    one.hold = {OperationKind.UNPARK}
    one.tell(Resumed())
    one.ends(event)
    assert (one.state.phase, one.kinds()[-3:]) == (Phase.RESUMING, ["unpark", "unpark", "observe"])


def test_what_cannot_be_suspended_in_place_is_deleted_as_ever():
    one = life(hold=OperationKind.PARK)
    one.tell(Suspended("make room"))
    one.ends(Parked(done=False, refused="Job driver: may not be patched"))
    assert (one.state.phase, one.kinds()[-2:]) == (Phase.SUSPENDED, ["park", "remove"])
    assert "it cannot be suspended in place: Job driver: may not be patched" in one.state.message
    one.tell(Resumed())
    one.up()
    assert (one.state.phase, one.attempt, one.state.used) == (Phase.RUNNING, 2, {})


def test_what_cannot_be_resumed_in_place_is_made_anew_charged_to_nothing():
    one = life()
    one.tell(Suspended())
    one.hold = {OperationKind.UNPARK}
    one.tell(Resumed())
    one.ends(Unparked(done=False, refused="Job driver: field is immutable"))
    assert (one.attempt, one.state.used, one.state.restarts) == (2, {}, 0)
    why = "cannot be resumed in place: Job driver: field is immutable"
    assert any(why in each.message for each in one.state.causes)


@ROW("J14", level="pure")
@pytest.mark.parametrize("mode", [SuspendMode.DELETE, SuspendMode.IN_PLACE])
def test_J14_by_default_and_where_a_component_is_no_job_all_of_it_is_deleted(mode: SuspendMode):
    other = () if mode is SuspendMode.DELETE else (element(1),)
    one = life("driver", *other, policy=edit(POLICY, deletion=Deletion(suspend=mode)))
    one.tell(Suspended())
    assert (one.state.phase, one.kinds()[-1]) == (Phase.SUSPENDED, "remove")
    resume = "`holdfast resume default/train-llm`"
    assert explained(one) == f"nothing of it is in the cluster; its quota is released | {resume}"
    one.tell(Resumed())
    assert one.attempt == 2


def test_the_default_is_not_written_so_that_an_older_release_reads_the_rest():
    assert Policy().model_dump(by_alias=True) == Policy(deletion=Deletion()).model_dump(by_alias=True)
    assert "deletion" not in Policy().model_dump(by_alias=True)
    one = life(policy=edit(POLICY, deletion=Deletion())).tell(Suspended())
    written = one.state.attempt.model_dump(by_alias=True) if one.state.attempt is not None else {}
    assert not {"parking", "parkingAt", "parked", "resuming", "turns", "bodies"} & set(written)


@pytest.mark.parametrize("lost", [{"owner_found": False}, {"owner_deleting": True}])
def test_what_has_lost_its_owner_is_deleted_as_ever(lost: dict[str, bool]):
    one = life()
    assert one.state.observation is not None
    one.state = edit(one.state, observation=edit(one.state.observation, **lost))
    one.tell(Suspended())
    assert (one.state.phase, one.kinds()[-1]) == (Phase.SUSPENDED, "remove")


@pytest.mark.parametrize(("seen", "turn"), [(0, 1), (1, 1), (2, 3), (3, 3), (4, 5)])
def test_a_suspension_that_is_not_done_is_begun_in_no_earlier_turn_than_the_cluster_has_seen(seen: int, turn: int):
    one = life(hold=OperationKind.PARK)
    one.tell(Suspended())
    after = fold(one.state, Parked(done=False, turn=seen), one.now).attempt
    assert after is not None
    assert after.turns == turn


@pytest.mark.parametrize(("seen", "turn"), [(0, 2), (2, 2), (3, 4), (4, 4), (5, 6)])
def test_a_resumption_that_is_not_done_is_begun_in_no_earlier_turn_than_the_cluster_has_seen(seen: int, turn: int):
    one = life()
    one.tell(Suspended())
    one.hold = {OperationKind.UNPARK}
    one.tell(Resumed())
    after = fold(one.state, Unparked(done=False, turn=seen), one.now).attempt
    assert after is not None
    assert after.turns == turn


def test_what_brings_no_pods_stays_and_hinders_nothing():
    one = life(config(), "driver")
    one.tell(Suspended())
    assert (one.kinds()[-1], attempt(one).parked) == ("park", ("driver",))


@pytest.mark.parametrize("stage", [OperationKind.PREPARE, OperationKind.CREATE])
def test_what_is_not_made_whole_yet_is_deleted(stage: OperationKind):
    one = Elements(spec=jobs("driver", policy=POLICY), hold={stage}).settle()
    one.tell(Suspended())
    if stage is OperationKind.CREATE:
        one.hold.clear()
        one.settle()
    assert (one.state.phase, one.kinds()[-1]) == (Phase.SUSPENDED, "remove")


def test_submitted_suspended_nothing_is_made_before_it_is_resumed():
    one = Elements(spec=edit(jobs("driver", policy=POLICY), suspend=True))
    one.settle()
    assert (one.state.phase, one.kinds(), one.attempt) == (Phase.SUSPENDED, [], 0)


def test_the_loss_of_its_owner_while_suspended_is_confirmed_and_then_all_of_it_is_removed():
    one = life()
    one.tell(Suspended())
    gone = {"owner_found": False, "components": {}}
    one.state = fold(one.state, Observed(one.look(**gone)), one.now)
    one.hold = {OperationKind.OBSERVE}
    one.settle()
    assert (one.kinds()[-1], one.waits_for) == (
        "observe",
        "what owns it seems to have been deleted: checking the cluster directly",
    )
    seen = one.look(live=True, **gone)
    one.hold.clear()
    operation = one.state.operation
    assert operation is not None
    one.state = observed(fold(one.state, Reported(), one.now), seen, operation.since, one.now)
    one.settle()
    assert (one.state.phase, one.kinds()[-1], attempt(one).stage.value) == (Phase.SUSPENDED, "remove", "Gone")
    one.tell(Resumed())
    assert (one.attempt, one.state.used) == (2, {})


def test_pods_that_come_although_it_is_suspended_are_confirmed_and_it_is_suspended_again():
    one = life()
    one.tell(Suspended())
    one.hold = {OperationKind.PARK}
    one.pods("driver", running=1)
    assert (one.kinds()[-2:], one.state.phase) == (["observe", "park"], Phase.SUSPENDING)
    assert quota(one)
    one.ends(Parked(done=True))
    assert (one.state.phase, quota(one), attempt(one).turns) == (Phase.SUSPENDED, False, 1)


def chain(policy: Policy = POLICY) -> Workload:
    return jobs("first", after("second", "first"), after("third", "second"), "free", policy=policy)


@ROW("J14", level="pure")
def test_J14_the_order_of_start_is_kept_when_it_is_resumed():
    one = Elements(spec=chain())
    one.settle()
    for name in ("first", "free", "second", "third"):
        one.pods(name, running=2)
    assert one.state.phase is Phase.RUNNING
    one.tell(Suspended()).tell(Resumed())
    assert attempt(one).parked == ("second", "third")
    assert (
        one.state.message
        == "Job second is resumed once Job first is ready; Job third is resumed once Job second is ready"
    )
    assert (one.state.phase, condition(one, ConditionType.PODS_READY)) == (Phase.RESUMING, False)
    one.pods("first", running=2)
    assert (attempt(one).parked, one.state.phase) == (("third",), Phase.RESUMING)
    one.pods("second", running=2)
    assert attempt(one).parked == ()
    one.pods("third", running=2)
    one.pods("free", running=2)
    assert (one.state.phase, one.attempt, one.kinds().count("unpark")) == (Phase.RUNNING, 1, 3)


@pytest.mark.parametrize(("followers", "more"), [(1, ""), (3, ""), (4, "; and 1 more wait"), (5, "; and 2 more wait")])
def test_of_many_that_are_resumed_later_three_are_named(followers: int, more: str):
    names = [f"f{number}" for number in range(followers)]
    spec = jobs("first", *(after(name, "first") for name in names))
    said = "; ".join(f"Job {name} is resumed once Job first is ready" for name in names[:3])
    assert waits_to_return(spec, ("first", *names)) == said + more


def test_what_had_not_started_comes_in_its_order_after_it_is_resumed():
    one = Elements(spec=chain())
    one.settle()
    one.pods("first", running=2)
    assert attempt(one).waiting == ("third",)
    one.tell(Suspended())
    assert (attempt(one).waiting, attempt(one).parked) == (("third",), ("first", "second", "free"))
    one.tell(Resumed())
    one.pods("first", "free", running=2)
    one.pods("second", running=2)
    assert one.kinds().count("replace") == 2
    one.pods("third", running=2)
    assert (one.state.phase, one.attempt) == (Phase.RUNNING, 1)


def test_what_is_complete_needs_no_resumption_and_what_waits_for_its_end_goes_on():
    one = Elements(spec=jobs("first", after("second", "first", status=StartStatus.COMPLETE), policy=POLICY))
    one.settle()
    one.pods("first", succeeded=2)
    one.pods("second", running=2)
    one.tell(Suspended()).tell(Resumed())
    assert (attempt(one).parked, one.kinds().count("unpark")) == ((), 1)
    one.pods("second", succeeded=2)
    assert one.state.outcome is Phase.SUCCEEDED


def test_a_replacement_under_way_is_broken_off_and_done_after_it_is_resumed():
    one = life(hold=OperationKind.REPLACE)
    one.deleted("worker")
    assert one.kinds()[-1] == "replace"
    one.tell(Suspended())
    assert (one.state.phase, one.kinds()[-2:]) == (Phase.SUSPENDED, ["replace", "park"])
    one.hold.clear()
    one.tell(Resumed())
    assert one.kinds()[-3:] == ["unpark", "replace", "observe"]
    assert one.launches() == {"worker": 1}
    assert one.state.used == {}


def placed(name: str, **spec: Any) -> Component:
    made = job(name)
    template = {**made.template, "spec": {"template": {"metadata": {}, "spec": {"containers": [], **spec}}}}
    return edit(made, template=template)


@ROW("J14", level="pure")
def test_J14_what_admission_gave_is_merged_and_anything_else_makes_the_component_again():
    one = life(placed("driver"), placed("worker"))
    one.tell(Suspended())
    one.configured(placed("driver", nodeSelector={"zone": "b"}), placed("worker", hostNetwork=True))
    assert one.kinds()[-1] == "park", "nothing is done before it is resumed"
    one.tell(Resumed())
    assert one.kinds()[-3:] == ["unpark", "replace", "observe"]
    assert one.launches() == {"worker": 1}
    assert attempt(one).config == one.spec.config_hashes
    one.pods(running=2)
    assert (one.state.phase, one.attempt) == (Phase.RUNNING, 1)


def test_what_is_a_component_but_for_its_placement():
    plain = placed("driver").body()
    other = placed("driver", nodeSelector={"a": "b"}, tolerations=[{"key": "x"}], schedulingGates=[{"name": "q"}])
    assert other.body() == plain
    assert placed("driver", hostNetwork=True).body() != plain
    labelled = edit(
        placed("driver"), template={**placed("driver").template, "metadata": {"name": "driver", "labels": {}}}
    )
    assert labelled.body() != plain, "only its pods' labels can be merged"
    gated = edit(placed("driver"), pod_sets=tuple(edit(one, labels={"a": "b"}) for one in placed("driver").pod_sets))
    assert gated.body() == plain


def test_its_status_counts_suspended_copies():
    one = life(job("driver"), job("worker", 1, copies=2))
    one.hold = {OperationKind.PARK}
    one.tell(Suspended())
    counts = CopyCounts(expected=2, suspended=2)
    one.views["worker"] = edit(one.views["worker"], copies=counts)
    one.ends(Parked(done=True))
    one.tell(Observed(one.look()))
    assert status_of(one.spec, one.state, one.now, "uid").copies["worker"] == counts


def test_an_attempt_that_fails_while_it_is_resumed_leaves_nothing_parked():
    one = Elements(spec=chain())
    one.settle()
    for name in ("first", "free", "second", "third"):
        one.pods(name, running=2)
    one.tell(Suspended()).tell(Resumed())
    one.says(first="Failed")
    assert (one.attempt, attempt(one).parked, one.state.used) == (2, (), {"restart": 1})


@ROW("J14", level="pure")
def test_J14_what_lost_its_owner_while_the_next_component_was_made_is_removed_and_not_left():
    """Found by a random life: it waited for ever, suspended neither in place nor by removal."""
    play = Play(PARKED_ORDERED)
    play.goes_on(1, watched=False)
    play.goes_on(1, watched=True)
    play.suspend(preempted=False)
    play.watch_tells()
    play.person_deletes(Kind.OWNER, 3)
    play.pod_ends(0, 137)
    play.goes_on(40, watched=True)
    play.goes_on(200, watched=True)
    assert play.flow.state.phase is Phase.SUSPENDED
    assert not play.flow.state.used, "it is nobody's failure"


@ROW("J14", level="pure")
def test_J14_what_lost_its_owner_while_it_was_suspended_and_resumed_at_once_begins_anew():
    """Found by a random life: it was suspended in place again and again, and each time there was nothing to suspend."""
    one = life(job("driver"), job("worker"), hold=OperationKind.PARK)
    one.tell(Suspended())
    lost = edit(attempt(one), interrupted="its owner is gone")
    state = edit(one.state, attempt=lost, intent=edit(one.state.intent, suspend=False))
    decision = parked(one.spec, state)
    assert isinstance(decision, Suspend)
    assert not decision.in_place
    assert decision.why == "it cannot be suspended in place: its owner is gone"
