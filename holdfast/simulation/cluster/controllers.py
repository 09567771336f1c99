"""Simulates the Kubernetes controllers of a component's pods: Job, ReplicaSet, StatefulSet. A bare pod has none.

An unknown controller creates a component's pods once and never replaces them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.activities.facts.objects import TrueCondition
from holdfast.activities.facts.pods import PodState
from holdfast.simulation.cluster import jobs
from holdfast.simulation.cluster.objects import Thing

if TYPE_CHECKING:
    from holdfast.simulation.cluster.world import World


def sync(world: World, thing: Thing) -> None:
    """Run one sync of a component's controller."""
    match (thing.plan.api_version, thing.plan.kind):
        case ("batch/v1", "Job"):
            jobs.sync(world, thing)
        case ("apps/v1", "Deployment" | "ReplicaSet"):
            _replicated(world, thing)
        case ("apps/v1", "StatefulSet"):
            _stateful_set(world, thing)
        case _:
            _once(world, thing)


def _replicated(world: World, thing: Thing) -> None:
    """Keep the wanted number of pods, and replace pods of an older template, a quarter of them at a time.

    This is the default strategy of a Deployment: maxSurge is 25%, rounded up, and maxUnavailable is 25%, rounded down.
    """
    active = [pod for pod in world.pods_of(thing) if pod.active]
    old = [pod for pod in active if pod.template != thing.template]
    running = [pod for pod in active if pod.state is PodState.RUNNING]
    if not old:
        # Delete pods that do not run first.
        for pod in sorted(active, key=lambda pod: pod.state is PodState.RUNNING)[: max(0, len(active) - thing.wanted)]:
            world.delete_pod(pod)
        _make(world, thing, thing.wanted - len(active))
        return
    surge, floor = thing.wanted + -(-thing.wanted // 4), thing.wanted - thing.wanted // 4
    waiting = [pod for pod in old if pod.state is not PodState.RUNNING]
    spare = [pod for pod in old if pod.state is PodState.RUNNING][: max(0, len(running) - floor)]
    for pod in [*waiting, *spare]:
        world.delete_pod(pod)
    left = len(active) - len(waiting) - len(spare)
    new = len(active) - len(old)
    _make(world, thing, min(surge - left, thing.wanted - new))


def _make(world: World, thing: Thing, count: int) -> None:
    """Create pods; if their creation is refused, sync again when the refusal ends."""
    if count <= 0:
        return
    trouble = world.trouble(world.pods_refused, thing.component.name)
    if trouble is not None:
        world.clock.at(trouble.until, world.sync)
        return
    for _ in range(count):
        world.make_pod(thing, f"{thing.name}-{thing.made}")


def _once(world: World, thing: Thing) -> None:
    expected = thing.plan.expected_pods
    if thing.component.bare:
        if not thing.made:
            world.make_pod(thing, thing.name)
        elif not world.pods_of(thing):
            world.delete(thing)
        return
    _make(world, thing, expected - thing.made)
    pods = world.pods_of(thing)
    rule = thing.component.status
    complete = [*rule.complete, *map(str, rule.succeeded_when)]
    if complete and expected and len([one for one in pods if one.state is PodState.SUCCEEDED]) >= expected:
        _say(world, thing, TrueCondition(complete[0], "Completed", "", world.clock.now))


def _stateful_set(world: World, thing: Thing) -> None:
    """Create pods in order, and recreate pods that ended under the same names."""
    for pod in world.pods_of(thing):
        if pod.finished and pod.deleting is None:
            world.delete_pod(pod)
    there = {pod.name: pod for pod in world.pods_of(thing)}
    for pod in [pod for pod in there.values() if pod.active and int(pod.name.rpartition("-")[2]) >= thing.wanted]:
        world.delete_pod(pod)
    ordered = thing.spec.get("podManagementPolicy", "OrderedReady") == "OrderedReady"
    for index in range(thing.wanted):
        pod = there.get(f"{thing.name}-{index}")
        if pod is None:
            trouble = world.trouble(world.pods_refused, thing.component.name)
            if trouble is not None:
                world.clock.at(trouble.until, world.sync)
                return
            pod = world.make_pod(thing, f"{thing.name}-{index}")
        if ordered and (pod.state is not PodState.RUNNING or pod.deleting is not None):
            return


def _say(world: World, thing: Thing, verdict: TrueCondition) -> None:
    thing.conditions.append(verdict)
    world.changed = True
    rule = thing.component.status
    if verdict.type in (*rule.failed, *map(str, rule.failed_when)):
        world.say(f"{thing.plan.kind} {thing.name} says it has failed: {verdict.reason}")
