"""Which rule decides, and on which failure: the engine against JobSet's proposal (rows J5, J9, J10, J16)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from itertools import permutations, product

import pytest
from pydantic import ValidationError

from holdfast.activities.facts.objects import ObjectFacts, TrueCondition
from holdfast.activities.facts.snapshot import summarize
from holdfast.model import (
    Action,
    ActionKind,
    Attempt,
    Budget,
    ComponentView,
    Failure,
    FailureClass,
    Match,
    Observation,
    Phase,
    PodCounts,
    Policy,
    Reason,
    Rule,
    Scope,
    Stage,
    State,
    StatusRule,
    Success,
    Timings,
)
from holdfast.model.calls.cluster import PlannedComponent
from holdfast.model.observation import FAILURES_MAXIMUM
from holdfast.policy.attempt.success import judged
from holdfast.policy.failures.rules import rule_on
from holdfast.policy.failures.selection import selection_of
from holdfast.policy.values.decision import Fail, Ignore, Replace, Restart
from holdfast.policy.values.edit import edit
from holdfast.policy.verdicts.decide import decide
from tests.policy.jobset import naive_jobset as naive
from tests.policy.jobset.naive_jobset import (
    FAIL,
    FAIL_JOB,
    IGNORE_MAX,
    RESTART,
    RESTART_REPLICATED,
    JobFailure,
    JobSet,
    PolicyRule,
)
from tests.policy.lives.advanced import advance
from tests.policy.lives.elements import jobs
from tests.policy.lives.life import START

ROW = pytest.mark.row
ACTIONS = {
    FAIL: Action(kind=ActionKind.FAIL, charge=None, grace=False),
    RESTART: Action(grace=False),
    IGNORE_MAX: Action(charge=None, grace=False),
    RESTART_REPLICATED: Action(unit=Scope.COMPONENT, grace=False),
    FAIL_JOB: Action(kind=ActionKind.IGNORE, charge=None, grace=False),
}
SPEC = jobs("driver", "worker", policy=Policy(timings=Timings(retry_pause_period=timedelta(0))))
NOW = START + timedelta(minutes=1)
A, B = "BackoffLimitExceeded", "PodFailurePolicy"
"""Two reasons are enough: one that a rule names, and one that it does not."""
POOL = (
    PolicyRule("failA", FAIL, (A,)),
    PolicyRule("failAnyDriver", FAIL, (), ("driver",)),
    PolicyRule("restartB", RESTART, (B,)),
    PolicyRule("restartAWorker", RESTART, (A,), ("worker",)),
    PolicyRule("ignoreAB", IGNORE_MAX, (A, B)),
    PolicyRule("ignoreDriverB", IGNORE_MAX, (B,), ("driver", "worker")),
    PolicyRule("anything", RESTART),
)
BUDGETS = ((0, 0), (2, 1), (2, 2))
"""The maximum, and what has been counted."""


def orders() -> Iterator[tuple[PolicyRule, ...]]:
    """Yield all orders of up to four of the rules."""
    for count in range(5):
        yield from permutations(POOL, count)


def rule_of(rule: PolicyRule) -> Rule:
    patterns = "|".join(f"(?:{one})" for one in rule.on_job_failure_message_patterns)
    match = Match(
        scopes=(Scope.COMPONENT,),
        reasons=rule.on_job_failure_reasons,
        components=rule.target_replicated_jobs,
        message_pattern=patterns or None,
    )
    return Rule(name=rule.name, match=match, action=ACTIONS[rule.action])


RULES = {rule: rule_of(rule) for rule in POOL}


def policy_of(jobset: JobSet) -> Policy:
    return Policy.model_construct(
        timings=SPEC.policy.timings,
        rules=tuple(RULES.get(rule) or rule_of(rule) for rule in jobset.rules),
        default=ACTIONS[RESTART],
        budgets=(Budget(name="restart", limit=jobset.max_restarts),),
        success=Success(components=jobset.needed or ()),
    )


def failure_of(one: JobFailure) -> Failure:
    return Failure(
        cls=FailureClass.APP,
        scope=Scope.COMPONENT,
        reason=one.reason,
        time=START + timedelta(seconds=one.time),
        component=one.replicated_job,
        subject=one.job,
        message=one.message,
        attempt=1,
    )


def state_of(jobset: JobSet, failures: list[JobFailure]) -> State:
    """Return the memory of a running workload whose failures a live look has just confirmed."""
    failed = {one.replicated_job for one in failures}
    views = {
        name: ComponentView(failed=name in failed, pods=PodCounts(expected=2, running=2))
        for name in ("driver", "worker")
    }
    return _state_of(
        jobset,
        Observation(
            workload_uid="uid",
            attempt=1,
            owner_uid="owner",
            at=NOW,
            live=True,
            components=views,
            failures=tuple(failure_of(one) for one in failures),
            failures_total=len(failures),
        ),
    )


def seen_of(jobset: JobSet, failures: list[JobFailure]) -> Observation:
    """Return what a look sums up of a cluster where these Jobs have failed, of many more that run."""
    places = {one.job: (one.replicated_job, int(one.job.rsplit("-", 1)[1])) for one in failures}
    count = 1 + max(index for _, index in places.values())
    copies: dict[str, list[ObjectFacts]] = {
        name: [_job(f"{name}-{index}") for index in range(count)] for name in ("driver", "worker")
    }
    for one in failures:
        name, index = places[one.job]
        since = START + timedelta(seconds=one.time)
        copies[name][index] = _job(one.job, TrueCondition("Failed", one.reason, one.message, since))
    plan = [
        PlannedComponent(
            name=name,
            api_version="batch/v1",
            kind="Job",
            object_name=name,
            expected_pods=0,
            status=StatusRule(complete=("Complete",), failed=("Failed",)),
            copies=count,
        )
        for name in copies
    ]
    owner = ObjectFacts("owner", "owner", (), False, START, True, (), 1)
    return summarize(
        workload_uid="uid",
        attempt=1,
        owner_uid="owner",
        plan=plan,
        anchor=None,
        owner=owner,
        objects={},
        copies=copies,
        pods=(),
        at=NOW,
        live=True,
        selection=selection_of(policy_of(jobset)),
    )


def _job(name: str, *conditions: TrueCondition) -> ObjectFacts:
    return ObjectFacts(name, name, ("owner",), False, START, False, conditions, 1)


def _state_of(jobset: JobSet, seen: Observation) -> State:
    attempt = Attempt(
        number=1, stage=Stage.SUBMITTED, owner_uid="owner", begun_at=START, submitted_at=START, ready_at=START
    )
    return State(
        phase=Phase.RUNNING,
        reason=Reason.SUFFICIENT_PODS_READY,
        since=START,
        policy=SPEC.policy,
        attempt=attempt,
        used={"restart": jobset.counted} if jobset.counted else {},
        observation=seen,
        looked_at=NOW,
    )


Result = tuple[str, str, str, int]


def decided(jobset: JobSet, state: State) -> Result:
    """Return what the engine makes of it: what, on which Job, by which rule, and what is counted then."""
    return result_of(jobset.counted, edit(state, policy=policy_of(jobset)))


def result_of(counted: int, state: State) -> Result:
    decision = decide(SPEC, state, NOW)
    match decision:
        case Restart(failure, rule, charge):
            return ("restart", failure.subject, rule, counted + (charge is not None))
        case Replace((component,), charges=charges):
            (first,) = (one for one in judged(SPEC, state, state.observation, _seen(state))[:1])
            assert first.failure.component == component
            return ("restart replicated job", first.failure.subject, first.rule, counted + len(charges))
        case Fail(_, failure):
            return ("fail", failure.subject, rule_on(state.policy, failure).rule, counted)
        case Ignore():
            return ("nothing", "", "", counted)
        case _:
            raise AssertionError(f"neither restarts nor fails, nor leaves it: {decision}")


def _seen(state: State) -> tuple[Failure, ...]:
    assert state.observation is not None
    return state.observation.failures


def expected(jobset: JobSet, failures: list[JobFailure]) -> Result:
    outcome = naive.execute(jobset, failures)
    return (outcome.what, outcome.failure.job if outcome.failure else "", outcome.rule, outcome.counted)


@ROW("J5", level="pure")
@pytest.mark.parametrize(("replicated_job", "reason"), [*product(("driver", "worker"), (A, B, "DeadlineExceeded"))])
@pytest.mark.parametrize(("most", "counted"), BUDGETS)
def test_J5_all_orders_of_up_to_four_rules_decide_as_the_proposal_says(
    replicated_job: str, reason: str, most: int, counted: int
):
    failures = [JobFailure(f"{replicated_job}-0", replicated_job, reason, 0)]
    state = state_of(JobSet(most, (), counted), failures)
    cases = 0
    for rules in orders():
        jobset = JobSet(most, rules, counted)
        assert decided(jobset, state) == expected(jobset, failures), [one.name for one in rules]
        cases += 1
    assert cases == 1 + 7 + 42 + 210 + 840


SEEN = (
    JobFailure("driver-0", "driver", A, 2),
    JobFailure("worker-0", "worker", B, 1),
    JobFailure("worker-1", "worker", A, 1),
    JobFailure("driver-1", "driver", B, 1),
)


@ROW("J9", level="pure")
@pytest.mark.parametrize("count", [2, 3, 4])
def test_J9_of_failures_seen_together_the_earliest_decides_whatever_their_order(count: int):
    for rules in permutations(POOL, 2):
        jobset = JobSet(2, rules, 1)
        for failures in permutations(SEEN, count):
            result = decided(jobset, state_of(jobset, list(failures)))
            assert result == expected(jobset, list(failures)), ([one.name for one in rules], failures)


@ROW("J9", level="pure")
def test_J9_an_earlier_rule_on_a_later_failure_does_not_decide():
    """The published controller goes rule by rule, and would fail it for what the driver did later."""
    rules = (PolicyRule("driverFails", FAIL, (), ("driver",)), PolicyRule("anything", RESTART))
    failures = [JobFailure("driver-0", "driver", A, 2), JobFailure("worker-0", "worker", A, 1)]
    jobset = JobSet(3, rules)
    assert decided(jobset, state_of(jobset, failures)) == ("restart", "worker-0", "anything", 1)


MANY = 40
"""More than travel in a snapshot."""


@ROW("D16", level="pure")
@pytest.mark.parametrize("late", [0, 20, MANY - 1])
@pytest.mark.parametrize("other", SEEN[:3])
def test_D16_more_failures_than_travel_decide_as_all_of_them_do(late: int, other: JobFailure):
    """Forty Jobs of one kind fail, and one that differs in its reason, its replicated job or its message alone."""
    rules = (*POOL, PolicyRule("said", FAIL, on_job_failure_message_patterns=("lost its data",)))
    cases = 0
    for order in permutations(rules, 2):
        failures = [JobFailure(f"worker-{index}", "worker", A, index, "it failed") for index in range(MANY)]
        failures[late] = JobFailure(
            f"{other.replicated_job}-{late}", other.replicated_job, other.reason, late, "it failed"
        )
        if other.reason == A and other.replicated_job == "worker":
            failures[late] = JobFailure(f"worker-{late}", "worker", A, late, "it has lost its data")
        jobset = JobSet(3, order, 1)
        seen = seen_of(jobset, failures)
        assert (seen.failures_total, len(seen.failures)) == (MANY, FAILURES_MAXIMUM)
        assert decided(jobset, _state_of(jobset, seen)) == expected(jobset, failures), [one.name for one in order]
        cases += 1
    assert cases == 8 * 7


@ROW("J10", level="pure")
@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_J10_failures_seen_together_are_one_restart_and_one_charge(count: int):
    jobset = JobSet(3, (PolicyRule("anything", RESTART),))
    state = state_of(jobset, list(SEEN[:count]))
    after, _ = advance(SPEC, edit(state, policy=policy_of(jobset)), NOW)
    assert (after.used, after.restarts, after.phase) == ({"restart": 1}, 1, Phase.RESETTING)


PATTERNS = ("exit code 13[7-9]", "^Job has", "OOM", "limit$", "node|host", "a.c")
MESSAGES = ("Job has reached the specified backoff limit", "exit code 138", "OOMKilled on the host", "abc", "")


@ROW("J16", level="pure")
@pytest.mark.parametrize("first", PATTERNS)
def test_J16_a_message_matches_anywhere_and_any_one_pattern_is_enough(first: str):
    for second, message, most in product((None, *PATTERNS), MESSAGES, (0, 1)):
        patterns = (first,) if second is None else (first, second)
        rule = PolicyRule("said", FAIL, on_job_failure_message_patterns=patterns)
        jobset, failures = JobSet(most, (rule,)), [JobFailure("worker-0", "worker", A, 0, message)]
        assert decided(jobset, state_of(jobset, failures)) == expected(jobset, failures), (patterns, message)


@ROW("J16", level="pure")
@pytest.mark.parametrize("pattern", ["(", "a{2,1}", "(?=ahead)", r"(a)\1", "[z-a]", "*"])
def test_J16_what_is_no_pattern_of_RE2_is_refused_at_submission(pattern: str):
    with pytest.raises(ValidationError, match="is no regular expression of RE2"):
        Match(message_pattern=pattern)
