"""A restart of a JobSet on real controllers: one for several failures, none mixed, in order (J9 to J11, J13, J20)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import names
from tests.e2e.ground.site import until
from tests.e2e.ground.space import PENDING, Space
from tests.e2e.jobset.jobset_life import counted, end_pod, end_pods, ended, has_failed, jobs, reach, reasons, told, why
from tests.e2e.peers.jobsets import P, jobset, replicated

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900), pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
Json = dict[str, Any]
RESTARTS = {"maxRestarts": 5}


def once(name: str, pods: int = 1, **more: Any) -> Json:
    """Return a replicated job whose Jobs give up with their first failed pod."""
    found = replicated(name, pods=pods, job={"backoffLimit": 0}, **more)
    found["template"]["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    return found


def pods_of(job: Json) -> Json:
    """Return a replicated job's pod template."""
    return job["template"]["spec"]["template"]


async def revive(space: Space, restarted: int) -> None:
    """Start another worker in place of the one that was killed, and wait until the Jobs are made again.

    Nothing is asked of the workflow before: a query that reaches the new worker first is no part of what is tested.
    """
    await space.site.start_worker()

    async def again() -> bool:
        found = await jobs(space, "train")
        return {one["metadata"]["labels"][f"{P}restart-attempt"] for one in found.values()} == {str(restarted)}

    await until(again, 120, f"all Jobs are those of restart {restarted}")


@ROW("J10", level="e2e")
async def test_J10_failures_at_once_are_one_restart(space: Space):
    document = jobset("train", once("workers", 2, replicas=5), failurePolicy=RESTARTS)
    handle = await space.submit(document)
    await reach(space, handle, "Running", 1)
    await end_pods(space, 1, *((f"train-workers-{job}", index) for job in range(5) for index in range(2)))
    await reach(space, handle, "Running", 2)
    await asyncio.sleep(3)  # Time enough for whatever of the first attempt might still be counted.
    assert counted(await told(space, handle, document)) == (1, 1)
    assert await reasons(space, 2) == [["BackoffLimitExceeded"] * 5, []]
    space.truth.assert_one_attempt_at_a_time("train")


@ROW("J9", level="e2e")
@ROW("J10", level="e2e")
@pytest.mark.parametrize("first", ["a", "b"])
async def test_J9_of_failures_seen_together_the_earliest_decides(alone: Space, first: str):
    """No worker lives while they fail. The first rule is for `b`; it decides only where `b` has failed first."""
    space = alone
    rules = [
        {"name": "ofB", "action": "RestartJobSetAndIgnoreMaxRestarts", "targetReplicatedJobs": ["b"]},
        {"name": "ofA", "action": "RestartJobSet", "targetReplicatedJobs": ["a"]},
    ]
    document = jobset("train", once("a", replicas=2), once("b"), failurePolicy={**RESTARTS, "rules": rules})
    handle = await space.submit(document)
    await reach(space, handle, "Running", 1)
    space.site.workers[-1].kill()
    for job in ("a", "b") if first == "a" else ("b", "a"):
        await end_pod(space, f"train-{job}-0", 1)
        await has_failed(space, f"train-{job}-0")
        await asyncio.sleep(1.2)  # The cluster tells times to the second.
    await end_pod(space, "train-a-1", 1)
    await has_failed(space, "train-a-1")
    await revive(space, 1)
    status = await reach(space, handle, "Running", 2)
    (cause,) = why(status)
    assert cause.startswith(f"train-{first}-0: BackoffLimitExceeded")
    assert cause.endswith(f"(rule of{first.upper()})")
    assert counted(await told(space, handle, document)) == (1, 1 if first == "a" else 0), "three failures, one restart"
    assert await reasons(space, 2) == [["BackoffLimitExceeded"] * 3, []]


@ROW("J11", level="e2e")
@pytest.mark.parametrize("strategy", ["Recreate", "BlockingRecreate"])
async def test_J11_no_pod_of_one_attempt_lives_beside_a_pod_of_another(space: Space, strategy: str):
    """One Job's pods take their time to go, so that whoever does not wait for them is seen."""
    slow, quick = once("slow", 2, replicas=2), once("quick", 2)
    pods_of(slow).setdefault("metadata", {})["annotations"] = {"holdfast.dev/kwok-delete-delay": "3s"}
    document = jobset("train", slow, quick, failurePolicy={**RESTARTS, "restartStrategy": strategy})
    handle = await space.submit(document)
    for attempt in (1, 2):
        await reach(space, handle, "Running", attempt)
        await end_pod(space, "train-quick-0", 1, index=1)
    await reach(space, handle, "Running", 3)
    await space.truth.settle()
    space.truth.assert_one_attempt_at_a_time("train")
    lives = {
        restarted: [
            life
            for life in space.truth.lives.values()
            if life.kind in {"Job", "Pod"} and life.object["metadata"]["labels"][f"{P}restart-attempt"] == restarted
        ]
        for restarted in ("0", "1", "2")
    }
    assert {key: len(found) for key, found in lives.items()} == dict.fromkeys("012", 3 + 6)
    for before, after in (("0", "1"), ("1", "2")):
        last = max(life.died or 0 for life in lives[before])
        assert all(life.died for life in lives[before])
        assert last < min(life.born for life in lives[after]), "all of the last attempt was gone before any of the next"
    assert {life.attempt - 1 for life in lives["2"]} == {2}
    for found in lives.values():
        for life in found:
            metadata = life.object["metadata"]
            assert metadata["annotations"][f"{P}restart-attempt"] == metadata["labels"][f"{P}restart-attempt"]


