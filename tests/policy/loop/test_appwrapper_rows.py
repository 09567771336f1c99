"""AppWrapper's contract rows on the pure engine, with the document's own durations."""

from __future__ import annotations

import itertools
from datetime import timedelta
from typing import Any

import pytest

from holdfast import names
from holdfast.activities.facts.objects import object_facts
from holdfast.activities.facts.pods import pod_facts
from holdfast.activities.facts.snapshot import summarize
from holdfast.model import (
    Action,
    ActionKind,
    ConditionType,
    Limits,
    Observation,
    OperationKind,
    Phase,
    Policy,
    Reason,
    Stage,
    State,
    Workload,
)
from holdfast.model.calls.cluster import planned
from holdfast.policy.status.explain import explain_of
from holdfast.policy.status.report import conditions, events_of
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Cancelled, Observed, Resumed, Retried, Suspended
from tests.policy.lives.life import START, Life, workload

ROW = pytest.mark.row
MINUTE = 60.0


def condition(state: State, kind: ConditionType, spec: Workload) -> bool:
    return next(each.status for each in conditions(spec, state) if each.type is kind)


@ROW("A1", level="pure")
def test_A1_prepares_then_creates_then_runs_when_all_pods_run():
    life = Life().settle()
    assert life.kinds() == ["prepare", "create"]
    assert life.state.phase is Phase.RESUMING
    life.sees(running=1, pending=1)
    assert life.state.phase is Phase.RESUMING
    life.sees(running=2)
    assert life.state.phase is Phase.RUNNING
    assert life.phases == [Phase.RESUMING, Phase.RUNNING]
    assert condition(life.state, ConditionType.PODS_READY, life.spec)


def seen_of(life: Life, *phases: str, says: str = "") -> Observation:
    """Return what a look makes of its Job, which says this of itself, and of its pods in these phases."""
    attempt, life.revision = life.state.attempt, life.revision + 1
    assert attempt is not None
    (component,) = life.spec.components
    version, created = str(life.revision), "2026-01-01T00:00:00Z"
    labels = {names.LABEL_WORKLOAD_UID: "uid", names.LABEL_ATTEMPT: str(attempt.number)}
    labels[names.LABEL_COMPONENT] = component.name
    meta: dict[str, Any] = {"resourceVersion": version, "creationTimestamp": created}
    owner = {"metadata": {"name": "a", "uid": attempt.owner_uid, **meta}, "status": {"submitted": True}}
    conditions = [{"type": says, "status": "True", "lastTransitionTime": created}] if says else []
    job = {
        "metadata": {"name": "train", "uid": "job", "ownerReferences": [{"uid": attempt.owner_uid}], **meta},
        "spec": {"parallelism": 2, "completions": 4},
        "status": {"conditions": conditions},
    }
    pods = [
        {
            "metadata": {"name": f"p{index}", "uid": f"p{index}", "namespace": "ns", "labels": labels, **meta},
            "status": {"phase": phase},
        }
        for index, phase in enumerate(phases)
    ]
    return summarize(
        workload_uid="uid",
        attempt=attempt.number,
        owner_uid=attempt.owner_uid,
        plan=(planned(component, "uid", attempt.number),),
        anchor=None,
        owner=object_facts(owner),
        objects={component.name: object_facts(job)},
        pods=[pod_facts(pod) for pod in pods],
        at=life.now,
    )


@ROW("A2", level="pure")
def test_A2_all_components_complete_is_success_and_resources_stay_until_the_ttl():
    life = Life().runs()
    for phases in (("Succeeded",) * 2, ("Succeeded",) * 2 + ("Running",) * 2, ("Succeeded",) * 4):
        life.tell(Observed(seen_of(life, *phases)))
        assert life.state.phase is Phase.RUNNING, "between waves of a Job all its pods may have succeeded"
    life.tell(Observed(seen_of(life, *("Succeeded",) * 4, says="SuccessCriteriaMet")))
    assert life.state.phase is Phase.RUNNING, "it is not complete before it says so"
    life.view = {"succeeded": 2, "complete": True}
    life.tell(Observed(seen_of(life, *("Succeeded",) * 4, says="Complete")))
    assert life.state.phase is Phase.SUCCEEDED
    assert life.kinds()[-1] == "report"
    life.after(days=6.9)
    assert "remove" not in life.kinds()
    life.after(days=0.2)
    assert life.ended is Phase.SUCCEEDED
    assert life.kinds()[-1] == "remove"


