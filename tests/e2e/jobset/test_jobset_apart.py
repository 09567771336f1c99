"""JobSets with exclusive topologies: the real scheduler keeps their Jobs apart, and each Job together (row J21)."""

from __future__ import annotations

import secrets
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from holdfast.activities.kube.client import NotFound
from holdfast.formats.jobset.document import EXCLUSIVE, NAMESPACED_JOB, NO_SCHEDULE, NODE_SELECTOR
from tests.e2e.ground.nodes import GROUP, Nodes, open_nodes
from tests.e2e.ground.site import Site, until
from tests.e2e.ground.space import Space
from tests.e2e.jobset.jobset_life import end_pod, reach
from tests.e2e.peers.jobsets import P, jobset, replicated

pytestmark = [
    *(pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")),
    pytest.mark.row("J21", level="e2e"),
]
RACK = "test.holdfast.dev/rack"
Json = dict[str, Any]


def exclusive(nodes: Nodes, name: str, replicas: int, *, annotations: Json | None = None, **spec: Any) -> Json:
    """Return a JobSet whose Jobs, of four pods each, have a rack to themselves."""
    job = replicated("workers", replicas=replicas, pods=4, job={"backoffLimit": 0})
    pods = job["template"]["spec"]["template"]["spec"]
    pods |= {"nodeSelector": {GROUP: nodes.group}, "tolerations": [{"key": GROUP, "operator": "Exists"}]}
    document = jobset(name, job, **spec)
    document["metadata"]["annotations"] = {EXCLUSIVE: RACK} if annotations is None else annotations
    return document


def rack(nodes: Nodes, number: int) -> str:
    """Return a rack's name. It is of this test alone: another one's pods would take it."""
    return f"{nodes.group}-r{number}"


@asynccontextmanager
async def racks(site: Site, count: int) -> AsyncIterator[Nodes]:
    """Make racks of two nodes each."""
    async with open_nodes(site.kube, 2 * count) as nodes:
        for number, name in enumerate(nodes.names):
            await nodes.label(name, RACK, rack(nodes, number // 2))
        yield nodes


async def placed(space: Space, nodes: Nodes, name: str) -> dict[str, set[str]]:
    """Return the racks of each Job's pods, those that are placed and not ended."""
    racks = {node: rack(nodes, number // 2) for number, node in enumerate(nodes.names)}
    found = defaultdict[str, set[str]](set)
    for pod in await space.site.objects("v1", "Pod", space.namespace, f"{P}jobset-name={name}"):
        if pod["spec"].get("nodeName") and pod["status"].get("phase") == "Running":
            found[pod["metadata"]["labels"][f"{P}job-index"]].add(racks[pod["spec"]["nodeName"]])
    return dict(found)


async def test_J21_each_job_has_a_rack_to_itself_after_a_restart_too(space: Space) -> None:
    async with racks(space.site, 3) as nodes:
        train = await space.submit(exclusive(nodes, "train", 2, failurePolicy={"maxRestarts": 1}))
        for attempt in (1, 2):
            await reach(space, train, "Running", attempt)
            found = await placed(space, nodes, "train")
            assert [len(each) for each in found.values()] == [1, 1], "each Job is in one rack"
            assert found["0"] != found["1"], "two Jobs are in two racks"
            if attempt == 1:
                await end_pod(space, "train-workers-0", 1, index=2)
        # One rack is left: one of two more Jobs has it, and the other waits for one.
        await space.submit(exclusive(nodes, "more", 2))

        async def one_runs() -> bool:
            pods = await space.site.objects("v1", "Pod", space.namespace, f"{P}jobset-name=more")
            return sum(pod["status"].get("phase") == "Running" for pod in pods) == 4

        await until(one_runs, 120, "four of the eight pods run")
        taken = (await placed(space, nodes, "train")).values()
        (last,) = (await placed(space, nodes, "more")).values()
        assert len(last) == 1
        assert all(last != each for each in taken)


async def test_J21_jobs_of_another_priority_may_share_a_rack(space: Space) -> None:
    kube, name = space.site.kube, f"test-{secrets.token_hex(3)}"
    urgent: Json = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": 1700,
        "preemptionPolicy": "Never",
    }
    made = await kube.create(urgent)
    try:
        async with racks(space.site, 1) as nodes:
            low = await space.submit(exclusive(nodes, "low", 1))
            await reach(space, low, "Running", 1)
            document = exclusive(nodes, "high", 1)
            document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["priorityClassName"] = name
            high = await space.submit(document)
            await reach(space, high, "Running", 1)
            pods = await space.site.objects("v1", "Pod", space.namespace, f"{P}jobset-name=high")
            assert {pod["metadata"]["labels"][f"{P}priority"] for pod in pods} == {"1700"}
            assert len(await placed(space, nodes, "low")) == len(await placed(space, nodes, "high")) == 1
    finally:
        with suppress(NotFound):
            await kube.delete("scheduling.k8s.io/v1", "PriorityClass", name, uid=made["metadata"]["uid"])


async def test_J21_where_nodes_are_labelled_for_each_job_its_pods_run_there(space: Space) -> None:
    async with racks(space.site, 2) as nodes:
        for number, node in enumerate(nodes.names):
            labels = {NAMESPACED_JOB: f"{space.namespace}_train-workers-{number // 2}"}
            taints = [
                {"key": GROUP, "value": nodes.group, "effect": "NoSchedule"},
                {"key": NO_SCHEDULE, "value": "true", "effect": "NoSchedule"},
            ]
            await nodes.patch(node, {"metadata": {"labels": labels}, "spec": {"taints": taints}})
        annotations = {EXCLUSIVE: RACK, NODE_SELECTOR: "true"}
        train = await space.submit(exclusive(nodes, "train", 2, annotations=annotations))
        await reach(space, train, "Running", 1)
        assert await placed(space, nodes, "train") == {"0": {rack(nodes, 0)}, "1": {rack(nodes, 1)}}
