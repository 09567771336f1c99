"""A failed pod of a JobSet until all its pods run again: the published controller 0.10.1 and Holdfast, in one run.

`BENCH_JOBS` Jobs of `BENCH_PODS_EACH` pods on fake nodes, on one API server with the real Job controller and scheduler,
each case `BENCH_REPEATS` times. What is timed is seen by a watch of the bench's own: from the failure's being asked for
to the first pod of the next attempt, and to all of them running. The published controller runs with its defaults, then
with its client's limits raised, and with BlockingRecreate, which is what Holdfast does. `BENCH_LARGE` Jobs, if given,
are restarted by Holdfast alone, to show that neither history nor the worker's memory grows with pods.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from holdfast import names
from holdfast.activities.kube import Kube
from holdfast.formats import jobset as jobset_format
from holdfast.local import Stack
from tests.e2e.jobsets import Json, P, jobset, replicated
from tests.e2e.peer import open_peer
from tests.e2e.site import Site, open_site, until

JOBS = tuple(int(each) for each in os.environ.get("BENCH_JOBS", "50,100").split(","))
PODS = int(os.environ.get("BENCH_PODS_EACH", "10"))
REPEATS = int(os.environ.get("BENCH_REPEATS", "3"))
LARGE = tuple(int(each) for each in os.environ.get("BENCH_LARGE", "").split(",") if each)
RAISED: Json = {"clientConnection": {"qps": 5000, "burst": 5000}}
ATTEMPT = f"{P}restart-attempt"


@dataclass
class Seen:
    """What a watch of pods has seen of each attempt: when its first pod came, and which of its pods run."""

    first: dict[str, float] = field(default_factory=dict)
    running: dict[str, set[str]] = field(default_factory=dict)
    whole: dict[tuple[str, int], float] = field(default_factory=dict)

    def take(self, event: Json) -> None:
        """Take in one event of the watch."""
        pod = cast("Json", event["object"])
        attempt = pod["metadata"].get("labels", {}).get(ATTEMPT)
        if attempt is None or event["type"] == "BOOKMARK":
            return
        now = time.monotonic()
        self.first.setdefault(attempt, now)
        running = self.running.setdefault(attempt, set())
        if pod.get("status", {}).get("phase") == "Running":
            running.add(pod["metadata"]["uid"])
            self.whole.setdefault((attempt, len(running)), now)


@asynccontextmanager
async def watching(kube: Kube, namespace: str) -> AsyncIterator[Seen]:
    """Watch a namespace's pods, from before any is made."""
    seen = Seen()

    async def watch() -> None:
        version = (await kube.list("v1", "Pod", namespace))["metadata"]["resourceVersion"]
        while True:  # The server ends a stream when it likes.
            async for event in kube.watch("v1", "Pod", namespace, resource_version=version):
                version = event["object"]["metadata"]["resourceVersion"]
                seen.take(event)

    task = asyncio.create_task(watch())
    try:
        yield seen
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def document(jobs: int, strategy: str) -> Json:
    """Return the JobSet: its Jobs fail with their first failed pod, and it restarts as often as it is asked."""
    workers = replicated("workers", replicas=jobs, pods=PODS, job={"backoffLimit": 0})
    workers["template"]["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    return jobset("train", workers, failurePolicy={"maxRestarts": 100, "restartStrategy": strategy})


async def fail_one(kube: Kube, namespace: str, attempt: int) -> None:
    """Have the first pod of an attempt fail."""
    pods = (await kube.list("v1", "Pod", namespace, labels=f"{ATTEMPT}={attempt}"))["items"]
    metadata = pods[0]["metadata"]
    marks = {"holdfast.dev/kwok-fail": "0s", "holdfast.dev/kwok-exit-code": "1"}
    patch = {"metadata": {"annotations": marks}}
    await kube.patch("v1", "Pod", metadata["name"], namespace, uid=metadata["uid"], patch=patch)


def memory_of(pid: int) -> float:
    """Return what a process holds in memory, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"process {pid} tells no memory")


@dataclass
class Measured:
    """The restarts of one case: seconds to the first new pod and to all running."""

    case: str
    jobs: int
    start: float
    firsts: list[float]
    wholes: list[float]
    memory: float
    events: list[int] = field(default_factory=list)

    def line(self) -> str:
        """Return this case as a row of the table."""
        events = str(round(statistics.median(self.events))) if self.events else "-"
        return (
            f"| {self.case} | {self.jobs} x {PODS} | {self.start:.1f} s | {_spread(self.firsts)} "
            f"| {_spread(self.wholes)} | {self.memory:.0f} MiB | {events} |"
        )


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} s ({min(values):.1f}-{max(values):.1f})"


async def measure(
    case: str,
    jobs: int,
    kube: Kube,
    namespace: str,
    pid: int,
    start: Callable[[], Awaitable[Any]],
    events: Callable[[], Awaitable[int]] | None = None,
) -> Measured:
    """Start a JobSet and restart it again and again, watched."""
    count = jobs * PODS
    firsts: list[float] = []
    wholes: list[float] = []
    counted: list[int] = []
    async with watching(kube, namespace) as seen:
        begun = time.monotonic()
        await start()
        await until(lambda: _whole(seen, 0, count), 1200, f"{case}: all pods run")
        started = seen.whole["0", count] - begun
        for attempt in range(1, REPEATS + 1):
            await asyncio.sleep(3)
            before = await events() if events else 0
            failed = time.monotonic()
            await fail_one(kube, namespace, attempt - 1)
            await until(lambda a=attempt: _whole(seen, a, count), 1200, f"{case}: all pods run in restart {attempt}")
            firsts.append(seen.first[str(attempt)] - failed)
            wholes.append(seen.whole[str(attempt), count] - failed)
            if events:
                await asyncio.sleep(3)
                counted.append(await events() - before)
        memory = memory_of(pid)
    return Measured(case, jobs, started, firsts, wholes, memory, counted)


async def _whole(seen: Seen, attempt: int, count: int) -> bool:
    return (str(attempt), count) in seen.whole


async def published(stack: Stack, case: str, jobs: int, strategy: str, **settings: Any) -> Measured:
    """Measure the published controller, in a namespace of its own."""
    with tempfile.TemporaryDirectory() as directory:
        async with open_peer(stack, Path(directory), **settings) as peer:
            made = document(jobs, strategy)
            found = await measure(case, jobs, peer.kube, peer.namespace, peer.pid, lambda: peer.create(made))
            await peer.kube.delete(
                made["apiVersion"], "JobSet", "train", peer.namespace, uid=(await peer.get("train"))["metadata"]["uid"]
            )
            await until(lambda: _empty(peer.kube, peer.namespace), 600, "all pods are gone")
            return found


async def ours(site: Site, jobs: int) -> Measured:
    """Measure Holdfast, in a namespace of its own."""
    namespace = await site.namespace()
    made = document(jobs, "Recreate")
    workload = jobset_format.read(made, cluster=site.cluster, namespace=namespace)
    handle = site.client.get_workflow_handle(workload.workflow_id)

    async def events() -> int:
        return (await handle.describe()).history_length

    pid = site.workers[-1].process.pid
    found = await measure("Holdfast", jobs, site.kube, namespace, pid, lambda: site.submit(workload), events)
    await handle.signal(names.SIGNAL_CANCEL)
    await until(lambda: _empty(site.kube, namespace), 600, "all pods are gone")
    return found


async def _empty(kube: Kube, namespace: str) -> bool:
    await asyncio.sleep(0.5)
    return not (await kube.list("v1", "Pod", namespace))["items"]


async def main() -> None:
    """Run all cases and print the table."""
    stack = Stack.up(os.environ.get("HOLDFAST_TEST_STACK", "test"))
    rows: list[Measured] = []
    with tempfile.TemporaryDirectory() as directory:
        async with open_site(stack, Path(directory), prefix="b") as site:
            await site.start_worker()
            idle = memory_of(site.workers[-1].process.pid)
            for jobs in JOBS:
                rows.append(await published(stack, "JobSet 0.10.1, defaults", jobs, "Recreate"))
                rows.append(await published(stack, "JobSet 0.10.1, BlockingRecreate", jobs, "BlockingRecreate"))
                rows.append(await published(stack, "JobSet 0.10.1, 5,000 requests/s", jobs, "Recreate", **RAISED))
                rows.append(await ours(site, jobs))
                print(f"done: {jobs} x {PODS}", flush=True)
            for jobs in LARGE:
                rows.append(await ours(site, jobs))
                print(f"done: {jobs} x {PODS}", flush=True)
    print(f"{REPEATS} restarts each: median (least-most); the worker was ready at {idle:.0f} MiB")
    print(
        "| controller | Jobs x pods | submit to all run | first new pod | all run again | resident | events a restart |"
    )
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        print(row.line())


if __name__ == "__main__":
    asyncio.run(main())
