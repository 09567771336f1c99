"""Nodes that fall silent (rows L4, L8, L12): Degraded, Down, their workloads moved, and back after a health check."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Set
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import names
from holdfast.activities.facts.node_annotations import word_on
from holdfast.local import Stack
from holdfast.model import (
    Action,
    ActionKind,
    Budget,
    FailureClass,
    Match,
    NodeState,
    NodeTimings,
    NodeWord,
    Policy,
    Rule,
    Timings,
    Workload,
)
from holdfast.workflows.entities.node_monitor import NodeMonitorStatus
from tests.e2e.ground.nodes import Nodes
from tests.e2e.ground.site import Site, asked, job, open_site, until
from tests.e2e.ground.space import Handle, Space, open_space
from tests.e2e.nodes.agents import SHORT_SILENCE as QUICK
from tests.e2e.nodes.agents import open_agents

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
FAULT = "CperHardwareErrorFatal"
ON_NODE_FAILURE = Policy(
    rules=(
        Rule(
            name="node-lost",
            match=Match(classes=(FailureClass.NODE_LOST, FailureClass.HARDWARE)),
            action=Action(kind=ActionKind.RESTART, charge="restart", grace=False),
        ),
    ),
    default=Action(kind=ActionKind.FAIL, charge=None, grace=False),
    budgets=(Budget(name="restart", limit=3),),
    timings=Timings(
        retry_pause_period=timedelta(seconds=1),
        forceful_deletion_grace_period=timedelta(minutes=10),
        success_ttl=timedelta(0),
    ),
)


def workload(space: Space, name: str, component: dict[str, Any], **fields: Any) -> Workload:
    """Return a workload in Holdfast's own terms, run again when its node is lost and not when it fails."""
    fields = {"policy": ON_NODE_FAILURE} | fields
    template = component["template"]
    pods = template["spec"].get("parallelism", 1)
    return Workload.model_validate(
        {
            "name": name,
            "namespace": space.namespace,
            "cluster": space.site.cluster,
            "components": [
                {
                    "name": template["metadata"]["name"],
                    "template": template,
                    "podSets": [{"path": "template.spec.template", "replicas": pods}],
                }
            ],
            **{key: getattr(value, "model_dump", lambda value=value: value)() for key, value in fields.items()},
        }
    )


async def book(site: Site) -> NodeMonitorStatus:
    handle = site.client.get_workflow_handle(names.node_monitor_id(site.cluster))
    return await asked(lambda: handle.query(names.QUERY_STATUS, result_type=NodeMonitorStatus))


async def stands(site: Site, node: str, state: NodeState, seconds: float = 60) -> datetime:
    """Wait until a node stands so in the monitor's book, and return when that was noticed."""

    found: list[NodeMonitorStatus] = []

    async def check() -> bool:
        found[:] = [await book(site)]
        record = found[0].book.nodes.get(node)
        return (record.state if record is not None else NodeState.HEALTHY) is state

    await until(check, seconds, lambda: f"{node} is {state.value}: {found[0].book.model_dump_json(indent=1)}")
    return datetime.now(UTC)


async def word(site: Site, node: str) -> NodeWord:
    return word_on(await site.kube.get("v1", "Node", node), site.cluster)[0]


@dataclass(frozen=True, slots=True)
class Said:
    """What an installation said on a node, once."""

    at: datetime
    annotations: Mapping[str, str | None]
    taints: Set[str]


def said(space: Space, node: str) -> list[Said]:
    """Return what this installation has said on a node, by the API server's audit log.

    Others may say theirs at the same time, each by keys of its own.
    """
    ours = {f"{key}/{space.site.cluster}" for key in (names.ANNOTATION_FENCED, names.ANNOTATION_NODE)}
    found: list[Said] = []
    for one in space.truth.requests_of_node(node):
        annotations = one.body.get("metadata", {}).get("annotations") or {}
        if one.verb == "patch" and ours & set(annotations):
            taints = {taint["key"] for taint in one.body.get("spec", {}).get("taints") or ()}
            found.append(Said(one.time, annotations, taints))
    return sorted(found, key=lambda one: one.at)


def is_tainted(node: dict[str, Any], site: Site) -> bool:
    return names.node_taint(site.cluster) in {one["key"] for one in node["spec"].get("taints") or ()}


@asynccontextmanager
async def opened(stack: Stack, directory: Path, **environment: str) -> AsyncIterator[Space]:
    async with open_site(stack, directory, prefix="n") as site:
        await site.start_worker(kubeconfig=None, **environment)
        async with open_space(site) as space:
            yield space


