"""Launches that fail are tried on other nodes, and their neighbours know nothing of it (row L16)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import names
from tests.e2e.ground.kubelets import init_exits, kubelets, no_image
from tests.e2e.ground.nodes import Nodes, open_nodes
from tests.e2e.ground.site import appwrapper, job, until
from tests.e2e.ground.space import PENDING, Handle, Space, pod_template
from tests.e2e.nodes.test_nodes import placements, places, required

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
NAME = "train"


def manifest(nodes: Nodes, init: bool = False, **settings: str) -> dict[str, Any]:
    """Return a Job of one pod, whose kubelet is the test's, with Lattice's batch profile."""
    template = pod_template(labels=PENDING)
    template["spec"]["initContainers"] = [{"name": "fetch", "image": "example.com/fetch:1"}] if init else []
    spec = {"backoffLimit": 0, "template": template}
    given = {"profile": "lattice-batch", "retryPausePeriod": "1s", "successTTL": "0s", **settings}
    return nodes.places(
        {
            "template": {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {
                    "name": NAME,
                    "annotations": {f"{names.GROUP}/{key}": value for key, value in given.items()},
                },
                "spec": spec,
            }
        }
    )["template"]


async def neighbour(space: Space, nodes: Nodes) -> tuple[Handle, set[str]]:
    """Run another workload on all of the nodes, and return the uids of its pods."""
    component = nodes.places(job("beside", pods=len(nodes.names)))
    handle = await space.submit(appwrapper("beside", component))
    await space.reach(handle, "Running", 1)
    return handle, {pod["metadata"]["uid"] for pod in await space.pods("beside")}


@ROW("L16", level="e2e")
async def test_L16_four_distinct_nodes_and_then_it_has_failed_and_its_neighbour_runs_on(space: Space):
    async with open_nodes(space.site.kube, 5) as nodes:
        beside, before = await neighbour(space, nodes)
        async with kubelets(space, init_exits), placements(space) as seen:
            handle = await space.submit(manifest(nodes, init=True))
            status = await space.ended(handle, 240)
        tried = [await _node(space, seen, number) for number in (1, 2, 3, 4)]
        assert len(set(tried)) == 4, "each on a node of its own"
        assert (status.phase, status.reason) == ("Failed", "PrologueFailureMaxRetries")
        assert (status.restarts, status.requeues, status.executions) == (3, 0, 4)
        assert {each.name: each.used for each in status.budgets} == {"restart": 0, "launch": 3}
        for number in (2, 3, 4):
            assert required(space, number) == set(tried[: number - 1])
        assert status.failure is not None
        assert (status.failure.cls, status.failure.node, status.failure.exit_code) == ("Launch", tried[3], 3)
        resets = [each.message for each in status.causes if each.reason == "Resetting"]
        assert [f"exited 3 on {node}: init container fetch" in said for node, said in zip(tried, resets, strict=False)]
        assert all("rule prologue" in said for said in resets)
        events = await space.site.objects("v1", "Event", space.namespace)
        told = [one["message"] for one in events if one["involvedObject"]["kind"] == names.ANCHOR_KIND]
        assert any(f"on {tried[0]}: init container fetch" in one for one in told), "and so is who reads Events"
        await space.truth.settle()
        space.truth.assert_one_attempt_at_a_time(NAME)
        assert (await space.reach(beside, "Running", 1)).restarts == 0
        assert {pod["metadata"]["uid"] for pod in await space.pods("beside")} == before


async def _node(space: Space, seen: dict[int, set[str]], attempt: int) -> str:
    """Return the node of an attempt's only pod: as the API server last told it, since it may have lived too briefly."""
    (life,) = [one for one in space.truth.of(attempt, "Pod") if one.object["metadata"]["name"].startswith(NAME)]
    node: str = life.object["spec"]["nodeName"]
    assert seen.get(attempt, {node}) >= {node}
    return node


@ROW("L16", level="e2e")
async def test_L16_an_image_that_cannot_be_pulled_is_tried_elsewhere_once_the_kubelet_has_had_its_time(space: Space):
    async with open_nodes(space.site.kube, 2) as nodes:
        async with kubelets(space, no_image):
            handle = await space.submit(manifest(nodes, launchGracePeriod="15s"))

            async def says() -> bool:
                found = await space.explain(handle)
                return "ErrImagePull on own-" in found.now and any("launch grace" in one.what for one in found.next)

            await until(says, 60, "it says what it waits for, and how long")
            (bad,) = await places(space, 1)
            await space.reach(handle, "Resuming", 2, 60)
        await until(lambda: _placed(space, 2), 60, "its next pod has a node")
        (pod,) = await space.pods(NAME)
        await space.patch("v1", "Pod", pod["metadata"]["name"], {"metadata": {"labels": dict.fromkeys(PENDING)}})
        status = await space.reach(handle, "Running", 2)
        assert required(space, 2) == {bad}
        assert await places(space, 2) == set(nodes.names) - {bad}
        assert (status.restarts, status.requeues, status.executions) == (1, 0, 2)
        assert {each.name: each.used for each in status.budgets} == {"restart": 0, "launch": 1}


@ROW("L16", level="e2e")
async def test_L16_an_image_that_comes_after_all_resets_nothing(space: Space):
    async with open_nodes(space.site.kube, 2) as nodes:
        async with kubelets(space, no_image):
            handle = await space.submit(manifest(nodes, launchGracePeriod="30s"))
            await space.unhealthy(handle)
        (pod,) = await space.pods(NAME)
        await space.patch("v1", "Pod", pod["metadata"]["name"], {"metadata": {"labels": dict.fromkeys(PENDING)}})
        status = await space.reach(handle, "Running", 1)
        assert (status.restarts, [each.used for each in status.budgets], status.avoided) == (0, [0, 0], ())
        await space.complete(NAME)
        assert (await space.ended(handle)).phase == "Succeeded"


async def _placed(space: Space, attempt: int) -> bool:
    return len(await places(space, attempt)) == 1
