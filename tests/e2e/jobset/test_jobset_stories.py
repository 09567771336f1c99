"""The proposal's four user stories, from their files, on real Job controllers (row J8).

The pods' exit codes are made up by fake nodes; what their Jobs come to, and why, is the Job controller's own word.
"""

from __future__ import annotations

import pytest

from tests.e2e.ground.site import until
from tests.e2e.ground.space import Space
from tests.e2e.jobset.jobset_life import (
    STORIES,
    Json,
    counted,
    end_pod,
    end_pods,
    ended,
    jobs,
    reach,
    reasons,
    story,
    told,
    why,
)
from tests.e2e.peers.jobsets import P

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500), pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
SIGTERM = 143
BACKOFF, POLICY = "BackoffLimitExceeded", "PodFailurePolicy"
MAXIMUM = 10
"""The stories' maxRestarts."""


@ROW("J8", level="e2e")
@ROW("J2", level="e2e")
async def test_J8_story_1_an_error_of_the_program_fails_the_set_at_once(space: Space):
    document, job = story("fail-jobset"), "fail-jobset-example-buggy-job-0"
    handle = await space.submit((STORIES / "fail-jobset.yaml").read_text())
    await reach(space, handle, "Running", 1)
    await end_pod(space, job, SIGTERM)
    await reach(space, handle, "Running", 2)
    assert counted(await told(space, handle, document)) == (1, 1), "host maintenance restarts it"
    await end_pod(space, job, 1)
    status = await reach(space, handle, "Failed")
    assert "exit code 1 matching FailJob rule at index 0" in status.message
    found = await told(space, handle, document)
    assert ended(found) == (
        "FailJobSetFailurePolicyAction",
        f"applying FailJobSet failure policy action (first failed job: {job})",
    )
    assert counted(found) == (1, 1)
    assert await reasons(space, 3) == [[BACKOFF], [POLICY], []]
    space.truth.assert_one_attempt_at_a_time(document["metadata"]["name"])


@ROW("J8", level="e2e")
@ROW("J3", level="e2e")
async def test_J8_story_1_host_maintenance_restarts_it_up_to_the_maximum(space: Space):
    document, job = story("fail-jobset"), "fail-jobset-example-buggy-job-0"
    handle = await space.submit((STORIES / "fail-jobset.yaml").read_text())
    for attempt in range(1, MAXIMUM + 2):
        await reach(space, handle, "Running", attempt)
        await end_pod(space, job, SIGTERM)
    await reach(space, handle, "Failed")
    found = await told(space, handle, document)
    assert ended(found) == (
        "ReachedMaxRestarts",
        f"jobset failed due to reaching max number of restarts (first failed job: {job})",
    )
    assert counted(found) == (MAXIMUM, MAXIMUM)
    assert await reasons(space, MAXIMUM + 2) == [[BACKOFF]] * (MAXIMUM + 1) + [[]]


@ROW("J8", level="e2e")
@ROW("J3", level="e2e")
async def test_J8_story_2_any_workers_failure_restarts_them_all_up_to_the_maximum(space: Space):
    document, job = story("restart-jobset"), "restart-jobset-example-buggy-job-0"
    handle = await space.submit((STORIES / "restart-jobset.yaml").read_text())
    for attempt in range(1, MAXIMUM + 2):
        await reach(space, handle, "Running", attempt)
        await end_pod(space, job, 1 + attempt, index=attempt % 4)
    status = await reach(space, handle, "Failed")
    assert all("rule failurePolicyRule0" in each for each in why(status))
    found = await told(space, handle, document)
    assert ended(found)[0] == "ReachedMaxRestarts"
    assert counted(found) == (MAXIMUM, MAXIMUM)
    assert await reasons(space, MAXIMUM + 2) == [[BACKOFF]] * (MAXIMUM + 1) + [[]]
    pods = [len(space.truth.of(attempt, "Pod")) for attempt in range(1, MAXIMUM + 2)]
    assert pods == [4] * (MAXIMUM + 1), "all four are made again, and nobody else made a fifth"
    space.truth.assert_one_attempt_at_a_time(document["metadata"]["name"])


@ROW("J8", level="e2e")
@ROW("J4", level="e2e")
async def test_J8_story_3_host_maintenance_restarts_it_without_end_and_all_else_is_counted(space: Space):
    document, job = story("ignore-max-restarts"), "ignore-max-restarts-example-workers-0"
    handle = await space.submit((STORIES / "ignore-max-restarts.yaml").read_text())
    codes = [SIGTERM] * (MAXIMUM + 1) + [1] * MAXIMUM
    for attempt, code in enumerate(codes, start=1):
        await reach(space, handle, "Running", attempt)
        await end_pod(space, job, code)
        if attempt == MAXIMUM + 1:
            await reach(space, handle, "Running", attempt + 1)
            assert counted(await told(space, handle, document)) == (MAXIMUM + 1, 0)
    status = await reach(space, handle, "Running", len(codes) + 1)
    assert [one.used for one in status.budgets] == [MAXIMUM]
    await end_pod(space, job, SIGTERM)  # Nothing is left of the maximum, and this does not ask for any of it.
    await reach(space, handle, "Running", len(codes) + 2)
    await end_pod(space, job, 1)
    await reach(space, handle, "Failed")
    found = await told(space, handle, document)
    assert ended(found)[0] == "ReachedMaxRestarts"
    assert counted(found) == (len(codes) + 1, MAXIMUM)
    expected = [[POLICY if code == SIGTERM else BACKOFF] for code in [*codes, SIGTERM, 1]]
    assert await reasons(space, len(expected)) == expected


