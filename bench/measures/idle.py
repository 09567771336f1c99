"""N workloads that run and to which nothing happens: memory, CPU, API requests, history events, a day extrapolated."""

from __future__ import annotations

import asyncio
from functools import partial

from bench.audit import tally
from bench.ground import Ground
from bench.seeing import in_phase, seeing
from bench.systems import CONTROLLERS, Controller, in_turn
from bench.usage import memory_of, using
from bench.work import PODS, workload

NAME = "idle"
SIZES = (1000,)
WINDOW = 600.0


async def measure(ground: Ground, sizes: tuple[int, ...] = SIZES, window: float = WINDOW) -> None:
    """Watch each controller being idle for `window` seconds."""
    await in_turn(ground, CONTROLLERS, sizes, partial(_one, window=window))


async def _one(ground: Ground, system: Controller, size: int, repeat: int, window: float) -> None:
    empty = _memory(system)
    names = [f"w{index}" for index in range(size)]
    async with seeing(ground.kube, "v1", "Pod", system.namespace, running=in_phase("Running")) as pods:
        await system.submit_all([workload(name) for name in names])
        await pods.all_reach("running", PODS * size)
        await asyncio.sleep(ground.options.settle)
        mark, events = ground.audit.mark(), await system.history_events(names)
        async with using(ground.pids() | system.pids) as usage:
            await asyncio.sleep(window)
        asked = tally(ground.audit.since(mark), system.asks)
        of_workloads = tally(ground.audit.since(mark, system.namespace), lambda each: _about(each, system))
        hours = usage.seconds / 3600
        values = {
            "empty_mib": empty,
            "memory_mib": _memory(system),
            "memory_per_1000_mib": (_memory(system) - empty) / size * 1000,
            "cpu_share": sum(usage.cpu[name] for name in system.pids) / usage.seconds,
            "cpu_temporal_share": usage.cpu["temporal"] / usage.seconds,
            "requests_per_hour": of_workloads.total() / size / hours,
            "controller_requests_per_hour": asked.total() / hours,
            "window_s": usage.seconds,
        }
        values |= {f"requests {what}": count for what, count in asked.items()}
        after = await system.history_events(names)
        if after is not None and events is not None:
            values["events_per_hour"] = (after - events) / size / hours
            values["events_per_day"] = values["events_per_hour"] * 24
        values["requests_per_day"] = values["requests_per_hour"] * 24
        await system.remove_all(names, pods)
    ground.record(system.name, values, size={"n": size}, repeat=repeat)


def _memory(system: Controller) -> float:
    return sum(memory_of(pid) for pid in system.pids.values())


def _about(entry: dict[str, object], system: Controller) -> bool:
    """Whether a request of the system's is about what is in the namespace of its workloads."""
    ref = entry.get("objectRef")
    return system.asks(entry) and isinstance(ref, dict) and ref.get("namespace") == system.namespace