@ROW("A2", level="pure")
def test_A2_pods_that_run_on_after_success_hold_their_quota_until_they_end_or_are_gone():
    for ends, still in itertools.product((True, False), ("running", "pending", "terminating")):
        view: dict[str, Any] = {still: 2, "complete": True}
        life = Life().runs().sees(**view)
        assert life.state.phase is Phase.SUCCEEDED
        assert condition(life.state, ConditionType.QUOTA_RESERVED, life.spec)
        assert "its quota is kept: pods of it run on" in explain_of(life.spec, life.state, life.now).now
        if ends:
            told = life.kinds().count("report")
            life.sees(succeeded=2, complete=True)
            assert not condition(life.state, ConditionType.QUOTA_RESERVED, life.spec)
            assert life.kinds().count("report") == told + 1, "whoever waits for the quota is told"
            assert life.sees(succeeded=2, complete=True).kinds().count("report") == told + 1, "once"
        else:
            life.after(days=7.1)
            assert life.ended is Phase.SUCCEEDED
            assert not condition(life.state, ConditionType.QUOTA_RESERVED, life.spec)


@ROW("A3", level="pure")
def test_A3_failed_pods_are_given_the_failure_grace_then_reset():
    life = Life().runs().sees(running=1, failed=1)
    assert life.state.phase is Phase.RUNNING
    assert condition(life.state, ConditionType.UNHEALTHY, life.spec)
    life.after(seconds=59)
    assert life.state.phase is Phase.RUNNING
    life.after(seconds=1)
    assert life.state.phase is Phase.RESETTING
    assert life.kinds()[-2:] == ["observe", "remove"], "a live look comes before anything destructive"
    life.after(seconds=90)
    assert (life.attempt, life.state.restarts, life.state.executions) == (2, 1, 2)


@ROW("A3", level="pure")
def test_A3_healed_within_grace_is_left_undisturbed():
    life = Life().runs().sees(running=1, failed=1).after(seconds=59)
    life.sees(running=2).after(hours=5)
    assert life.state.phase is Phase.RUNNING
    assert life.state.restarts == 0
    assert "remove" not in life.kinds()


@ROW("A3", level="pure")
def test_A3_healed_unseen_by_the_watch_is_found_by_the_live_look():
    life = Life().runs().sees(running=1, failed=1)
    life.view = {"running": 2}
    life.after(minutes=10)
    assert life.state.phase is Phase.RUNNING
    assert life.kinds().count("observe") == 1
    assert life.state.restarts == 0


@ROW("A3", level="pure")
def test_A3_one_clock_runs_for_the_whole_workload():
    life = Life().runs().sees(running=1, failed=1).after(seconds=50)
    life.sees(running=0, failed=2).after(seconds=10)
    assert life.state.phase is Phase.RESETTING


@ROW("A4", level="pure")
def test_A4_pods_not_admitted_in_time_are_given_the_failure_grace_then_reset():
    life = Life().settle().sees(pending=1)
    life.after(seconds=60)
    assert life.state.unhealthy is not None
    assert life.state.unhealthy.failure.reason == Reason.PODS_NOT_ADMITTED
    life.after(seconds=59)
    assert life.state.phase is Phase.RESUMING
    life.after(seconds=1)
    assert life.state.phase is Phase.RESETTING


@ROW("A5", level="pure")
def test_A5_pods_not_running_in_time_are_given_the_failure_grace_then_reset():
    life = Life().settle().sees(pending=2)
    life.after(seconds=5 * MINUTE)
    assert life.state.unhealthy is not None
    assert life.state.unhealthy.failure.reason == Reason.PODS_NOT_RUNNING
    life.after(seconds=60)
    assert life.state.phase is Phase.RESETTING


@ROW("A5", level="pure")
def test_A5_a_warm_up_shorter_than_the_admission_grace_ends_first_though_nothing_was_seen_of_the_pods():
    spec = workload(timings={"warmup_grace_period": timedelta(seconds=10)})
    life = Life(spec=spec).settle()
    life.view = {"pending": 2}
    life.after(seconds=10)
    assert life.state.unhealthy is not None
    assert life.state.unhealthy.failure.reason == Reason.PODS_NOT_RUNNING
    life.after(seconds=60)
    assert life.state.phase is Phase.RESETTING
    assert life.now == START + timedelta(seconds=70)


