"""Simulates the scheduler, the kubelets and node monitoring: placing and starting pods, silent and broken nodes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from holdfast.activities.facts.nodes import DOWN, LOST, Marks, NodeMark
from holdfast.activities.facts.pods import PREPARATION, PodState
from holdfast.model import FailureClass, NodeTimings, format_duration
from holdfast.policy.failures.back_off import pause_after
from holdfast.simulation.cluster import jobs
from holdfast.simulation.cluster.objects import Pod, written
from holdfast.simulation.cluster.outages import EVER, Trouble
from holdfast.simulation.script.events import INIT_ERROR, Fail, LaunchFails, NodeBroken

if TYPE_CHECKING:
    from holdfast.simulation.cluster.world import World


CRASH_BACKOFF = timedelta(seconds=10)
"""A kubelet restarts a crashed container at once, then after ten seconds, doubled by each further crash."""
CRASH_BACKOFF_MAXIMUM = timedelta(minutes=5)
CALM = timedelta(minutes=10)
"""After a run longer than this, the kubelet resets the back-off."""


def schedule(world: World, pod: Pod) -> None:
    """Give a pod a node, or try again when a node may be free."""
    if pod.deleting is not None or pod.node:
        return
    trouble = world.trouble(world.unschedulable, pod.thing.component.name)
    every = (f"node-{number}" for number in range(1, world.node_count + 1))
    free = [name for name in every if name not in {*world.lost, *world.broken, *pod.thing.shuns}]
    free = [name for name in free if name not in pod.thing.dislikes] or free
    if trouble is not None or not free:
        again = trouble.until if trouble is not None else min(_back_at(world), default=EVER)
        if again < EVER:
            world.clock.at(again, lambda: schedule(world, pod))
        return
    pod.node, pod.scheduled = free[world.placed % len(free)], world.clock.now
    world.placed += 1
    world.clock.after(world.latencies.start, lambda: start(world, pod))


def _back_at(world: World) -> list[datetime]:
    """When lost or broken nodes may take pods again; a broken node stays broken until its mark is removed."""
    return [until for until in (*world.lost.values(), *world.mended.values()) if until > world.clock.now]


def start(world: World, pod: Pod) -> None:
    """Start a pod, or leave it stuck if its node cannot start it."""
    if pod.deleting is not None or pod.state is not PodState.PENDING or pod.node in world.lost:
        return
    trouble = _launch_trouble(world, pod)
    if trouble is not None and trouble.launch is not None:
        _cannot_start(world, pod, trouble.launch, trouble.until)
        return
    pod.launch, pod.state = None, PodState.RUNNING
    world.changed = True
    _runs(world, pod)
    world.sync()


def _runs(world: World, pod: Pod) -> None:
    """Run a pod's container from now on; it ends after `Latencies.run`, unless it always restarts."""
    since = pod.runs_since = world.clock.now

    def ends() -> None:
        if pod.runs_since == since and not pod.pausing:
            world.end(pod)

    if world.latencies.run is not None and not pod.thing.restarts_in_place:
        world.clock.after(world.latencies.run, ends)


def starts_again(world: World, pod: Pod, fail: Fail) -> bool:
    """Whether a pod's kubelet restarts its container in place, after its back-off; if not, the pod fails.

    It restarts a container that exited, never an evicted or disrupted pod. A pod with restartPolicy Always runs on.
    """
    if fail.pod_reason or fail.disruption or pod.thing.restart_policy == "Never":
        return False
    if pod.thing.restarts_in_place:
        return True
    if pod.runs_since is not None and world.clock.now - pod.runs_since > CALM:
        pod.crashes = 0
    pod.pausing = True
    _after_crash(world, pod, lambda: _runs(world, pod))
    return True


def _after_crash(world: World, pod: Pod, then: Callable[[], None]) -> None:
    """Restart a pod's container after the kubelet's back-off."""
    pause = pause_after(pod.crashes, CRASH_BACKOFF, CRASH_BACKOFF_MAXIMUM) if pod.crashes else timedelta(0)
    pod.crashes += 1

    def again() -> None:
        if pod not in world.pods or pod.finished or pod.deleting is not None or pod.node in world.lost:
            return
        pod.pausing = False
        pod.restarts += 1
        then()
        world.sync()

    world.clock.after(pause, again)


