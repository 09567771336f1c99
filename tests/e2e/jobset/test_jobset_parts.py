"""Less than a whole JobSet restarts, or nothing does: row J19, from documents, on real Job controllers."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast.policy.loop.change import PolicyChange
from tests.e2e.ground.site import until
from tests.e2e.ground.space import Handle, Space
from tests.e2e.jobset.jobset_life import (
    STORIES,
    counted,
    end_pod,
    end_pods,
    ended,
    has_failed,
    jobs,
    once,
    reach,
    reasons,
    runs,
    story,
    told,
)
from tests.e2e.peers.jobsets import P, jobset

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900), pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
Json = dict[str, Any]
BACKOFF = "BackoffLimitExceeded"
OF_ALL = {"trainer-0", "trainer-1", "evaluator-0", "evaluator-1"}


async def there(space: Space, name: str) -> dict[str, tuple[str, str]]:
    """Return uid and restart-attempt of each Job of a set that is not on its way out, by its name in the set."""
    return {
        job.removeprefix(f"{name}-"): (found["metadata"]["uid"], found["metadata"]["labels"][f"{P}restart-attempt"])
        for job, found in (await jobs(space, name)).items()
        if "deletionTimestamp" not in found["metadata"]
    }


async def made_again(space: Space, name: str, before: Json, restarted: int, *expected: str) -> dict[str, Any]:
    """Wait until just these Jobs are other ones, with this restart-attempt, and return what is there then."""

    async def again() -> bool:
        found = await there(space, name)
        other = {job for job in found if found[job] != before[job]}
        attempts = {found[job][1] for job in expected if job in found}
        return found.keys() == before.keys() and other == set(expected) and attempts == {str(restarted)}

    await until(again, 300, f"{expected} are made again, and nothing else")
    return await there(space, name)


async def standing(space: Space, handle: Handle, document: Json, **counts: tuple[int, int]) -> None:
    """Wait until so many Jobs of each replicated job are told succeeded, and failed."""

    async def so() -> bool:
        status = await told(space, handle, document)
        found = {one["name"]: (one["succeeded"], one["failed"]) for one in status["replicatedJobsStatus"]}
        return found == counts

    await until(so, 120, f"succeeded and failed are {counts}")


@ROW("J19", level="e2e")
async def test_J19_a_replicated_job_restarts_alone_as_often_as_its_rule_may(space: Space):
    name, document = "restart-replicated-job-example", story("restart-replicated-job")
    handle = await space.submit((STORIES / "restart-replicated-job.yaml").read_text())
    await reach(space, handle, "Running", 1)
    found = first = await there(space, name)
    assert {job: restarted for job, (_, restarted) in found.items()} == dict.fromkeys(OF_ALL, "0")
    for restarts in (1, 2):
        await runs(space, handle, document, trainer=2, evaluator=2)
        await end_pod(space, f"{name}-evaluator-{restarts - 1}", 1)
        found = await made_again(space, name, found, restarts, "evaluator-0", "evaluator-1")
        status = await reach(space, handle, "Running", 1)
        assert (status.restarts, status.executions) == (restarts, 1)
        assert counted(await told(space, handle, document)) == (restarts, restarts)
    await runs(space, handle, document, trainer=2, evaluator=2)
    trainers = {job: one for job, one in found.items() if job.startswith("trainer")}
    assert trainers == {job: first[job] for job in trainers}, "they ran on"
    await end_pod(space, f"{name}-evaluator-1", 1)
    status = await reach(space, handle, "Failed")
    says = f"rule evaluator has acted as often as it may (2 of 2): {name}-evaluator-1: {BACKOFF}"
    assert (status.reason, status.message[: len(says)]) == ("RuleLimitExceeded", says)
    reason, message = ended(await told(space, handle, document))
    assert (reason, message[: len(says)]) == ("RuleLimitExceeded", says)
    assert message.endswith(f"(first failed job: {name}-evaluator-1)")
    assert await reasons(space, 2) == [[BACKOFF] * 3, []]
    assert_evaluators_paused(space, name, timedelta(seconds=5))

    async def kept() -> bool:
        return set(await there(space, name)) == {"evaluator-1"}

    await until(kept, 120, "the Job that failed last is kept, and what was active is gone")


def assert_evaluators_paused(space: Space, name: str, pause: timedelta) -> None:
    """Assert that what was made again waited for its rule's pause; the cluster tells times to the second."""
    lives = [one for one in space.truth.of(1, "Job") if one.name == f"{name}-evaluator-1"]
    lives.sort(key=lambda one: one.object["metadata"]["creationTimestamp"])
    assert len(lives) == 3
    failed = sorted(at for one in space.truth.of(1, "Job") if (at := _failed_at(one.object)))
    for at, again in zip(failed[:2], lives[1:], strict=True):
        made = datetime.fromisoformat(again.object["metadata"]["creationTimestamp"])
        assert made - at >= pause - timedelta(seconds=1)


