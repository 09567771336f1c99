"""Lives of what watches over nodes and their machines, for the crash harness: the provisioner, the monitor."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from temporalio.client import WorkflowHandle, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError

from holdfast import names
from holdfast.activities.facts.node_annotations import word_on
from holdfast.activities.kube.client import Unreachable
from holdfast.model import NodeState, NodeWord, Phase
from holdfast.model.entities.provisioner import NodeAction, NodeAsk, NodeRequest, ProvisionerStatus, Result
from holdfast.workflows.entities.node_monitor import NodeMonitorStatus
from tests.e2e.ground.nodes import GROUP, Nodes, open_nodes
from tests.e2e.ground.site import Site, asked, until
from tests.e2e.ground.space import Space, pod_template
from tests.e2e.lives.entity_lives import PATIENCE, Life
from tests.e2e.lives.lattice import NAME, allocation
from tests.e2e.nodes.agents import SHORT_SILENCE, lease_of, open_agents
from tests.redfish.server import Emulator


class ProvisionerLife(Life):
    """A node is powered off, and another one wiped: each machine is told once, and each drive once."""

    name = "machines-told-once"

    @property
    def entities(self) -> tuple[str, ...]:
        return (names.provisioner_id(self.site.cluster),)

    @property
    def _handle(self) -> WorkflowHandle[Any, Any]:
        return self.site.client.get_workflow_handle(*self.entities)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        async with open_nodes(self.site.kube, 2) as nodes:
            self._off, self._wiped = nodes.names
            self._redfish = Emulator(self.site.directory, nodes.names, power_seconds=1, erase_seconds=1)
            await nodes.identify(self._redfish.ids)
            await self._redfish.start()
            self.settings = {"HOLDFAST_PROVISIONER_URL": self._redfish.template}
            try:
                yield
            finally:
                self._redfish.kill()

    async def live(self, space: Space) -> None:
        self._numbers = [
            await self._ask(NodeAction.POWER_OFF, self._off),
            await self._ask(NodeAction.WIPE, self._wiped),
        ]
        found: list[ProvisionerStatus] = []

        async def is_done() -> bool:
            found[:] = [await asked(lambda: self._handle.query(names.QUERY_STATUS, result_type=ProvisionerStatus))]
            return {one.number for one in found[0].outcomes} >= set(self._numbers)

        await until(is_done, PATIENCE, lambda: f"both requests have ended: {found}", pause=0.3)

    async def _ask(self, action: NodeAction, node: str) -> int:
        """Ask for something, once: an update with an id of its own that is sent again is the same one."""
        ask = NodeAsk(node=node, action=action, by="the test").model_dump(mode="json")
        found: list[NodeRequest] = []

        async def is_taken() -> bool:
            try:
                async with asyncio.timeout(10):
                    found[:] = [
                        await self._handle.execute_update(
                            names.UPDATE_REQUEST, ask, id=f"{action}-{node}", result_type=NodeRequest
                        )
                    ]
            except (RPCError, TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
                return False  # It is not there yet, or nobody answers now.
            return True

        await until(is_taken, PATIENCE, f"{action} {node} is taken", pause=0.3)
        return found[0].number

    async def check(self, space: Space) -> None:
        told = await asked(lambda: self._handle.query(names.QUERY_STATUS, result_type=ProvisionerStatus))
        outcomes = sorted((one.number, one.node, one.result) for one in told.outcomes)
        nodes = zip(self._numbers, (self._off, self._wiped), strict=True)
        wanted = [(number, node, Result.DONE) for number, node in nodes]
        assert (outcomes, told.done) == (sorted(wanted), 2), told.model_dump_json(indent=1)
        assert (told.pending, told.quarantined, told.away) == ((), {}, {}), told.model_dump_json(indent=1)
        assert self._redfish.resets() == [self._off], "its power was cut twice"
        assert self._redfish.erasures() == [(self._wiped, "d1"), (self._wiped, "d2")], "each drive is erased once"
        assert await self._redfish.power(self._off) == "Off"
        for node in (self._off, self._wiped):
            left = await _marks(self.site, node)
            assert not left, f"left on {node}: {left}"


class MonitorLife(Life):
    """A node with a pod falls silent and comes back, beside one that is heard all the time."""

    name = "one-node-silent"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self.settings = SHORT_SILENCE

    @property
    def entities(self) -> tuple[str, ...]:
        return (names.node_monitor_id(self.site.cluster),)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        async with (
            open_agents(self.site.stack, self.site.kube, self.site.directory, 1) as (well, _),
            open_agents(self.site.stack, self.site.kube, self.site.directory, 1) as (doomed, self._agents),
        ):
            (self._well,), (self._doomed,), self._group = well.names, doomed.names, doomed.group
            self._words: dict[str, list[NodeWord]] = {self._well: [NodeWord.NONE], self._doomed: [NodeWord.NONE]}
            watching = asyncio.create_task(self._watch())
            try:
                yield
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self) -> None:
        """Note each word that is said on the two nodes: the audit log does not keep what nodes are changed to."""
        kube = self.site.kube
        version = (await kube.list("v1", "Node"))["metadata"]["resourceVersion"]
        while True:
            with contextlib.suppress(Unreachable):
                async for event in kube.watch("v1", "Node", resource_version=version):
                    node = event["object"]
                    version = node["metadata"]["resourceVersion"]
                    words = self._words.get(node["metadata"].get("name", ""))
                    word = word_on(node, self.site.cluster)[0]
                    if words is not None and words[-1] is not word:
                        words.append(word)

    async def live(self, space: Space) -> None:
        # Nothing is said on a node without a pod of ours.
        spec = pod_template()["spec"]
        spec["nodeSelector"] = {GROUP: self._group}
        spec["tolerations"] = [{"key": GROUP, "operator": "Exists"}]
        handle = await space.submit(allocation("batch", spec))
        await space.reach(handle, "Running", 1)
        self._agents.pause()

        async def is_down() -> bool:
            word = word_on(await self.site.kube.get("v1", "Node", self._doomed), self.site.cluster)[0]
            return word in {NodeWord.DOWN, NodeWord.LOST}

        await until(is_down, PATIENCE, f"{self._doomed} is Down", pause=0.2)
        assert await _marks(self.site, self._doomed) == self.marks
        await self.is_told()
        await space.reach(handle, "Resuming", 2)
        self._agents.resume()

        async def is_back() -> bool:
            return not await _marks(self.site, self._doomed)

        await until(is_back, PATIENCE, f"nothing is said on {self._doomed}", pause=0.2)

        async def is_healthy() -> bool:
            record = (await self._book()).book.nodes.get(self._doomed)
            return record is None or (record.state, record.told) == (NodeState.HEALTHY, NodeWord.NONE)

        await until(is_healthy, PATIENCE, f"{self._doomed} is healthy", pause=0.3)
        await space.reach(handle, "Running", 2)
        await space.complete(NAME)
        status = await space.ended(handle)
        assert (status.phase, status.attempt, status.restarts) == (Phase.SUCCEEDED, 2, 1), "it was moved once"

    @property
    def marks(self) -> set[str]:
        """What stands on a node that is Down."""
        return {names.node_annotation(self.site.cluster), names.node_taint(self.site.cluster)}

    async def is_told(self) -> None:
        """Look at the node as its workloads hear of it."""

    async def _book(self) -> NodeMonitorStatus:
        handle = self.site.client.get_workflow_handle(self.entities[0])
        return await asked(lambda: handle.query(names.QUERY_STATUS, result_type=NodeMonitorStatus))

    async def check(self, space: Space) -> None:
        assert self._words[self._well] == [NodeWord.NONE], "nothing is ever said on a node that is heard"
        assert not await _marks(self.site, self._well)
        words = [one for one in self._words[self._doomed][1:] if one is not NodeWord.FENCING]
        expected = [NodeWord.DOWN, NodeWord.LOST, NodeWord.RETURNING, NodeWord.NONE]
        # Late, as with a worker that died meanwhile, it is Lost at once; heard soon, it is never Lost.
        assert words in (expected, [expected[0], *expected[2:]], expected[1:]), words


class FencedLife(MonitorLife):
    """The same, where a silent node is powered off first: once, with a proof that is bound to this very silence."""

    name = "one-node-fenced"

    @property
    def entities(self) -> tuple[str, ...]:
        return (*super().entities, names.provisioner_id(self.site.cluster))

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        async with super().opened():
            self._redfish = Emulator(self.site.directory, (self._doomed, self._well), power_seconds=1)
            await Nodes(self.site.kube, "", (self._doomed, self._well)).identify(self._redfish.ids)
            await self._redfish.start()
            template = self._redfish.template
            self.settings = {**SHORT_SILENCE, "HOLDFAST_PROVISIONER_URL": template, "HOLDFAST_FENCE": "true"}
            try:
                yield
            finally:
                self._redfish.kill()

    async def is_told(self) -> None:
        lease = await lease_of(self.site.kube, self._doomed)
        node = await self.site.kube.get("v1", "Node", self._doomed)
        said = json.loads(node["metadata"]["annotations"][names.fenced_annotation(self.site.cluster)])
        assert said["renewed"] == lease["spec"]["renewTime"], "its proof is of another silence"
        assert await self._redfish.power(self._doomed) == "Off", "it is told before it is off"

    @property
    def marks(self) -> set[str]:
        return super().marks | {names.fenced_annotation(self.site.cluster)}

    async def check(self, space: Space) -> None:
        assert self._redfish.resets() == [self._doomed], "its power was not cut once"
        assert NodeWord.FENCING in self._words[self._doomed], "its power was cut without a word"
        await super().check(space)
        provisioner = self.site.client.get_workflow_handle(names.provisioner_id(self.site.cluster))
        told = await asked(lambda: provisioner.query(names.QUERY_STATUS, result_type=ProvisionerStatus))
        outcomes = [(one.node, one.action, one.result) for one in told.outcomes if one.node == self._doomed]
        assert outcomes == [(self._doomed, NodeAction.POWER_OFF, Result.DONE)], told.model_dump_json(indent=1)


async def _marks(site: Site, node: str) -> set[str]:
    """Return what this site's installation says on a node: the keys of annotations and taints."""
    found = await site.kube.get("v1", "Node", node)
    keys = [*(found["metadata"].get("annotations") or {}), *(one["key"] for one in found["spec"].get("taints") or ())]
    return {one for one in keys if site.cluster in one}