@ROW("A6", level="pure")
def test_A6_a_missing_component_resets_without_grace_once_a_live_look_confirms_it():
    life = Life().runs().sees(running=2, found=False)
    assert life.state.phase is Phase.RESETTING
    assert [kind for kind, _, when in life.ran if when == START and kind.value in {"observe", "remove"}] == [
        OperationKind.OBSERVE,
        OperationKind.REMOVE,
    ]


@ROW("A6", level="pure")
def test_A6_a_stale_cache_kills_nothing():
    life = Life().runs()
    stale = life.look()
    life.view = {"running": 2, "found": False}
    missing = life.look()
    life.view = {"running": 2}
    life.tell(Observed(missing))
    assert life.state.phase is Phase.RUNNING
    assert life.kinds()[-1] == "observe"
    assert life.tell(Observed(stale)).state.dropped == 1


@ROW("A7", level="pure")
def test_A7_a_failed_job_resets_without_grace():
    life = Life().runs().sees(failed=1, job_failed=True)
    assert life.state.phase is Phase.RESETTING
    assert life.now == START


@ROW("A8", level="pure")
def test_A8_reset_deletes_forces_after_its_grace_and_pauses_from_the_proof():
    life = Life(stubborn=True).runs().sees(failed=1, job_failed=True)
    removed = [(kind.value, (when - START).total_seconds()) for kind, _, when in life.ran if "remove" in kind.value]
    assert removed == [("remove", 0.0), ("force_remove", 600.0)]
    gone = life.now
    assert life.state.attempt is not None
    assert life.state.attempt.stage is Stage.GONE
    life.after(seconds=89)
    assert life.attempt == 1
    life.after(seconds=1)
    assert life.attempt == 2
    assert life.now == gone + timedelta(seconds=90)


@ROW("A8", level="pure")
@pytest.mark.parametrize("why", ["reset", "suspend", "failed", "ttl", "delete"])
def test_A8_the_same_deletion_serves_all_five(why: str):
    spec = workload()
    if why == "failed":
        spec = spec.model_copy(
            update={
                "policy": spec.policy.model_copy(
                    update={"budgets": (spec.policy.budgets[0].model_copy(update={"limit": 0}),)}
                )
            }
        )
    life = Life(spec=spec, stubborn=True).runs()
    match why:
        case "reset" | "failed":
            life.sees(failed=1, job_failed=True)
        case "suspend":
            life.tell(Suspended())
        case "ttl":
            life.sees(succeeded=2, complete=True).after(days=8)
        case _:
            life.tell(Cancelled())
    kinds = [kind for kind in life.kinds() if "remove" in kind]
    assert kinds == ["remove", "force_remove"]
    assert life.state.attempt is not None
    assert life.state.attempt.stage is Stage.GONE


@ROW("A8", level="pure")
def test_A8_what_cannot_die_is_named_and_tried_again():
    life = Life(stubborn=True, undying=True, hold={OperationKind.FORCE_REMOVE}).runs()
    life.tell(Cancelled())
    for _ in range(3):
        life.finish()
        life.settle()
    assert life.state.phase is Phase.TERMINATING
    assert life.kinds().count("force_remove") == 4
    blocked = [cause for cause in life.state.causes if cause.reason is Reason.DELETION_BLOCKED]
    assert len(blocked) <= 1, "said once, not each round"
    assert "example.com/hold" in life.state.causes[-1].message
    life.undying = life.stubborn = False
    life.finish()
    assert life.settle().ended is Phase.CANCELLED


@ROW("A9", level="pure")
def test_A9_exactly_three_resets_then_failed_and_deleted():
    life = Life().runs()
    for _ in range(3):
        life.sees(failed=1, job_failed=True)
        assert life.state.phase is Phase.RESETTING
        life.after(seconds=90).sees(running=2)
        assert life.state.phase is Phase.RUNNING
    life.sees(failed=1, job_failed=True)
    assert life.state.restarts == 3
    assert life.ended is Phase.FAILED
    assert life.state.reason is Reason.RETRY_LIMIT_EXCEEDED
    assert life.kinds()[-1] == "remove"


