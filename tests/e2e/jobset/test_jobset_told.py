"""What a user of JobSets is told, at the terminal and by the cluster, and for how long it stays (rows J15, J17)."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest
import yaml

from holdfast import names
from tests.e2e.ground.site import until
from tests.e2e.ground.space import Space
from tests.e2e.ground.terminal import command
from tests.e2e.jobset.jobset_life import STORIES, end_pod, jobs, reach
from tests.e2e.peers.jobsets import jobset, replicated

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900), pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
Json = dict[str, Any]


def condition(type_: str, reason: str, message: str, *, holds: bool = True) -> Json:
    return {"type": type_, "status": "True" if holds else "False", "reason": reason, "message": message}


async def source_form(space: Space, name: str, expect: int = 0) -> tuple[list[Json], Json]:
    """Return the conditions that `holdfast status -o yaml` tells, without their times, and the rest of the status."""
    text = await command(space.site, "status", f"{space.namespace}/{name}", "-o", "yaml", expect=expect)
    found = yaml.safe_load(text)["sourceForm"]
    assert (found["apiVersion"], found["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    conditions = found["status"].pop("conditions", [])
    for each in conditions:
        datetime.fromisoformat(each.pop("lastTransitionTime"))
    return conditions, found["status"]


async def events(space: Space, name: str) -> list[tuple[str, str, str]]:
    """Return type, reason and message of the Events about a workload, oldest first."""
    found = await space.site.objects("v1", "Event", space.namespace)
    ours = [
        one
        for one in found
        if (one["involvedObject"]["kind"], one["involvedObject"]["name"]) == (names.ANCHOR_KIND, name)
    ]
    ours.sort(key=lambda one: int(one["metadata"]["resourceVersion"]))
    return [(one["type"], one["reason"], one["message"]) for one in ours]


@ROW("J17", level="e2e")
@ROW("J8", level="e2e")
async def test_J17_J8_a_story_at_the_terminal_from_submit_to_the_end(space: Space):
    name, file = "fail-jobset-example", str(STORIES / "fail-jobset.yaml")
    job, full = f"{name}-buggy-job-0", f"{space.namespace}/{name}"
    assert "valid (structure only): JobSet fail-jobset-example" in await command(space.site, "validate", file)
    await command(space.site, "submit", file, "-n", space.namespace)
    handle = space.site.client.get_workflow_handle(names.workflow_id(space.site.cluster, space.namespace, name))
    space.handles.append(handle)
    await reach(space, handle, "Running", 1)
    standing = {"ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}

    async def ready() -> bool:
        found = await source_form(space, name)
        return found == ([], {"restarts": 0, "replicatedJobsStatus": [{"name": "buggy-job", **standing}]})

    await until(ready, 60, "its Job is told ready")
    await end_pod(space, job, 143)
    await reach(space, handle, "Running", 2)
    assert "restarts 1 of 10" in await command(space.site, "explain", full)
    conditions, rest = await source_form(space, name)
    ready_again = condition("RestartingJobSet", "JobsReady", "all jobs are ready", holds=False)
    assert (conditions, rest["restarts"], rest["restartsCountTowardsMax"]) == ([ready_again], 1, 1)
    await end_pod(space, job, 1)
    await reach(space, handle, "Failed")
    message = f"applying FailJobSet failure policy action (first failed job: {job})"
    conditions, rest = await source_form(space, name, expect=1)
    over = condition("RestartingJobSet", "JobSetFailed", "jobset failed", holds=False)
    assert conditions == [over, condition("Failed", "FailJobSetFailurePolicyAction", message)]
    assert (rest["terminalState"], rest["restarts"], rest["restartsCountTowardsMax"]) == ("Failed", 1, 1)
    explained = await command(space.site, "explain", full)
    assert "rule failurePolicyRule0" in explained
    assert "exit code 1 matching FailJob rule at index 0" in " ".join(explained.split())
    history = await command(space.site, "history", full)
    assert "rule no-failure-policy-rule" in history

    async def written() -> bool:
        return any(reason == "PodFailurePolicy" or "failurePolicyRule0" in text for _, reason, text in await happened())

    async def happened() -> list[tuple[str, str, str]]:
        return await events(space, name)

    await until(written, 30, "the end is an Event")
    resets = [(type_, text) for type_, reason, text in await happened() if reason == "Resetting"]
    assert len(resets) == 1, "the restart is an Event, once"
    assert resets[0][0] == "Warning"
    assert f"{job}: BackoffLimitExceeded" in resets[0][1]
    assert "rule no-failure-policy-rule" in resets[0][1]
    ends = [(type_, text) for type_, _, text in await happened() if "rule failurePolicyRule0" in text]
    assert len(ends) == 1
    assert f"{job}: PodFailurePolicy" in ends[0][1]


@ROW("J17", level="e2e")
async def test_J17_suspended_resumed_and_completed_are_told_as_published(space: Space):
    document = jobset("train", replicated("workers", replicas=2))
    handle = await space.submit(document)
    await reach(space, handle, "Running", 1)
    await command(space.site, "suspend", f"{space.namespace}/train", "--wait")
    conditions, _ = await source_form(space, "train")
    assert conditions == [condition("Suspended", "SuspendedJobs", "jobset is suspended")]
    await command(space.site, "resume", f"{space.namespace}/train", "--wait")
    await reach(space, handle, "Running", 1)
    resumed = condition("Suspended", "ResumeJobs", "jobset is resumed", holds=False)
    assert (await source_form(space, "train"))[0] == [resumed]
    for job in ("train-workers-0", "train-workers-1"):
        await end_pod(space, job, 0)
    await reach(space, handle, "Succeeded")
    conditions, rest = await source_form(space, "train")
    assert conditions == [resumed, condition("Completed", "AllJobsCompleted", "jobset completed successfully")]
    assert rest["terminalState"] == "Completed"
    assert rest["restarts"] == 0

    async def told() -> bool:
        return any(reason == "Completed" for _, reason, _ in await events(space, "train"))

    await until(told, 30, "the end is an Event")


@ROW("J17", level="e2e")
async def test_J17_a_job_that_succeeds_while_others_run_is_told(space: Space):
    handle = await space.submit(jobset("train", replicated("workers", replicas=3), replicated("driver")))
    await reach(space, handle, "Running", 1)
    for succeeded in (1, 2):
        await end_pod(space, f"train-workers-{succeeded}", 0)

        async def counted(expected: int = succeeded) -> bool:
            (workers, driver) = (await source_form(space, "train"))[1]["replicatedJobsStatus"]
            return (workers["succeeded"], driver["succeeded"]) == (expected, 0)

        await until(counted, 240, f"{succeeded} Jobs are told succeeded")
    assert (await space.site.status(handle)).phase == "Running"


@ROW("J15", level="e2e")
@pytest.mark.parametrize("code", [0, 1], ids=["completed", "failed"])
async def test_J15_the_time_to_live_counts_from_the_end_and_then_all_is_deleted(space: Space, code: int):
    """What came before the end does not count: the set has run for longer than its time to live."""
    seconds = 30
    job = replicated("workers", job={"backoffLimit": 0})
    job["template"]["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    handle = await space.submit(jobset("train", job, ttlSecondsAfterFinished=seconds))
    await reach(space, handle, "Running", 1)
    await asyncio.sleep(seconds + 1)
    assert set(await jobs(space, "train")) == {"train-workers-0"}
    await end_pod(space, "train-workers-0", code)
    phase = "Failed" if code else "Succeeded"
    await reach(space, handle, phase)
    assert set(await jobs(space, "train")) == {"train-workers-0"}, "what has ended is kept"
    assert (await space.ended(handle)).phase == phase
    await until(lambda: space.site.gone(space.namespace), 120, "all is gone")
    await space.truth.settle()
    (life,) = space.truth.of(1, "Job")
    verdict = {"Complete", "Failed"}
    over = max(
        datetime.fromisoformat(one["lastTransitionTime"])
        for one in life.object["status"]["conditions"]
        if one["type"] in verdict
    )
    removed = min(one.time for one in space.truth.requests() if (one.verb, one.resource) == ("delete", "attempts"))
    assert (removed - over).total_seconds() >= seconds
    services = [one for one in space.truth.lives.values() if one.kind == "Service" and one.attempt]
    assert services
    assert all(one.died for one in services), "its Service goes with it"


@ROW("J15", level="e2e")
async def test_J15_without_a_time_to_live_what_has_ended_stays(space: Space):
    handle = await space.submit(jobset("train", replicated("workers", complete="1s")))
    await reach(space, handle, "Succeeded")
    await asyncio.sleep(6)
    assert set(await jobs(space, "train")) == {"train-workers-0"}
    await handle.signal(names.SIGNAL_CANCEL, "no longer looked at")
    assert (await space.ended(handle)).phase == "Succeeded"
    await until(lambda: space.site.gone(space.namespace), 30, "all is gone")


@ROW("J6", level="e2e")
async def test_J6_what_the_cluster_refuses_is_told_by_the_jobsets_own_field(space: Space):
    """A pod failure policy wants pods that are not restarted; the default of a JobSet is another."""
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [3]}}
    refused = replicated("workers", replicas=2, job={"podFailurePolicy": {"rules": [rule]}})
    handle = await space.submit(jobset("train", replicated("driver"), refused))
    status = await space.ended(handle, seconds=300)
    assert status.phase == "Failed"
    assert "spec.replicatedJobs[1].template.spec.template.spec.restartPolicy: " in status.message, status.message
    assert await jobs(space, "train") == {}
