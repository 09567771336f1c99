"""A tenth of so many nodes lose power under so many workloads; and what it costs to watch the leases of thousands.

The nodes are played by a KWOK process that renews their leases as kubelets do, and leaves off playing some of them.
When a node was found Down is in the monitor's book, what came of it in histories and audit log (`bench.passage`).
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from typing import Any

from temporalio.client import WorkflowHandle

from bench.ground import Ground
from bench.passage import STEPS, Passage, changes_of, passage, said_at, steps_of, told_of
from bench.seeing import Seen, in_phase, seeing
from bench.systems.holdfast import HoldfastSystem, open_holdfast
from bench.usage import using
from bench.work import in_flight, workload_of
from holdfast import names
from holdfast.model import NodeState, Workload
from holdfast.workflows.entities.node_monitor import NodeMonitorStatus
from tests.e2e.ground.nodes import Nodes
from tests.e2e.ground.site import asked, job, until
from tests.e2e.nodes.agents import open_agents
from tests.e2e.nodes.test_lost_nodes import ON_NODE_FAILURE

NAME = "nodes"
PODS = 2
LEASE_SECONDS = 40
NODES = 500
WORKLOADS = 300
WATCHED = 5000
WINDOW = 60.0
SETTLED = 60.0
"""Seconds until nothing more is told of workloads that have just begun to run: the least urgent comes after 45 s."""


async def measure(
    ground: Ground,
    nodes: int = NODES,
    workloads: int = WORKLOADS,
    watched: int = WATCHED,
    window: float = WINDOW,
    waits: dict[str, str] | None = None,
    lease_seconds: int = LEASE_SECONDS,
) -> None:
    """Have a tenth of the nodes lose power; then watch many.

    Args:
        ground: what to measure on.
        nodes: how many there are; none: nothing is lost.
        workloads: how many two-pod workloads run on them.
        watched: how many nodes there are whose leases are only watched; none: that is not measured.
        window: for how many seconds that is measured.
        waits: of the worker's settings, where they are not to be the published ones.
        lease_seconds: how long a lease lasts: it is renewed four times in that.
    """
    ground.options = dataclasses.replace(ground.options, worker={**ground.options.worker, **(waits or {})})
    for repeat in range(ground.options.repeats if nodes else 0):
        async with open_holdfast(ground) as system:
            await _lose(ground, system, nodes, workloads, lease_seconds, repeat)
    if watched:
        async with open_holdfast(ground) as system:
            await _watch(ground, system, watched, window, lease_seconds)


async def _lose(
    ground: Ground, system: HoldfastSystem, count: int, workloads: int, lease_seconds: int, repeat: int
) -> None:
    everyone = [f"w{index}" for index in range(workloads)]
    async with (
        open_agents(ground.stack, ground.kube, ground.directory, count, lease_seconds=lease_seconds) as (nodes, agents),
        seeing(ground.kube, "v1", "Pod", system.namespace, running=in_phase("Running")) as pods,
    ):
        monitor = system.site.client.get_workflow_handle(names.node_monitor_id(system.site.cluster))
        await in_flight([lambda name=name: _submit(system, nodes, name) for name in everyone])
        await pods.all_reach("running", PODS * workloads)
        await ground.rest(SETTLED)
        lengths = await _quiet(system, everyone)
        doomed = _doomed(pods, nodes.names)
        affected = _on(pods, doomed)
        told = (await monitor.describe()).history_length
        mark = ground.audit.mark()
        await agents.lose(nodes, sorted(doomed))
        await until(lambda: _all_down(monitor, doomed), 600, "all of them are found Down", pause=1)
        await pods.until(lambda: not affected & _on(pods, doomed), 1200, "their workloads are moved")
        await ground.rest(10)  # A second decision would be seen by then.
        told = (await monitor.describe()).history_length - told
        records = (await _book(monitor)).book.nodes
        since = list(ground.audit.since(mark, system.namespace, '"nodes"'))
        marked = said_at(since)
        passed: dict[str, Passage] = {}
        touched: set[str] = set()
        for name in everyone:
            handle = system.site.client.get_workflow_handle(system.workflow_id(name))
            news = [event async for event in handle.fetch_history_events() if event.event_id > lengths[name]]
            if name in affected:
                passed[name] = passage(news)
                if passed[name].removals > 1:
                    ground.say("\n  ".join([f"{name} was decided {passed[name].removals} times:", *steps_of(news)]))
            elif news:
                touched.add(name)
                ground.say(f"{name} had no pod there, and has {told_of(news)}")
        for name, what in changes_of(since, set(everyone) - affected, system.namespace):
            touched.add(name)
            ground.say(f"{name} had no pod there: {what}")
        decided = {name: one for name, one in passed.items() if one.decided is not None}
        if not decided:
            raise RuntimeError(f"nothing was decided: {len(affected)} workloads had a pod on the lost nodes")
        series: dict[str, list[float]] = {step: [] for step in STEPS}
        for name, one in decided.items():
            hit = [place for place in _places(pods, name) if place in records]
            down = min(records[place].since for place in hit)
            said = min((marked[place] for place in hit if place in marked), default=None)
            steps = (said, one.told, one.asked, one.begun, one.seen, one.decided)
            for step, at in zip(STEPS, steps, strict=True):
                if at is not None:
                    series[step].append((at - down).total_seconds())
        values = {
            "affected": len(affected),
            "missing": len(affected) - len(decided),
            "twice": sum(one.removals > 1 for one in passed.values()),
            "touched": len(touched),
            "silence_s": max((one.since - one.heard).total_seconds() for one in records.values() if one.heard),
            "monitor_events": told,
            "monitor_events_each": told / len(affected),
            "workload_events_each": sum(one.events for one in passed.values()) / len(passed),
        }
        ground.record(
            system.name,
            values,
            size={"nodes": count, "n": workloads},
            repeat=repeat,
            series={name: sorted(several) for name, several in series.items()},
        )
        await system.remove_all(everyone, pods)


async def _watch(ground: Ground, system: HoldfastSystem, count: int, window: float, lease_seconds: int) -> None:
    async with using(system.pids) as idle:
        await asyncio.sleep(window)
    heartbeat = 300.0  # As a kubelet's status, where nothing changes.
    own = (ground.stack, ground.kube, ground.directory, count)
    async with open_agents(*own, lease_seconds=lease_seconds, heartbeat=heartbeat):
        await ground.rest(30)
        async with using(ground.pids() | system.pids) as usage:
            await asyncio.sleep(window)
        values = {
            "idle_share": idle.cpu["worker"] / idle.seconds,
            "cpu_share": usage.cpu["worker"] / usage.seconds,
            "memory_mib": usage.peak["worker"],
            "above_idle_mib": usage.peak["worker"] - idle.peak["worker"],
            "cpu_apiserver_share": usage.cpu["kube-apiserver"] / usage.seconds,
        }
        ground.record(system.name, values, size={"watched": count})


async def _submit(system: HoldfastSystem, nodes: Nodes, name: str) -> None:
    template = nodes.places(job(name, PODS, backoffLimit=100))["template"]
    component = {"name": name, "template": template, "podSets": [{"path": "template.spec.template", "replicas": PODS}]}
    given: dict[str, Any] = {
        "name": name,
        "namespace": system.namespace,
        "cluster": system.site.cluster,
        "policy": ON_NODE_FAILURE.model_dump(mode="json"),
        "components": [component],
    }
    await system.client.submit(Workload.model_validate(given))


def _doomed(pods: Seen, nodes: Sequence[str]) -> set[str]:
    """Return a tenth of the nodes, of those with pods as long as there are any."""
    busy = {pod.last["spec"].get("nodeName") for pod in pods.present}
    return set(sorted(nodes, key=lambda name: (name not in busy, name))[: max(1, len(nodes) // 10)])


def _on(pods: Seen, nodes: set[str]) -> set[str]:
    """Return the workloads with a pod on some of these nodes."""
    return {workload_of(pod) for pod in pods.present if pod.last["spec"].get("nodeName") in nodes}


def _places(pods: Seen, workload: str) -> set[str]:
    """Return the nodes on which a workload has had a pod."""
    return {str(pod.last["spec"].get("nodeName")) for pod in pods.lives.values() if workload_of(pod) == workload}


async def _book(monitor: WorkflowHandle[Any, Any]) -> NodeMonitorStatus:
    return await asked(lambda: monitor.query(names.QUERY_STATUS, result_type=NodeMonitorStatus))


async def _all_down(monitor: WorkflowHandle[Any, Any], nodes: set[str]) -> bool:
    records = (await _book(monitor)).book.nodes
    return all(name in records and records[name].state is NodeState.DOWN for name in nodes)


async def _quiet(system: HoldfastSystem, workloads: Sequence[str]) -> dict[str, int]:
    """Return the lengths of the histories once nothing more comes."""
    last = await _lengths(system, workloads)
    while True:
        await asyncio.sleep(1)
        found = await _lengths(system, workloads)
        if found == last:
            return found
        last = found


async def _lengths(system: HoldfastSystem, workloads: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}

    async def one(name: str) -> None:
        described = await system.site.client.get_workflow_handle(system.workflow_id(name)).describe()
        found[name] = described.history_length

    await in_flight([lambda name=name: one(name) for name in workloads], 10)
    return found
