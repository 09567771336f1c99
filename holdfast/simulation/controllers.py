"""What the controllers of Kubernetes do about a component's pods: Job, ReplicaSet, StatefulSet; a bare pod has none.

A controller that is not known here makes a component's pods once, and leaves them as they end.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from holdfast.activities.object_facts import TrueCondition
from holdfast.activities.pod_facts import PodState
from holdfast.simulation.objects import JOB_BACKOFF_LIMIT, Pod, Thing

if TYPE_CHECKING:
    from holdfast.simulation.world import World

JOB_BACKOFF = timedelta(seconds=10)
JOB_BACKOFF_MAXIMUM = timedelta(minutes=10)


def sync(world: World, thing: Thing) -> None:
    """Do what a component's controller does now."""
    match (thing.plan.api_version, thing.plan.kind):
        case ("batch/v1", "Job"):
            _job(world, thing)
        case ("apps/v1", "Deployment" | "ReplicaSet"):
            _replicated(world, thing)
        case ("apps/v1", "StatefulSet"):
            _stateful_set(world, thing)
        case _:
            _once(world, thing)


def _replicated(world: World, thing: Thing) -> None:
    """Keep as many pods as are asked for; of an older template, replace a quarter of them at a time.

    As a Deployment does that says nothing of its strategy: maxSurge and maxUnavailable are 25%, one rounded up and the
    other down.
    """
    active = [pod for pod in world.pods_of(thing) if pod.active]
    old = [pod for pod in active if pod.template != thing.template]
    running = [pod for pod in active if pod.state is PodState.RUNNING]
    if not old:
        # Pods that do not run go first.
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
    """Make pods, unless they are refused: then once they no longer are."""
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
    complete = thing.component.status.complete
    if complete and expected and len([one for one in pods if one.state is PodState.SUCCEEDED]) >= expected:
        _say(world, thing, TrueCondition(complete[0], "Completed", "", world.clock.now))


def _stateful_set(world: World, thing: Thing) -> None:
    """Make pods in their order, and anew the ones that ended, under the same names."""
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


def _job(world: World, thing: Thing) -> None:
    """Replace failed pods after a back-off until there were too many, and say at the end how it ended."""
    pods = world.pods_of(thing)
    active = [pod for pod in pods if pod.active]
    ending = [pod for pod in pods if not pod.finished and pod.deleting is not None]
    if thing.suspended:
        for pod in active:
            thing.counted.add(pod.name)  # Its own suspension is no failure of a pod.
            world.delete_pod(pod)
        return
    if thing.giving_up is None:
        _count_failures(world, thing, pods)
        _judge(world, thing, pods)
    if thing.giving_up is not None:
        for pod in active:
            world.delete_pod(pod)
        if not active and not ending:
            _say(world, thing, thing.giving_up)
        return
    succeeded = len([pod for pod in pods if pod.state is PodState.SUCCEEDED])
    wanted = _parallelism(thing)
    completions = thing.spec.get("completions")
    if completions is not None:
        wanted = min(wanted, int(completions) - succeeded)
    elif succeeded:
        wanted = 0
    lacking = wanted - len(active)
    if lacking > 0 and thing.failed:
        again = _backed_off(thing)
        if again > world.clock.now:
            world.clock.at(again, world.sync)
            return
    _make(world, thing, lacking)


def _judge(world: World, thing: Thing, pods: list[Pod]) -> None:
    """Decide whether a Job is at its end."""
    now = world.clock.now
    if thing.failures > int(thing.spec.get("backoffLimit", JOB_BACKOFF_LIMIT)):
        message = "Job has reached the specified backoff limit"
        thing.giving_up = TrueCondition("Failed", "BackoffLimitExceeded", message, now)
        return
    done = [pod for pod in pods if pod.state is PodState.SUCCEEDED]
    completions = thing.spec.get("completions")
    if completions is not None:
        complete = len(done) >= int(completions)
    else:
        complete = bool(done) and not any(pod.active for pod in pods)
    if complete:
        thing.giving_up = TrueCondition("Complete", "CompletionsReached", "", now)


def _count_failures(world: World, thing: Thing, pods: list[Pod]) -> None:
    """Count pods that failed or that another hand deleted, once each."""
    for pod in pods:
        ended = pod.state is PodState.FAILED or (pod.deleting is not None and pod.state is not PodState.SUCCEEDED)
        if ended and pod.name not in thing.counted:
            thing.counted.add(pod.name)
            thing.failures += 1
            thing.failed.append(pod.ended or pod.deleting or world.clock.now)
        elif pod.state is PodState.SUCCEEDED and pod.name not in thing.counted:
            thing.counted.add(pod.name)
            thing.failed.clear()


def _backed_off(thing: Thing) -> datetime:
    """Return when a Job makes pods again: ten seconds after its first failure in a row, doubled with each further."""
    pause = JOB_BACKOFF * 2 ** min(len(thing.failed) - 1, 10)
    return thing.failed[-1] + min(pause, JOB_BACKOFF_MAXIMUM)


def _parallelism(thing: Thing) -> int:
    given = thing.spec.get("parallelism")
    return int(given) if given is not None else 1


def _say(world: World, thing: Thing, verdict: TrueCondition) -> None:
    thing.conditions.append(verdict)
    world.changed = True
    if verdict.type in thing.component.status.failed:
        world.say(f"{thing.plan.kind} {thing.name} says it has failed: {verdict.reason}")