@ROW("A10", level="pure")
def test_A10_resources_deployed_and_quota_through_a_whole_reset():
    life = Life(stubborn=True).runs()
    life.states.clear()
    life.sees(failed=1, job_failed=True).after(seconds=90).sees(running=2)
    for state in life.states:
        assert condition(state, ConditionType.QUOTA_RESERVED, life.spec), state.phase
        alive = state.attempt is not None and state.attempt.stage not in {Stage.PLANNED, Stage.GONE}
        assert condition(state, ConditionType.RESOURCES_DEPLOYED, life.spec) is alive
    gone = [state for state in life.states if state.attempt and state.attempt.stage is Stage.GONE]
    assert gone
    assert {state.reason for state in gone} == {Reason.RESETTING}


def at_phase(phase: str, hold: OperationKind | None = None) -> Life:
    """Bring a life to the middle of a phase."""
    life = Life(hold={hold} if hold else set())
    match phase:
        case "preparing" | "creating":
            return life.settle()
        case "starting":
            return life.settle().sees(pending=2)
        case "running":
            return life.runs()
        case "unhealthy":
            return life.runs().sees(running=1, failed=1).after(seconds=5)
        case "looking" | "removing":
            return life.runs().sees(failed=1, job_failed=True)
        case "forcing":
            life.stubborn = True
            return life.runs().sees(failed=1, job_failed=True)
        case "pausing":
            return life.runs().sees(failed=1, job_failed=True).after(seconds=5)
        case "succeeded":
            return life.runs().sees(succeeded=2, complete=True)
        case "suspended":
            return life.runs().tell(Suspended())
        case _:
            raise ValueError(phase)


PHASES = {
    "preparing": OperationKind.PREPARE,
    "creating": OperationKind.CREATE,
    "starting": None,
    "running": None,
    "unhealthy": None,
    "looking": OperationKind.OBSERVE,
    "removing": OperationKind.REMOVE,
    "forcing": OperationKind.FORCE_REMOVE,
    "pausing": None,
}


@ROW("A11", level="pure")
@pytest.mark.parametrize("preempted", [False, True])
@pytest.mark.parametrize("phase", PHASES)
def test_A11_suspend_and_preempt_are_obeyed_in_every_phase(phase: str, preempted: bool):
    life = at_phase(phase, PHASES[phase])
    used = dict(life.state.used)
    life.hold.clear()
    life.tell(Suspended(preempted=preempted))
    if life.state.operation is not None:
        life.finish()
        life.settle()
    assert life.state.phase is Phase.SUSPENDED
    assert life.state.reason is (Reason.PREEMPTED if preempted else Reason.SUSPEND_REQUESTED)
    assert life.state.used == used, "a suspension charges nothing"
    assert not condition(life.state, ConditionType.QUOTA_RESERVED, life.spec)
    assert not condition(life.state, ConditionType.RESOURCES_DEPLOYED, life.spec)
    attempt = life.attempt
    life.after(days=3)
    assert life.attempt == attempt
    life.tell(Resumed())
    assert (life.attempt, life.state.phase) == (attempt + 1, Phase.RESUMING)
    assert life.state.used == used


@ROW("A11", level="pure")
def test_A11_resume_during_suspending_comes_back_only_after_the_proof():
    life = Life(hold={OperationKind.REMOVE}).runs().tell(Suspended()).tell(Resumed())
    assert life.state.phase is Phase.SUSPENDING
    assert life.attempt == 1
    life.hold.clear()
    life.finish()
    life.settle()
    assert (life.attempt, life.state.phase) == (2, Phase.RESUMING)


@ROW("A12", level="pure")
@pytest.mark.parametrize("end", ["time", "suspend", "delete"])
def test_A12_a_failed_workload_is_held_for_debugging_until_time_suspend_or_delete(end: str):
    spec = workload(timings={"deletion_on_failure_grace_period": timedelta(hours=1)})
    spec = spec.model_copy(
        update={
            "policy": spec.policy.model_copy(
                update={"budgets": (spec.policy.budgets[0].model_copy(update={"limit": 0}),)}
            )
        }
    )
    life = Life(spec=spec).runs().sees(failed=1, job_failed=True).after(minutes=59)
    assert life.state.phase is Phase.FAILED
    assert "remove" not in life.kinds()
    assert condition(life.state, ConditionType.QUOTA_RESERVED, spec)
    match end:
        case "time":
            life.after(minutes=1)
        case "suspend":
            life.tell(Suspended())
        case _:
            life.tell(Cancelled())
    assert life.ended is Phase.FAILED
    assert life.kinds()[-1] == "remove"


