"""Fencing (row L15): a silent node is off, by proof, before anything takes the place of what ran there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast import names
from holdfast.local import Stack
from holdfast.model import NodeState, NodeWord
from holdfast.model.entities.provisioner import NodeAction, Result
from tests.e2e.ground.nodes import Nodes
from tests.e2e.ground.site import job, open_site, until
from tests.e2e.ground.space import Handle, open_space
from tests.e2e.ground.terminal import command
from tests.e2e.nodes.agents import SHORT_SILENCE, Agents, open_agents
from tests.e2e.nodes.test_lost_nodes import book, said, stands, word, workload
from tests.e2e.nodes.test_provisioner import Ground
from tests.redfish.server import Emulator

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]
ROW = pytest.mark.row
OUT = f"{names.TAINT_OUT_OF_SERVICE}:NoExecute"


@dataclass
class Rack(Ground):
    """The same, with an agent behind the nodes that can be killed, and nodes to go to."""

    agents: Agents
    well: Nodes

    async def runs(self, **fields: Any) -> Handle:
        """Have a workload run on the node that is to be lost, with another place to go to."""
        handle = await self.space.submit(workload(self.space, "train", self.nodes.places(job("train", 2)), **fields))
        await self.space.reach(handle, "Running", 1)
        for name in self.well.names:
            await self.well.patch(name, {"metadata": {"labels": {"test.holdfast.dev/nodes": self.nodes.group}}})
        return handle

    @property
    def node(self) -> str:
        return self.nodes.names[0]

    @property
    def environment(self) -> dict[str, str]:
        return {**SHORT_SILENCE, **self.settings(HOLDFAST_FENCE="true")}

    async def is_free(self) -> bool:
        """Whether nothing of this installation stands on the node."""
        found = await self.site.kube.get("v1", "Node", self.node)
        said = {names.fenced_annotation(self.site.cluster), names.node_annotation(self.site.cluster)}
        keys = {taint.partition(":")[0] for taint in await self.taints(self.node)}
        ours = keys & {names.TAINT_OUT_OF_SERVICE, names.node_taint(self.site.cluster)}
        return not ours and not said & set(found["metadata"].get("annotations", {}))

    async def is_fencing(self) -> bool:
        return await word(self.site, self.node) is NodeWord.FENCING

    async def asked_for(self) -> bool:
        return any(one.fence for one in (await self.status()).pending)

    def patches(self) -> list[datetime]:
        """Return when this installation said something on the node, by the API server's audit log."""
        return [one.at for one in said(self.space, self.node)]

    def first_of_attempt_2(self) -> datetime:
        return self.space.created("attempts", names.attempt_name("train", 2))

    def nothing_was_replaced(self) -> None:
        assert not [
            one
            for one in self.space.truth.requests()
            if one.worker and (one.verb == "delete" or one.name == names.attempt_name("train", 2))
        ]


@asynccontextmanager
async def rack(stack: Stack, directory: Path, **config: Any) -> AsyncIterator[Rack]:
    async with (
        open_site(stack, directory, prefix="f") as site,
        open_agents(stack, site.kube, directory, 3) as (well, _),
        open_agents(stack, site.kube, directory, 1) as (nodes, agents),
    ):
        redfish = Emulator(directory, [*nodes.names, *well.names[:1]], **config)
        await nodes.identify({nodes.names[0]: redfish.ids[nodes.names[0]]})
        await well.identify({well.names[0]: redfish.ids[well.names[0]]})
        await redfish.start()
        try:
            fencing = {"HOLDFAST_PROVISIONER_URL": redfish.template, "HOLDFAST_FENCE": "true"}
            await site.start_worker(kubeconfig=None, **SHORT_SILENCE, **fencing)
            async with open_space(site) as space:
                yield Rack(site, space, nodes, redfish, agents, well)
        finally:
            redfish.kill()


async def came_back(here: Rack) -> None:
    """Have the node's agent be there again, as after power-on, and see the node free of all that was said on it."""
    here.agents.start()
    await stands(here.site, here.node, NodeState.HEALTHY, 90)
    await until(here.is_free, 90, "nothing of ours stands on it")


