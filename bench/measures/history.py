"""How much history a life costs, whatever the number of pods: events and bytes to Succeeded, and of a reset.

Zero failure grace, 1 s retry pause. A removal that has to be forced is six events more, as are pods that take more than
45 s to run; a failure grace that is waited out is five.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle

from bench.actions import actions
from bench.ground import Ground
from bench.seeing import Seen, in_phase, seeing
from bench.systems.holdfast import HoldfastSystem, open_holdfast
from bench.work import bare, fail, finish, workload
from holdfast import names

NAME = "history"
PODS = (2, 200, 2000)
WAITS = {
    "failureGracePeriodDuration": "0s",
    "retryPausePeriodDuration": "1s",
    "forcefulDeletionGracePeriodDuration": "10m",
}


async def measure(ground: Ground, sizes: tuple[int, ...] = PODS) -> None:
    """Live a life with one reset at every size."""
    for pods in sizes:
        for repeat in range(ground.options.repeats):
            async with open_holdfast(ground) as system:
                await system.warm()
                await _one(ground, system, pods, repeat)


async def _one(ground: Ground, system: HoldfastSystem, count: int, repeat: int) -> None:
    handle = system.site.client.get_workflow_handle(system.workflow_id("life"))
    async with seeing(ground.kube, "v1", "Pod", system.namespace, running=in_phase("Running")) as pods:
        begun = datetime.now(UTC)
        # In the smoke, where all measures run at once, a look may come after a Job has replaced its failed pod.
        made = bare if ground.options.smoke else workload
        await system.submit(made("life", WAITS, count))
        await system.site.reach(handle, "Running", 600)
        to_running = await _quiet(ground, handle)
        running = (_recorded(to_running, "Running") - begun).total_seconds()
        failed = time.monotonic()
        await fail(ground.kube, _that_run(pods)[0])
        await system.site.reach(handle, "Running", 600, attempt=2)
        reset = time.monotonic() - failed
        after_reset = await _quiet(ground, handle)
        await finish(ground.kube, pods.present)
        await system.site.reach(handle, "Succeeded", 600)
        succeeded = _to_success(await _events(handle))
        await system.remove_all(["life"], pods)
        whole = await _events(handle)
    values = {
        "events_to_succeeded": len(to_running) + succeeded - len(after_reset),
        "events_of_reset": len(after_reset) - len(to_running),
        "events_of_life": len(whole),
        "actions_of_reset": actions(after_reset).total() - actions(to_running).total(),
        "actions_of_life": actions(whole).total(),
        "bytes_at_running": sum(event.ByteSize() for event in to_running),
        "bytes_of_life": sum(event.ByteSize() for event in whole),
        "running_s": running,
        "reset_s": reset,
    }
    ground.record(system.name, values, size={"pods": count}, repeat=repeat)


def _that_run(pods: Seen) -> list[Any]:
    return [pod for pod in pods.present if "running" in pod.reached]


async def _events(handle: WorkflowHandle[Any, Any]) -> list[Any]:
    return list((await handle.fetch_history()).events)


async def _quiet(ground: Ground, handle: WorkflowHandle[Any, Any]) -> list[Any]:
    """Return the history once nothing more comes."""
    last: list[Any] = []
    while True:
        found = await _events(handle)
        if len(found) == len(last):
            return found
        last = found
        await ground.rest(1.5)


def _recorded(events: list[Any], phase: str) -> datetime:
    """Return when the column of its phase was first written so."""
    columns = [(one.event_time, one.upsert_workflow_search_attributes_event_attributes) for one in events]
    payloads = [(at, one.search_attributes.indexed_fields.get(names.SA_PHASE)) for at, one in columns]
    at = next(at for at, payload in payloads if payload is not None and json.loads(payload.data) == phase)
    return at.ToDatetime(UTC)


def _to_success(events: list[Any]) -> int:
    """Return how many events there are up to the workflow task that decided success."""
    upsert = EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES
    return [event.event_id for event in events if event.event_type == upsert][-1]
