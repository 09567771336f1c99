"""Restarts in place: when they are possible, what follows when they are not, and how they count (row J24)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from holdfast.model import (
    Action,
    After,
    Budget,
    Checkpoint,
    CheckpointProtocol,
    CheckpointState,
    Component,
    Deletion,
    Failure,
    FailureClass,
    Observation,
    OperationKind,
    Phase,
    PodCounts,
    Policy,
    Progress,
    Reason,
    RestartMode,
    Scope,
    Source,
    StartStatus,
    StatusRule,
    SuspendMode,
    Timings,
)
from holdfast.model.calls.barrier import BarrierInput, Lifted
from holdfast.model.life.ledger import Bucket
from holdfast.model.life.progress import PodStep, Step, StepRecord
from holdfast.policy.attempt.barrier import gathered
from holdfast.policy.loop.fold import fold
from holdfast.policy.status.explain import explain_of, status_of
from holdfast.policy.status.ledger import Moment, spans_of
from holdfast.policy.status.report import landmarks, report_of
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import (
    Cancelled,
    CheckpointAsked,
    Observed,
    OperationInterrupted,
    ProbeEnded,
    Resumed,
    Retried,
    StepsRead,
    Suspended,
)
from holdfast.policy.verdicts.progress import bound_of, read, stall, stalled
from holdfast.workflows.operations.dispatch import call_of
from tests.policy.lives.elements import Elements, config, jobs
from tests.policy.lives.life import Life

ROW = pytest.mark.row("J24", level="pure")
AGENT: dict[str, Any] = {
    "name": "agent",
    "restartPolicy": "Always",
    "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}],
    "startupProbe": {"httpGet": {"path": "/barrier-is-down", "port": 8081}},
}
POLICY = Policy(
    default=Action(charge="restart", grace=False),
    budgets=(Budget(name="restart", limit=2),),
    timings=Timings(retry_pause_period=timedelta(0)),
    restart_mode=RestartMode.IN_PLACE,
)
KEPT = edit(POLICY, timings=edit(POLICY.timings, deletion_on_failure_grace_period=timedelta(hours=1)))
"""What has failed is kept for an hour, in which it can be retried."""


def component(name: str, agent: dict[str, Any] | None = AGENT) -> Component:
    """Return a Job of two pods; by default each has an in-place restart agent."""
    pods: dict[str, Any] = {"containers": [{"name": "main", "image": "train:1"}]}
    if agent is not None:
        pods["initContainers"] = [agent]
    template = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": {"spec": pods}},
    }
    return Component(
        name=name,
        template=template,
        pod_sets=({"path": "template.spec.template", "replicas": 2},),  # type: ignore[arg-type]
    )


@dataclass
class InPlace(Elements):
    """A life whose pods may restart on their own; the barrier's call brings them back."""

    restarted: set[str] = field(default_factory=set)

    def look(self, *, live: bool = False, blind: Any = (), **fields: Any) -> Observation:
        seen = super().look(live=live, blind=blind, **fields)
        more = tuple(
            Failure(
                cls=FailureClass.APP,
                scope=Scope.MEMBER,
                reason=Reason.POD_RESTARTED,
                time=self.now,
                component=name,
                subject=f"{name}-0",
                attempt=self.attempt,
            )
            for name in sorted(self.restarted)
        )
        return edit(seen, failures=(*seen.failures, *more), failures_total=len(seen.failures) + len(more))

    def finish(self) -> Life:
        assert self.state.operation is not None
        if self.state.operation.kind is OperationKind.BARRIER:
            self.restarted.clear()
            running = PodCounts(expected=2, running=2)
            self.views = {name: edit(one, pods=running) if name != "adl" else one for name, one in self.views.items()}
        return super().finish()

    def restarts(self, *names: str) -> InPlace:
        """Let a pod of each of these components restart on its own, and the watch tell it."""
        self.restarted |= set(names)
        self.views = {
            name: edit(one, pods=PodCounts(expected=2, running=1, pending=1)) if name in names else one
            for name, one in self.views.items()
        }
        self.tell(Observed(self.look()))
        return self


def life(*components: Component, policy: Policy = POLICY, hold: OperationKind | None = None) -> InPlace:
    # A component without pods counts as complete, and hinders no restart.
    spec = jobs(*(components or (config(), component("driver"), component("worker"))), policy=policy)
    one = InPlace(spec=spec)
    one.up()
    one.hold = {hold} if hold is not None else set()
    return one


