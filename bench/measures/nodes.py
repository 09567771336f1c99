"""A tenth of so many nodes lose power under so many workloads; and what it costs to watch the leases of thousands.

The nodes are played by two KWOK processes that renew their leases as kubelets do; one of them is killed. When a node
was found Down is in the monitor's book, when its workloads were decided on in their histories, and whether anybody else
was touched in the audit log.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

from temporalio.client import WorkflowHandle

from bench.audit import Entry
from bench.ground import Ground
from bench.seeing import Seen, in_phase, seeing
from bench.systems.holdfast import HoldfastSystem, open_holdfast
from bench.usage import using
from bench.work import in_flight, workload_of
from holdfast import names
from holdfast.model import NodeRecord, NodeState, Workload
from holdfast.workflows.node_monitor import NodeMonitorStatus
from tests.e2e.agents import open_agents
from tests.e2e.nodes import Nodes
from tests.e2e.site import asked, job, until
from tests.e2e.test_lost_nodes import ON_NODE_FAILURE

NAME = "nodes"
PODS = 2
LEASE_SECONDS = 40
WATCHED = 5000
WINDOW = 60.0
SETTLED = 60.0
"""Seconds until nothing more is told of workloads that have just begun to run: the least urgent comes after 45 s."""
TOUCHES = {"create", "update", "patch", "delete", "deletecollection"}


async def measure(
    ground: Ground,
    nodes: int = 500,
    workloads: int = 300,
    watched: int = WATCHED,
    window: float = WINDOW,
    waits: dict[str, str] | None = None,
    lease_seconds: int = LEASE_SECONDS,
) -> None:
    """Kill a tenth of the nodes; then watch many.

    Args:
        ground: what to measure on.
        nodes: how many there are.
        workloads: how many two-pod workloads run on them.
        watched: how many nodes there are whose leases are only watched.
        window: for how many seconds that is measured.
        waits: of the worker's settings, where they are not to be the published ones.
        lease_seconds: how long a lease lasts: it is renewed four times in that.
    """
    ground.options = dataclasses.replace(ground.options, worker={**ground.options.worker, **(waits or {})})
    for repeat in range(ground.options.repeats):
        async with open_holdfast(ground) as system:
            await _lose(ground, system, nodes, workloads, lease_seconds, repeat)
    async with open_holdfast(ground) as system:
        await _watch(ground, system, watched, window, lease_seconds)


async def _lose(
    ground: Ground, system: HoldfastSystem, count: int, workloads: int, lease_seconds: int, repeat: int
) -> None:
    doomed_count = max(1, count // 10)
    own = (ground.stack, ground.kube, ground.directory)
    async with (
        open_agents(*own, count - doomed_count, lease_seconds=lease_seconds) as (well, _),
        open_agents(*own, doomed_count, lease_seconds=lease_seconds, group=well.group) as (doomed, agents),
        seeing(ground.kube, "v1", "Pod", system.namespace, running=in_phase("Running")) as pods,
    ):
        monitor = system.site.client.get_workflow_handle(names.node_monitor_id(system.site.cluster))
        await in_flight([lambda index=index: _submit(system, well, f"w{index}") for index in range(workloads)])
        await pods.all_reach("running", PODS * workloads)
        await ground.rest(SETTLED)
        affected = _on(pods, doomed)
        lengths = await _quiet(system, range(workloads))
        told = (await monitor.describe()).history_length
        mark = ground.audit.mark()
        agents.kill()
        gone = set(doomed.names)
        await until(lambda: _all_down(monitor, gone), 600, "all of them are found Down")
        await pods.until(lambda: not affected & _on(pods, doomed), 1200, "their workloads are moved")
        await ground.rest(10)  # A second decision would be seen by then.
        records = (await _book(monitor)).book.nodes
        decided = await system.decided(sorted(affected))
        late: list[float] = []
        for name, at in decided.items():
            down = min(record.since for record in _down_before(pods, name, records))
            late.append((at - down).total_seconds())
        statuses = {f"w{index}": await _status(system, f"w{index}") for index in range(workloads)}
        after = await _lengths(system, range(workloads))
        others = statuses.keys() - affected
        touched = _touched(ground.audit.since(mark, system.namespace), others)
        told = (await monitor.describe()).history_length - told
        grown = [after[name] - lengths[name] for name in affected]
        values = {
            "affected": len(affected),
            "missing": len(affected) - len(decided),
            "twice": sum(statuses[name].restarts > 1 for name in affected),
            "touched": sum(statuses[name].restarts > 0 or after[name] != lengths[name] for name in others) + touched,
            "silence_s": max((one.since - one.heard).total_seconds() for one in records.values() if one.heard),
            "monitor_events": told,
            "monitor_events_each": told / max(1, len(affected)),
            "workload_events_each": sum(grown) / max(1, len(grown)),
        }
        ground.record(
            system.name, values, size={"nodes": count, "n": workloads}, repeat=repeat, series={"late_s": sorted(late)}
        )
        await system.remove_all([f"w{index}" for index in range(workloads)], pods)


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


def _on(pods: Seen, nodes: Nodes) -> set[str]:
    """Return the workloads with a pod on some of these nodes."""
    return {workload_of(pod) for pod in pods.present if pod.last["spec"].get("nodeName") in nodes.names}


def _down_before(pods: Seen, workload: str, records: dict[str, NodeRecord]) -> list[NodeRecord]:
    places = {pod.last["spec"].get("nodeName") for pod in pods.lives.values() if workload_of(pod) == workload}
    return [records[place] for place in places if place in records]


async def _book(monitor: WorkflowHandle[Any, Any]) -> NodeMonitorStatus:
    return await asked(lambda: monitor.query(names.QUERY_STATUS, result_type=NodeMonitorStatus))


async def _all_down(monitor: WorkflowHandle[Any, Any], nodes: set[str]) -> bool:
    records = (await _book(monitor)).book.nodes
    return all(name in records and records[name].state is NodeState.DOWN for name in nodes)


async def _status(system: HoldfastSystem, name: str) -> Any:
    return await system.site.status(system.site.client.get_workflow_handle(system.workflow_id(name)))


async def _quiet(system: HoldfastSystem, indices: range) -> dict[str, int]:
    """Return the lengths of the histories once nothing more comes."""
    last = await _lengths(system, indices)
    while True:
        await asyncio.sleep(1)
        found = await _lengths(system, indices)
        if found == last:
            return found
        last = found


async def _lengths(system: HoldfastSystem, indices: range) -> dict[str, int]:
    found: dict[str, int] = {}

    async def one(name: str) -> None:
        described = await system.site.client.get_workflow_handle(system.workflow_id(name)).describe()
        found[name] = described.history_length

    await in_flight([lambda index=index: one(f"w{index}") for index in indices], 10)
    return found


def _touched(entries: Any, others: set[str]) -> int:
    """Count the changes that Holdfast's worker made to anything of these workloads."""

    def of(entry: Entry) -> str:
        return str((entry.get("objectRef") or {}).get("name", ""))

    return sum(
        entry["verb"] in TOUCHES
        and "holdfast" in entry["user"]["username"]
        and any(of(entry) == name or of(entry).startswith(f"{name}-") for name in others)
        for entry in entries
    )