async def spread(space: Space, handle: Handle, here: Nodes, there: Nodes) -> None:
    """Wait until a workload runs with a pod on either side."""
    await space.reach(handle, "Running", 1)
    places = {pod["spec"]["nodeName"] for pod in await space.pods()}
    assert places & set(here.names), places
    assert places & set(there.names), places


@ROW("L4", level="e2e")
@pytest.mark.parametrize("how", ["scaled", "as published"])
async def test_L4_a_silent_node_is_degraded_then_down_and_its_workload_is_moved_once(
    stack: Stack, tmp_path: Path, how: str
):
    """Five pods of one workload on two nodes that lose power together; another workload beside it is not touched."""
    quick = how == "scaled"
    seconds = 4 if quick else 40
    degraded, down = (13.0, 28.0) if quick else (30.0, 90.0)
    timings = QUICK | {"HOLDFAST_NODE_DOWN": "15s", "HOLDFAST_NODE_SENSITIVE_DOWN": "30s"} if quick else {}
    async with (
        opened(stack, tmp_path, **timings) as space,
        open_agents(stack, space.site.kube, tmp_path, 3, lease_seconds=seconds) as (well, _),
        open_agents(stack, space.site.kube, tmp_path, 2, lease_seconds=seconds, group="") as (doomed, agents),
    ):
        beside = await space.submit(workload(space, "beside", well.places(job("beside", 2))))
        handle = await space.submit(workload(space, "train", doomed.places(job("train", 5))))
        await space.reach(beside, "Running", 1)
        await space.reach(handle, "Running", 1)
        for name in well.names:  # So that its next attempt has a place to go.
            await well.patch(name, {"metadata": {"labels": {"test.holdfast.dev/nodes": doomed.group}}})
        assert {pod["spec"]["nodeName"] for pod in await space.pods("train")} == set(doomed.names)
        requests = len(space.truth.requests())
        agents.kill()
        killed = datetime.now(UTC)
        silent = [await stands(space.site, name, NodeState.DEGRADED, degraded * 2 + 90) for name in doomed.names]
        assert (await book(space.site)).book.nodes[doomed.names[0]].told is NodeWord.NONE, "nothing is done yet"
        status = await space.reach(handle, "Running", 2, down * 2 + 90)
        assert (status.restarts, [each.used for each in status.budgets]) == (1, [1])
        records = (await book(space.site)).book.nodes
        (reset,) = [cause for cause in status.causes if cause.reason == "Resetting"]
        assert "NodeDown on own-" in reset.message
        assert "its lease was last renewed at" in reset.message
        assert "(rule silent" in reset.message
        assert "(rule node-lost)" in reset.message
        for name, noticed in zip(doomed.names, silent, strict=True):
            record = records[name]
            assert record.heard is not None
            assert record.heard <= killed + timedelta(seconds=30), "a watch that is taken over hears of it later"
            assert noticed - record.heard >= timedelta(seconds=degraded)
            assert timedelta(seconds=down) <= record.since - record.heard <= timedelta(seconds=down + 30)
        assert {pod["spec"]["nodeName"] for pod in await space.pods("train")} <= set(well.names)
        await space.truth.settle()
        space.truth.assert_one_attempt_at_a_time("train")
        since = space.truth.requests()[requests:]
        forced = [
            one for one in since if one.verb == "delete" and one.resource == "pods" and one.name.startswith("train")
        ]
        assert len({one.name for one in forced}) == 5, "the pods there were deleted by force, each"
        ours = [one for one in since if one.worker and one.verb in {"create", "delete"}]
        assert not [one for one in ours if one.name.startswith("beside")], "and nobody else's"
        gone = next(cause for cause in status.causes if cause.reason == "DeletionComplete")
        assert doomed.names[0] in gone.message, "what may still run there is said"


@ROW("L4", level="e2e")
@ROW("L12", level="e2e")
async def test_L12_a_silence_that_ends_within_the_grace_disturbs_nobody(stack: Stack, tmp_path: Path):
    async with (
        opened(stack, tmp_path, **QUICK | {"HOLDFAST_NODE_DOWN": "30s"}) as space,
        open_agents(stack, space.site.kube, tmp_path, 3) as (_, _),
        open_agents(stack, space.site.kube, tmp_path, 1) as (nodes, agents),
    ):
        handle = await space.submit(workload(space, "train", nodes.places(job("train", 2))))
        await space.reach(handle, "Running", 1)
        uids = {pod["metadata"]["uid"] for pod in await space.pods("train")}
        agents.pause()
        await stands(space.site, nodes.names[0], NodeState.DEGRADED)
        agents.resume()
        await stands(space.site, nodes.names[0], NodeState.HEALTHY)
        status = await space.site.status(handle)
        assert (status.phase, status.restarts) == ("Running", 0)
        assert {pod["metadata"]["uid"] for pod in await space.pods("train")} == uids
        assert await word(space.site, nodes.names[0]) is NodeWord.NONE


