"""N two-pod workloads: until all run, until all are recorded as ended, what that took in requests, CPU and memory.

The same Jobs under plain Kubernetes, the AppWrapper controller and Holdfast, handed in by one asynchronous client with
50 in flight, whose time counts. Then every pod is told to succeed, and lastly everything is removed.
"""

from __future__ import annotations

import time

from bench.audit import sorts, tally
from bench.ground import Ground
from bench.seeing import Seen, in_phase, seeing
from bench.systems import SYSTEMS, System, in_turn
from bench.usage import Usage, using
from bench.work import PODS, finish, workload

NAME = "start"
SIZES = (100, 300, 1000)


async def measure(ground: Ground, sizes: tuple[int, ...] = SIZES) -> None:
    """Run every system at every size, in turn, as often as is asked for."""
    await in_turn(ground, SYSTEMS, sizes, _one)


async def _one(ground: Ground, system: System, size: int, repeat: int) -> None:
    workloads = [f"w{index}" for index in range(size)]
    documents = [workload(name) for name in workloads]
    database = ground.database()
    mark, events = ground.audit.mark(), await written_events(ground, system)
    async with seeing(ground.kube, "v1", "Pod", system.namespace, running=in_phase("Running")) as pods:
        async with using(ground.pids() | system.pids) as usage:
            values, series = await life(system, pods, documents)
        values["cpu_s"] = sum(usage.cpu.values())
        await system.remove_all(workloads, pods)
    asked = tally(ground.audit.since(mark), system.asks)
    events = await written_events(ground, system) - events
    values |= {"requests": (asked.total() + events) / size, "requests_events": events / size}
    values |= {f"requests_{sort}": count / size for sort, count in sorts(asked).items()}
    values |= {f"requests {what}": count / size for what, count in asked.items()}
    history = await system.history_bytes(workloads)
    if history is not None:
        grown = ground.database() - database
        values |= {"history_kib": history / size / 1024, "database_kib": grown / size / 1024}
    series |= _memory(usage, system)
    ground.record(system.name, values | usage.values(), size={"n": size}, repeat=repeat, series=series)


async def life(
    system: System, pods: Seen, documents: list[dict[str, object]]
) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Have all of them run and succeed; return when what was reached."""
    begun = time.monotonic()
    await system.submit_all(documents)
    submitted = time.monotonic()
    running = await pods.all_reach("running", PODS * len(documents))
    recorded = await system.recorded(len(documents))
    asked = time.monotonic()
    await finish(system.kube, pods.present)
    told = time.monotonic()
    ended = await system.ended(len(documents))
    values = {
        "submitted_s": submitted - begun,
        "running_s": running[-1] - begun,
        "recorded_s": recorded - begun,
        "told_s": told - asked,
        "ended_s": ended - asked,
        "total_s": running[-1] - begun + ended - asked,
    }
    return values, {"running_at_s": [each - begun for each in running]}


async def written_events(ground: Ground, system: System) -> int:
    """Count the writes of Kubernetes Events, which the audit log leaves out: one each, and one for each repetition."""
    if not system.pids:
        return 0
    found = (await ground.kube.list("v1", "Event", system.namespace))["items"]
    own = [each for each in found if _source(each) in {"holdfast", "appwrappers"}]
    return sum(max(each.get("count") or 1, (each.get("series") or {}).get("count") or 1) for each in own)


def _source(event: dict[str, object]) -> str:
    source = event.get("source")
    component = source.get("component") if isinstance(source, dict) else ""
    return str(component or event.get("reportingComponent") or "")


def _memory(usage: Usage, system: System) -> dict[str, list[float]]:
    """Return the memory of the system's own processes over time."""
    own = [usage.memory[name] for name in system.pids if name in usage.memory]
    return {"at_s": usage.times, "memory_mib": [sum(each) for each in zip(*own, strict=True)]} if own else {}
