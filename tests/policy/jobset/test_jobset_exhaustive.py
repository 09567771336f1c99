"""JobSet's failure policy explored whole: whatever a rule can say, and whatever order rules can stand in.

What is enumerated, each case decided by the engine and by the naive reading of the proposal:

- one rule: 7 actions x all 32 sets of reasons x all 4 sets of targets, read from a document, x 10 failures (5 reasons
  of 2 replicated jobs) x 4 budgets: 35,840;
- the same without any rule, and without a failure policy: 80;
- all lists of up to 4 rules, repetition allowed, where each rule has one of 5 actions and speaks of the failure or
  does not: 11,111 x 4 budgets: 44,444. What more a rule says of one failure than that is in the first line;
- two failures seen together (3 pairs of Jobs x 4 pairs of reasons x 3 orders in time) x all orders of up to 3 of 8
  rules x what success needs (everything, the driver alone): 28,872.

`test_jobset_rules.py` has all orders of up to 4 of 7 rules that differ in reasons and targets: 19,800.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations, permutations, product
from typing import get_args

import pytest

from holdfast.formats.jobset.document import FailureAction, JobFailureReason
from holdfast.model import Policy
from holdfast.policy.values.edit import edit
from tests.formats.documents import Json
from tests.formats.jobset.jobsets import jobset_of, one, replicated
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
from tests.policy.jobset.test_jobset_rules import A, B, Result, decided, expected, result_of, state_of

ROW = pytest.mark.row
ACTIONS: tuple[str, ...] = get_args(FailureAction)
REASONS: tuple[str, ...] = get_args(JobFailureReason)
JOBS = ("driver", "worker")
BUDGETS = ((0, 0), (1, 0), (2, 1), (2, 2))
"""The maximum, and what has been counted: none at all, the first, the last, used up."""
FAILURES = tuple([JobFailure(f"{job}-0", job, reason, 0)] for job in JOBS for reason in REASONS)


def subsets(values: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    return chain.from_iterable(combinations(values, count) for count in range(len(values) + 1))


def read(rule: PolicyRule | None, most: int) -> Policy:
    """Return the policy that a JobSet's document comes to."""
    written: list[Json] = []
    if rule is not None:
        written.append({"name": rule.name, "action": rule.action})
        if rule.on_job_failure_reasons:
            written[0]["onJobFailureReasons"] = list(rule.on_job_failure_reasons)
        if rule.target_replicated_jobs:
            written[0]["targetReplicatedJobs"] = list(rule.target_replicated_jobs)
    failure_policy: Json = {"maxRestarts": most, "rules": written}
    return one(jobset_of(*map(replicated, JOBS), failurePolicy=failure_policy)).policy


STATES = {
    counted: [(failures, state_of(JobSet(0, (), counted), failures)) for failures in FAILURES]
    for counted in {counted for _, counted in BUDGETS}
}


def told(result: Result) -> Result:
    """Return a result in the naive reading's words, which has no name for what no rule matches."""
    what, job, rule, counted = result
    return (what, job, "default" if rule == "no-failure-policy-rule" else rule, counted)


@ROW("J5", level="pure")
@ROW("J7", level="pure")
@ROW("J19", level="pure")
@ROW("J23", level="pure")
@pytest.mark.parametrize("action", ACTIONS)
def test_J5_J7_one_rule_with_all_reasons_and_targets_decides_as_the_proposal_says(action: str):
    cases = 0
    for reasons, targets, (most, counted) in product(subsets(REASONS), subsets(JOBS), BUDGETS):
        rule = PolicyRule("mine", action, reasons, targets)
        jobset, policy = JobSet(most, (rule,), counted), read(rule, most)
        for failures, state in STATES[counted]:
            result = told(result_of(counted, edit(state, policy=policy)))
            assert result == expected(jobset, failures), (rule, failures)
            cases += 1
    assert cases == 32 * 4 * 4 * 10


@ROW("J1", level="pure")
@ROW("J5", level="pure")
def test_J1_J5_without_a_rule_it_restarts_and_without_a_policy_it_fails():
    cases = 0
    nothing = one(jobset_of(*map(replicated, JOBS))).policy
    for most, counted in BUDGETS:
        policy = read(None, most)
        for failures, state in STATES[counted]:
            (failure,) = failures
            result = told(result_of(counted, edit(state, policy=policy)))
            assert result == expected(JobSet(most, (), counted), failures)
            unruled = result_of(counted, edit(state, policy=nothing))
            assert unruled == ("fail", failure.job, "no-failure-policy", counted)
            cases += 2
    assert cases == 4 * 10 * 2


SPEAKS, IS_SILENT = ("worker",), ("driver",)
LETTERS = tuple(
    PolicyRule(f"{action}{'' if targets is SPEAKS else 'Silent'}", action, (), targets)
    for action, targets in product((FAIL, RESTART, IGNORE_MAX, RESTART_REPLICATED, FAIL_JOB), (SPEAKS, IS_SILENT))
)


@ROW("J5", level="pure")
@ROW("J19", level="pure")
@pytest.mark.parametrize(("most", "counted"), BUDGETS)
def test_J5_all_lists_of_up_to_four_rules_decide_by_the_first_that_speaks(most: int, counted: int):
    failures = [JobFailure("worker-0", "worker", A, 0)]
    state = state_of(JobSet(most, (), counted), failures)
    cases = 0
    for count in range(5):
        for listed in product(LETTERS, repeat=count):
            jobset = JobSet(most, listed, counted)
            assert decided(jobset, state) == expected(jobset, failures), [rule.name for rule in listed]
            cases += 1
    assert cases == 1 + 10 + 100 + 1_000 + 10_000


POOL = (
    PolicyRule("failA", FAIL, (A,)),
    PolicyRule("failDriver", FAIL, (), ("driver",)),
    PolicyRule("restartB", RESTART, (B,)),
    PolicyRule("restartAWorker", RESTART, (A,), ("worker",)),
    PolicyRule("ignoreA", IGNORE_MAX, (A,)),
    PolicyRule("ignoreDriverB", IGNORE_MAX, (B,), ("driver",)),
    PolicyRule("leaveWorkerB", FAIL_JOB, (B,), ("worker",)),
    PolicyRule("leaveA", FAIL_JOB, (A,)),
)
PAIRS = (("driver-0", "worker-0"), ("worker-0", "worker-1"), ("worker-1", "driver-0"))
TIMES = ((0, 1), (1, 1), (1, 0))


@ROW("J9", level="pure")
@ROW("J19", level="pure")
@pytest.mark.parametrize("needed", [None, ("driver",)])
def test_J9_of_two_failures_the_one_decides_that_the_contract_says(needed: tuple[str, ...] | None):
    cases = 0
    for jobs, reasons, times in product(PAIRS, product((A, B), repeat=2), TIMES):
        failures = [
            JobFailure(job, job.partition("-")[0], reason, time)
            for job, reason, time in zip(jobs, reasons, times, strict=True)
        ]
        state = state_of(JobSet(2, (), 1), failures)
        for listed in chain.from_iterable(permutations(POOL, count) for count in range(4)):
            jobset = JobSet(2, listed, 1, needed)
            assert decided(jobset, state) == expected(jobset, failures), ([rule.name for rule in listed], failures)
            cases += 1
    assert cases == 3 * 4 * 3 * (1 + 8 + 56 + 336)
