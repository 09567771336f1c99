"""A failed pod of a JobSet until all its pods run again: plain Jobs, the published controller and Holdfast.

One JobSet of so many Jobs of ten pods each. From the failure's being asked for to the first pod of the next attempt,
and to all of them running. The published controller runs with its defaults, then with its client's limits raised, and
with BlockingRecreate, which is what Holdfast does. Plain are the same Jobs: once the bench sees the failed pod, it
deletes them in the foreground, and creates them again when all of them are gone.
"""

from __future__ import annotations

import asyncio
import copy
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from bench.ground import Ground, every
from bench.seeing import PATIENCE, Json, Life, Seen, in_phase, seeing
from bench.systems.holdfast import open_holdfast
from bench.systems.jobset import open_jobset
from bench.usage import memory_of, peak_of
from bench.work import fail, in_flight, placed
from holdfast import names
from holdfast.activities.kube.client import Kube
from holdfast.formats.jobset import reader as jobset_format
from tests.e2e.peers.jobsets import P, jobset, replicated

NAME = "gang"
JOBS = (50, 100)
EACH = 10
RAISED: Json = {"clientConnection": {"qps": 5000, "burst": 5000}}
ATTEMPT = f"{P}restart-attempt"
PLAIN = "plain"
AT_ONCE = 0.02
"""Seconds between two looks of the bench where it does the controller's work."""
PUBLISHED = {
    "JobSet": ("Recreate", {}),
    "JobSet, BlockingRecreate": ("BlockingRecreate", {}),
    "JobSet, 5,000 requests/s": ("Recreate", RAISED),
}


@dataclass
class Gang:
    """A JobSet on one of the controllers, or its Jobs on none."""

    kube: Kube
    namespace: str
    pid: int | None
    start: Callable[[], Awaitable[Any]]
    events: Callable[[], Awaitable[int]] | None = None
    restart: Callable[[], Awaitable[Any]] | None = None
    """Makes the next attempt, where nobody else does."""


async def measure(
    ground: Ground, jobs: tuple[int, ...] = JOBS, each: int = EACH, published: tuple[str, ...] = tuple(PUBLISHED)
) -> None:
    """Restart a gang of each size under every controller."""

    async def one(count: int, case: str) -> None:
        if case == "Holdfast":
            opened = by_holdfast(ground, document(count, each, "Recreate"))
        elif case == PLAIN:
            opened = by_nobody(ground, document(count, each, "Recreate"))
        else:
            strategy, settings = PUBLISHED[case]
            folder = f"{strategy}-{len(settings)}-{count}"
            opened = by_published(ground, folder, document(count, each, strategy), **settings)
        async with opened as gang:
            await _restarts(ground, case, gang, count, each)

    cases = [case for case in (PLAIN, *published, "Holdfast") if ground.wants(case.partition(",")[0])]
    await every(ground.options, [partial(one, count, case) for count in jobs for case in cases])


@asynccontextmanager
async def by_published(ground: Ground, folder: str, made: Json, **settings: Any) -> AsyncIterator[Gang]:
    """Have the published controller for one JobSet.

    Args:
        ground: where.
        folder: the name of a new folder for its files.
        made: the JobSet.
        settings: as `open_jobset` takes them.
    """
    async with open_jobset(ground, folder, **settings) as peer:
        yield Gang(ground.kube, peer.namespace, peer.pid, lambda: peer.create(made))


@asynccontextmanager
async def by_holdfast(ground: Ground, made: Json) -> AsyncIterator[Gang]:
    """Have Holdfast for one JobSet."""
    async with open_holdfast(ground) as system:
        await system.warm()
        workload = jobset_format.read(made, cluster=system.site.cluster, namespace=system.namespace)
        handle = system.site.client.get_workflow_handle(workload.workflow_id)

        async def events() -> int:
            return (await handle.describe()).history_length

        pid = system.workers[0].process.pid
        yield Gang(ground.kube, system.namespace, pid, lambda: system.client.submit(workload), events)
        await handle.signal(names.SIGNAL_CANCEL)
        await _emptied(ground, system.namespace)
        await system.removed()