@ROW("L15", level="e2e")
async def test_L15_a_silent_node_is_off_before_its_pods_are_replaced_and_comes_back_as_any_other(
    stack: Stack, tmp_path: Path
):
    async with rack(stack, tmp_path, power_seconds=4) as here:
        handle = await here.runs()
        here.agents.kill()
        status = await here.space.reach(handle, "Running", 2, 150)
        assert here.redfish.resets() == [here.node]
        assert await here.redfish.power(here.node) == "Off"
        found = await here.site.kube.get("v1", "Node", here.node)
        said = json.loads(found["metadata"]["annotations"][names.fenced_annotation(here.site.cluster)])
        off = datetime.fromisoformat(said["at"])
        assert OUT in await here.taints(here.node)
        fencing, fenced = here.patches()[:2]
        assert fencing < off < fenced < here.first_of_attempt_2(), "each after the other, by the audit log"
        gone = [one for one in here.space.truth.requests() if one.worker and one.verb == "delete"]
        assert all(one.time > fenced for one in gone)
        (reset,) = [cause for cause in status.causes if cause.reason == "Resetting"]
        assert "powered off at" in reset.message
        assert "by proof of its PowerState (rule fence)" in reset.message
        (proof,) = [cause for cause in status.causes if cause.reason == "DeletionComplete"]
        assert "may still run" not in proof.message, "nothing can"
        assert status.restarts == 1
        places = {pod["spec"]["nodeName"] for pod in await here.space.pods("train")}
        assert places <= set(here.well.names)
        await here.space.truth.settle()
        here.space.truth.assert_one_attempt_at_a_time("train")
        await came_back(here)


@ROW("L15", level="e2e")
async def test_L15_while_the_service_is_away_its_workload_waits_and_moves_once_it_is_back(stack: Stack, tmp_path: Path):
    async with rack(stack, tmp_path) as here:
        handle = await here.runs()
        here.redfish.kill()
        here.agents.kill()
        await until(here.is_fencing, 90, "it is to be off")

        async def tried() -> bool:
            return any(one.tries >= 3 for one in (await here.status()).away.values())

        await until(tried, 60, "the service was asked three times")
        record = (await book(here.site)).book.nodes[here.node]
        assert (record.state, record.word) == (NodeState.DOWN, NodeWord.FENCING)
        assert "its pods are replaced only once its power is off" in record.why
        shown = await command(here.site, "node", "list", "--cluster", here.site.cluster)
        assert "Down, waiting for power-off" in shown
        doctor = await command(here.site, "doctor", "--cluster", here.site.cluster, expect=2)
        assert "1 silent node is not off yet, and workloads wait for that" in doctor
        assert "holdfast node fenced" in doctor
        status = await here.site.status(handle)
        assert (status.phase, status.attempt) == ("Running", 1)
        here.nothing_was_replaced()
        await here.redfish.start()
        await here.space.reach(handle, "Running", 2, 90)
        assert here.redfish.resets() == [here.node]


@ROW("L15", level="e2e")
async def test_L15_a_node_heard_before_its_power_is_cut_keeps_it(stack: Stack, tmp_path: Path):
    async with rack(stack, tmp_path) as here:
        handle = await here.runs()
        uids = {pod["metadata"]["uid"] for pod in await here.space.pods("train")}
        here.redfish.kill()
        here.agents.pause()
        await until(here.asked_for, 90, "its power is asked to be off")
        here.agents.resume()
        await stands(here.site, here.node, NodeState.HEALTHY)

        async def withdrawn() -> bool:
            told = await here.status()
            return not told.pending and told.outcomes[0].result is Result.WITHDRAWN

        await until(withdrawn, 60, "that is taken back")
        await here.redfish.start()
        status = await here.site.status(handle)
        assert (status.phase, status.attempt, status.restarts) == ("Running", 1, 0)
        assert {pod["metadata"]["uid"] for pod in await here.space.pods("train")} == uids
        assert here.redfish.resets() == []
        assert await word(here.site, here.node) is NodeWord.NONE


