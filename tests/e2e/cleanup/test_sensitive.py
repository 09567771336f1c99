"""Sensitive work is run again by nobody: not by the kubelet, not by a Job's controller, not by an eviction (row D5)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from holdfast import names
from holdfast.local import Stack
from holdfast.model import Reason
from tests.e2e.ground.nodes import Nodes
from tests.e2e.ground.site import open_site, until
from tests.e2e.ground.space import Handle, Space, open_space
from tests.e2e.nodes.agents import SHORT_SILENCE, open_agents
from tests.e2e.nodes.test_real_node import containers, real

__all__ = ["real"]
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
RETRIED = 25.0
"""Seconds within which a controller or a kubelet would have tried a second time: both wait for 10 s at first."""


def document(pod: dict[str, Any], **spec: Any) -> str:
    """A sensitive Job whose author says nothing of retries; its profile would run it again after any failure."""
    annotations = {"profile": "lattice-service", "sensitive": "true", "retryPausePeriod": "1s", "successTTL": "0s"}
    metadata = {"name": "train", "annotations": {f"{names.GROUP}/{key}": value for key, value in annotations.items()}}
    template = {"spec": pod}
    return yaml.safe_dump(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template, **spec}}
    )


async def held(space: Space, handle: Handle, seconds: float) -> None:
    async def check() -> bool:
        return (await space.site.status(handle)).reason == Reason.HELD

    await until(check, seconds, "it is held until a person says what")


async def stays_one(space: Space, seconds: float) -> None:
    """See that no pod is made for a while beside the first one."""
    end = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end:
        pods = await space.pods("train")
        assert len(pods) <= 1, "a controller has made another pod"
        for one in pods:
            statuses = one.get("status", {}).get("containerStatuses") or ()
            assert not any(each["restartCount"] for each in statuses), "its kubelet has restarted it"
        await asyncio.sleep(0.5)
    await space.truth.settle()
    assert len(space.truth.of(1, "Pod")) == 1, "by the audit log"


@ROW("D5", level="e2e")
@pytest.mark.real_node
async def test_D5_a_real_container_that_exits_with_an_error_is_run_once_only(real: Space):
    handle = await real.submit(document(containers("exit 3")))
    await held(real, handle, 60)
    assert "is sensitive" in (await real.site.status(handle)).message
    await stays_one(real, RETRIED)


@ROW("D5", level="e2e")
async def test_D5_a_silent_node_s_pod_is_neither_evicted_nor_replaced(stack: Stack, tmp_path: Path):
    async with (
        open_site(stack, tmp_path, prefix="n") as site,
        open_agents(stack, site.kube, tmp_path, 3) as (_, _),
        open_agents(stack, site.kube, tmp_path, 1) as (nodes, agents),
    ):
        await site.start_worker(kubeconfig=None, **SHORT_SILENCE)
        async with open_space(site) as space:
            handle = await space.submit(document(placed(nodes)))
            await space.reach(handle, "Running", 1)
            (pod,) = await space.pods("train")
            evicted = {
                one["key"]: one["tolerationSeconds"]
                for one in pod["spec"]["tolerations"]
                if one.get("tolerationSeconds") is not None
            }
            assert not evicted, "the node lifecycle controller would evict it"
            agents.kill()
            await held(space, handle, 120)
            # Somebody deletes its pod, as an eviction does: nobody is left to end it, and nothing replaces it.
            await space.delete("v1", "Pod", pod["metadata"]["name"])
            await stays_one(space, RETRIED)
            (left,) = await space.pods("train")
            assert left["metadata"]["uid"] == pod["metadata"]["uid"]


def placed(nodes: Nodes) -> dict[str, Any]:
    spec = {"containers": [{"name": "main", "image": "example.com/train:1"}], "restartPolicy": "Never"}
    return nodes.places({"template": {"spec": spec}})["template"]["spec"]