def barrier(one: InPlace) -> Any:
    assert one.state.attempt is not None
    return one.state.attempt.barrier


@ROW
def test_J24_the_programs_of_an_attempt_start_together():
    one = life()
    assert (one.state.phase, one.kinds().count("barrier")) == (Phase.RUNNING, 1)
    assert barrier(one).is_lifted
    assert (barrier(one).attempt, one.state.restarts) == (0, 0)


@ROW
def test_J24_one_pod_that_restarts_restarts_all_where_they_are():
    one = life().restarts("worker")
    assert (one.state.phase, one.attempt, one.state.restarts, one.state.used) == (Phase.RUNNING, 1, 1, {"restart": 1})
    assert "remove" not in one.kinds()
    assert (barrier(one).attempt, barrier(one).until) == (1, None)
    assert "RestartedInPlace" in one.reasons()
    assert Phase.RESETTING in one.phases


@ROW
def test_J24_a_stall_that_restarts_it_where_it_is_is_not_found_again_at_once():
    one = life()
    now, rules = one.now, Progress()
    known = StepRecord(attempt=1, at=now, pods="x", step=9, quiet=3600.0, fresh=False, samples=(2.0,), longest=3.0)
    one.tell(StepsRead(1, known, stall(1, now)))
    assert (one.attempt, one.state.restarts, one.kinds().count("barrier")) == (1, 1, 2)
    assert one.state.attempt is not None
    assert one.state.attempt.told is None
    steps = one.state.steps
    assert steps is not None
    assert (steps.step, steps.quiet, steps.pods, steps.samples, steps.longest) == (None, 0.0, "", (2.0,), 3.0)
    again = read(steps, 1, [PodStep(uid="a", name="a", told=Step(step=9))], rules, one.now + timedelta(minutes=1))
    assert stalled(again, rules) is None
    assert bound_of(again, rules).span == rules.first_step


@ROW
@pytest.mark.row("P4", level="pure")
@pytest.mark.parametrize("shows_waits", [True, False])
def test_P4_restarts_in_place_count_towards_executions(shows_waits: bool):
    policy = edit(POLICY, budgets=(Budget(name="restart", limit=100),))
    one = InPlace(
        spec=edit(jobs(component("driver"), component("worker"), policy=policy), progress=Progress(executions=4))
    )
    one.state = edit(one.state, shows_waits=shows_waits)
    one.up()
    for _ in range(3):
        one.restarts("worker")
    assert (one.state.phase, one.attempt, one.state.executions) == (Phase.RUNNING, 1, 1)
    one.restarts("worker")
    if not shows_waits:
        assert (one.state.phase, one.state.restarts) == (Phase.RUNNING, 4), "a run of an earlier release goes on"
        return
    assert (one.state.outcome, one.state.reason) == (Phase.FAILED, Reason.EXECUTIONS_EXCEEDED)
    begun = "it has begun 1 attempt and 3 restarts in place, as many as progress.executions allows: "
    assert one.state.message.startswith(begun)


@ROW
@pytest.mark.row("L28", level="pure")
def test_L28_probes_that_failed_before_a_restart_in_place_do_not_count_against_the_new_program():
    one = life()
    one.tell(ProbeEnded(1, None, {"uid-1": 2}))
    one.restarts("worker")
    assert one.state.attempt is not None
    assert (one.attempt, one.state.restarts, one.state.attempt.probe_failing) == (1, 1, {})


@ROW
def test_J24_several_pods_that_restart_together_count_once():
    one = life().restarts("driver", "worker")
    assert (one.state.restarts, one.kinds().count("barrier")) == (1, 2)


@ROW
def test_J24_a_used_up_budget_fails_it():
    one = life()
    for _ in range(3):
        one.restarts("worker")
    assert (one.state.outcome, one.state.restarts, one.state.reason) == (Phase.FAILED, 2, Reason.RETRY_LIMIT_EXCEEDED)


@ROW
@pytest.mark.parametrize(
    "counts",
    [{"running": 1}, {"running": 1, "failed": 1}, {"running": 1, "terminating": 1}, {"running": 1, "succeeded": 1}],
    ids=lambda counts: "+".join(counts),
)
def test_J24_it_is_recreated_when_a_pod_is_gone(counts: dict[str, int]):
    one = life()
    one.restarted = {"worker"}
    one.pods("driver", **counts)
    assert (one.attempt, one.state.restarts, one.state.executions) == (2, 1, 2)
    assert "remove" in one.kinds()
    assert barrier(one).attempt == 1, "the pods of the next attempt begin at a later in-place restart attempt"


