"""Ten thousand idle one-pod workloads on one worker process: its memory, and how late its timers are.

At rest the pods of some fail, each of which begins a failure grace: a timer. How late it fires, and how late the
workflow task comes that acts on it, both by Temporal's own times. Nothing is removed in order: the stack is purged.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle

from bench.ground import Ground
from bench.seeing import in_phase, seeing
from bench.systems.holdfast import HoldfastSystem, open_holdfast
from bench.usage import memory_of, using
from bench.work import bare, fail, in_flight, workload_of

NAME = "crowd"
NODES = 16
STEPS = (1000, 2000, 5000, 10_000)
WINDOW = 300.0
GRACE = 20.0
FAILING = 100


async def measure(
    ground: Ground, steps: tuple[int, ...] = STEPS, window: float = WINDOW, grace: float = GRACE, failing: int = FAILING
) -> None:
    """Start workloads step by step; be idle for `window` seconds; then let timers fire."""
    waits = {"failureGracePeriodDuration": f"{grace:g}s", "retryPausePeriodDuration": "1h"}
    async with open_holdfast(ground, leave=True) as system:
        await system.warm()
        empty = _memory(system)
        async with seeing(ground.kube, "v1", "Pod", system.namespace, running=in_phase("Running")) as pods:
            there = 0
            values: dict[str, float] = {}
            for step in steps:
                await system.submit_all([bare(f"w{index}", waits, 1) for index in range(there, step)])
                await pods.all_reach("running", step)
                await asyncio.sleep(ground.options.settle)
                values = {"above_empty_mib": _memory(system) - empty, "memory_mib": _memory(system)}
                if step != steps[-1]:
                    ground.record(system.name, values, size={"n": step})
                there = step
            async with using(ground.pids() | system.pids) as usage:
                await asyncio.sleep(window)
            chosen = pods.present[:: max(1, there // failing)][:failing]
            for pod in chosen:
                await fail(ground.kube, pod)
            names = [workload_of(pod) for pod in chosen]
            doomed = set(names)
            await pods.until(
                lambda: not any(workload_of(pod) in doomed for pod in pods.present),
                600,
                "the failed workloads are reset",
            )
        late = await _lateness(system, names)
    values |= {
        "gained_mib": _memory_gained(usage.memory["worker"]),
        "cpu_share": usage.cpu["worker"] / usage.seconds,
        "cpu_temporal_share": usage.cpu["temporal"] / usage.seconds,
        "timers": len(late),
    }
    series = {
        "fired_late_s": sorted(fired for fired, _ in late),
        "late_s": sorted(acted for _, acted in late),
        "at_s": usage.times,
        "memory_mib": usage.memory["worker"],
    }
    ground.record(system.name, values, size={"n": steps[-1]}, series=series)


def _memory(system: HoldfastSystem) -> float:
    return sum(memory_of(pid) for pid in system.pids.values())


def _memory_gained(held: list[float]) -> float:
    """Return how much more is held at the end than at the beginning, by the means of a tenth of the time each."""
    tenth = max(1, len(held) // 10)
    return sum(held[-tenth:]) / tenth - sum(held[:tenth]) / tenth


async def _lateness(system: HoldfastSystem, workloads: list[str]) -> list[tuple[float, float]]:
    """Return by how much the failure grace of each fired late, and was acted on late."""
    found: list[tuple[float, float]] = []

    async def read(name: str) -> None:
        found.extend((await _late(system.site.client.get_workflow_handle(system.workflow_id(name))))[-1:])

    await in_flight([lambda name=name: read(name) for name in workloads], 10)
    return found


async def _late(handle: WorkflowHandle[Any, Any]) -> list[tuple[float, float]]:
    due: dict[int, datetime] = {}
    fired: list[tuple[datetime, datetime]] = []
    late: list[tuple[float, float]] = []
    async for event in handle.fetch_history_events():
        at = event.event_time.ToDatetime(UTC)
        if event.event_type == EventType.EVENT_TYPE_TIMER_STARTED:
            due[event.event_id] = at + event.timer_started_event_attributes.start_to_fire_timeout.ToTimedelta()
        elif event.event_type == EventType.EVENT_TYPE_TIMER_FIRED:
            fired.append((due[event.timer_fired_event_attributes.started_event_id], at))
        elif event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            late += [((when - due_at).total_seconds(), (at - due_at).total_seconds()) for due_at, when in fired]
            fired.clear()
    return late
