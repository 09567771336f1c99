"""What stays of a JobSet at its end, and what goes (row J12), with the real Job controller."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.formats.jobset import reader as format_
from holdfast.local import Stack
from holdfast.model import OperationKind
from tests.e2e.ground.site import open_site, until
from tests.e2e.ground.space import STUBBORN, Handle, Space, open_space
from tests.e2e.peers.jobsets import Json, P, jobset, replicated

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
SHARED = pytest.mark.asyncio(loop_scope="session")
NEVER = {"backoffLimit": 0}


def once(job: Json) -> Json:
    """Return a replicated job whose pods are not started again."""
    job["template"]["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    return job


async def submit(space: Space, document: Json) -> tuple[Any, Handle]:
    workload = format_.read(document, cluster=space.site.cluster, namespace=space.namespace)
    return workload, await space.submit(workload)


async def jobs(space: Space, name: str = "train") -> dict[str, Json]:
    found = await space.site.objects("batch/v1", "Job", space.namespace, labels=f"{P}jobset-name={name}")
    return {each["metadata"]["name"]: each for each in found}


async def uids(space: Space, name: str = "train") -> dict[str, str]:
    return {job: each["metadata"]["uid"] for job, each in (await jobs(space, name)).items()}


async def pods(space: Space) -> set[str]:
    """Return which Jobs have pods."""
    found = await space.site.objects("v1", "Pod", space.namespace, labels=f"{P}jobset-name=train")
    return {each["metadata"]["labels"]["job-name"] for each in found}


async def complete(space: Space, job: str) -> None:
    found = await space.site.objects("v1", "Pod", space.namespace, labels=f"job-name={job}")
    for each in found:
        await space.site.annotate("Pod", each["metadata"]["name"], space.namespace, kwok_complete="0s")


async def completed(space: Space, job: str) -> None:
    """Make a Job's pods succeed, and wait until its controller has said that it has."""
    await complete(space, job)

    async def is_complete() -> bool:
        found = await space.site.kube.get("batch/v1", "Job", job, space.namespace)
        conditions = found["status"].get("conditions") or ()
        return any(one["type"] == "Complete" and one["status"] == "True" for one in conditions)

    await until(is_complete, 90, f"Job {job} is complete")


async def cleared(space: Space, handle: Handle, outcome: str) -> None:
    """Wait until a set has ended, and what was active of it is told gone."""
    await space.reach(handle, outcome)

    async def told() -> bool:
        status = await space.site.status(handle)
        found = {each.type.value: each.status for each in status.conditions}
        return found.get("DeletingResources") is False and not found["QuotaReserved"]

    await until(told, 60, "what was active is gone")


def counted(workload: Any, status: Any) -> dict[str, dict[str, int]]:
    return {
        each["name"]: {key: value for key, value in each.items() if key != "name" and value}
        for each in format_.status(workload, status)["replicatedJobsStatus"]
    }


@SHARED
@pytest.mark.row("J12", level="e2e")
async def test_J12_any_is_enough_finished_jobs_stay_and_active_ones_go(space: Space):
    document = jobset(
        "train",
        replicated("driver"),
        replicated("workers", replicas=3),
        successPolicy={"operator": "Any", "targetReplicatedJobs": ["driver"]},
    )
    workload, handle = await submit(space, document)
    await space.reach(handle, "Running", 1)
    await completed(space, "train-workers-1")

    async def one_done() -> bool:
        status = await space.site.status(handle)
        counts = status.copies.get("workers")
        return counts is not None and counts.succeeded == 1

    before = await uids(space)
    await complete(space, "train-driver-0")
    await cleared(space, handle, "Succeeded")
    kept = {"train-driver-0", "train-workers-1"}
    assert await uids(space) == {name: before[name] for name in kept}
    assert await pods(space) == kept
    await until(one_done, 90, "the finished worker is counted")
    status = await space.site.status(handle)
    assert counted(workload, status) == {"driver": {"succeeded": 1}, "workers": {"succeeded": 1}}
    assert format_.status(workload, status)["terminalState"] == "Completed"
    assert await space.site.objects("v1", "Service", space.namespace), "what brings no pods stays too"
    acts = [act.name for act in await space.acts(handle)]
    assert (acts.count(OperationKind.CLEAR), acts.count(OperationKind.REMOVE)) == (1, 0)
    await handle.signal("cancel", "enough")
    assert (await space.ended(handle)).phase == "Succeeded"
    assert await uids(space) == {}