@ROW("L15", level="e2e")
async def test_L15_a_person_who_cut_the_power_says_so_and_the_workload_moves(stack: Stack, tmp_path: Path):
    async with rack(stack, tmp_path) as here:
        handle = await here.runs()
        here.redfish.kill()
        refused = await command(
            here.site,
            *("node", "fenced", here.node, "--reason", "pulled the plug", "--wait", "--cluster", here.site.cluster),
            expect=1,
        )
        assert "its lease is being renewed, so that it is on" in refused
        here.agents.kill()
        await until(here.asked_for, 90, "its power is asked to be off")
        text = await command(
            here.site,
            *("node", "fenced", here.node, "--reason", "pulled the plug", "--wait", "--cluster", here.site.cluster),
        )
        assert "powered off by hand" in text
        status = await here.space.reach(handle, "Running", 2, 90)
        (reset,) = [cause for cause in status.causes if cause.reason == "Resetting"]
        assert "powered off by hand: pulled the plug" in reset.message
        assert OUT in await here.taints(here.node)
        assert (await here.status()).pending == ()
        assert here.redfish.resets() == []
        await came_back(here)


@ROW("L15", level="e2e")
async def test_L15_a_node_with_sensitive_pods_has_as_long_as_those_wait(stack: Stack, tmp_path: Path):
    async with rack(stack, tmp_path) as here:
        handle = await here.runs(sensitive=True)
        here.agents.kill()
        await until(here.is_fencing, 90, "it is to be off")
        record = (await book(here.site)).book.nodes[here.node]
        assert record.sensitive or not record.ours, "asked of the workload itself"

        async def off() -> bool:
            return here.redfish.resets() == [here.node]

        await until(off, 60, "its power is cut")
        record = (await book(here.site)).book.nodes[here.node]
        assert record.sensitive
        assert record.heard is not None
        assert record.asked is not None
        assert (record.asked - record.heard).total_seconds() >= 25, "degraded and sensitive_down"
        assert (await here.site.status(handle)).sensitive


@ROW("D9", level="e2e")
async def test_D9_a_swapped_cable_powers_off_no_healthy_node_and_proves_nothing(stack: Stack, tmp_path: Path):
    async with rack(stack, tmp_path) as here:
        handle = await here.runs()
        healthy = here.well.names[0]
        await here.nodes.identify({here.node: here.redfish.ids[healthy]})
        await here.well.identify({healthy: here.redfish.ids[here.node]})
        here.agents.kill()

        async def refused() -> bool:
            return any(one.fence and one.result is Result.REFUSED for one in (await here.status()).outcomes)

        await until(refused, 120, "its power-off is refused")
        (outcome,) = [one for one in (await here.status()).outcomes if one.fence]
        uuid = here.redfish.ids[here.node]
        assert outcome.said.startswith(f"its URL leads to the machine of node {healthy} (UUID {uuid})")
        assert here.redfish.resets() == []
        assert await here.redfish.power(here.node) == "On", "the machine at the node's URL is the healthy node's"
        shown = await command(here.site, "node", "list", "--cluster", here.site.cluster)
        assert "its URL leads to the machine" in " ".join(shown.split())
        status = await here.site.status(handle)
        assert (status.phase, status.attempt) == ("Running", 1), "nothing is proven, so nothing is replaced"
        here.nothing_was_replaced()
        assert OUT not in await here.taints(here.node)