@ROW("A13", level="pure")
def test_A13_success_ttl_counts_from_success():
    life = Life().runs().after(days=2).sees(succeeded=2, complete=True)
    succeeded = life.now
    life.after(days=8)
    assert life.ended is Phase.SUCCEEDED
    assert life.ran[-1][2] == succeeded + timedelta(days=7)


@ROW("A14", level="pure")
def test_A14_the_operators_maximum_caps_every_grace_and_pause_but_not_the_ttl():
    day = timedelta(days=2)
    spec = workload(
        timings={
            "failure_grace_period": day,
            "retry_pause_period": day,
            "forceful_deletion_grace_period": day,
            "success_ttl": timedelta(days=30),
        }
    )
    life = Life(spec=spec, limits=Limits(grace_period_maximum=timedelta(minutes=2)), stubborn=True).runs()
    life.sees(running=1, failed=1).after(minutes=2)
    assert life.state.phase is Phase.RESETTING
    assert life.now == START + timedelta(minutes=4)
    life.after(minutes=2)
    assert life.attempt == 2
    life.stubborn = False
    life.sees(succeeded=2, complete=True).after(days=29)
    assert life.ended is None
    assert life.after(days=1).ended is Phase.SUCCEEDED


@ROW("A15", level="pure")
@pytest.mark.parametrize(("code", "terminal"), [(3, True), (137, False), (1, False)])
def test_A15_terminal_exit_codes_decide_at_once(code: int, terminal: bool):
    spec = workload()
    rule = {
        "name": "terminal",
        "match": {"exitCodes": [3, 4]},
        "action": {"kind": "Fail", "grace": False, "charge": None},
    }
    document = spec.policy.model_dump(mode="json")
    document["rules"] = [rule, *document["rules"]]
    spec = Workload.model_validate({**spec.model_dump(mode="json"), "policy": document})
    life = Life(spec=spec).runs().sees(running=1, failed=1, exit_code=code)
    assert (life.ended is Phase.FAILED) is terminal
    assert life.state.restarts == 0


@ROW("A16", level="pure")
@pytest.mark.parametrize("phase", [*PHASES, "succeeded", "suspended"])
def test_A16_delete_in_any_phase_removes_until_proven_gone_then_ends(phase: str):
    life = at_phase(phase, PHASES.get(phase))
    life.hold.clear()
    life.tell(Cancelled())
    if life.state.operation is not None:
        life.finish()
        life.settle()
    assert life.ended is (Phase.SUCCEEDED if phase == "succeeded" else Phase.CANCELLED)
    assert "remove" in life.kinds()[-1]
    assert life.state.anchored is False
    last = (
        max(index for index, (kind, _, _) in enumerate(life.ran) if kind is OperationKind.CREATE)
        if "create" in life.kinds()
        else -1
    )
    assert all(kind is not OperationKind.CREATE for kind, _, _ in life.ran[last + 1 :])


@ROW("A18", level="pure")
def test_A18_failed_pods_that_their_job_has_replaced_reset_nothing_and_the_last_does():
    """The snapshot counts only the failed pods that nothing has replaced: `tests/activities/facts/test_snapshot.py`."""
    life = Life().runs()
    for _ in range(3):
        life.sees(running=1, failed=1).after(seconds=59).sees(running=2).after(hours=1)
    assert (life.state.phase, life.state.restarts, life.state.used) == (Phase.RUNNING, 0, {})
    life.sees(running=1, failed=1).after(seconds=60)
    assert (life.state.phase, life.state.restarts) == (Phase.RESETTING, 1)


@ROW("U1", level="pure")
def test_U1_what_could_not_be_observed_charges_nothing():
    from holdfast.model import Interval

    life = Life().runs()
    for _ in range(25):
        life.after(seconds=30)  # twenty-five looks that came back with nothing are no events at all
    assert (life.state.restarts, life.state.used, life.state.phase) == (0, {}, Phase.RUNNING)
    life.sees(running=1, failed=1)
    failed = life.now
    life.hold.add(OperationKind.OBSERVE)
    life.after(seconds=60)
    assert life.state.operation is not None
    life.after(minutes=5)
    blind = (Interval(begin=failed + timedelta(seconds=10), end=life.now),)
    life.hold.clear()
    life.state = edit_blind(life, blind)
    life.settle()
    assert life.state.phase is Phase.RUNNING, "the grace has not been seen to pass"
    life.after(seconds=49)
    assert life.state.phase is Phase.RUNNING
    life.after(seconds=2)
    assert life.state.phase is Phase.RESETTING


