"""Restarts in place with real containers: the kubelet restarts them, and the pods stay (row J24)."""

from __future__ import annotations

import asyncio
import copy
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from holdfast import names
from holdfast.local import Stack
from holdfast.model import OperationKind
from tests.e2e.figures.in_place import PODS, Processes, in_place, places, token, with_agent
from tests.e2e.ground.held import open_real
from tests.e2e.ground.site import open_site, until
from tests.e2e.ground.space import FOREIGN_FINALIZER, Handle, Space
from tests.e2e.jobset.jobset_life import Json, counted, ended, reach, told
from tests.e2e.nodes.test_real_node import real as real

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real_node,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="session"),
]
ROW = pytest.mark.row


@pytest_asyncio.fixture(loop_scope="session")
async def ground(real: Space) -> Space:
    """A namespace for pods of the real node, with the agent."""
    await with_agent(real)
    return real


async def began(space: Space, token: int, **policy: Any) -> tuple[Handle, Json, Processes]:
    """Submit a JobSet, and wait until all its programs run."""
    document = in_place("train", token, **policy)
    handle = await space.submit(document)
    programs = Processes(token)
    await programs.run(0)
    await reach(space, handle, "Running", 1)
    return handle, document, programs


@ROW("J24", level="e2e")
async def test_J24_a_failed_program_restarts_all_pods_where_they_are(ground: Space):
    handle, document, programs = await began(ground, token())
    before = await places(ground)
    assert len(before) == PODS
    patch = {"metadata": {"annotations": {names.ANNOTATION_STEP: '{"step": 1000}'}}}
    for pod in [one["metadata"] for one in await ground.pods()]:
        await ground.site.kube.patch("v1", "Pod", pod["name"], ground.namespace, patch=patch, uid=pod["uid"])
    async with programs.watched():
        for number in (1, 2):
            await asyncio.to_thread(programs.kill)
            await programs.run(number)
            status = await reach(ground, handle, "Running", 1)
            assert (status.restarts, status.executions) == (number, 1)
    assert programs.mixed == [], "no process begins before all of the attempt before it are dead"
    assert await places(ground) == before, "uid, node and address stay"
    told_of = [one["metadata"]["annotations"].get(names.ANNOTATION_STEP) for one in await ground.pods()]
    assert told_of == [None] * PODS, "the step of the programs before"
    found = await told(ground, handle, document)
    assert counted(found) == (2, 2)
    assert (found["previousInPlaceRestartAttempt"], found["currentInPlaceRestartAttempt"]) == (1, 2)
    acts = [act.name for act in await ground.acts(handle)]
    assert (acts.count(OperationKind.BARRIER), acts.count(OperationKind.REMOVE)) == (3, 0)


@ROW("J24", level="e2e")
async def test_J24_after_the_maximum_of_restarts_the_set_fails_as_published(ground: Space):
    handle, document, programs = await began(ground, token(), maxRestarts=0)
    await asyncio.to_thread(programs.kill)
    await reach(ground, handle, "Failed", 1)
    found = await told(ground, handle, document)
    assert ended(found) == ("ReachedMaxRestarts", "jobset failed due to reaching max number of restarts")


@ROW("J13", level="e2e")
@ROW("J24", level="e2e")
async def test_J24_what_depends_on_a_completed_job_starts_without_its_pods(ground: Space):
    number = token()
    document = in_place("train", number)
    (workers,) = document["spec"]["replicatedJobs"]
    prep = {**copy.deepcopy(workers), "name": "prep"}
    prep["template"]["spec"] |= {"completions": 1, "parallelism": 1}
    prep["template"]["spec"]["template"]["spec"]["containers"][0]["command"] = ["true"]
    document["spec"]["replicatedJobs"] = [prep, {**workers, "dependsOn": [{"name": "prep", "status": "Complete"}]}]
    handle = await ground.submit(document)
    await Processes(number).run(0)
    status = await reach(ground, handle, "Running", 1)
    assert (status.restarts, status.executions) == (0, 1)


@ROW("J24", level="e2e")
async def test_J24_after_a_pod_was_deleted_all_begin_together(ground: Space):
    handle, _, programs = await began(ground, token())
    before = await places(ground)
    (lost, *_) = sorted(before)
    pods = {one["metadata"]["uid"]: one for one in await ground.site.objects("v1", "Pod", ground.namespace)}
    async with programs.watched():
        await ground.site.kube.delete("v1", "Pod", pods[lost[0]]["metadata"]["name"], ground.namespace, uid=lost[0])
        await programs.run(1)
    assert programs.mixed == []
    status = await reach(ground, handle, "Running")
    assert status.restarts == 1
    # The Job may replace the pod before it is gone: then it is still being deleted, which means a new attempt.
    assert (status.attempt, len(await places(ground) & before)) in {(1, PODS - 1), (2, 0)}


@ROW("J24", level="e2e")
async def test_J24_while_a_pod_is_still_going_a_restart_means_a_new_attempt(ground: Space):
    handle, _, programs = await began(ground, token())
    before = await places(ground)
    (pod, *_) = await ground.site.objects("v1", "Pod", ground.namespace)
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    await ground.finalize("v1", "Pod", name, FOREIGN_FINALIZER)
    async with programs.watched():
        await ground.site.kube.delete("v1", "Pod", name, ground.namespace, uid=uid)
        await reach(ground, handle, "Resetting", 1)
        await ground.finalize("v1", "Pod", name)
        await programs.run(1)
    assert programs.mixed == []
    status = await reach(ground, handle, "Running", 2)
    (reset,) = [one.message for one in status.causes if one.reason == "Resetting"]
    assert "it is recreated, since a pod of it is being deleted" in reset
    assert not before & await places(ground)


@ROW("J24", level="e2e")
@pytest.mark.parametrize("written", [names.ANNOTATION_RESTART_REQUEST, names.ANNOTATION_IN_PLACE_ATTEMPT])
async def test_J24_a_worker_killed_while_pods_restart_changes_nothing(stack: Stack, tmp_path: Path, written: str):
    async with open_site(stack, tmp_path, prefix="m") as site:
        worker = await site.start_worker()
        async with open_real(site) as space:
            await with_agent(space)
            handle, _, programs = await began(space, token())
            before = await places(space)

            async def is_written() -> bool:
                pods = await site.objects("v1", "Pod", space.namespace)
                return any(one["metadata"]["annotations"].get(written) == "1" for one in pods)

            async with programs.watched():
                await asyncio.to_thread(programs.kill)
                await until(is_written, 60, f"a pod has {written} 1")
                worker.kill()
                await site.start_worker()
                await programs.run(1)
            status = await reach(space, handle, "Running", 1)
            assert (status.restarts, status.executions) == (1, 1)
            assert programs.mixed == []
            assert await places(space) == before