def story_4() -> Json:
    """Return the fourth story with 10 workers in place of its 15,000."""
    document = story("different-policies")
    document["spec"]["replicatedJobs"][0]["template"]["spec"].update(parallelism=2, completions=2)
    return document


@ROW("J8", level="e2e")
@ROW("J7", level="e2e")
async def test_J8_J7_story_4_each_replicated_job_has_its_own_policy(space: Space):
    document = story_4()
    workers, server = "different-policies-workers", "different-policies-parameter-server-0"
    most = document["spec"]["failurePolicy"]["maxRestarts"]
    handle = await space.submit(document)
    for attempt in range(1, most + 2):
        await reach(space, handle, "Running", attempt)
        await end_pod(space, f"{workers}-{attempt % 5}", 1, index=attempt % 2)
    status = await reach(space, handle, "Running", most + 2)
    assert counted(await told(space, handle, document)) == (most + 1, 0), "workers may fail as often as they do"
    assert all("rule failurePolicyRule0" in each for each in why(status))
    assert len(await jobs(space, "different-policies")) == 6
    for attempt in range(most + 2, 2 * most + 2):
        await reach(space, handle, "Running", attempt)
        await end_pod(space, server, 1)
    status = await reach(space, handle, "Running", 2 * most + 2)
    assert all("rule failurePolicyRule1" in each for each in why(status)[most + 1 :])
    assert counted(await told(space, handle, document)) == (2 * most + 1, most)
    await end_pod(space, f"{workers}-4", 1)  # Nothing is left of the maximum, and workers do not ask for any of it.
    await reach(space, handle, "Running", 2 * most + 3)
    await end_pod(space, server, 1)
    await reach(space, handle, "Failed")
    found = await told(space, handle, document)
    assert ended(found) == (
        "ReachedMaxRestarts",
        f"jobset failed due to reaching max number of restarts (first failed job: {server})",
    )
    assert counted(found) == (2 * most + 2, most)
    assert await reasons(space, 2 * most + 3) == [[BACKOFF]] * (2 * most + 3)


@ROW("J8", level="e2e")
@ROW("J7", level="e2e")
async def test_J8_J7_story_4_what_a_rule_does_not_target_takes_the_default_action(space: Space):
    document = story_4()
    document["spec"]["failurePolicy"]["rules"].pop()
    handle = await space.submit(document)
    await reach(space, handle, "Running", 1)
    await end_pod(space, "different-policies-workers-3", 1, index=1)
    await reach(space, handle, "Running", 2)
    assert counted(await told(space, handle, document)) == (1, 0)
    await end_pod(space, "different-policies-parameter-server-0", 1)
    status = await reach(space, handle, "Running", 3)
    assert counted(await told(space, handle, document)) == (2, 1)
    assert ["rule no-failure-policy-rule" in each for each in why(status)] == [False, True]
    assert await reasons(space, 3) == [[BACKOFF], [BACKOFF], []]


@ROW("J8", level="e2e")
@ROW("J1", level="e2e")
async def test_J8_J1_a_story_without_a_policy_fails_with_its_first_failed_job(space: Space):
    document = story("restart-jobset")
    del document["spec"]["failurePolicy"]
    document["spec"]["replicatedJobs"][0]["replicas"] = 3
    name, job = document["metadata"]["name"], document["metadata"]["name"] + "-buggy-job-1"
    handle = await space.submit(document)
    await reach(space, handle, "Running", 1)
    labels = {one["metadata"]["labels"][f"{P}restart-attempt"] for one in (await jobs(space, name)).values()}
    assert labels == {"0"}
    await end_pod(space, job, 1, index=3)
    await reach(space, handle, "Failed")
    found = await told(space, handle, document)
    assert ended(found) == ("FailedJobs", f"jobset failed due to one or more job failures (first failed job: {job})")
    assert counted(found) == (0, 0)
    assert await reasons(space, 2) == [[BACKOFF], []]


@ROW("J8", level="e2e")
async def test_J8_a_story_whose_program_is_mended_completes(space: Space):
    document, job = story("restart-jobset"), "restart-jobset-example-buggy-job-0"
    handle = await space.submit(document)
    await reach(space, handle, "Running", 1)
    await end_pod(space, job, 1, index=2)
    await reach(space, handle, "Running", 2)
    await end_pods(space, 0, *((job, index) for index in range(4)))
    await reach(space, handle, "Succeeded")
    found = await told(space, handle, document)
    assert ended(found) == ("AllJobsCompleted", "jobset completed successfully")
    assert (counted(found), found["replicatedJobsStatus"][0]["succeeded"]) == ((1, 1), 1)

    async def complete() -> bool:
        conditions = (await jobs(space, document["metadata"]["name"]))[job]["status"]["conditions"]
        return any(one["type"] == "Complete" for one in conditions)

    await until(complete, 90, "its Job is complete")
