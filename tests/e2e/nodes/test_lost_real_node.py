"""A real kubelet that dies, freezes and comes back, over real processes (rows L5, L12)."""

from __future__ import annotations

import asyncio
import secrets
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast import names
from holdfast.local import Stack
from holdfast.model import NodeState, NodeWord
from tests.e2e.ground.held import real_node, require_real
from tests.e2e.ground.nodes import GROUP, Nodes
from tests.e2e.ground.site import until
from tests.e2e.ground.space import Space
from tests.e2e.nodes.agents import open_agents
from tests.e2e.nodes.test_lost_nodes import QUICK, is_tainted, opened, stands, word, workload
from tests.e2e.nodes.test_real_node import FOREVER, containers, kill, processes

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.real_node,
    pytest.mark.timeout(900),
    pytest.mark.asyncio(loop_scope="session"),
]
ROW = pytest.mark.row
PATIENT = QUICK | {"HOLDFAST_NODE_DOWN": "5m"}


@asynccontextmanager
async def lent(stack: Stack, directory: Path, **environment: str) -> AsyncIterator[tuple[Space, Nodes]]:
    """Give a test the real node alone, first of a group on which its pods may run; others may join it later."""
    async with (
        opened(stack, directory, **environment) as space,
        open_agents(stack, space.site.kube, directory, 3) as (others, _),
    ):
        await require_real(space.site)
        mine = Nodes(space.site.kube, f"r{secrets.token_hex(3)}", others.names)
        async with real_node(stack, alone=True):
            await mine.label("real", GROUP, mine.group)
            try:
                yield space, mine
            finally:
                if stack.pid("kubelet") is None:
                    await asyncio.to_thread(stack.start_part, "kubelet")
                stack.resume_part("kubelet")
                await mine.label("real", GROUP, None)
                # What this site has said on it nobody else would take back.
                await until(lambda: is_free(space), 180, "the real node is as it was")


async def is_free(space: Space) -> bool:
    found = await space.site.kube.get("v1", "Node", "real")
    return not is_tainted(found, space.site) and await word(space.site, "real") is NodeWord.NONE


def sleeper(space: Space, nodes: Nodes, marker: str, script: str = FOREVER):
    """Return a workload of one process, on the real node for as long as no other node is of its group."""
    spec = containers(f": {marker}; {script}")
    spec["nodeSelector"] = {GROUP: nodes.group}
    spec["tolerations"] = [
        {"operator": "Exists", "effect": "NoSchedule", "key": key} for key in (GROUP, "holdfast.dev/real")
    ]
    template = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "main"},
        "spec": {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": {"spec": spec}},
    }
    return workload(space, "train", {"template": template})


@ROW("L5", level="e2e")
async def test_L5_a_kubelet_that_is_killed_and_back_in_time_finds_its_process_again(stack: Stack, tmp_path: Path):
    marker = secrets.token_hex(8)
    async with lent(stack, tmp_path, **PATIENT) as (space, nodes):
        handle = await space.submit(sleeper(space, nodes, marker))
        await space.reach(handle, "Running", 1)
        before = await asyncio.to_thread(processes, marker)
        assert len(before) == 1
        await asyncio.to_thread(stack.stop_part, "kubelet", signal.SIGKILL)
        await stands(space.site, "real", NodeState.DEGRADED, 120)
        await asyncio.to_thread(stack.start_part, "kubelet")
        await stands(space.site, "real", NodeState.HEALTHY, 120)
        status = await space.site.status(handle)
        assert (status.phase, status.attempt, status.restarts) == ("Running", 1, 0)
        assert await asyncio.to_thread(processes, marker) == before, "the same process"


@ROW("L12", level="e2e")
async def test_L12_an_exit_while_nothing_was_heard_of_the_node_is_recorded(stack: Stack, tmp_path: Path):
    marker = secrets.token_hex(8)
    async with lent(stack, tmp_path, **PATIENT) as (space, nodes):
        handle = await space.submit(sleeper(space, nodes, marker))
        await space.reach(handle, "Running", 1)
        stack.pause_part("kubelet")
        await stands(space.site, "real", NodeState.DEGRADED, 120)
        await kill(marker)
        assert (await space.site.status(handle)).phase == "Running", "nobody knows of it"
        stack.resume_part("kubelet")
        status = await space.ended(handle, 240)
        assert (status.phase, status.restarts) == ("Failed", 0)
        await space.truth.settle()
        (life,) = space.truth.of(1, "Pod")
        assert life.object["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137


@ROW("L5", level="e2e")
@ROW("L12", level="e2e")
async def test_L5_a_node_that_comes_back_after_its_workload_was_moved_makes_no_second_attempt_run(
    stack: Stack, tmp_path: Path
):
    marker = secrets.token_hex(8)
    async with lent(stack, tmp_path, **QUICK) as (space, nodes):
        handle = await space.submit(sleeper(space, nodes, marker))
        await space.reach(handle, "Running", 1)
        (old,) = await space.pods("train")
        assert old["spec"]["nodeName"] == "real"
        await nodes.join(nodes.group)
        stack.pause_part("kubelet")
        status = await space.reach(handle, "Running", 2, 240)
        (moved,) = await space.pods("train")
        assert moved["spec"]["nodeName"] in nodes.names
        assert len(await asyncio.to_thread(processes, marker)) == 1, "a frozen kubelet ends nothing"
        gone = [each.message for each in status.causes if each.reason == "DeletionComplete"]
        assert gone == [
            "attempt 1 is gone from the API; it may still run on real until that node is heard again or powered off"
        ]
        assert is_tainted(await space.site.kube.get("v1", "Node", "real"), space.site)
        stack.resume_part("kubelet")

        async def ended() -> bool:
            return not await asyncio.to_thread(processes, marker)

        await until(ended, 120, "the process of the first attempt has ended")
        await stands(space.site, "real", NodeState.HEALTHY, 120)
        await until(lambda: is_free(space), 30, "it takes pods again")
        status = await space.site.status(handle)
        assert (status.phase, status.attempt, status.restarts) == ("Running", 2, 1)
        assert [pod["metadata"]["uid"] for pod in await space.pods("train")] == [moved["metadata"]["uid"]]
        await space.truth.settle()
        space.truth.assert_one_attempt_at_a_time("train")
        assert {life.object["metadata"]["labels"][names.LABEL_ATTEMPT] for life in space.truth.of(1, "Pod")} == {"1"}
