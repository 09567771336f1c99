"""Single Jobs restart and the others run on: row J23, from documents, on real Job controllers."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tests.e2e.ground.site import until
from tests.e2e.ground.space import Handle, Space
from tests.e2e.jobset.jobset_life import counted, end_pod, end_pods, ended, jobs, once, reach, runs, told
from tests.e2e.peers.jobsets import P, jobset

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900), pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
RULES = [
    {"name": "own", "action": "RestartJob", "targetReplicatedJobs": ["worker"]},
    {"name": "host", "action": "RestartJobAndIgnoreMaxRestarts", "targetReplicatedJobs": ["driver"]},
]


class Standing(NamedTuple):
    """One Job, and what it and its pods say of its restarts."""

    uid: str
    restarts: str
    """The restart of all Jobs, and of this one alone, as its labels have them: `0/1`."""


async def there(space: Space, name: str) -> dict[str, Standing]:
    """Return the Jobs of a set that are not on their way out, by their name in the set."""
    return {
        job.removeprefix(f"{name}-"): Standing(found["metadata"]["uid"], _restarts(found["metadata"]["labels"]))
        for job, found in (await jobs(space, name)).items()
        if "deletionTimestamp" not in found["metadata"]
    }


def _restarts(labels: dict[str, str]) -> str:
    return f"{labels[f'{P}restart-attempt']}/{labels[f'{P}job-restart-attempt']}"


async def made_again(space: Space, before: dict[str, Standing], **expected: str) -> dict[str, Standing]:
    """Wait until just these Jobs are other ones, with these restarts, and return what is there then."""
    expected = {job.replace("_", "-"): restarts for job, restarts in expected.items()}

    async def again() -> bool:
        found = await there(space, "train")
        other = {job: found[job].restarts for job in found if found[job].uid != before[job].uid}
        return found.keys() == before.keys() and other == expected

    await until(again, 300, f"{expected} are made again, and nothing else")
    return await there(space, "train")


async def alone(space: Space, handle: Handle, document: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the published counters of each replicated job: its Jobs' restarts, and those that count."""
    found = (await told(space, handle, document))["replicatedJobsStatus"]
    return {one["name"]: (one.get("jobRestarts"), one.get("jobRestartsCountTowardsMax")) for one in found}


@ROW("J23", level="e2e")
async def test_J23_the_failed_job_restarts_alone_up_to_the_maximum(space: Space):
    policy = {"maxRestarts": 2, "rules": RULES}
    document = jobset("train", once("driver"), once("worker", replicas=3), failurePolicy=policy)
    handle = await space.submit(document)
    await reach(space, handle, "Running", 1)
    found = await there(space, "train")
    assert {one.restarts for one in found.values()} == {"0/0"}
    await end_pod(space, "train-worker-1", 1)
    found = await made_again(space, found, worker_1="0/1")
    await runs(space, handle, document, driver=1, worker=3)
    labels = f"batch.kubernetes.io/job-name=train-worker-1,{P}job-restart-attempt=1"
    (pod,) = await space.site.objects("v1", "Pod", space.namespace, labels)
    assert pod["metadata"]["annotations"][f"{P}job-restart-attempt"] == "1"
    assert counted(await told(space, handle, document)) == (0, 0), "no restart of all Jobs"
    assert await alone(space, handle, document) == {"driver": (None, None), "worker": ([0, 1, 0], [0, 1, 0])}
    await end_pod(space, "train-driver-0", 1)
    found = await made_again(space, found, driver_0="0/1")
    await runs(space, handle, document, driver=1, worker=3)
    await end_pod(space, "train-worker-1", 1)
    await made_again(space, found, worker_1="0/2")
    status = await reach(space, handle, "Running", 1)
    assert (status.executions, status.restarts) == (1, 3)
    assert await alone(space, handle, document) == {"driver": ([1], None), "worker": ([0, 2, 0], [0, 2, 0])}
    await end_pod(space, "train-worker-0", 1)
    status = await reach(space, handle, "Failed")
    assert status.reason == "RetryLimitExceeded"
    reason, message = ended(await told(space, handle, document))
    assert (reason, message.partition(" (")[2]) == ("ReachedMaxRestarts", "first failed job: train-worker-0)")


@ROW("J23", level="e2e")
async def test_J23_jobs_that_fail_together_restart_together_and_a_restart_of_all_keeps_their_counts(space: Space):
    policy = {"maxRestarts": 3, "rules": RULES[:1]}
    document = jobset("train", once("driver"), once("worker", replicas=3), failurePolicy=policy)
    handle = await space.submit(document)
    await reach(space, handle, "Running", 1)
    found = await there(space, "train")
    await end_pods(space, 1, ("train-worker-0", 0), ("train-worker-2", 0))
    await made_again(space, found, worker_0="0/1", worker_2="0/1")
    await runs(space, handle, document, driver=1, worker=3)
    assert await alone(space, handle, document) == {"driver": (None, None), "worker": ([1, 0, 1], [1, 0, 1])}
    await end_pod(space, "train-driver-0", 1)
    await reach(space, handle, "Running", 2)
    await runs(space, handle, document, driver=1, worker=3)
    found = await there(space, "train")
    assert {job: one.restarts for job, one in found.items()} == {
        "driver-0": "1/0",
        "worker-0": "1/1",
        "worker-1": "1/0",
        "worker-2": "1/1",
    }
    assert counted(await told(space, handle, document)) == (1, 1)
    assert await alone(space, handle, document) == {"driver": (None, None), "worker": ([1, 0, 1], [1, 0, 1])}
    await end_pod(space, "train-worker-2", 1)
    status = await reach(space, handle, "Failed")
    assert (status.reason, ended(await told(space, handle, document))[0]) == (
        "RetryLimitExceeded",
        "ReachedMaxRestarts",
    )
