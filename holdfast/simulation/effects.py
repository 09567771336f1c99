"""Applies the events of a script to the simulated cluster; each returns its effect as a sentence."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import assert_never

from holdfast.activities.facts.objects import TrueCondition
from holdfast.activities.facts.pods import PodState
from holdfast.model import Interval, format_duration
from holdfast.simulation.cluster import nodes
from holdfast.simulation.cluster.objects import Pod, Thing
from holdfast.simulation.cluster.outages import EVER, Trouble
from holdfast.simulation.cluster.world import World
from holdfast.simulation.script.events import (
    Asked,
    Blind,
    ComponentFailed,
    Delete,
    Fail,
    Happening,
    LaunchFails,
    NodeBroken,
    NodeLost,
    Pods,
    PodsRefused,
    ProbeFails,
    Refuse,
    RollOut,
    Scale,
    Stuck,
    Succeed,
    Unschedulable,
    lasting,
)


def happen(world: World, what: Happening, named: Callable[[str | None], str | None]) -> str:
    """Apply an event to the cluster, and return its effect as a sentence.

    Args:
        world: The cluster.
        what: The event; a request by a user does not concern the cluster and is ignored.
        named: Maps the name of a component in the script to the component's own name.
    """
    match what:
        case Fail():
            return _fail(world, what, named(what.component))
        case Succeed():
            chosen = _chosen(world, named(what.component), what.pods)
            for pod in chosen:
                world.end(pod)
            return f"{_names(chosen)} succeeded" if chosen else "nothing runs that could succeed"
        case NodeLost():
            nodes.lose(world, what.node, _end(world, what.lasts))
            return f"{what.node} falls silent{lasting(what.lasts)}"
        case NodeBroken():
            nodes.mark(world, what, _end(world, what.lasts))
            return f"{what.node} is marked as broken ({what.condition}){lasting(what.lasts)}"
        case LaunchFails():
            until = _end(world, what.lasts)
            world.launches.append(Trouble(named(what.component), until, what.reason, what))
            where = f"{what.node} cannot" if what.node else "no node can"
            return f"{where} start new pods{_of(what.component)} ({what.reason}){lasting(what.lasts)}"
        case ProbeFails():
            return _probe_fails(world, what, named(what.component))
        case Unschedulable():
            _trouble(world, world.unschedulable, named(what.component), what.lasts)
            return f"new pods{_of(what.component)} find no node{lasting(what.lasts)}"
        case PodsRefused():
            _trouble(world, world.pods_refused, named(what.component), what.lasts)
            return f"no pods{_of(what.component)} may be created{lasting(what.lasts)}"
        case Refuse():
            _trouble(world, world.refused, named(what.component), what.lasts, what.reason)
            which = what.component or "any component"
            return f"the API server refuses to create {which} ({what.reason}){lasting(what.lasts)}"
        case Scale():
            return _scale(world, what, named(what.component))
        case RollOut():
            return _roll_out(world, what, named(what.component))
        case Delete():
            return _delete(world, what, named(what.component))
        case ComponentFailed():
            return _component_failed(world, what, named(what.component))
        case Blind():
            _blind(world, what.lasts)
            return f"the API server cannot be reached for {format_duration(what.lasts)}"
        case Stuck():
            return _stuck(world, what, named(what.component))
        case Asked():
            return ""
        case _:
            assert_never(what)


def _end(world: World, span: timedelta | None) -> datetime:
    return world.clock.now + span if span is not None else EVER


def _of(component: str | None) -> str:
    return f" of {component}" if component is not None else ""


def _names(pods: list[Pod]) -> str:
    names = [pod.name for pod in pods]
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"


def _trouble(
    world: World, where: list[Trouble], component: str | None, span: timedelta | None, reason: str = ""
) -> None:
    until = _end(world, span)
    where.append(Trouble(component, until, reason))
    if until < EVER:
        world.clock.wake(until)


def _chosen(world: World, component: str | None, count: Pods, node: str = "") -> list[Pod]:
    """Return running pods, pods on the node first."""
    running = [
        pod
        for pod in world.pods
        if pod.state is PodState.RUNNING
        and not pod.pausing
        and pod.deleting is None
        and component in {None, pod.thing.component.name}
    ]
    running.sort(key=lambda pod: bool(node) and pod.node != node)
    return running if count == "all" else running[:count]


def _newest(world: World, component: str | None, *, settled: bool = True) -> Thing | None:
    """Return a component's object of the newest attempt; without `settled`, prefer a copy that is still at work."""
    found = [one for one in world.things if component in {None, one.component.name} and one.deleting is None]
    if not settled:
        found.sort(key=lambda one: one.index is not None and (one.settled or one.giving_up is not None))
    return max(found, key=lambda one: one.attempt, default=None)


