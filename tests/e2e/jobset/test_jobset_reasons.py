"""The five reasons for which a Job fails, each brought about in the real Job controller (rows J5, J6, J16)."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from tests.e2e.ground.space import Handle, Space
from tests.e2e.jobset.jobset_life import end_pods, ended, reach, reasons, told
from tests.e2e.peers.jobsets import jobset, replicated

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900), pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
Json = dict[str, Any]

ON_EXIT_CODE = {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [42]}}
JOBS: dict[str, tuple[int, Json]] = {
    "BackoffLimitExceeded": (1, {"backoffLimit": 0}),
    "DeadlineExceeded": (1, {"activeDeadlineSeconds": 4}),
    "FailedIndexes": (2, {"backoffLimitPerIndex": 0}),
    "MaxFailedIndexesExceeded": (3, {"backoffLimitPerIndex": 0, "maxFailedIndexes": 1}),
    "PodFailurePolicy": (1, {"backoffLimit": 6, "podFailurePolicy": {"rules": [ON_EXIT_CODE]}}),
}
"""By reason: how many pods a Job has, and which fields of it bring the reason about."""
PATTERNS = {
    "BackoffLimitExceeded": "backoff limit$",
    "DeadlineExceeded": "longer than .* deadline",
    "FailedIndexes": "^Job has failed indexes",
    "MaxFailedIndexesExceeded": "(?i)MAXIMAL number of failed indexes",
    "PodFailurePolicy": r"exit code 4\d matching FailJob rule at index 0",
}
"""What matches the Job controller's message of each."""


def document(reason: str, *rules: Json, most: int = 0) -> Json:
    """Return a JobSet with a Job that fails for a reason, and another that runs on."""
    pods, fields = JOBS[reason]
    job = replicated("workers", pods=pods, job=fields)
    job["template"]["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    policy = {"maxRestarts": most, "rules": list(rules)}
    return jobset("train", job, replicated("driver"), failurePolicy=policy)


async def bring_about(space: Space, handle: Handle, reason: str, attempt: int = 1) -> None:
    """Do to the pods of an attempt what fails their Job for this reason."""
    job = "train-workers-0"
    if reason == "DeadlineExceeded":
        return  # Its time is over by itself, whoever sees it run before.
    await reach(space, handle, "Running", attempt)
    match reason:
        case "BackoffLimitExceeded":
            await end_pods(space, 1, (job, 0))
        case "FailedIndexes":
            await end_pods(space, 1, (job, 1))
            await end_pods(space, 0, (job, 0))
        case "MaxFailedIndexesExceeded":
            await end_pods(space, 1, (job, 0), (job, 2))
        case "PodFailurePolicy":
            await end_pods(space, 42, (job, 0))
        case _:
            raise ValueError(reason)


@ROW("J5", level="e2e")
@ROW("J6", level="e2e")
@ROW("J16", level="e2e")
@pytest.mark.parametrize("reason", JOBS)
async def test_J6_each_reason_of_the_job_controller_reaches_the_rule_that_names_it(space: Space, reason: str):
    """Rules for the four other reasons stand before it, and one for this reason whose pattern does not match."""
    others = [
        {"name": f"on{each}", "action": "RestartJobSet", "onJobFailureReasons": [each]}
        for each in JOBS
        if each != reason
    ]
    unmatched = {"name": "unmatched", "action": "RestartJobSet", "onJobFailureReasons": [reason]}
    unmatched |= {"onJobFailureMessagePatterns": ["no such words", "^specified", "nor these"]}
    named = {"name": "named", "action": "FailJobSet", "onJobFailureReasons": [reason]}
    named |= {"onJobFailureMessagePatterns": ["nor this", PATTERNS[reason]]}
    given = document(reason, *others, unmatched, named, {"action": "RestartJobSet"}, most=5)
    handle = await space.submit(given)
    await bring_about(space, handle, reason)
    status = await reach(space, handle, "Failed")
    assert status.message.startswith("rule named: train-workers-0: "), status.message
    assert status.failure is not None
    assert (status.failure.reason, status.failure.component) == (reason, "workers")
    assert ended(await told(space, handle, given)) == (
        "FailJobSetFailurePolicyAction",
        "applying FailJobSet failure policy action (first failed job: train-workers-0)",
    )
    assert await reasons(space, 2) == [[reason], []]


@ROW("J5", level="e2e")
@ROW("J16", level="e2e")
@pytest.mark.parametrize("order", [*permutations(("reason", "pattern", "any"))], ids="-".join)
async def test_J5_the_first_of_the_rules_that_match_decides(space: Space, order: tuple[str, ...]):
    """Three rules match the failure, by its reason, its message or whatever it is: the first of them restarts it."""
    ways: dict[str, Json] = {
        "reason": {"onJobFailureReasons": ["DeadlineExceeded", "BackoffLimitExceeded"]},
        "pattern": {"onJobFailureMessagePatterns": ["reached the specified"], "targetReplicatedJobs": ["workers"]},
        "any": {},
    }
    rules = [{"name": way, "action": "RestartJobSet", **ways[way]} for way in order]
    rules.insert(0, {"name": "otherTarget", "action": "FailJobSet", "targetReplicatedJobs": ["driver"]})
    handle = await space.submit(document("BackoffLimitExceeded", *rules, most=1))
    await bring_about(space, handle, "BackoffLimitExceeded")
    status = await reach(space, handle, "Running", 2)
    (cause,) = [one.message for one in status.causes if one.reason == "Resetting"]
    assert f"(rule {order[0]})" in cause
    assert await reasons(space, 2) == [["BackoffLimitExceeded"], []]


@ROW("J5", level="e2e")
@ROW("J6", level="e2e")
@pytest.mark.parametrize("reason", ["DeadlineExceeded", "FailedIndexes"])
async def test_J5_what_no_rule_matches_restarts_it_and_is_counted(space: Space, reason: str):
    others = [each for each in JOBS if each != reason]
    rule = {"action": "FailJobSet", "onJobFailureReasons": others}
    given = document(reason, rule, most=1)
    handle = await space.submit(given)
    for attempt in (1, 2):
        await bring_about(space, handle, reason, attempt)
    status = await reach(space, handle, "Failed")
    assert [one.message.count("no-failure-policy-rule") for one in status.causes if one.reason == "Resetting"] == [1]
    assert ended(await told(space, handle, given))[0] == "ReachedMaxRestarts"
    assert await reasons(space, 3) == [[reason], [reason], []]
