"""From a pod's failure to the decision, at zero grace, with so many workloads active.

Both ends are the servers' own times: the audit log has when the pod was written as failed, and when what was decided
was first acted on; of Holdfast, the workflow's history has the decision itself. Of at most `MOST` workloads one pod
fails, one after another.
"""

from __future__ import annotations

import asyncio

from bench.audit import failed_pods
from bench.ground import Ground
from bench.seeing import in_phase, seeing
from bench.systems import CONTROLLERS, Controller, in_turn
from bench.work import PODS, bare, fail, workload, workload_of

NAME = "latency"
ACTIVE = (20, 500)
MOST = 200
PER_SECOND = 4.0
SECONDS = 60
"""How long a history may lag behind the pods that its decision removed."""


async def measure(ground: Ground, active: tuple[int, ...] = ACTIVE) -> None:
    """Run the controllers at every number of active workloads."""
    await in_turn(ground, CONTROLLERS, active, _one)


async def _one(ground: Ground, system: Controller, active: int, repeat: int) -> None:
    waits = {"failureGracePeriodDuration": "0s", "retryPausePeriodDuration": "1h"}
    async with seeing(ground.kube, "v1", "Pod", system.namespace, running=in_phase("Running")) as pods:
        # In the smoke, where all measures run at once, a decision may come after a Job has replaced its failed pod.
        made = bare if ground.options.smoke else workload
        await system.submit_all([made(f"w{index}", waits) for index in range(active)])
        await pods.all_reach("running", PODS * active)
        await asyncio.sleep(ground.options.settle)
        mark = ground.audit.mark()
        doomed = {workload_of(pod): pod for pod in pods.present}
        chosen = sorted(doomed)[:MOST]
        for name in chosen:
            await fail(ground.kube, doomed[name])
            await asyncio.sleep(1 / PER_SECOND)
        if ground.options.smoke:
            await asyncio.sleep(1)
            await system.nudge(chosen)
        failing = set(chosen)
        await pods.until(
            lambda: not any(workload_of(pod) in failing for pod in pods.present), 1200, "the failed workloads are reset"
        )
        entries = list(ground.audit.since(mark, system.namespace))
        truth = {name.rpartition("-")[0]: at for name, at in failed_pods(entries, system.namespace).items()}
        acted: dict[str, float] = {}
        for name, at in system.acts(entries):
            acted.setdefault(name, (at - truth[name]).total_seconds())
        series = {"acted_s": sorted(acted.values())}
        decided = await system.decided(chosen)
        for _ in range(SECONDS):  # What was decided is told once the activity that removes has ended.
            if len(decided) in {0, len(chosen)}:
                break
            await asyncio.sleep(1)
            decided = await system.decided(chosen)
        if decided:
            series["decided_s"] = sorted((at - truth[name]).total_seconds() for name, at in decided.items())
        else:
            series["decided_s"] = series["acted_s"]
        missing = len(chosen) - len(series["decided_s"])
        await system.remove_all([f"w{index}" for index in range(active)], pods)
    values = {"failures": len(chosen), "missing": missing}
    ground.record(system.name, values, size={"active": active}, repeat=repeat, series=series)