@ROW
@pytest.mark.parametrize("agent", [None, {**AGENT, "restartPolicyRules": []}, {**AGENT, "startupProbe": None}])
def test_J24_without_an_agent_in_each_pod_it_is_recreated(agent: dict[str, Any] | None):
    one = life(component("driver"), component("worker", agent))
    assert barrier(one) is None
    one.pods("worker", running=1, failed=1)
    assert (one.attempt, one.kinds().count("barrier")) == (2, 0)
    (reset,) = [each.message for each in one.state.causes if each.reason is Reason.RESETTING]
    assert "it is recreated, since its pods have no barrier: each needs an in-place restart agent" in reset


@ROW
def test_J24_the_usual_mode_has_no_barrier():
    assert barrier(life(policy=edit(POLICY, restart_mode=RestartMode.RECREATE))) is None


@ROW
def test_J24_pods_that_do_not_get_there_are_recreated_and_the_restart_counts_once():
    one = life(hold=OperationKind.BARRIER).restarts("worker")
    found = explain_of(one.spec, one.state, one.now)
    assert found.now == "restarting in place: waiting for all 4 pods to be at the barrier of in-place restart attempt 1"
    assert [each.what for each in found.next] == ["recreation, unless all pods have restarted in place by then"]
    assert found.next[0].at == one.now + timedelta(minutes=10)
    one.ends(Lifted(done=False, refused="3 of 4 pods restarted in time"))
    assert (one.attempt, one.state.restarts, one.state.used) == (2, 1, {"restart": 1})
    assert (one.state.executions, one.state.restarts_in_place) == (2, 0), "it has begun twice"


@ROW
def test_J24_what_is_seen_while_they_restart_is_no_failure():
    one = life(hold=OperationKind.BARRIER).restarts("worker")
    one.restarts("driver").after(minutes=9)
    assert (one.state.restarts, one.state.unhealthy, one.state.phase) == (1, None, Phase.RESETTING)
    assert one.kinds()[-1] == "barrier"


@ROW
def test_J24_a_broken_off_restart_goes_on():
    one = life(hold=OperationKind.BARRIER).restarts("worker")
    one.ends(OperationInterrupted())
    assert (one.state.phase, one.attempt, one.state.restarts) == (Phase.RUNNING, 1, 1)


@ROW
@pytest.mark.parametrize(("wish", "phase"), [(Suspended(), Phase.SUSPENDED), (Cancelled(), Phase.CANCELLED)])
def test_J24_a_restart_can_be_given_up(wish: Any, phase: Phase):
    one = life(hold=OperationKind.BARRIER).restarts("worker")
    one.tell(wish)
    one.ends(OperationInterrupted())
    assert (one.state.phase, one.kinds()[-1]) == (phase, "remove")


@ROW
def test_J24_a_late_result_of_an_earlier_attempt_changes_nothing():
    one = life(hold=OperationKind.BARRIER).restarts("worker")
    one.tell(Suspended())
    assert fold(one.state, Lifted(done=True), one.now).phase is one.state.phase


@ROW
def test_J24_its_status_names_the_attempt_in_place():
    one = life(hold=OperationKind.BARRIER).restarts("worker")
    going = status_of(one.spec, one.state, one.now, "uid").barrier
    assert going is not None
    assert (going.attempt, going.is_lifted) == (1, False)


@ROW
def test_J24_work_since_the_last_save_is_lost_and_the_restart_is_a_start():
    one = life(hold=OperationKind.BARRIER)
    begin, moments = one.now, [Moment(one.now, one.spec, one.state)]
    one.after(minutes=30)
    one.restarts("worker")
    moments.append(Moment(one.now, one.spec, one.state))
    one.after(seconds=20)
    one.hold.clear()
    one.finish()
    one.settle()
    moments.append(Moment(one.now, one.spec, one.state))
    found = spans_of(begin, moments, one.now + timedelta(minutes=5))
    assert [(span.bucket, span.milliseconds / 1000) for span in found] == [
        (Bucket.LOST, 1800),
        (Bucket.STARTING, 20),
        (Bucket.PRODUCTIVE, 300),
    ]
    assert {span.attempt for span in found} == {1}