@SHARED
@pytest.mark.row("J2", level="e2e")
@pytest.mark.row("J12", level="e2e")
async def test_J12_a_failed_set_keeps_its_failed_and_finished_jobs_alone(space: Space):
    document = jobset(
        "train",
        replicated("driver"),
        once(replicated("workers", job=NEVER)),
        replicated("sink", replicas=2),
    )
    workload, handle = await submit(space, document)
    await space.reach(handle, "Running", 1)
    await completed(space, "train-driver-0")
    (worker,) = await space.site.objects("v1", "Pod", space.namespace, labels="job-name=train-workers-0")
    await space.site.annotate("Pod", worker["metadata"]["name"], space.namespace, kwok_exit_code="1", kwok_fail="0s")
    await cleared(space, handle, "Failed")
    assert set(await uids(space)) == {"train-driver-0", "train-workers-0"}
    status = await space.site.status(handle)
    assert counted(workload, status) == {"driver": {"succeeded": 1}, "workers": {"failed": 1}, "sink": {}}
    await handle.signal("cancel", "enough")
    assert (await space.ended(handle)).phase == "Failed"
    assert await uids(space) == {}


@pytest.mark.row("J12", level="e2e")
@pytest.mark.parametrize("point", ["http.delete.jobs.after:3", "activity.clear.after:1"])
async def test_J12_a_worker_killed_while_active_jobs_are_deleted(stack: Stack, tmp_path: Path, point: str):
    async with open_site(stack, tmp_path, prefix="j") as site:
        dying = await site.start_worker(HOLDFAST_FAILPOINT=point)
        async with open_space(site) as space:
            success = {"operator": "Any", "targetReplicatedJobs": ["driver"]}
            document = jobset("train", replicated("driver"), replicated("workers", replicas=8), successPolicy=success)
            _, handle = await submit(space, document)
            await space.reach(handle, "Running", 1)
            before = await uids(space)
            await complete(space, "train-driver-0")
            await until(lambda: asyncio.sleep(0, dying.process.poll() is not None), 60, "the worker has died")
            assert dying.process.returncode == 137
            await site.start_worker()
            await cleared(space, handle, "Succeeded")
            assert await uids(space) == {"train-driver-0": before["train-driver-0"]}
            assert await pods(space) == {"train-driver-0"}
            status = await site.status(handle)
            assert (status.attempt, status.restarts) == (1, 0), "no job that we deleted was missed"


@SHARED
@pytest.mark.row("J12", level="e2e")
async def test_J12_active_pods_that_never_end_are_forced_once_their_grace_is_over(space: Space):
    """The kubelet never finishes their deletion: only a forced one takes them away."""
    deaf = replicated("workers", replicas=2)
    deaf["template"]["spec"]["template"].setdefault("metadata", {})["labels"] = STUBBORN
    success = {"operator": "Any", "targetReplicatedJobs": ["driver"]}
    document = jobset("train", replicated("driver"), deaf, successPolicy=success)
    document["metadata"]["annotations"] = {"holdfast.dev/forcefulDeletionGracePeriod": "5s"}
    _, handle = await submit(space, document)
    await space.reach(handle, "Running", 1)
    before = await uids(space)
    await complete(space, "train-driver-0")
    await cleared(space, handle, "Succeeded")
    assert await uids(space) == {"train-driver-0": before["train-driver-0"]}
    assert await pods(space) == {"train-driver-0"}
    await space.truth.settle()
    deletions = [one for one in space.truth.requests() if one.verb == "delete"]
    forced = [one for one in deletions if (one.resource, one.worker) == ("pods", True)]
    deaf_ones = {life.name for life in space.truth.of(1, "Pod") if life.name.startswith("train-workers-")}
    assert {one.name for one in forced} == deaf_ones
    assert len(deaf_ones) == 2
    asked = min(one.time for one in deletions if one.resource == "jobs")
    assert (min(one.time for one in forced) - asked).total_seconds() >= 5
    assert [act.name for act in await space.acts(handle)].count(OperationKind.CLEAR) == 1


@SHARED
@pytest.mark.row("J12", level="e2e")
@pytest.mark.row("F11", level="e2e")
async def test_J12_a_replicated_job_of_no_jobs_is_no_success(space: Space):
    none, worker = replicated("none", replicas=0), once(replicated("worker", job=NEVER))
    _, empty = await submit(space, jobset("empty", none))
    _, handle = await submit(space, jobset("train", none, worker, successPolicy={"operator": "Any"}))
    await space.reach(handle, "Running", 1)
    status = await space.reach(empty, "Pending", 1)
    assert status.reason == "Held"
    await completed(space, "train-worker-0")
    await space.reach(handle, "Succeeded")
    for one in (empty, handle):
        await one.signal("cancel", "enough")
        await space.ended(one)
