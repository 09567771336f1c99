"""The worker killed with -9 in each phase, and between any two of its steps: nothing twice, nothing lost (row A19)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowFailureError

from holdfast import names
from holdfast.local import Stack
from holdfast.model import OperationKind
from tests.e2e.crash.scene import Scene, open_scene, pod
from tests.e2e.ground.site import job, until
from tests.e2e.witness.audit import Request
from tests.quotas import limited

pytestmark = [pytest.mark.e2e, pytest.mark.row("A19", level="e2e"), pytest.mark.timeout(600)]

STUBBORN = {"holdfast.dev/kwok-stubborn": "true"}
HELD = {"holdfast.dev/kwok-hold": "true"}


@pytest.fixture
async def scene(stack: Stack, tmp_path: Path) -> AsyncIterator[Scene]:
    async with open_scene(stack, tmp_path) as opened:
        yield opened


async def test_killed_while_preparing(scene: Scene):
    scene.proxy.black_hole()
    await scene.submit(job())
    await scene.doing(OperationKind.PREPARE)
    await scene.crash()
    await scene.moved_on()
    await scene.reach("Running", attempt=1)
    await scene.finish()


async def test_killed_while_creating_several_components(scene: Scene):
    await limited(scene.site.kube, scene.namespace, {"count/jobs.batch": "1"}, name="jobs")
    await scene.submit(job("first", 1), job("second", 1), job("third", 1))
    await scene.audit.until(
        lambda each: each.worker and each.resource == "jobs" and each.code == 403, 90, "the second job is refused"
    )
    await scene.crash()
    await scene.moved_on()
    quota = await scene.site.kube.get("v1", "ResourceQuota", "jobs", scene.namespace)
    await scene.site.kube.delete("v1", "ResourceQuota", "jobs", scene.namespace, uid=quota["metadata"]["uid"])
    await scene.reach("Running", attempt=1)
    jobs = sorted(one for one in scene.audit.created() if one.startswith("jobs/"))
    assert jobs == ["jobs/first", "jobs/second", "jobs/third"]
    await scene.finish()


async def test_killed_while_pods_start(scene: Scene):
    await scene.submit(job(labels=HELD))
    await scene.until_status(lambda status: status.reason == "Submitted", 30, "their pods are starting")

    async def made() -> bool:
        return len(await scene.pods()) == 2

    await until(made, 30, "the Job has made its pods")
    await scene.crash()
    await scene.steer_pods(labels={"holdfast.dev/kwok-hold": None})
    await scene.reach("Running", attempt=1)
    await scene.finish()


async def test_killed_while_running(scene: Scene):
    await scene.submit(job())
    await scene.reach("Running")
    await scene.crash()
    await scene.site.ready(scene.worker)
    status = await scene.reach("Running", attempt=1)
    assert (status.restarts, status.executions) == (0, 1)
    await scene.finish()


async def test_a_pod_that_fails_while_no_worker_lives_is_noticed_by_the_next(scene: Scene):
    await scene.submit(pod())
    await scene.reach("Running")
    scene.worker.kill()
    await scene.fail()
    scene.worker = scene.site.launch()
    await scene.reach("Running", attempt=2)
    await scene.finish(restarts=1, executions=2)


async def test_pods_that_complete_while_no_worker_lives_are_noticed_by_the_next(scene: Scene):
    await scene.submit(job())
    await scene.reach("Running")
    scene.worker.kill()
    await scene.complete()
    scene.worker = scene.site.launch()
    await scene.finish(executions=1)


async def test_killed_while_a_failure_grace_runs(scene: Scene):
    await scene.submit(pod(), failureGracePeriodDuration="12s")
    await scene.reach("Running")
    failed = datetime.now(UTC)
    await scene.fail()
    await scene.unhealthy()
    await scene.crash()
    await scene.reach("Running", attempt=2)
    (removed,) = scene.audit.requests(
        lambda each: each.worker and each.verb == "delete" and each.resource == "attempts"
    )
    assert (removed.received - failed).total_seconds() >= 12
    await scene.finish(restarts=1, executions=2)


async def test_killed_while_a_failure_grace_runs_out_and_all_heals(scene: Scene):
    await scene.submit(job(backoffLimit=5), failureGracePeriodDuration="180s")
    await scene.reach("Running")
    await scene.fail()
    await scene.unhealthy()
    await scene.crash()  # Its Job replaces the pod ten seconds after it failed.
    healed = await scene.until_status(
        lambda status: all(not each.status for each in status.conditions if each.type == "Unhealthy"), 120, "it healed"
    )
    assert (healed.attempt, healed.restarts) == (1, 0)
    await scene.finish(executions=1)


async def test_killed_while_looking(scene: Scene):
    await scene.submit(pod(), failureGracePeriodDuration="25s")
    await scene.reach("Running")
    await scene.fail()
    await scene.unhealthy()
    scene.proxy.black_hole()
    await scene.doing(OperationKind.OBSERVE)
    await scene.crash()
    await scene.moved_on()
    await scene.reach("Running", attempt=2)
    await scene.finish(restarts=1, executions=2)


async def test_killed_while_removing_for_a_reset(scene: Scene):
    await scene.submit(job(labels=STUBBORN, backoffLimit=5), forcefulDeletionGracePeriodDuration="60s")
    await scene.reach("Running")
    await scene.fail()
    await scene.doing(OperationKind.REMOVE)
    await scene.audit.until(_deletes_owner, 90, "the attempt's owner is deleted")
    await scene.crash()
    await scene.moved_on()
    await scene.steer_pods(labels={"holdfast.dev/kwok-stubborn": None})
    await _leave_stubbornness(scene)
    status = await scene.reach("Running", attempt=2)
    assert status.restarts == 1
    await scene.steer_pods(labels={"holdfast.dev/kwok-stubborn": None})
    await scene.finish(restarts=1, executions=2)


async def _leave_stubbornness(scene: Scene) -> None:
    """Let the pods of the first attempt go."""

    async def gone() -> bool:
        return all(each["metadata"]["labels"][names.LABEL_ATTEMPT] != "1" for each in await scene.pods())

    await until(gone, 60, "the first attempt's pods have gone")


def _deletes_owner(each: Request) -> bool:
    return each.worker and each.verb == "delete" and each.resource == "attempts"


async def test_killed_while_forcing(scene: Scene):
    await scene.submit(pod(), forcefulDeletionGracePeriodDuration="2s")
    await scene.reach("Running")
    await scene.steer_pods(finalizers=["example.com/hold"])
    await scene.handle.signal(names.SIGNAL_SUSPEND, "making room")
    await scene.doing(OperationKind.FORCE_REMOVE)
    await scene.audit.until(
        lambda each: each.worker and each.verb == "delete" and each.resource == "pods", 60, "the pod is forced"
    )
    await scene.crash()
    await scene.moved_on()
    assert (await scene.until_status(lambda _: True, 30, "it answers")).phase == "Suspending"
    await scene.steer_pods(finalizers=None)
    await scene.reach("Suspended")
    await scene.finish("Cancelled", executions=1)


async def test_killed_while_pausing_before_a_retry(scene: Scene):
    await scene.submit(pod(), failureGracePeriodDuration="0s", retryPausePeriodDuration="9s")
    await scene.reach("Running")
    await scene.fail()
    paused = await scene.until_status(lambda status: _is_gone(status.causes), 30, "it pauses")
    assert paused.phase == "Resetting"
    proven = next(each.time for each in paused.causes if each.reason == "DeletionComplete")
    await scene.crash()
    await scene.reach("Running", attempt=2)
    again = await scene.audit.until(
        lambda each: each.worker and each.verb == "create" and each.name == "train-a2", 1, "attempt 2 was made"
    )
    assert (again.received - proven).total_seconds() >= 9
    await scene.finish(restarts=1, executions=2)


def _is_gone(causes: Any) -> bool:
    return any(each.reason == "DeletionComplete" for each in causes)


async def test_killed_while_suspending(scene: Scene):
    await scene.submit(job(labels=STUBBORN), forcefulDeletionGracePeriodDuration="60s")
    await scene.reach("Running")
    await scene.handle.signal(names.SIGNAL_SUSPEND, "making room")
    await scene.audit.until(_deletes_owner, 90, "the attempt's owner is deleted")
    await scene.crash()
    await scene.moved_on()
    await scene.steer_pods(labels={"holdfast.dev/kwok-stubborn": None})
    status = await scene.reach("Suspended")
    assert status.restarts == 0
    await scene.handle.signal(names.SIGNAL_RESUME, "room again")
    await scene.reach("Running", attempt=2)
    await scene.steer_pods(labels={"holdfast.dev/kwok-stubborn": None})
    await scene.finish(executions=2)


async def test_killed_while_suspended(scene: Scene):
    await scene.submit(job())
    await scene.reach("Running")
    await scene.handle.signal(names.SIGNAL_SUSPEND, "making room")
    await scene.reach("Suspended")
    scene.worker.kill()
    await scene.handle.signal(names.SIGNAL_RESUME, "room again, although no worker lives")
    scene.worker = scene.site.launch()
    await scene.reach("Running", attempt=2)
    await scene.finish(executions=2)


async def test_killed_while_its_success_is_held(scene: Scene):
    await scene.submit(job(complete="1s"), successTTLDuration="12s")
    held = await scene.reach("Succeeded")
    await scene.crash()
    status = await asyncio.wait_for(scene.handle.result(), 180)
    assert (status.phase, status.restarts, status.executions) == ("Succeeded", 0, 1)
    (removed,) = scene.audit.requests(_deletes_owner)
    assert (removed.received - held.since).total_seconds() >= 12
    await scene.gone()
    await scene.check()


async def test_killed_while_terminating(scene: Scene):
    await scene.submit(job(labels=STUBBORN), forcefulDeletionGracePeriodDuration="60s")
    await scene.reach("Running")
    await scene.handle.signal(names.SIGNAL_CANCEL, "no longer wanted")
    await scene.audit.until(_deletes_owner, 90, "the attempt's owner is deleted")
    await scene.crash()
    await scene.moved_on()
    await scene.steer_pods(labels={"holdfast.dev/kwok-stubborn": None})
    status = await asyncio.wait_for(scene.handle.result(), 180)
    assert status.phase == "Cancelled"
    await scene.gone()
    await scene.check()


async def test_killed_while_failing(scene: Scene):
    await scene.submit(pod(kwok_delete_delay="6s"), failureGracePeriodDuration="0s", retryLimit="0")
    await scene.reach("Running")
    await scene.fail()
    await scene.audit.until(_deletes_owner, 90, "the attempt's owner is deleted")
    await scene.crash()
    with pytest.raises(WorkflowFailureError) as error:
        await asyncio.wait_for(scene.handle.result(), 180)
    assert "train failed" in str(error.value.cause)
    await scene.gone()
    await scene.check()


# --- between any two steps: the kill comes as soon as a request is done, before or after the worker has its answer

STEPS: dict[str, Callable[[Request], bool]] = {
    "the anchor is made": lambda each: each.verb == "create" and each.resource == "anchors",
    "the owner is made": lambda each: each.verb == "create" and each.resource == "attempts",
    "a status is told": lambda each: each.verb == "patch" and each.resource == "anchors",
    "the first component is made": lambda each: each.verb == "create" and each.name.startswith("first-"),
    "the last component is made": lambda each: each.verb == "create" and each.name.startswith("second-"),
    "it is marked submitted": lambda each: each.resource == "attempts" and each.subresource == "status",
    "the failed attempt is deleted": _deletes_owner,
    "the second owner is made": lambda each: each.verb == "create" and each.name == "train-a2",
}


@pytest.mark.parametrize("step", STEPS)
async def test_killed_as_soon_as(scene: Scene, step: str):
    fails = step in {"the failed attempt is deleted", "the second owner is made"}
    kill = None if fails else asyncio.create_task(scene.kill_at(STEPS[step], step))
    await scene.submit(pod("first"), pod("second"))
    if kill is not None:
        await kill
    await scene.reach("Running", attempt=1)
    if kill is None:
        kill = asyncio.create_task(scene.kill_at(STEPS[step], step))
    await scene.fail()
    await kill
    await scene.moved_on()
    await scene.reach("Running", attempt=2)
    await scene.finish(restarts=1, executions=2)
    # What was under way as the worker died may have been made without a success in the log.
    made = scene.audit.created()
    assert len(set(made)) == len(made), f"none is made twice: {made}"
    asked = scene.audit.requests(lambda each: each.verb == "create" and each.resource == "anchors")
    assert {each.name for each in asked} == {"train"}
    assert sorted(one.name for one in scene.witness.of(names.ATTEMPT_KIND)) == ["train-a1", "train-a2"]
    pods = sorted(one.name.partition("-")[0] for one in scene.witness.of("Pod"))
    assert pods == ["first", "first", "second", "second"], pods


async def test_killed_as_soon_as_its_anchor_is_let_go(scene: Scene):
    await scene.submit(pod())
    await scene.reach("Running")
    scene.worker.kill()
    mark = len(scene.audit.worker_writes())
    await scene.complete()
    scene.worker = await scene.site.start_worker()
    await scene.audit.until(
        lambda each: (
            each in scene.audit.worker_writes()[mark:]
            and each.resource == "anchors"
            and each.verb == "patch"
            and scene.witness.of(names.ATTEMPT_KIND)[0].ended is not None
        ),
        40,
        "the anchor is let go",
    )
    await scene.crash()
    await scene.finish(executions=1)