async def release(space: Space, job: str) -> None:
    """Let the pods of a Job run that are held back, once they are there."""
    labels = f"batch.kubernetes.io/job-name={job}"

    async def there() -> bool:
        return bool(await space.site.objects("v1", "Pod", space.namespace, labels))

    await until(there, 60, f"{job} has pods")
    for pod in await space.site.objects("v1", "Pod", space.namespace, labels):
        await space.patch("v1", "Pod", pod["metadata"]["name"], {"metadata": {"labels": dict.fromkeys(PENDING)}})


async def are_there(space: Space, attempt: int, *expected: str) -> None:
    """Wait until exactly these Jobs are there, all of one attempt, and are there still a while later."""
    wanted = dict.fromkeys(expected, str(attempt - 1))

    async def found() -> dict[str, str]:
        labels = {name: one["metadata"]["labels"] for name, one in (await jobs(space, "train")).items()}
        return {name: each[f"{P}restart-attempt"] for name, each in labels.items()}

    async def same() -> bool:
        return await found() == wanted

    await until(same, 120, f"{expected} of attempt {attempt} are there")
    await asyncio.sleep(1.5)
    assert await found() == wanted


@ROW("J13", level="e2e")
async def test_J13_in_order_is_replayed_after_a_restart(space: Space):
    first, second = once("first", replicas=2), once("second")
    for job in (first, second):
        pods_of(job).setdefault("metadata", {})["labels"] = PENDING
    document = jobset(
        "train",
        first,
        second,
        once("third"),
        startupPolicy={"startupPolicyOrder": "InOrder"},
        failurePolicy=RESTARTS,
    )
    handle = await space.submit(document)
    for attempt in (1, 2):
        firsts = ("train-first-0", "train-first-1")
        await are_there(space, attempt, *firsts)
        await release(space, "train-first-0")
        await are_there(space, attempt, *firsts)
        started = (await told(space, handle, document))["conditions"][0]
        assert (started["type"], started["status"]) == ("StartupPolicyInProgress", "True")
        await release(space, "train-first-1")
        await are_there(space, attempt, *firsts, "train-second-0")
        if attempt == 1:  # A restart in the middle begins with the first again.
            await end_pod(space, "train-first-1", 1)
            continue
        await release(space, "train-second-0")
        await are_there(space, attempt, *firsts, "train-second-0", "train-third-0")
    await reach(space, handle, "Running", 2)

    async def over() -> bool:
        found = (await told(space, handle, document))["conditions"]
        ends = [("StartupPolicyInProgress", "False"), ("StartupPolicyCompleted", "True")]
        return [(one["type"], one["status"]) for one in found if one["type"] != "RestartingJobSet"] == ends

    await until(over, 120, "the startup policy is told completed")
    assert counted(await told(space, handle, document)) == (1, 1)
    space.truth.assert_one_attempt_at_a_time("train")


@ROW("J13", level="e2e")
async def test_J13_depends_on_is_replayed_after_a_restart(space: Space):
    after = [{"name": "setup", "status": "Complete"}]
    document = jobset("train", once("setup"), once("workers", dependsOn=after), failurePolicy=RESTARTS)
    handle = await space.submit(document)
    for attempt in (1, 2, 3):
        await are_there(space, attempt, "train-setup-0")
        await end_pod(space, "train-setup-0", 0)
        await are_there(space, attempt, "train-setup-0", "train-workers-0")
        if attempt < 3:
            await end_pod(space, "train-workers-0", 1)
    await end_pod(space, "train-workers-0", 0)
    await reach(space, handle, "Succeeded")
    assert counted(await told(space, handle, document)) == (2, 2)
    await space.truth.settle()
    for attempt in (1, 2, 3):
        (setup, workers) = space.truth.of(attempt, "Job")
        assert (setup.name, workers.name) == ("train-setup-0", "train-workers-0")
        complete = [one for one in setup.object["status"]["conditions"] if one["type"] == "Complete"]
        assert complete[0]["lastTransitionTime"] <= workers.object["metadata"]["creationTimestamp"]


@ROW("J20", level="e2e")
async def test_J20_what_is_left_of_max_restarts_survives_suspension_and_a_dead_worker(alone: Space):
    space = alone
    document = jobset("train", once("workers", replicas=2), failurePolicy={"maxRestarts": 3}, ttlSecondsAfterFinished=2)
    handle = await space.submit(document)
    await reach(space, handle, "Running", 1)
    await end_pod(space, "train-workers-1", 1)
    await reach(space, handle, "Running", 2)
    await handle.signal(names.SIGNAL_SUSPEND, "making room")
    await reach(space, handle, "Suspended")
    assert counted(await told(space, handle, document)) == (1, 1)
    await handle.signal(names.SIGNAL_RESUME, "room again")
    await reach(space, handle, "Running", 2)
    assert counted(await told(space, handle, document)) == (1, 1), "a suspension is no restart"
    await end_pod(space, "train-workers-0", 1)
    await has_failed(space, "train-workers-0")
    space.site.workers[-1].kill()
    await revive(space, 2)
    await reach(space, handle, "Running", 3)
    assert counted(await told(space, handle, document)) == (2, 2), "one restart, whoever carried it out"
    space.site.workers[-1].kill()
    await end_pod(space, "train-workers-0", 1)
    await revive(space, 3)
    await reach(space, handle, "Running", 4)
    assert counted(await told(space, handle, document)) == (3, 3)
    await end_pod(space, "train-workers-0", 1)
    status = await space.ended(handle)  # Its time to live is over, and nothing of it is left.
    assert (status.phase, status.reason, status.restarts) == ("Failed", "RetryLimitExceeded", 3)
    assert ended(await told(space, handle, document))[0] == "ReachedMaxRestarts"
    await space.truth.settle()
    space.truth.assert_one_attempt_at_a_time("train")