@ROW
def test_J24_what_is_still_to_be_resumed_is_not_awaited_at_the_barrier():
    one = InPlace(spec=jobs(config(), component("driver"), component("worker"), policy=POLICY))
    one.hold = {OperationKind.BARRIER}
    one.up()
    attempt = one.state.attempt
    assert attempt is not None
    state = edit(one.state, attempt=edit(attempt, parked=("worker",)))
    given: BarrierInput = call_of(one.spec, state, "uid", one.now).argument
    assert [made.name for made in given.plan if made.expected_pods] == ["driver"]


@ROW
@pytest.mark.row("J13", level="pure")
def test_J24_what_is_complete_is_not_awaited_at_the_barrier():
    worker = edit(component("worker"), after=(After(component="prep", status=StartStatus.COMPLETE),))
    one = life(config(), component("prep"), worker)
    one.hold = {OperationKind.BARRIER}
    one.pods("prep", succeeded=2)
    assert (one.kinds()[-1], one.attempt) == ("barrier", 1)
    given: BarrierInput = call_of(one.spec, one.state, "uid", one.now).argument
    assert [made.name for made in given.plan if made.expected_pods] == ["worker"]
    assert given.grace is None
    assert "waiting for all 2 pods to be at the barrier" in explain_of(one.spec, one.state, one.now).now


@ROW
@pytest.mark.row("J14", level="pure")
def test_J24_pods_that_were_suspended_as_they_restarted_gather_anew_without_a_grace():
    parks = StatusRule(complete=("Complete",), failed=("Failed",))
    policy = edit(POLICY, deletion=Deletion(suspend=SuspendMode.IN_PLACE))
    driver, worker = (edit(component(name), status=parks) for name in ("driver", "worker"))
    one = life(driver, worker, policy=policy)
    one.state = edit(one.state, shows_waits=True)
    one.hold = {OperationKind.BARRIER}
    one.restarts("worker")
    one.tell(Suspended())
    assert (one.state.phase, one.kinds()[-1]) == (Phase.SUSPENDED, "park")
    one.restarted.clear()
    one.after(hours=1)
    one.tell(Resumed())
    assert (one.kinds()[-1], one.attempt) == ("barrier", 1)
    given: BarrierInput = call_of(one.spec, one.state, "uid", one.now).argument
    assert (given.grace, given.in_place) == (None, 1)
    one.hold.clear()
    one.finish()
    one.settle()
    assert (barrier(one).is_lifted, one.attempt, one.state.restarts) == (True, 1, 1)
    assert "remove" not in one.kinds()


@ROW
@pytest.mark.row("F16", level="pure")
def test_J24_a_custom_resource_is_told_of_the_barrier_and_as_soon_as_it_is_lifted():
    copied = component("worker").model_copy(update={"copies": 1})
    source = Source(api_version="jobset.x-k8s.io/v1alpha2", kind="JobSet", generation=1)
    one = InPlace(spec=jobs(copied, policy=POLICY, source=source))
    one.hold = {OperationKind.BARRIER}
    one.up()
    waits = report_of(one.spec, one.state)
    assert waits.barrier is not None
    assert (waits.barrier.attempt, waits.barrier.is_lifted) == (0, False)
    one.hold.clear()
    one.finish()
    one.settle()
    assert one.state.told is not None
    assert one.state.told.barrier is not None
    assert one.state.told.barrier.is_lifted
    assert landmarks(one.state.told) != landmarks(edit(one.state.told, barrier=waits.barrier))
    assert "barrier" not in report_of(jobs(copied, policy=POLICY), one.state).model_dump(), "nobody shows it there"


@ROW
@pytest.mark.row("A9", level="pure")
def test_A9_a_retry_asked_for_during_a_restart_in_place_retries_no_later_failure():
    one = life(policy=edit(KEPT, budgets=(Budget(name="restart", limit=1),)), hold=OperationKind.BARRIER)
    one.state = edit(one.state, shows_waits=True)
    one.restarts("driver")
    one.tell(Retried("hurry"))
    assert not one.state.intent.retry
    refused = "retry was asked for, but its pods restart in place, without a pause: there is nothing to retry"
    assert one.state.causes[-1].message == refused
    one.hold.clear()
    one.finish()
    one.settle()
    one.tell(Observed(one.look()))
    assert one.state.phase is Phase.RUNNING
    one.after(hours=240)
    one.restarts("driver")
    assert (one.state.outcome, one.attempt, one.state.used) == (Phase.FAILED, 1, {"restart": 1})
    one.tell(Retried())
    assert (one.attempt, one.state.outcome) == (2, None), "its failure can be retried"