def _launch_trouble(world: World, pod: Pod) -> Trouble | None:
    here = [one for one in world.launches if one.launch is not None and one.launch.node in {"", pod.node}]
    return world.trouble(here, pod.thing.component.name)


def _cannot_start(world: World, pod: Pod, launch: LaunchFails, until: datetime) -> None:
    """Keep a pod waiting while its node cannot start it; a failed init container that is never restarted fails it."""
    world.changed = world.changed or pod.launch is not launch
    pod.launch = launch
    if launch.reason == INIT_ERROR and pod.thing.restart_policy == "Never":
        pod.state, pod.ended = PodState.FAILED, world.clock.now
        world.say(f"{pod.name} failed on {pod.node}: its init container exited {launch.exit_code or 1}")
        world.sync()
        return
    if launch.reason == INIT_ERROR and pod.thing.restart_policy == "OnFailure" and jobs.is_job(pod.thing):
        _after_crash(world, pod, lambda: start(world, pod))  # The Job counts these restarts, too.
        return
    if launch.reason == "FailedMount" and pod.scheduled is not None:

        def look() -> None:
            world.changed = True

        world.clock.at(pod.scheduled + PREPARATION, look)  # The pod's status does not change then.
    if until < EVER:
        world.clock.at(until, lambda: start(world, pod))


def mark(world: World, what: NodeBroken, until: datetime) -> None:
    """Mark a node as broken, as node monitoring does."""
    kind, _, status = what.condition.partition("=")
    told = {"type": kind, "status": status or "True", "lastTransitionTime": written(world.clock.now)}
    found = Marks().of({"status": {"conditions": [told]}})
    assert found is not None
    world.broken[what.node], world.mended[what.node] = found, until
    world.changed = True
    if until < EVER:
        world.clock.at(until, lambda: _mend(world, what.node))


def _mend(world: World, node: str) -> None:
    if world.mended.get(node, EVER) <= world.clock.now:
        world.broken.pop(node, None)
        world.mended.pop(node, None)
        world.changed = True


def lose(world: World, node: str, until: datetime) -> None:
    """Make a node stop responding."""
    world.lost[node] = until
    world.heard[node] = world.clock.now
    heard, waits = world.clock.now, NodeTimings()
    for reason, silence in ((DOWN, waits.until_down), (LOST, waits.until_lost)):
        world.clock.after(silence, lambda reason=reason: _find_down(world, node, reason, heard))
    world.clock.after(world.latencies.evict, lambda: _evict(world, node))
    if until < EVER:
        world.clock.at(until, lambda: _back(world, node))


def is_stuck(world: World, pod: Pod) -> bool:
    """Whether a deleted pod stays on a silent node; it does until the node is Down and its attempt is being removed."""
    owner = world.owners.get(pod.thing.attempt)
    return pod.node in world.lost and not (pod.node in world.down and owner is not None and owner.deleting is not None)


def _find_down(world: World, node: str, reason: str, heard: datetime) -> None:
    if node not in world.lost or world.heard.get(node) != heard:
        return
    silence = format_duration(world.clock.now - heard)
    world.down[node] = NodeMark(reason, f"its lease has not been renewed for {silence}", heard, FailureClass.NODE_LOST)
    world.changed = True
    for pod in [one for one in world.pods if one.node == node and one.deleting is not None]:
        world.let_go(pod)
    world.sync()


def _evict(world: World, node: str) -> None:
    if node not in world.lost:
        return
    for pod in [one for one in world.pods if one.node == node and one.deleting is None]:
        world.say(f"{pod.name} is deleted, since {node} does not answer")
        world.delete_pod(pod)
    world.sync()


def _back(world: World, node: str) -> None:
    world.lost.pop(node, None)
    world.down.pop(node, None)
    world.heard.pop(node, None)
    world.changed = True
    for pod in [one for one in world.pods if one.node == node]:
        world.let_go(pod)
        start(world, pod)
    world.sync()
