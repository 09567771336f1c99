"""Which removals keep evidence, of which pods, and what is remembered and told of it (row P3)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.model import (
    Evidence,
    Failure,
    FailureClass,
    OperationKind,
    Phase,
    Progress,
    ProgressSource,
    Reason,
    Scope,
    State,
)
from holdfast.model.calls.cluster import Removed
from holdfast.model.life.evidence import StacksRequest
from holdfast.model.life.progress import StepRecord
from holdfast.policy.attempt.evidence import PODS_MAXIMUM, evidence_of, stacks_of
from holdfast.policy.status.explain import explain_of
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Cancelled, StepsRead, Suspended
from holdfast.policy.verdicts.progress import stall
from tests.policy.lives.life import START, Life, workload

pytestmark = pytest.mark.row("P3", level="pure")
REMOVALS = {OperationKind.REMOVE, OperationKind.FORCE_REMOVE}
KEPT = Evidence(link="s3://kept/attempt-1", digest="0" * 64, size=900, pods=2, logs=3)


def failing() -> Life:
    """A life whose attempt is being removed since a pod has failed."""
    life = Life(hold=set(REMOVALS)).runs().sees(failed=1, job_failed=True)
    assert life.state.reason is Reason.RESETTING
    return life


def with_failures(state: State, *failures: Failure) -> State:
    assert state.observation is not None
    return edit(state, observation=edit(state.observation, failures=failures))


def failure(pod: str, scope: Scope = Scope.MEMBER) -> Failure:
    return Failure(cls=FailureClass.APP, scope=scope, reason="Error", time=START, subject=pod, attempt=1)


def test_P3_the_removal_of_a_failed_attempt_keeps_evidence_of_the_pods_that_decided_first():
    state = with_failures(failing().state, failure("b"), failure("train", Scope.COMPONENT), failure("a"), failure("b"))
    assert evidence_of(state) == ("b", "a")


def test_P3_of_a_failure_that_no_pod_has_the_removal_chooses_the_pods():
    assert evidence_of(with_failures(failing().state, failure("train", Scope.COMPONENT))) == ()


def test_P3_a_pod_whose_failure_was_told_and_not_seen_comes_first():
    life = Life(spec=workload(2, progress=Progress()), hold=set(REMOVALS)).runs()
    steps = StepRecord(attempt=1, at=life.now, pods="x", step=5, behind="main-63", behind_node="node-7")
    life.tell(StepsRead(1, steps, stall(1, life.now, "main-63", "node-7", "step 5, no new step for 5m")))
    assert life.state.reason is Reason.RESETTING
    assert evidence_of(life.state) == ("main-63",)
    many = (failure(f"pod-{number:02}") for number in range(20))
    names = evidence_of(with_failures(life.state, *many))
    assert names is not None
    assert (names[0], len(names)) == ("main-63", PODS_MAXIMUM)


def test_P3_it_names_eight_pods_at_most():
    many = (failure(f"pod-{number:02}") for number in range(20))
    assert evidence_of(with_failures(failing().state, *many)) == tuple(f"pod-{one:02}" for one in range(PODS_MAXIMUM))


@pytest.mark.parametrize("wish", [Cancelled("enough"), Suspended("for room")])
def test_P3_what_a_person_ends_keeps_no_evidence(wish: Cancelled | Suspended):
    life = Life(hold=set(REMOVALS)).runs().tell(wish)
    assert life.state.operation is not None
    assert life.state.operation.kind is OperationKind.REMOVE
    assert evidence_of(life.state) is None


def test_P3_stacks_are_asked_where_steps_are_told_over_http_whatever_has_failed():
    life = failing()
    over_http = Progress(source=ProgressSource.HTTP, port=9470, components=("main",))
    told = edit(life.spec, progress=over_http)
    assert stacks_of(told, life.state) == StacksRequest(port=9470, components=("main",))
    assert stacks_of(life.spec, life.state) is None
    assert stacks_of(edit(life.spec, progress=Progress()), life.state) is None, "no endpoint could be asked"
    cancelled = Life(hold=set(REMOVALS)).runs().tell(Cancelled("enough"))
    assert stacks_of(told, cancelled.state) is None


def test_P3_the_sentence_tells_of_stacks():
    assert (
        edit(KEPT, stacks=1).sentence()
        == "evidence of 2 pods with 3 logs and the stacks of 1 program is kept at s3://kept/attempt-1"
    )


def test_P3_an_attempt_that_ended_well_keeps_no_evidence():
    life = Life(hold=set(REMOVALS)).runs().sees(succeeded=2, complete=True)
    assert evidence_of(life.state) is None


def test_P3_a_failed_workload_that_is_kept_for_a_while_keeps_evidence_when_it_goes():
    life = failing()
    assert evidence_of(edit(life.state, outcome=Phase.FAILED, reason=Reason.TTL_EXPIRED)) is not None


def test_P3_evidence_is_taken_once_and_told_with_the_proof():
    life = failing()
    life.now += timedelta(minutes=30)
    life.tell_result(Removed(gone=False, evidence=KEPT))
    assert life.state.attempt is not None
    assert life.state.attempt.evidence == KEPT
    life.settle()
    assert evidence_of(life.state) is None
    life.tell_result(Removed(gone=True))
    last = life.state.causes[-1]
    assert last.reason is Reason.DELETION_COMPLETE
    assert last.message.endswith("evidence of 2 pods with 3 logs is kept at s3://kept/attempt-1")
    assert life.state.attempt.evidence == KEPT
    assert explain_of(life.spec, life.state, life.now).kept == KEPT.sentence()


def test_P3_what_could_not_be_kept_is_told():
    life = failing()
    life.tell_result(Removed(gone=True, evidence=Evidence(problem="the store does not answer")))
    assert life.state.causes[-1].message.endswith("no evidence is kept: the store does not answer")


def test_P3_the_next_attempt_begins_without_it():
    life = failing()
    life.tell_result(Removed(gone=True, evidence=KEPT))
    life.after(hours=1)
    assert life.state.attempt is not None
    assert life.state.attempt.number == 2
    assert life.state.attempt.evidence is None