def _failed_at(job: Json) -> datetime | None:
    conditions = job.get("status", {}).get("conditions", ())
    found = [one["lastTransitionTime"] for one in conditions if (one["type"], one["status"]) == ("Failed", "True")]
    return datetime.fromisoformat(found[0]) if found else None


@ROW("J19", level="e2e")
async def test_J19_it_counts_towards_the_maximum_and_another_rule_restarts_all(space: Space):
    rules = [{"name": "part", "action": "RestartReplicatedJob", "targetReplicatedJobs": ["evaluator"]}]
    policy = {"maxRestarts": 2, "rules": rules}
    document = jobset("train", once("trainer"), once("evaluator", replicas=2), failurePolicy=policy)
    handle = await space.submit(document)
    await reach(space, handle, "Running", 1)
    before = await there(space, "train")
    await end_pods(space, 1, ("train-evaluator-0", 0), ("train-evaluator-1", 0))
    found = await made_again(space, "train", before, 1, "evaluator-0", "evaluator-1")
    assert found["trainer-0"] == before["trainer-0"]
    await runs(space, handle, document, trainer=1, evaluator=2)
    assert counted(await told(space, handle, document)) == (1, 1), "both failed at once: one restart"
    await end_pod(space, "train-trainer-0", 1)
    await reach(space, handle, "Running", 2)
    assert {restarted for _, restarted in (await there(space, "train")).values()} == {"2"}
    assert counted(await told(space, handle, document)) == (2, 2)
    await end_pod(space, "train-evaluator-1", 1)
    status = await reach(space, handle, "Failed")
    assert (status.reason, status.restarts) == ("RetryLimitExceeded", 2)
    assert ended(await told(space, handle, document))[0] == "ReachedMaxRestarts"


@ROW("J19", level="e2e")
async def test_J19_a_trial_that_fails_stays_failed_and_one_that_succeeds_is_enough(space: Space):
    name, document = "fail-job-example", story("fail-job")
    handle = await space.submit((STORIES / "fail-job.yaml").read_text())
    await reach(space, handle, "Running", 1)
    before = await there(space, name)
    await end_pod(space, f"{name}-trial-1", 1)
    await has_failed(space, f"{name}-trial-1")
    await standing(space, handle, document, trial=(0, 1))
    await asyncio.sleep(3)  # Time enough for whatever might still come of it.
    assert await there(space, name) == before, "nothing is made again, nothing is deleted"
    assert (await space.site.status(handle)).phase == "Running"
    await end_pod(space, f"{name}-trial-2", 0)
    status = await reach(space, handle, "Succeeded")
    assert (status.attempt, status.restarts) == (1, 0)
    found = await told(space, handle, document)
    assert ended(found) == ("AllJobsCompleted", "jobset completed successfully")
    await standing(space, handle, document, trial=(1, 1))

    async def kept() -> bool:
        return await there(space, name) == {job: before[job] for job in ("trial-1", "trial-2")}

    await until(kept, 120, "what has ended is kept, as it was; what was active is gone")