def edit_blind(life: Life, blind: tuple) -> State:  # type: ignore[type-arg]
    from holdfast.policy.loop.fold import observed

    assert life.state.operation is not None
    since = life.state.operation.since
    state = life.state.model_copy(update={"operation": None})
    return observed(state, life.look(live=True, blind=blind), since, life.now)


@ROW("U8", level="pure")
def test_U8_preemption_is_an_event_and_burns_no_budget():
    life = Life().runs()
    for _ in range(10):
        life.tell(Suspended(preempted=True)).tell(Resumed()).sees(running=2)
    assert life.state.used == {}
    assert (life.state.restarts, life.state.executions) == (0, 11)


@ROW("U8", level="pure")
def test_U8_how_long_a_preemption_takes_counts_from_the_wish_to_the_proof():
    life = Life(hold={OperationKind.REMOVE}).runs()
    life.after(hours=1).tell(Suspended(preempted=True))
    asked = life.now
    life.after(seconds=30).tell(Suspended(preempted=True))
    life.tell(Resumed())
    assert life.state.preempted_at == asked, "what takes its place back is still to stop first"
    life.hold.clear()
    life.finish()
    assert life.state.preempted_at is None
    life.settle().sees(running=2).tell(Suspended())
    assert (life.state.phase, life.state.preempted_at) == (Phase.SUSPENDED, None), "a suspension is none"
    life.tell(Suspended(preempted=True))
    assert life.state.preempted_at is None, "and nothing was there to stop"
    assert life.state.used == {}


@ROW("U3", level="pure")
def test_U3_no_cleaning_up_and_no_ttl_renews_a_budget():
    life = Life().runs()
    views: list[dict[str, Any]] = [{"failed": 1, "job_failed": True}, *[{"found": False}] * 3]
    for used, view in enumerate(views[:3], 1):
        life.view = view
        life.tell(Observed(life.look())).after(seconds=90).sees(running=2)
        life.tell(Suspended()).tell(Resumed()).sees(running=2)
        assert life.state.used == {"restart": used}
    life.view = views[3]
    life.tell(Observed(life.look()))
    assert (life.state.phase, life.state.reason) == (Phase.FAILED, Reason.RETRY_LIMIT_EXCEEDED)


@ROW("U5", level="pure")
def test_U5_an_attempt_begins_only_after_the_proof_and_every_event_says_its_attempt():
    life = Life(hold={OperationKind.REMOVE}).runs().sees(failed=1, job_failed=True)
    life.after(minutes=9)
    assert life.attempt == 1, "its removal is not proven yet"
    life.hold.clear()
    life.finish()
    life.settle().after(seconds=90).sees(running=2)
    assert life.kinds() == ["prepare", "create", "report", "observe", "remove", "prepare", "create", "report"]
    assert [number for _, number, _ in life.ran] == [1, 1, 1, 1, 1, 2, 2, 2]
    life.sees(failed=1, job_failed=True).after(minutes=1)
    told = [each for each in events_of(edit(life.state, told_causes=0)) if each.reason is Reason.RESETTING]
    assert [each.attempt for each in told] == [1, 2]


@ROW("U4", level="pure")
def test_U4_our_own_deletion_is_never_a_failure():
    life = Life(hold={OperationKind.REMOVE}).runs().tell(Suspended())
    used = life.state.used
    life.sees(found=False, failed=2)
    assert life.state.phase is Phase.SUSPENDING
    assert life.state.used == used
    assert life.state.dropped == 1


@ROW("U6", level="pure")
def test_U6_executions_and_restarts_are_two_numbers():
    life = Life().runs().tell(Suspended()).tell(Resumed()).sees(running=2).sees(failed=1, job_failed=True)
    life.after(seconds=90)
    assert (life.state.executions, life.state.restarts) == (3, 1)


