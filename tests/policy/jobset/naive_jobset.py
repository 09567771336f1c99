"""JobSet's failure policy once more, from the words of its proposal (KEP-262) alone, as plainly as it can be written.

It knows nothing of the engine: the tests of rows J5, J9, J10, J16 and J19 hold the one against the other. Where the
proposal is silent, on failures seen together, it follows the contract's row J9: the earliest decides, ties by name; and
on what its future work costs and comes to, row J19.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

FAIL, RESTART, IGNORE_MAX = "FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"
RESTART_REPLICATED, FAIL_JOB = "RestartReplicatedJob", "FailJob"
RESTART_JOB, RESTART_JOB_IGNORE_MAX = "RestartJob", "RestartJobAndIgnoreMaxRestarts"
"""Row J23. Where a replicated job has one Job, as here, they restart what RestartReplicatedJob restarts."""


@dataclass(frozen=True)
class JobFailure:
    """A child Job that has failed."""

    job: str
    replicated_job: str
    reason: str
    time: int
    message: str = ""


@dataclass(frozen=True)
class PolicyRule:
    """A FailurePolicyRule."""

    name: str
    action: str
    on_job_failure_reasons: tuple[str, ...] = ()
    target_replicated_jobs: tuple[str, ...] = ()
    on_job_failure_message_patterns: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobSet:
    """What counts of a JobSet."""

    max_restarts: int
    rules: tuple[PolicyRule, ...]
    counted: int = 0
    """Restarts that were counted against the maximum."""
    needed: tuple[str, ...] | None = None
    """The replicated jobs of which all Jobs must succeed; None: of all of them."""


@dataclass(frozen=True)
class Outcome:
    """What becomes of it."""

    what: Literal["fail", "restart", "restart replicated job", "nothing"]
    failure: JobFailure | None
    rule: str
    counted: int
    """After it."""


def satisfied(rule: PolicyRule, failure: JobFailure) -> bool:
    # "The requirement is satisfied if at least one reason matches the list."
    # "An empty list applies the rule to any job failure reason."
    if len(rule.on_job_failure_reasons) > 0:
        at_least_one = False
        for reason in rule.on_job_failure_reasons:
            if reason == failure.reason:
                at_least_one = True
        if not at_least_one:
            return False
    # "TargetReplicatedJobs are the names of the replicated jobs the operator applies to."
    # "An empty list will apply to all replicatedJobs."
    if len(rule.target_replicated_jobs) > 0:
        named = False
        for name in rule.target_replicated_jobs:
            if name == failure.replicated_job:
                named = True
        if not named:
            return False
    # Row J16: any one of the patterns, anywhere in the message.
    if len(rule.on_job_failure_message_patterns) > 0:
        found = False
        for pattern in rule.on_job_failure_message_patterns:
            if re.search(pattern, failure.message) is not None:
                found = True
        if not found:
            return False
    return True


def first_failed(failures: list[JobFailure]) -> JobFailure:
    first = failures[0]
    for failure in failures:
        if failure.time < first.time:
            first = failure
        if failure.time == first.time and (failure.replicated_job, failure.job) < (first.replicated_job, first.job):
            first = failure
    return first


def rule_for(jobset: JobSet, failure: JobFailure) -> tuple[str, str]:
    # "For a given Job failure, the rules will be evaluated in order,"
    # "and only the first matching rule will be executed."
    for rule in jobset.rules:
        if satisfied(rule, failure):
            return rule.action, rule.name
    # "If no matching rule is found, the RestartJobSet action is applied."
    return RESTART, "default"


def left_alone(jobset: JobSet, failure: JobFailure) -> bool:
    # "FailJob: To leave a particular child job in a failed state": "the controller will simply do nothing."
    # Row J19: where the JobSet no longer can succeed it fails.
    action, _ = rule_for(jobset, failure)
    if action != FAIL_JOB:
        return False
    return jobset.needed is not None and failure.replicated_job not in jobset.needed


def execute(jobset: JobSet, failures: list[JobFailure]) -> Outcome:
    remaining: list[JobFailure] = []
    for each in failures:
        if not left_alone(jobset, each):
            remaining.append(each)
    if len(remaining) == 0:
        return Outcome("nothing", None, "", jobset.counted)
    failure = first_failed(remaining)
    action, name = rule_for(jobset, failure)
    if action == FAIL_JOB:
        return Outcome("fail", failure, name, jobset.counted)
    if action == FAIL:
        # "Fail the JobSet immediately, regardless of maxRestarts."
        return Outcome("fail", failure, name, jobset.counted)
    if action == IGNORE_MAX:
        # "Don't count the failure against maxRestarts."
        return Outcome("restart", failure, name, jobset.counted)
    if action == RESTART_JOB_IGNORE_MAX:
        return Outcome("restart replicated job", failure, name, jobset.counted)
    # "Restart the JobSet if the number of restart attempts is less than MaxRestarts. Otherwise, fail the JobSet."
    # Of RestartReplicatedJob the proposal says that "there needs to be some limit": it is the same one (row J19).
    if jobset.counted >= jobset.max_restarts:
        return Outcome("fail", failure, name, jobset.counted)
    if action in (RESTART_REPLICATED, RESTART_JOB):
        return Outcome("restart replicated job", failure, name, jobset.counted + 1)
    return Outcome("restart", failure, name, jobset.counted + 1)


def completed(operator: str, targets: tuple[str, ...], jobs: dict[str, int], succeeded: list[str]) -> bool:
    """Say whether it has completed, by how many Jobs each replicated job has, and the replicated job of each done."""
    # "Operator determines either All or Any of the selected jobs should succeed to consider the JobSet successful."
    # "A null or empty list will apply to all replicatedJobs."
    expected, done = 0, 0
    for name in jobs:
        if len(targets) == 0 or name in targets:
            expected = expected + jobs[name]
            for one in succeeded:
                if one == name:
                    done = done + 1
    if operator == "Any":
        return done >= 1
    return len(succeeded) > 0 and done >= expected