def _fail(world: World, what: Fail, component: str | None) -> str:
    chosen = _chosen(world, component, what.pods, what.node)
    if not chosen:
        return "nothing runs that could fail"
    where = f" on {what.node}" if what.node else ""
    reason = f" ({what.reason})" if what.reason != "Error" else ""
    by_others = what.pod_reason or what.disruption
    said = f"{_names(chosen)}{f' failed: {by_others}' if by_others else f' exited {what.exit_code}{reason}'}{where}"
    for pod in chosen:
        world.end(pod, what)
    in_place = [pod for pod in chosen if pod.state is PodState.RUNNING and pod.deleting is None]
    if not in_place:
        return said
    which = "it" if len(in_place) == len(chosen) == 1 else "them" if len(in_place) == len(chosen) else _names(in_place)
    return f"{said}; the kubelet starts {which} again in place, so that the pod has not failed"


def _delete(world: World, what: Delete, component: str | None) -> str:
    if what.pods is not None:
        pods = [pod for pod in world.pods if pod.thing.component.name == component and pod.deleting is None]
        chosen = pods if what.pods == "all" else pods[: what.pods]
        for pod in chosen:
            world.delete_pod(pod)
        world.sync()
        return f"{_names(chosen)} deleted by another client" if chosen else f"{what.component} has no pods to delete"
    thing = _newest(world, component)
    if thing is None:
        return f"{what.component} is not there to be deleted"
    world.delete(thing)
    return f"{thing.title} deleted by another client"


def _scale(world: World, what: Scale, component: str | None) -> str:
    thing = _newest(world, component)
    if thing is None:
        return f"{what.component} is not there to be scaled"
    thing.scaled = what.replicas
    world.changed = True
    world.sync()
    return f"{thing.title} is scaled to {what.replicas} by another hand"


def _roll_out(world: World, what: RollOut, component: str | None) -> str:
    thing = _newest(world, component)
    if thing is None:
        return f"{what.component} is not there to be rolled out"
    thing.template += 1
    world.sync()
    return f"{thing.title} has another pod template: its pods are replaced, a quarter of them at a time"


def _component_failed(world: World, what: ComponentFailed, component: str | None) -> str:
    thing = _newest(world, component, settled=False)
    if thing is None or thing.settled:
        return f"{what.component} is not there to fail"
    rule = thing.component.status
    kinds = [*rule.failed, *map(str, rule.failed_when)]
    if not kinds:
        return f"{thing.title} has no failure condition, so its failure is not visible"
    thing.giving_up = verdict = TrueCondition(kinds[0], what.reason, what.message, world.clock.now)
    for pod in [one for one in world.pods_of(thing) if one.active]:
        world.delete_pod(pod)
    if (thing.plan.api_version, thing.plan.kind) != ("batch/v1", "Job"):
        thing.conditions.append(verdict)
    world.sync()
    return f"{thing.title} gives up: {what.reason}"


def _blind(world: World, span: timedelta) -> None:
    now = world.clock.now
    world.blind.append(Interval(begin=now, end=now + span))

    def light() -> None:
        world.changed = True

    world.clock.at(now + span, light)


def _probe_fails(world: World, what: ProbeFails, component: str | None) -> str:
    chosen = _chosen(world, component, what.pods)
    if not chosen:
        return "nothing runs that could be silent"
    for pod in chosen:
        pod.mute = what
    if what.lasts is not None:

        def speak() -> None:
            for pod in chosen:
                pod.mute = None if pod.mute is what else pod.mute

        world.clock.after(what.lasts, speak)
    how = f"is answered with {what.status}" if what.status else "is not answered"
    return f"the probe of {_names(chosen)} {how}{lasting(what.lasts)}"


def _stuck(world: World, what: Stuck, component: str | None) -> str:
    pods = [
        pod for pod in world.pods if pod.deleting is None and component in {None, pod.thing.component.name}
    ]  # fmt: skip
    chosen = pods if what.pods == "all" else pods[: what.pods]
    if not chosen:
        return "there are no pods that could be stuck"
    for pod in chosen:
        pod.stubborn, pod.finalizer = not what.finalizer, what.finalizer
    if what.lasts is not None:

        def lift() -> None:
            for pod in chosen:
                world.release(pod)

        world.clock.after(what.lasts, lift)
    if what.finalizer:
        return f"finalizer {what.finalizer} holds {_names(chosen)}{lasting(what.lasts)}"
    return f"{_names(chosen)} will ignore its deletion{lasting(what.lasts) if what.lasts else ' until it is forced'}"
