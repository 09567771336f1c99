"""A JobSet suspended where it is and resumed as what it was (rows J14, J20), with the real Job controller."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from temporalio.service import RPCError

from holdfast import names
from holdfast.formats.jobset import reader as format_
from holdfast.local import Stack
from holdfast.model import OperationKind
from holdfast.policy.loop.change import ComponentsChange
from tests.e2e.ground.site import open_site, until
from tests.e2e.ground.space import Handle, Space, open_space
from tests.e2e.jobset.test_jobset_ends import complete, completed, counted, jobs, once, pods, submit, uids
from tests.e2e.peers.jobsets import Json, P, jobset, replicated
from tests.e2e.witness import law

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
SHARED = pytest.mark.asyncio(loop_scope="session")
NEVER = {"backoffLimit": 0}


async def running(space: Space) -> dict[str, Json]:
    """Return the pods that have not ended, by their Job."""
    found = await space.site.objects("v1", "Pod", space.namespace, labels=f"{P}jobset-name=train")
    going = [each for each in found if each["status"].get("phase") not in {"Succeeded", "Failed"}]
    return {each["metadata"]["labels"]["job-name"]: each for each in going}


async def suspended(space: Space, handle: Handle, why: str = "make room") -> None:
    await handle.signal(names.SIGNAL_SUSPEND, why)
    await space.reach(handle, "Suspended")


async def quota(space: Space, handle: Handle) -> bool:
    status = await space.site.status(handle)
    return {each.type.value: each.status for each in status.conditions}["QuotaReserved"]


def suspension(workload: Any, status: Any) -> tuple[str, str, str]:
    (found,) = [each for each in format_.status(workload, status)["conditions"] if each["type"] == "Suspended"]
    return found["status"], found["reason"], found["message"]


async def fails(space: Space, job: str) -> None:
    found = await space.site.objects("v1", "Pod", space.namespace, labels=f"job-name={job}")
    for each in found:
        await space.site.annotate("Pod", each["metadata"]["name"], space.namespace, kwok_exit_code="1", kwok_fail="0s")


@SHARED
@pytest.mark.row("J14", level="e2e")
async def test_J14_jobs_are_suspended_in_place_and_resumed_with_what_is_merged(space: Space):
    document = jobset("train", replicated("driver"), replicated("workers", replicas=3))
    workload, handle = await submit(space, document)
    await space.reach(handle, "Running", 1)
    before = await uids(space)
    await suspended(space, handle)
    assert await uids(space) == before
    assert await running(space) == {}
    assert not await quota(space, handle)
    status = await space.site.status(handle)
    assert counted(workload, status) == {"driver": {"suspended": 1}, "workers": {"suspended": 3}}
    assert suspension(workload, status) == ("True", "SuspendedJobs", "jobset is suspended")
    assert all(each["spec"]["suspend"] is True for each in (await jobs(space)).values())

    placed = copy.deepcopy(document)
    template = placed["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]
    template["metadata"]["labels"] = {"queue": "night"}
    template["spec"]["nodeSelector"] = {"holdfast.dev/node": "fake", "kubernetes.io/os": "linux"}
    template["spec"]["tolerations"] = [{"key": "night", "operator": "Exists"}]
    after = format_.read(placed, cluster=space.site.cluster, namespace=space.namespace)
    again = await handle.execute_update(names.UPDATE_COMPONENTS, ComponentsChange(components=after.components))
    assert again == ["workers"]
    await handle.signal(names.SIGNAL_RESUME, "room again")
    await space.reach(handle, "Running", 1)
    assert await uids(space) == before, "nothing was made again"
    found = await running(space)
    assert set(found) == set(before)
    worker, driver = found["train-workers-2"], found["train-driver-0"]
    assert worker["metadata"]["labels"]["queue"] == "night"
    assert worker["spec"]["nodeSelector"]["kubernetes.io/os"] == "linux"
    assert {"key": "night", "operator": "Exists"} in worker["spec"]["tolerations"]
    assert "queue" not in driver["metadata"]["labels"]
    restarts = {each["metadata"]["labels"][f"{P}restart-attempt"] for each in found.values()}
    assert restarts == {"0"}
    status = await space.site.status(handle)
    assert (status.attempt, status.executions, status.restarts) == (1, 1, 0)
    assert suspension(workload, status) == ("False", "ResumeJobs", "jobset is resumed")
    for job in before:
        await complete(space, job)
    await space.reach(handle, "Succeeded")
    await handle.signal("cancel", "enough")
    assert (await space.ended(handle)).phase == "Succeeded"
    assert await uids(space) == {}


@SHARED
@pytest.mark.row("J14", level="e2e")
@pytest.mark.row("J20", level="e2e")
async def test_J20_the_restart_budget_is_what_it_was_after_a_suspension(space: Space):
    policy = {"maxRestarts": 1}
    document = jobset("train", once(replicated("workers", replicas=2, job=NEVER)), failurePolicy=policy)
    workload, handle = await submit(space, document)
    await space.reach(handle, "Running", 1)
    await fails(space, "train-workers-1")
    await space.reach(handle, "Running", 2)
    before = await uids(space)
    for _ in range(2):
        await suspended(space, handle)
        await handle.signal(names.SIGNAL_RESUME)
        await space.reach(handle, "Running", 2)
    assert await uids(space) == before
    found = format_.status(workload, await space.site.status(handle))
    assert (found["restarts"], found["restartsCountTowardsMax"]) == (1, 1)
    labels = {each["metadata"]["labels"][f"{P}restart-attempt"] for each in (await jobs(space)).values()}
    assert labels == {"1"}
    await fails(space, "train-workers-0")
    await space.reach(handle, "Failed")
    found = format_.status(workload, await space.site.status(handle))
    assert found["conditions"][-1]["reason"] == "ReachedMaxRestarts"
    await handle.signal("cancel", "enough")
    await space.ended(handle)


@SHARED
@pytest.mark.row("J14", level="e2e")
async def test_J14_what_has_ended_stays_and_the_order_of_start_is_kept(space: Space):
    order = {"startupPolicyOrder": "InOrder"}
    document = jobset("train", replicated("driver"), replicated("workers", replicas=2), startupPolicy=order)
    _, handle = await submit(space, document)
    await space.reach(handle, "Running", 1)
    await completed(space, "train-workers-0")

    async def one_done() -> bool:
        status = await space.site.status(handle)
        counts = status.copies.get("workers")
        return counts is not None and counts.succeeded == 1

    before = await uids(space)
    await suspended(space, handle)
    assert await pods(space) == {"train-workers-0"}, "the pod that has ended is kept"
    await until(one_done, 90, "the finished worker is counted")
    await handle.signal(names.SIGNAL_RESUME)
    await space.reach(handle, "Running", 1)
    assert await uids(space) == before
    assert set(await running(space)) == {"train-driver-0", "train-workers-1"}
    causes = [cause.message for cause in (await space.site.status(handle)).causes]
    assert not any("creating" in each for each in causes[-4:]), causes
    acts = [act.name for act in await space.acts(handle)]
    assert (acts.count(OperationKind.PARK), acts.count(OperationKind.UNPARK)) == (1, 2)
    await handle.signal("cancel", "enough")
    assert (await space.ended(handle)).phase == "Cancelled"


@SHARED
@pytest.mark.row("J14", level="e2e")
async def test_J14_cancelled_while_it_is_suspended_all_of_it_goes(space: Space):
    _, handle = await submit(space, jobset("train", replicated("workers", replicas=2)))
    await space.reach(handle, "Running", 1)
    await suspended(space, handle)
    await handle.signal("cancel", "enough")
    assert (await space.ended(handle)).phase == "Cancelled"
    assert await uids(space) == {}


@SHARED
async def test_the_loss_of_its_owner_while_it_is_suspended_is_noticed(space: Space):
    _, handle = await submit(space, jobset("train", replicated("workers", replicas=2)))
    await space.reach(handle, "Running", 1)
    await suspended(space, handle)
    await space.delete(names.API_VERSION, names.ATTEMPT_KIND, names.attempt_name("train", 1))

    async def noticed() -> bool:
        status = await space.site.status(handle)
        told = {each.type.value: each.status for each in status.conditions}
        return status.phase == "Suspended" and not told["ResourcesDeployed"]

    await until(noticed, 60, "all of it is told gone")
    assert await uids(space) == {}
    await handle.signal(names.SIGNAL_RESUME)
    status = await space.reach(handle, "Running", 2)
    assert (status.restarts, status.executions) == (0, 2)
    labels = {each["metadata"]["labels"][f"{P}restart-attempt"] for each in (await jobs(space)).values()}
    assert labels == {"0"}, "nothing was restarted"


async def test_a_job_that_somebody_resumes_while_the_set_is_suspended_is_suspended_again(stack: Stack, tmp_path: Path):
    # Its pods are there, and its quota is told free, until they are seen: what anchors tell is not judged here.
    async with open_site(stack, tmp_path, prefix=law.WOKEN.rstrip("-")) as site:
        await site.start_worker()
        async with open_space(site) as space:
            _, handle = await submit(space, jobset("train", replicated("workers", replicas=2)))
            await space.reach(handle, "Running", 1)
            await suspended(space, handle)
            await space.patch("batch/v1", "Job", "train-workers-1", {"spec": {"suspend": False}})

            async def again() -> bool:
                acts = [act.name for act in await space.acts(handle)]
                status = await site.status(handle)
                return acts.count(OperationKind.PARK) == 2 and status.phase == "Suspended" and not await running(space)

            await until(again, 90, "it is suspended again")
            assert not await quota(space, handle)


@pytest.mark.row("J14", level="e2e")
@pytest.mark.parametrize(
    "point",
    ["http.patch.jobs.after:3", "http.patch.jobs.after:12", "activity.park.after:1", "activity.unpark.after:1"],
)
async def test_J14_a_worker_killed_while_jobs_are_suspended_or_resumed(stack: Stack, tmp_path: Path, point: str):
    async with open_site(stack, tmp_path, prefix="j") as site:
        dying = await site.start_worker(HOLDFAST_FAILPOINT=point)
        async with open_space(site) as space:
            _, handle = await submit(space, jobset("train", replicated("driver"), replicated("workers", replicas=8)))
            await space.reach(handle, "Running", 1)
            before = await uids(space)

            async def dead() -> bool:
                return dying.process.poll() is not None

            async def turned() -> bool:
                try:
                    return await dead() or (await site.status(handle)).phase == "Suspended"
                except RPCError:
                    return await dead()  # Nobody is left to answer.

            await handle.signal(names.SIGNAL_SUSPEND, "make room")
            await until(turned, 60, "it is suspended, or its worker has died")
            if not await dead():
                await handle.signal(names.SIGNAL_RESUME)
                await until(dead, 60, "the worker has died")
                await site.start_worker()
            else:
                await site.start_worker()
                await space.reach(handle, "Suspended")
                assert await running(space) == {}
                await handle.signal(names.SIGNAL_RESUME)
            assert dying.process.returncode == 137
            await space.reach(handle, "Running", 1)
            assert await uids(space) == before
            assert set(await running(space)) == set(before)
            status = await site.status(handle)
            assert (status.attempt, status.executions, status.restarts) == (1, 1, 0)
