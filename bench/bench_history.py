"""How much history a life costs, whatever the number of pods: budgets of 60 events to Succeeded and 56 a reset.

Measured against a real kube-apiserver, KWOK nodes, and a real Temporal; the worker runs under its own rights.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle

from holdfast.local import Stack
from tests.e2e.site import Site, appwrapper, job, open_site, until

SIZES = tuple(int(each) for each in os.environ.get("BENCH_PODS", "2,200,2000").split(","))
LIFE_BUDGET, RESET_BUDGET = 60, 56


async def history(handle: WorkflowHandle[Any, Any]) -> list[Any]:
    return list((await handle.fetch_history()).events)


async def quiet(handle: WorkflowHandle[Any, Any]) -> int:
    """Return the number of events once no more come."""
    last = -1
    while True:
        count = len(await history(handle))
        if count == last:
            return count
        last = count
        await asyncio.sleep(1.5)


async def one_life(site: Site, pods: int) -> dict[str, float]:
    namespace = await site.namespace()
    # Force at its default: a removal that outlasts it is forced, which is six events more.
    waits = {
        "admissionGracePeriodDuration": "10m",
        "warmupGracePeriodDuration": "10m",
        "forcefulDeletionGracePeriodDuration": "10m",
        "successTTLDuration": "1h",
    }
    document = appwrapper("bench", job(pods=pods, backoffLimit=100), failureGracePeriodDuration="0s", **waits)
    begun = time.monotonic()
    handle = await site.submit(site.read(document, namespace))
    await site.reach(handle, "Running", 600)
    running = time.monotonic() - begun
    first = await quiet(handle)
    size = sum(event.ByteSize() for event in await history(handle))
    failed = time.monotonic()
    await site.fail_pod(namespace)
    await site.reach(handle, "Running", 600, attempt=2)
    reset = time.monotonic() - failed
    second = await quiet(handle)
    begun = time.monotonic()
    await finish_all(site, namespace)
    await site.reach(handle, "Succeeded", 600)
    success = await to_success(handle)
    life = first + (success - second)
    await handle.signal("cancel")
    await asyncio.wait_for(handle.result(), 600)
    return {
        "pods": pods,
        "life": life,
        "reset": second - first,
        "running_s": running,
        "reset_s": reset,
        "bytes": size,
    }


async def to_success(handle: WorkflowHandle[Any, Any]) -> int:
    """Return how many events there are up to the workflow task that decided success."""
    events = await history(handle)
    upserts = [
        event.event_id for event in events if event.event_type == EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES
    ]
    return upserts[-1]


async def finish_all(site: Site, namespace: str) -> None:
    pods = [pod["metadata"]["name"] for pod in await site.pods(namespace)]
    gate = asyncio.Semaphore(50)

    async def finish(name: str) -> None:
        async with gate:
            await site.annotate("Pod", name, namespace, kwok_complete="0s")

    await asyncio.gather(*(finish(name) for name in pods))


async def main() -> None:
    stack = Stack.up(os.environ.get("HOLDFAST_TEST_STACK", "test"))
    rows: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as directory:
        async with open_site(stack, Path(directory), prefix="b") as site:
            await site.start_worker()
            for pods in SIZES:
                row = await one_life(site, pods)
                rows.append(row)
                await until(lambda: site.gone(site.namespaces[-1]), 120, "all is gone")
    print(f"history events (budget: {LIFE_BUDGET} to Succeeded, {RESET_BUDGET} a reset), zero failure grace, 1 s pause")
    print("| pods | events to Succeeded | events a reset | history bytes at Running | submit → Running | reset |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['pods']:.0f} | {row['life']:.0f} | {row['reset']:.0f} | {row['bytes']:,.0f} "
            f"| {row['running_s']:.1f} s | {row['reset_s']:.1f} s |"
        )


if __name__ == "__main__":
    asyncio.run(main())
