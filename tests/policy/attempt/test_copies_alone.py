"""Single copies that are recreated: which, how often, and what joins them on the way (row J23). Pure."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.formats.jobset import reader
from holdfast.model import (
    Attempt,
    ComponentView,
    CopyCounts,
    Failure,
    FailureClass,
    Observation,
    Operation,
    OperationKind,
    Phase,
    PodCounts,
    Progress,
    Reason,
    Report,
    Scope,
    Stage,
    State,
)
from holdfast.model.calls.cluster import Replaced
from holdfast.model.life.progress import Fall
from holdfast.policy.attempt.copies import copy_backed_off, forgiven, restarted, stays, titles_again
from holdfast.policy.attempt.health import copy_grace_left
from holdfast.policy.attempt.replace import joined
from holdfast.policy.attempt.success import reached
from holdfast.policy.failures.rules import rule_on
from holdfast.policy.loop.results import ended
from holdfast.policy.values.decision import CopyAgain
from holdfast.policy.values.edit import edit
from holdfast.policy.verdicts.poison import Alone, fallen, hopeless
from holdfast.policy.verdicts.restart import backs_off
from tests.e2e.peers.jobsets import jobset, replicated
from tests.policy.lives.life import START

pytestmark = pytest.mark.row("J23", level="pure")
RULES = {"maxRestarts": 3, "rules": [{"action": "RestartJob"}]}
SPEC = reader.read(jobset("train", replicated("a", replicas=4), replicated("b"), failurePolicy=RULES), cluster="dev")
ATTEMPT = Attempt(number=2, begun_at=START, stage=Stage.SUBMITTED)
NOW = START + timedelta(minutes=1)


def failure(job: str, scope: Scope = Scope.COMPONENT) -> Failure:
    return Failure(
        cls=FailureClass.APP, scope=scope, reason="BackoffLimitExceeded", time=NOW, component="a", subject=job
    )


def test_J23_copies_join_and_the_whole_component_takes_them_in():
    one = joined(ATTEMPT, (), [("a", 2)])
    assert (one.replacing, one.replacing_copies) == (("a",), {"a": (2,)})
    two = joined(one, ("b",), [("a", 0), ("a", 2)])
    assert (two.replacing, two.replacing_copies) == (("a", "b"), {"a": (0, 2)})
    whole = joined(two, ("a",))
    assert (whole.replacing, whole.replacing_copies) == (("a", "b"), {})
    assert joined(whole, (), [("a", 1)]) == whole, "all of it is recreated already"
    assert titles_again(SPEC, two) == "copies 0, 2 of Job train-a (4 copies), Job train-b (1 copy)"


@pytest.mark.row("J12", level="pure")
@pytest.mark.parametrize(("operator", "succeeds"), [("Any", True), ("All", False)])
def test_J12_any_one_job_is_enough_also_while_another_is_made_again(operator: str, succeeds: bool):
    document = jobset("train", replicated("a", replicas=4), successPolicy={"operator": operator}, failurePolicy=RULES)
    spec = reader.read(document, cluster="dev")
    state = State(policy=spec.policy, since=START, attempt=joined(ATTEMPT, (), [("a", 2)]), shows_waits=True)
    view = ComponentView(pods=PodCounts(expected=4, running=2), copies=CopyCounts(expected=4, succeeded=1))
    seen = Observation(workload_uid="uid", attempt=2, owner_uid="owner", at=NOW, components={"a": view})
    assert bool(reached(spec, state, seen, ())) is succeeds


def test_J23_a_failure_of_a_copy_that_stays_counts_meanwhile():
    attempt = joined(ATTEMPT, (), [("a", 2)])
    assert stays(SPEC, attempt, failure("train-a-1"))
    assert not stays(SPEC, attempt, failure("train-a-2")), "it is being recreated for that"
    assert not stays(SPEC, attempt, failure("train-a-1-x7k2p", Scope.MEMBER)), "a pod does not say whose it is"
    assert not stays(SPEC, joined(ATTEMPT, ("a",)), failure("train-a-1"))


def test_J23_what_is_recreated_is_counted_by_the_copy():
    state = State(since=START, policy=SPEC.policy, attempt=edit(ATTEMPT, number=1))
    state = edit(state, copy_restarts=restarted(state, [CopyAgain("a", 1, True), CopyAgain("a", 3, False)], NOW))
    later = edit(state, attempt=ATTEMPT)
    found = restarted(later, [CopyAgain("a", 1, True)], NOW + timedelta(hours=1))["a"]
    counts = {index: (one.restarts, one.charged, one.launches_in(2)) for index, one in found.items()}
    assert counts == {1: (2, 2, 1), 3: (1, 0, 0)}
    assert {one.charged for one in forgiven({"a": found})["a"].values()} == {0}


def test_J23_a_copy_that_fails_again_waits_ever_longer_in_one_attempt():
    state, rule = State(since=START, policy=SPEC.policy, attempt=ATTEMPT), SPEC.policy.replacement
    assert copy_backed_off(state, "a", 0, rule) is None
    for seconds in (10, 20, 40):
        state = edit(state, copy_restarts=restarted(state, [CopyAgain("a", 0, True)], NOW))
        assert copy_backed_off(state, "a", 0, rule) == NOW + timedelta(seconds=seconds)
    assert copy_backed_off(state, "a", 1, rule) is None
    assert copy_backed_off(edit(state, attempt=edit(ATTEMPT, number=3)), "a", 0, rule) is None


@pytest.mark.row("P4", level="pure")
def test_P4_the_step_of_a_copy_is_what_its_own_pods_told_and_its_restarts_are_its_own():
    dies = failure("train-a-0-x7k2p", Scope.MEMBER)
    pods = [edit(dies, subject=f"train-a-{copy}-0-x7k2p", message=f"step {copy + 7}") for copy in (1, 2)]
    seen = Observation(workload_uid="uid", attempt=2, owner_uid="owner", at=NOW, failures=tuple(pods))
    state = State(policy=SPEC.policy, since=START, attempt=edit(ATTEMPT, owner_uid="owner"), observation=seen)
    state, spec = edit(state, shows_waits=True, executions=1), edit(SPEC, progress=Progress(executions=3))
    one, two = (fallen(spec, state, failure(f"train-a-{copy}"), Alone("a", copy)) for copy in (1, 2))
    assert (one, two) == (Fall(step=8, alone="a/1"), Fall(step=9, alone="a/2"))
    assert fallen(spec, edit(state, fall=two), failure("train-a-2"), Alone("a", 2)) == Fall(
        step=9, times=2, alone="a/2"
    )
    assert fallen(spec, edit(state, fall=two), failure("train-a-0"), Alone("a", 0)) is None
    for _ in range(2):
        assert hopeless(spec, state, failure("train-a-2"), Alone("a", 2)) is None
        state = edit(state, copy_restarts=restarted(state, [CopyAgain("a", 2, True)], NOW))
    assert hopeless(spec, state, failure("train-a-1"), Alone("a", 1)) is None
    found = hopeless(spec, edit(state, attempt=edit(ATTEMPT, number=3)), failure("train-a-2"), Alone("a", 2))
    assert found is not None
    begun = "it has begun 1 attempt and 2 restarts of copy 2 of Job train-a (4 copies) alone"
    assert found.why == f"{begun}, as many as progress.executions allows"


def recreated(attempt: Attempt) -> Attempt:
    """Return an attempt whose copy 2 has been recreated, by an operation that began before anything joined it."""
    begun = joined(ATTEMPT, (), [("a", 2)])
    operation = Operation(
        kind=OperationKind.REPLACE,
        attempt=2,
        since=NOW,
        report=Report(sequence=1, phase=Phase.RUNNING, reason=Reason.REPLACING, attempt=2),
        launches={"a": 0},
        copies=begun.replacing_copies,
    )
    after = ended(State(since=START, policy=SPEC.policy, attempt=attempt, operation=operation), Replaced(), NOW).attempt
    assert after is not None
    return after


@pytest.mark.parametrize(
    ("whole", "copies", "left", "left_copies"),
    [
        ((), [], (), {}),
        ((), [("a", 2)], (), {}),
        ((), [("a", 1)], ("a",), {"a": (1,)}),
        ((), [("b", 0)], ("b",), {"b": (0,)}),
        (("a",), [], ("a",), {}),
    ],
)
def test_J23_what_joined_meanwhile_is_still_to_be_recreated(
    whole: tuple[str, ...],
    copies: list[tuple[str, int]],
    left: tuple[str, ...],
    left_copies: dict[str, tuple[int, ...]],
):
    after = recreated(joined(joined(ATTEMPT, (), [("a", 2)]), whole, copies))
    assert (after.replacing, after.replacing_copies) == (left, left_copies)


def test_J23_a_copy_that_backs_off_holds_up_no_failure_of_another():
    state = State(since=START, policy=SPEC.policy, attempt=ATTEMPT)
    for _ in range(5):
        state = edit(state, copy_restarts=restarted(state, [CopyAgain("a", 0, True)], NOW))
    first, second = (rule_on(state.policy, failure(f"train-a-{index}")) for index in (0, 1))
    soon, later = NOW + timedelta(seconds=5), NOW + timedelta(minutes=6)
    assert [backs_off(SPEC, state, one, soon) for one in (first, second)] == [True, False]
    assert not backs_off(SPEC, state, first, later)
    assert sorted([first, second], key=lambda one: backs_off(SPEC, state, one, soon)) == [second, first]


def test_J23_each_copy_has_a_grace_of_its_own():
    state = State(since=START, policy=SPEC.policy, attempt=ATTEMPT)
    state = edit(state, copy_restarts=restarted(state, [CopyAgain("a", 0, True)], NOW))
    state = edit(state, copy_restarts=restarted(state, [CopyAgain("a", 1, True)], NOW + timedelta(minutes=9)))
    at = NOW + timedelta(minutes=9, seconds=30)
    assert [copy_grace_left(state, "a", index, at) for index in (0, 1)] == [30.0, 570.0]