@ROW("L5", level="e2e")
async def test_L5_a_node_back_from_down_takes_no_pods_until_its_health_check(stack: Stack, tmp_path: Path):
    async with (
        opened(stack, tmp_path, **QUICK | {"HOLDFAST_NODE_SENSITIVE_DOWN": "5m"}) as space,
        open_agents(stack, space.site.kube, tmp_path, 3) as (_, _),
        open_agents(stack, space.site.kube, tmp_path, 1) as (nodes, agents),
    ):
        (node,) = nodes.names
        handle = await space.submit(workload(space, "train", nodes.places(job("train", 1))))
        await space.reach(handle, "Running", 1)
        agents.pause()
        await stands(space.site, node, NodeState.DOWN)
        await space.reach(handle, "Resuming", 2)
        assert is_tainted(await space.site.kube.get("v1", "Node", node), space.site)
        agents.resume()
        await stands(space.site, node, NodeState.HEALTHY)
        await space.reach(handle, "Running", 2)

        async def taken_off() -> bool:
            return await word(space.site, node) is NodeWord.NONE

        await until(taken_off, 90, "nothing is said of it any more")
        down, returned, checked = told = await asyncio.to_thread(said, space, node)
        words = [json.loads(one.annotations[names.node_annotation(space.site.cluster)] or "{}") for one in told]
        assert [one.get("state", "") for one in words] == ["Down", "Returning", ""]
        assert names.node_taint(space.site.cluster) in down.taints & returned.taints, "it takes no new pods until then"
        assert checked.at - returned.at >= timedelta(seconds=2)
        assert not is_tainted(await space.site.kube.get("v1", "Node", node), space.site)
        assert all(one.verb != "delete" for one in await asyncio.to_thread(space.truth.requests_of_node, node))


@ROW("L8", level="e2e")
@pytest.mark.parametrize("how", ["condition", "taint"])
async def test_L8_broken_hardware_is_down_at_once_and_kept_free_until_it_is_sound(
    stack: Stack, tmp_path: Path, how: str
):
    """By the published waits: nothing of them is waited for."""
    async with (
        opened(stack, tmp_path, HOLDFAST_NODE_CHECK="3s") as space,
        open_agents(stack, space.site.kube, tmp_path, 2) as (nodes, _),
    ):
        handle = await space.submit(workload(space, "train", nodes.places(job("train", 1))))
        await space.reach(handle, "Running", 1)
        ((bad,),) = [{pod["spec"]["nodeName"] for pod in await space.pods("train")}]
        stays = nodes.places(job("stays", 1))
        stays["template"]["spec"]["template"]["spec"]["nodeName"] = bad
        other = await space.submit(workload(space, "stays", stays, policy=Policy()))
        await space.reach(other, "Running", 1)
        begun = datetime.now(UTC)
        if how == "condition":
            await nodes.condition(bad, FAULT, "True")
        else:
            taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoSchedule"}
            found = await space.site.kube.get("v1", "Node", bad)
            await nodes.patch(bad, {"spec": {"taints": [*found["spec"]["taints"], taint]}})
        status = await space.reach(handle, "Running", 2)
        (reset,) = [cause for cause in status.causes if cause.reason == "Resetting"]
        print(f"MEASURED reset {(reset.time - begun).total_seconds():.2f} s after the fault was told")
        assert reset.time - begun < NodeTimings().degraded, "none of the waits for a silent node was waited for"
        assert f"{FAULT if how == 'condition' else 'NodeTainted'} on {bad}" in reset.message
        await stands(space.site, bad, NodeState.DOWN)
        assert (await book(space.site)).book.nodes[bad].why.endswith("Down at once (rule hardware)")
        if how == "condition":

            async def kept_free() -> bool:
                return is_tainted(await space.site.kube.get("v1", "Node", bad), space.site)

            await until(kept_free, 90, "it takes no pods")
            await nodes.condition(bad, FAULT, "False")
            await stands(space.site, bad, NodeState.HEALTHY)

            async def let_back() -> bool:
                return not await kept_free()

            await until(let_back, 90, "it takes pods again")
        assert (await space.site.status(other)).restarts == 0, "its policy says nothing of hardware"
