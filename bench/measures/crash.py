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
from datetime import UTC, datetime
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
        await in_flight([lambda pod=pod: fail(ground.kube, pod) for pod in doomed.values()])
        if ground.options.smoke:
            await asyncio.sleep(1)
            await system.nudge(names)
        await system.in_grace(names)
        early = len(system.acts(ground.audit.since(mark, system.namespace)))
        system.kill()
        await asyncio.sleep(grace + 2)
        restarted = datetime.now(UTC)
        await system.restart()
        ready = (datetime.now(UTC) - restarted).total_seconds()
        await pods.until(lambda: not pods.present, 1200, "every due reset is done")
        await ground.rest(5)  # A second reset would be seen by then.
        acts = system.acts(ground.audit.since(mark, system.namespace))
        counts = Counter(name for name, _ in acts)
        after = sorted((at - restarted).total_seconds() for _, at in acts)
        due = await system.due(names)
        late = sorted((at - max(due.get(name, restarted), restarted)).total_seconds() for name, at in acts)
        await system.remove_all(names, pods)
    missing, twice = size - len(counts), sum(count > 1 for count in counts.values())
    values = {
        "ready_s": ready,
        "first_s": after[0],
        "last_s": after[-1],
        "late_s": late[-1],
        "early": early,
        "missing": missing,
        "twice": twice,
        "wrong": early + missing + twice,
    }
    ground.record(system.name, values, size={"n": size}, repeat=repeat, series={"acted_s": after, "each_late_s": late})