@ROW("D9", level="e2e")
async def test_D9_a_node_that_says_no_uuid_is_powered_off_only_where_that_is_allowed(stack: Stack, tmp_path: Path):
    async with rack(stack, tmp_path) as here:
        handle = await here.runs()
        await here.nodes.identify({here.node: "00000000-0000-0000-0000-000000000000"})
        here.agents.kill()

        async def refused() -> bool:
            return any(one.fence and one.result is Result.REFUSED for one in (await here.status()).outcomes)

        await until(refused, 120, "its power-off is refused")
        assert here.redfish.resets() == []
        here.site.workers[0].kill()
        allowed = {"HOLDFAST_PROVISIONER_ALLOW_UNVERIFIED_MACHINE": "true"}
        await here.site.start_worker(kubeconfig=None, **here.environment, **allowed)
        await here.ask(NodeAction.POWER_OFF, here.node, force=True, why="it says no UUID")

        async def off() -> bool:
            return here.redfish.resets() == [here.node]

        await until(off, 90, "its power is cut by its URL alone")
        assert (await here.site.status(handle)).attempt == 1


@ROW("D11", level="e2e")
async def test_D11_a_monitor_that_begins_anew_adopts_its_marks_and_frees_the_node_that_is_back(
    stack: Stack, tmp_path: Path
):
    async with rack(stack, tmp_path) as here:
        handle = await here.runs()
        here.agents.kill()
        await here.space.reach(handle, "Running", 2, 150)
        assert OUT in await here.taints(here.node)

        async def lost() -> bool:
            return (await book(here.site)).book.nodes[here.node].word is NodeWord.LOST

        await until(lost, 60, "the last of it is said")
        await asyncio.sleep(1)
        here.site.workers[0].kill()
        killed = datetime.now(UTC)
        monitor = here.site.client.get_workflow_handle(names.node_monitor_id(here.site.cluster))
        await monitor.terminate("its memory is lost")
        await here.site.start_worker(kubeconfig=None, **here.environment)
        await stands(here.site, here.node, NodeState.DOWN, 60)
        record = (await book(here.site)).book.nodes[here.node]
        assert (record.word, record.fenced is not None) == (NodeWord.LOST, True), "by what stands on its object"
        assert OUT in await here.taints(here.node)
        assert [at for at in here.patches() if at > killed] == [], "nothing new is said while it is silent"
        assert here.redfish.resets() == [here.node], "nor is its power cut again"
        await came_back(here)
        status = await here.site.status(handle)
        assert (status.phase, status.attempt) == ("Running", 2)


@ROW("D11", level="e2e")
async def test_D11_a_node_that_came_back_while_there_was_no_monitor_is_freed(stack: Stack, tmp_path: Path):
    async with rack(stack, tmp_path) as here:
        handle = await here.runs()
        here.agents.kill()
        await here.space.reach(handle, "Running", 2, 150)
        here.site.workers[0].kill()
        monitor = here.site.client.get_workflow_handle(names.node_monitor_id(here.site.cluster))
        await monitor.terminate("its memory is lost")
        here.agents.start()
        await here.site.start_worker(kubeconfig=None, **here.environment)
        await until(here.is_free, 60, "nothing of ours stands on it")


@ROW("L15", level="e2e")
async def test_L15_a_worker_killed_in_the_middle_of_a_fence_cuts_the_power_once_and_the_workload_moves(
    stack: Stack, tmp_path: Path
):
    async with rack(stack, tmp_path, power_seconds=8) as here:
        handle = await here.runs()
        here.agents.kill()

        async def told() -> bool:
            return here.redfish.resets() == [here.node]

        await until(told, 90, "its machine was told to be off")
        here.site.workers[0].kill()
        assert await here.redfish.power(here.node) == "On", "it is going down"
        await here.site.start_worker(kubeconfig=None, **here.environment)
        await here.space.reach(handle, "Running", 2, 150)
        assert here.redfish.resets() == [here.node]
        assert await here.redfish.power(here.node) == "Off"
        found = await here.site.kube.get("v1", "Node", here.node)
        said = json.loads(found["metadata"]["annotations"][names.fenced_annotation(here.site.cluster)])
        assert datetime.fromisoformat(said["at"]) < here.first_of_attempt_2()
        assert OUT in await here.taints(here.node)
        (ended,) = [one for one in (await here.status()).outcomes if one.fence]
        assert ended.result is Result.DONE
        await here.space.truth.settle()
        here.space.truth.assert_one_attempt_at_a_time("train")
