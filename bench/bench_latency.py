"""From a pod's failure to the decision: the audit log's timestamp of the failure against the deciding workflow task.

Zero failure grace, `BENCH_ACTIVE` workloads of two pods each running at once; one pod of each fails, one after another.
Noticed: the workflow task that follows the watch's signal. Decided: the workflow task that, after the live look which
comes before anything destructive, schedules the removal.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle

from holdfast import names
from holdfast.local import Stack
from tests.e2e.site import Site, appwrapper, job, open_site

ACTIVE = int(os.environ.get("BENCH_ACTIVE", "200"))
PER_SECOND = float(os.environ.get("BENCH_FAILURES_PER_SECOND", "4"))


async def start(site: Site, namespace: str, index: int) -> WorkflowHandle[Any, Any]:
    waits = {"failureGracePeriodDuration": "0s", "retryPausePeriodDuration": "1h", "successTTLDuration": "1h"}
    slow = {"warmupGracePeriodDuration": "20m", "admissionGracePeriodDuration": "20m"}
    document = appwrapper(f"w{index}", job(name=f"w{index}", backoffLimit=100), **waits, **slow)
    return await site.submit(site.read(document, namespace))


def failures(audit_log: Path, namespace: str) -> dict[str, datetime]:
    """Return when each workload's pod was first written as Failed, by the audit log, by the Job's name."""
    found: dict[str, datetime] = {}
    with audit_log.open() as lines:
        for line in lines:
            if namespace not in line or '"Failed"' not in line:
                continue
            entry = json.loads(line)
            ref = entry["objectRef"]
            status = entry.get("requestObject", {}).get("status", {})
            if (
                ref.get("namespace") != namespace
                or ref.get("subresource") != "status"
                or status.get("phase") != "Failed"
            ):
                continue
            name = ref["name"].rpartition("-")[0]
            at = datetime.fromisoformat(entry["stageTimestamp"].replace("Z", "+00:00"))
            found.setdefault(name, at)
    return found


async def decided(handle: WorkflowHandle[Any, Any]) -> tuple[datetime, datetime] | None:
    """Return when the failure was noticed and when it was decided."""
    task: datetime | None = None
    noticed: datetime | None = None
    for event in (await handle.fetch_history()).events:
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            task = event.event_time.ToDatetime(UTC)
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED and task is not None:
            kind = event.activity_task_scheduled_event_attributes.activity_type.name
            if kind == names.ACTIVITY_OBSERVE:
                noticed = task
            if kind == names.ACTIVITY_REMOVE:
                return (noticed or task), task
    return None


async def main() -> None:
    stack = Stack.up(os.environ.get("HOLDFAST_TEST_STACK", "test"))
    with tempfile.TemporaryDirectory() as directory:
        async with open_site(stack, Path(directory), prefix="b") as site:
            await site.start_worker()
            namespace = await site.namespace()
            handles = {f"w{index}": await start(site, namespace, index) for index in range(ACTIVE)}
            await asyncio.gather(*(site.reach(handle, "Running", 300) for handle in handles.values()))
            pods: dict[str, str] = {}
            for pod in await site.pods(namespace):
                pods.setdefault(pod["metadata"]["name"].rpartition("-")[0], pod["metadata"]["name"])
            for name in handles:
                await site.annotate("Pod", pods[name], namespace, kwok_exit_code="1", kwok_fail="0s")
                await asyncio.sleep(1 / PER_SECOND)
            await asyncio.gather(*(site.reach(handle, "Resetting", 60) for handle in handles.values()))
            truth = failures(stack.audit_log, namespace)
            noticed, settled = [], []
            for name, handle in handles.items():
                times = await decided(handle)
                if times is not None and name in truth:
                    noticed.append((times[0] - truth[name]).total_seconds())
                    settled.append((times[1] - truth[name]).total_seconds())
    print(f"{len(settled)} failures, {ACTIVE} active workloads, {PER_SECOND:g} failures/s, zero grace")
    print("| | median | p90 | p99 | max |")
    print("|---|---|---|---|---|")
    for label, values in (("failure → noticed", noticed), ("failure → decided", settled)):
        cuts = statistics.quantiles(values, n=100, method="inclusive")
        print(f"| {label} | {cuts[49]:.3f} s | {cuts[89]:.3f} s | {cuts[98]:.3f} s | {max(values):.3f} s |")


if __name__ == "__main__":
    asyncio.run(main())
