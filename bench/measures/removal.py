"""Suspension and removal of N running workloads, seen by a watch of the bench's own, against foreground deletion.

Suspended until no pod is left, resumed until all run again, then removed until no pod and no Job is left. Plain Jobs
are only removed. What the system's own record says (an AppWrapper gone, a workflow closed) comes later and is a
figure too. Requests and CPU are of the removal alone.
"""

from __future__ import annotations

import asyncio
import time

from bench.audit import agent, tally
from bench.ground import Ground
from bench.seeing import Seen, in_phase, seeing
from bench.systems import SYSTEMS, Controller, System, in_turn
from bench.usage import using
from bench.work import PODS, in_flight, workload

NAME = "removal"
SIZES = (100,)
CONTROLLERS = ("kube-controller-manager", "kwok")


async def measure(ground: Ground, sizes: tuple[int, ...] = SIZES) -> None:
    """Run every system at every size."""
    await in_turn(ground, SYSTEMS, sizes, _one)


async def _one(ground: Ground, system: System, size: int, repeat: int) -> None:
    names = [f"w{index}" for index in range(size)]
    async with (
        seeing(ground.kube, "v1", "Pod", system.namespace, running=in_phase("Running")) as pods,
        seeing(ground.kube, "batch/v1", "Job", system.namespace) as jobs,
    ):
        await system.submit_all([workload(name) for name in names])
        await pods.all_reach("running", PODS * size)
        await asyncio.sleep(min(ground.options.settle, 10))
        values: dict[str, float] = {}
        if isinstance(system, Controller):
            values |= await _suspended(system, pods, names)
            await asyncio.sleep(min(ground.options.settle, 10))
        mark = ground.audit.mark()
        async with using(ground.pids() | system.pids) as usage:
            begun = time.monotonic()
            await in_flight([lambda name=name: system.remove(name) for name in names])
            values["asked_s"] = time.monotonic() - begun
            values["removed_s"] = max(await pods.all_gone(), await jobs.all_gone()) - begun
            values["recorded_s"] = max(values["removed_s"], await system.removed() - begun)
    entries = list(ground.audit.since(mark))
    own = tally(entries, system.asks)
    values |= {f"requests {what}": count / size for what, count in own.items()}
    values |= {
        "requests": own.total() / size,
        "requests_controllers": sum(agent(entry).startswith(CONTROLLERS) for entry in entries) / size,
        "cpu_s": sum(usage.cpu.values()),
    }
    ground.record(system.name, values | usage.values(), size={"n": size}, repeat=repeat)


async def _suspended(system: Controller, pods: Seen, names: list[str]) -> dict[str, float]:
    """Suspend all and put them back; return the seconds to each."""
    begun = time.monotonic()
    await in_flight([lambda name=name: system.suspend(name) for name in names])
    suspended = await pods.all_gone() - begun
    await system.suspended(len(names))
    before = pods.count("running")
    begun = time.monotonic()
    await in_flight([lambda name=name: system.resume(name) for name in names])
    resumed = (await pods.all_reach("running", before + PODS * len(names)))[-1] - begun
    return {"suspended_s": suspended, "resumed_s": resumed}
