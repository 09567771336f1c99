"""The controller killed with -9 while N workloads are in their failure grace, started again when their graces are over.

Bare pods, which nobody replaces. What is due is one reset each. The audit log tells when each was acted on after the
restart, which was not at all, and which twice. No failure clock runs while nobody sees the cluster (DESIGN, invariant
4): killed with its watch, Holdfast gives anew what nobody saw of a grace. So the latest reset is told too as late after
it fell due, or after the restart if that is later; and Holdfast is killed once more with its watch in a process of its
own, which lives on.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial

from bench.ground import Ground
from bench.seeing import in_phase, seeing
from bench.systems import CONTROLLERS, Controller, in_turn
from bench.systems.appwrapper import AppWrapperPeer
from bench.systems.holdfast import HoldfastSystem, WatchApart, open_holdfast
from bench.work import PODS, bare, fail, in_flight, workload_of

NAME = "crash"
SIZES = (200,)
KILLED = {**CONTROLLERS, WatchApart.name: partial(open_holdfast, kind=WatchApart)}
GRACE = {HoldfastSystem.name: 45, WatchApart.name: 45, AppWrapperPeer.name: 150}
"""Failure grace in seconds: long enough that all are in it together; AppWrapper's controller looks once a minute."""


async def measure(ground: Ground, sizes: tuple[int, ...] = SIZES, longest: int = 150) -> None:
    """Kill each controller at every size; no grace is longer than `longest` seconds."""
    await in_turn(ground, KILLED, sizes, partial(_one, longest=longest))


async def _one(ground: Ground, system: Controller, size: int, repeat: int, longest: int) -> None:
    grace = min(GRACE[system.name], longest)
    waits = {"failureGracePeriodDuration": f"{grace}s", "retryPausePeriodDuration": "1h"}
    names = [f"w{index}" for index in range(size)]
    async with seeing(ground.kube, "v1", "Pod", system.namespace, running=in_phase("Running")) as pods:
        await system.submit_all([bare(name, waits) for name in names])
        await pods.all_reach("running", PODS * size)
        await asyncio.sleep(ground.options.settle)
        mark = ground.audit.mark()
        doomed = {workload_of(pod): pod for pod in pods.present}
        failed: dict[str, datetime] = {}

        async def end(name: str) -> None:
            failed[name] = datetime.now(UTC)
            await fail(ground.kube, doomed[name])

        await in_flight([partial(end, name) for name in doomed])
        if ground.options.smoke:
            await asyncio.sleep(1)
            await system.nudge(names)
        await system.in_grace(names)
        killed = datetime.now(UTC)
        system.kill()
        await asyncio.sleep(grace + 2)
        restarted = datetime.now(UTC)
        await system.restart()
        ready = (datetime.now(UTC) - restarted).total_seconds()
        await pods.until(lambda: not pods.present, 1200, "every due reset is done")
        await ground.rest(5)  # A second reset would be seen by then.
        acts = system.acts(ground.audit.since(mark, system.namespace))
        after = [(name, at) for name, at in acts if at >= killed]
        due = await system.due(names)
        acted = sorted((at - restarted).total_seconds() for _, at in after)
        late = sorted((at - max(due.get(name, restarted), restarted)).total_seconds() for name, at in after)
        await system.remove_all(names, pods)
    # On a slow machine the first graces are over before the last workload says that it is in its own.
    values = {"ready_s": ready, "before_kill": len(acts) - len(after), **judged(acts, failed, grace)}
    if after:
        values |= {"first_s": acted[0], "last_s": acted[-1], "late_s": late[-1]}
    ground.record(system.name, values, size={"n": size}, repeat=repeat, series={"acted_s": acted, "each_late_s": late})


def judged(acts: Iterable[tuple[str, datetime]], failed: Mapping[str, datetime], grace: float) -> dict[str, int]:
    """Return how many acts came before their grace of so many seconds was over, were missing, and came twice.

    `failed`: when each workload's pod was told to fail, at the earliest. Kubernetes' own times are whole seconds, so an
    act is early from a second on.
    """
    shortest = timedelta(seconds=grace - 1)
    counts = Counter(name for name, _ in acts)
    early = sum(at < failed[name] + shortest for name, at in acts)
    missing, twice = len(failed.keys() - counts.keys()), sum(count > 1 for count in counts.values())
    return {"early": early, "missing": missing, "twice": twice, "wrong": early + missing + twice}