@ROW
@pytest.mark.row("P2", level="pure")
def test_P2_a_restart_in_place_waits_for_no_checkpoint():
    rules = Checkpoint(protocol=CheckpointProtocol.ANNOTATION, timeout=timedelta(minutes=30))
    one = InPlace(spec=edit(jobs(component("driver"), component("worker"), policy=POLICY), checkpoint=rules))
    one.state = edit(one.state, shows_waits=True)
    one.up()
    one.hold = {OperationKind.CHECKPOINT, OperationKind.BARRIER}
    one.tell(CheckpointAsked("nightly"))
    one.after(minutes=5)
    one.tell(StepsRead(1, StepRecord(attempt=1, at=one.now, pods="x", step=9, quiet=600.0), stall(1, one.now)))
    request, operation = one.state.checkpoint, one.state.operation
    assert request is not None
    assert operation is not None
    assert (one.state.phase, operation.kind) == (Phase.RESETTING, OperationKind.BARRIER)
    assert (request.state, request.why) == (CheckpointState.DISCARDED, "its pods restart in place")
    assert operation.until == one.now + timedelta(minutes=10), "all of its grace is left"
    one.hold.clear()
    one.finish()
    one.settle()
    one.tell(Observed(one.look()))
    assert (one.state.phase, one.attempt, one.kinds().count("checkpoint")) == (Phase.RUNNING, 1, 1)


def denied(one: InPlace, *, renews: bool = False) -> InPlace:
    """Let the barrier be refused as it is first reached."""
    one.hold = {OperationKind.BARRIER}
    one.state = edit(one.state, shows_waits=True)
    one.up()
    one.ends(Lifted(done=False, refused='Pod driver-0: pods "driver-0" is forbidden', renews=renews))
    return one


@ROW
def test_J24_programs_that_may_never_start_fail_it():
    one = denied(InPlace(spec=jobs(component("driver"), component("worker"), policy=KEPT)))
    assert (one.state.outcome, one.state.reason, one.state.executions) == (Phase.FAILED, Reason.REFUSED, 1)
    assert one.state.outcome_failure is not None
    why = 'the programs of attempt 1 cannot start: Pod driver-0: pods "driver-0" is forbidden'
    assert (one.state.outcome_failure.cls, one.state.outcome_failure.message) == (FailureClass.LAUNCH, why)
    one.tell(Retried())
    assert (one.attempt, one.state.outcome) == (2, None)


@ROW
def test_J24_programs_that_have_run_before_may_run_again_in_a_new_attempt():
    one = life(hold=OperationKind.BARRIER)
    assert one.state.attempt is not None
    one.state = edit(one.state, shows_waits=True, attempt=gathered(one.state.attempt, one.now))
    one.settle()
    one.ends(Lifted(done=False, refused="'other': it is not annotated"))
    assert (one.attempt, one.state.outcome) == (2, None)


@ROW
def test_J24_a_barrier_whose_owner_is_gone_begins_a_new_attempt():
    one = denied(InPlace(spec=jobs(component("driver"), component("worker"), policy=POLICY)), renews=True)
    assert (one.attempt, one.state.outcome, one.state.used) == (2, None, {})


@ROW
def test_J24_what_can_not_restart_in_place_is_recreated_and_not_without_end():
    one = life(hold=OperationKind.BARRIER)
    one.state = edit(one.state, shows_waits=True)
    one.restarts("worker")
    refusal = Lifted(done=False, refused="Pod worker-0: an admission policy denies it")
    one.tell_result(refusal)
    one.settle()
    assert (one.attempt, one.state.outcome, one.kinds()[-1]) == (2, None, "barrier")
    one.ends(refusal)
    assert (one.attempt, one.state.outcome, one.state.used) == (2, Phase.FAILED, {"restart": 1})


@ROW
def test_J24_its_preparation_is_told_of_the_barrier():
    for mode in RestartMode:
        spec = jobs(component("driver"), policy=edit(POLICY, restart_mode=mode))
        one = InPlace(spec=spec, hold={OperationKind.PREPARE})
        one.settle()
        assert call_of(one.spec, one.state, "uid", one.now).argument.barrier is (mode is RestartMode.IN_PLACE)