@ROW("J19", level="e2e")
async def test_J19_when_all_trials_have_failed_the_set_fails_with_its_reason(space: Space):
    name, document = "fail-job-example", story("fail-job")
    handle = await space.submit((STORIES / "fail-job.yaml").read_text())
    await reach(space, handle, "Running", 1)
    before = await there(space, name)
    for trial in range(2):
        await end_pod(space, f"{name}-trial-{trial}", 1)
        await standing(space, handle, document, trial=(0, trial + 1))
        assert (await space.site.status(handle)).phase == "Running", "one is left that may succeed"
    await end_pod(space, f"{name}-trial-2", 1)
    status = await reach(space, handle, "Failed")
    assert (status.reason, status.restarts) == ("SuccessUnreachable", 0)
    reason, message = ended(await told(space, handle, document))
    assert reason == "SuccessUnreachable"
    assert message.startswith("success is out of reach: success needs that Job fail-job-example-trial (3 copies) is ")
    assert "(rule trial)" in message
    assert await there(space, name) == before, "all of them are kept"
    assert await reasons(space, 2) == [[BACKOFF] * 3, []]


@ROW("J19", level="e2e")
@pytest.mark.parametrize("needed", [False, True], ids=["not-needed", "needed"])
async def test_J19_success_policy_decides_what_a_failed_job_comes_to(space: Space, needed: bool):
    rules = [{"name": "part", "action": "FailJob", "targetReplicatedJobs": ["extra"]}]
    targets = ["main", "extra"] if needed else ["main"]
    document = jobset(
        "train",
        once("main"),
        once("extra", replicas=2),
        failurePolicy={"maxRestarts": 3, "rules": rules},
        successPolicy={"operator": "All", "targetReplicatedJobs": targets},
    )
    handle = await space.submit(document)
    await reach(space, handle, "Running", 1)
    before = await there(space, "train")
    await end_pod(space, "train-extra-0", 1)
    if not needed:
        await standing(space, handle, document, main=(0, 0), extra=(0, 1))
        await end_pod(space, "train-main-0", 0)
    status = await reach(space, handle, "Failed" if needed else "Succeeded")
    assert (status.attempt, status.restarts) == (1, 0)
    reason, message = ended(await told(space, handle, document))
    assert reason == ("SuccessUnreachable" if needed else "AllJobsCompleted")
    assert not needed or message.endswith("(first failed job: train-extra-0)")
    kept = {"extra-0"} if needed else {"extra-0", "main-0"}

    async def left() -> bool:
        return await there(space, "train") == {job: before[job] for job in kept}

    await until(left, 120, f"{kept} are kept as they were")


@ROW("J19", level="e2e")
async def test_J19_a_rules_limit_is_changed_under_way_and_its_pause_delays_the_next_attempt(space: Space):
    document = story("ignore-max-restarts")
    document["spec"]["failurePolicy"]["rules"][0]["name"] = "hostMaintenance"
    document["metadata"]["annotations"] = {
        "holdfast.dev/ruleLimits": '{"hostMaintenance": 1}',
        "holdfast.dev/rulePauses": '{"hostMaintenance": "3s"}',
    }
    name = document["metadata"]["name"]
    handle = await space.submit(document)
    await reach(space, handle, "Running", 1)
    await end_pod(space, f"{name}-workers-0", 143)
    await reach(space, handle, "Running", 2)
    await space.assert_paused(handle, name, 2, 3)
    await handle.execute_update("update_policy", PolicyChange(rule_limits={"hostMaintenance": 2}))
    await end_pod(space, f"{name}-workers-0", 143)
    await reach(space, handle, "Running", 3)
    assert counted(await told(space, handle, document)) == (2, 0)
    await end_pod(space, f"{name}-workers-0", 143)
    await reach(space, handle, "Failed")
    reason, message = ended(await told(space, handle, document))
    assert reason == "RuleLimitExceeded"
    assert message.startswith(f"rule hostMaintenance has acted as often as it may (2 of 2): {name}-workers-0: Pod")