@ROW("U13", level="pure")
def test_U13_a_pod_lost_after_warm_up_gets_the_failure_grace_too():
    life = Life().runs().after(hours=10).sees(running=1)
    assert life.state.phase is Phase.RUNNING
    life.after(seconds=59)
    life.sees(running=2).after(hours=1)
    assert life.state.restarts == 0
    life.sees(running=1).after(seconds=61)
    assert life.state.phase is Phase.RESETTING


@ROW("U13", level="pure")
def test_U13_a_replacement_that_exists_and_is_slow_has_its_own_warm_up_then_the_failure_grace():
    """At the published defaults: five minutes from when it is there, and one more."""
    life = Life().runs().after(hours=10).sees(running=1).after(seconds=50)
    life.sees(running=1, pending=1, starting=life.now).after(minutes=4, seconds=59)
    assert (life.state.phase, life.state.restarts) == (Phase.RUNNING, 0)
    life.sees(running=2).after(hours=1)
    assert life.state.restarts == 0, "it came in time"
    life.sees(running=1).after(seconds=50)
    life.sees(running=1, pending=1, starting=life.now).after(minutes=5, seconds=59)
    assert (life.state.phase, life.state.restarts) == (Phase.RUNNING, 0)
    life.after(seconds=2)
    assert (life.state.phase, life.state.restarts) == (Phase.RESETTING, 1)


@ROW("J18", level="pure")
def test_J18_what_a_restart_does_and_remembers_does_not_grow_with_the_pods():
    def lived(pods: int) -> Life:
        life = Life(spec=workload(pods=pods)).settle()
        life.sees(running=pods).sees(failed=pods, job_failed=True).after(seconds=90)
        return life.sees(running=pods)

    few, many = lived(3), lived(15_000)
    assert many.attempt == 2
    assert [kind for kind, _, _ in many.ran] == [kind for kind, _, _ in few.ran]
    assert len(many.state.model_dump_json()) < len(few.state.model_dump_json()) + 10_000


def test_retry_skips_the_pause():
    life = Life().runs().sees(failed=1, job_failed=True).after(seconds=1)
    life.tell(Retried())
    assert life.attempt == 2


def test_retry_revives_a_held_failed_workload_with_its_budgets_renewed():
    spec = workload(timings={"deletion_on_failure_grace_period": timedelta(hours=1)})
    life = Life(spec=spec).runs()
    for _ in range(3):
        life.sees(failed=1, job_failed=True).after(seconds=90).sees(running=2)
    life.sees(failed=1, job_failed=True)
    assert life.state.phase is Phase.FAILED
    life.tell(Retried())
    assert (life.attempt, life.state.used, life.state.phase) == (5, {}, Phase.RESUMING)


def test_retry_of_a_healthy_workload_changes_nothing_but_says_so():
    life = Life().runs().tell(Retried())
    assert life.state.phase is Phase.RUNNING
    assert life.state.causes[-1].reason is Reason.RETRY_REQUESTED


@pytest.mark.parametrize("note", ["", "the queue is free"])
def test_resume_of_what_is_not_suspended_changes_nothing_but_says_so(note: str):
    nothing = "resume was asked for, but it is not suspended: there is nothing to resume"
    fails = workload(policy=Policy(default=Action(kind=ActionKind.FAIL)))
    failed = Life(spec=fails).runs().sees(failed=1).after(minutes=1)
    for life, phase in ((Life().runs(), Phase.RUNNING), (failed, Phase.FAILED)):
        assert life.tell(Resumed(note)).state.phase is phase
        assert life.state.causes[-1].message == (f"{nothing}: {note}" if note else nothing)


def test_a_podless_workload_succeeds_once_its_objects_exist():
    life = Life(spec=workload(pods=0)).settle()
    life.sees()
    assert life.state.phase is Phase.SUCCEEDED


def test_submitted_suspended_creates_nothing_until_resumed():
    life = Life(spec=workload(suspend=True)).settle()
    assert (life.state.phase, life.kinds()) == (Phase.SUSPENDED, [])
    life.tell(Resumed())
    assert life.kinds() == ["prepare", "create"]


def test_an_anchor_deleted_in_the_cluster_is_a_deletion_by_the_user():
    life = Life().runs()
    seen = life.look().model_copy(update={"anchor_deleting": True})
    life.tell(Observed(seen))
    assert life.ended is Phase.CANCELLED
    assert life.state.reason is Reason.ANCHOR_DELETED