@asynccontextmanager
async def by_nobody(ground: Ground, made: Json) -> AsyncIterator[Gang]:
    """Have the Jobs of one JobSet without a controller; the bench deletes and creates them."""
    async with ground.namespace() as namespace, seeing(ground.kube, "batch/v1", "Job", namespace) as jobs:
        attempts = itertools.count()

        async def start() -> None:
            made_now = jobs_of(made, next(attempts))
            await in_flight([lambda job=job: ground.kube.create(placed(job, namespace)) for job in made_now])

        async def restart() -> None:
            await in_flight([lambda job=job: deleted(job) for job in jobs.present])
            await jobs.until(lambda: not jobs.present, PATIENCE, "all Jobs are gone", AT_ONCE)
            await start()

        async def deleted(job: Life) -> None:
            uid = job.last["metadata"]["uid"]
            await ground.kube.delete("batch/v1", "Job", job.name, namespace, uid=uid, propagation="Foreground")

        yield Gang(ground.kube, namespace, None, start, restart=restart)


def jobs_of(made: Json, attempt: int) -> list[Json]:
    """Return the Jobs of a JobSet, whose pods have the number of the attempt as under its controller."""
    replicated_job = made["spec"]["replicatedJobs"][0]
    spec = copy.deepcopy(replicated_job["template"]["spec"])
    spec["template"].setdefault("metadata", {}).setdefault("labels", {})[ATTEMPT] = str(attempt)
    names_of = (f"{made['metadata']['name']}-{replicated_job['name']}-{n}" for n in range(replicated_job["replicas"]))
    return [{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec} for name in names_of]


async def _restarts(ground: Ground, case: str, gang: Gang, jobs: int, each: int) -> None:
    count = jobs * each
    async with seeing(
        gang.kube, "v1", "Pod", gang.namespace, running=in_phase("Running"), failed=in_phase("Failed")
    ) as pods:
        begun = time.monotonic()
        await gang.start()
        started = (await whole(pods, 0, count))[-1] - begun
        for restart in range(1, ground.options.repeats + 1):
            await ground.rest(3)
            before = await gang.events() if gang.events else 0
            failed = time.monotonic()
            chosen = of_attempt(pods, restart - 1)[0]
            await fail(gang.kube, chosen)
            if gang.restart:
                await pods.until(lambda pod=chosen: "failed" in pod.reached, PATIENCE, "the pod fails", AT_ONCE)
                await gang.restart()
            running = await whole(pods, restart, count)
            first = min(pod.begun for pod in of_attempt(pods, restart))
            await ground.rest(3)
            values = {
                "start_s": started,
                "first_s": first - failed,
                "whole_s": running[-1] - failed,
            }
            if gang.pid is not None:
                values |= {"memory_mib": memory_of(gang.pid), "peak_mib": peak_of(gang.pid)}
            if gang.events:
                values["events"] = await gang.events() - before
            ground.record(case, values, size={"pods": count}, repeat=restart - 1)


def document(jobs: int, each: int, strategy: str) -> Json:
    """Return the JobSet: its Jobs fail with their first failed pod, and it restarts as often as it is asked."""
    workers = replicated("workers", replicas=jobs, pods=each, job={"backoffLimit": 0})
    workers["template"]["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    return jobset("train", workers, failurePolicy={"maxRestarts": 100, "restartStrategy": strategy})


def of_attempt(pods: Seen, attempt: int) -> list[Life]:
    """Return the pods of an attempt that were seen."""
    return [
        pod for pod in pods.lives.values() if (pod.last["metadata"].get("labels") or {}).get(ATTEMPT) == str(attempt)
    ]


async def whole(pods: Seen, attempt: int, count: int) -> list[float]:
    """Wait until all pods of an attempt have run, and return when each first did, in order."""

    def running() -> list[float]:
        return [pod.reached["running"] for pod in of_attempt(pods, attempt) if "running" in pod.reached]

    await pods.until(lambda: len(running()) >= count, PATIENCE, f"all pods of attempt {attempt} run")
    return sorted(running())[:count]


async def _emptied(ground: Ground, namespace: str) -> None:
    async with seeing(ground.kube, "v1", "Pod", namespace) as pods:
        await asyncio.sleep(1)  # What is there is listed first.
        await pods.all_gone()
