"""One worker process against two and four: N two-pod workloads until all run and all have ended, and who is busy."""

from __future__ import annotations

from bench.ground import Ground
from bench.measures.start import life
from bench.seeing import in_phase, seeing
from bench.systems.holdfast import open_holdfast
from bench.usage import using
from bench.work import workload

NAME = "workers"
WORKERS = (1, 2, 4)
SIZE = 300


async def measure(ground: Ground, workers: tuple[int, ...] = WORKERS, size: int = SIZE) -> None:
    """Run the same work with every number of workers."""
    for repeat in range(ground.options.repeats):
        for count in workers:
            async with open_holdfast(ground, count) as system:
                await system.warm()
                async with seeing(ground.kube, "v1", "Pod", system.namespace, running=in_phase("Running")) as pods:
                    async with using(ground.pids() | system.pids) as usage:
                        values, _ = await life(system, pods, [workload(f"w{index}") for index in range(size)])
                    await system.remove_all([f"w{index}" for index in range(size)], pods)
                cores = {name: seconds / usage.seconds for name, seconds in usage.cpu.items()}
                values["started_per_s"] = size / values["running_s"]
                values["workers_cores"] = sum(share for name, share in cores.items() if name.startswith("worker"))
                values |= {f"{name}_cores": cores[name] for name in ground.pids()}
                values["all_cores"] = sum(cores.values())
                ground.record(system.name, values, size={"workers": count, "n": size}, repeat=repeat)
