"""A provisioning service that is killed and comes back, on real controllers and OpenStack's Redfish emulator (L15)."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from holdfast import names
from holdfast.client.connection import Place
from holdfast.client.entities.provisioner import ProvisionerRun
from holdfast.errors import HoldfastError
from holdfast.local import Stack
from holdfast.model.entities.provisioner import NodeAction, NodeAsk, NodeOutcome, ProvisionerStatus, Result
from tests.e2e.ground.nodes import Nodes, open_nodes
from tests.e2e.ground.site import Site, appwrapper, asked, job, open_site, until
from tests.e2e.ground.space import Space, open_space
from tests.e2e.ground.terminal import command
from tests.redfish.server import Emulator

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(600)]
ROW = pytest.mark.row


@dataclass
class Ground:
    """What a test works with."""

    site: Site
    space: Space
    nodes: Nodes
    redfish: Emulator

    @property
    def provisioner(self) -> ProvisionerRun:
        return ProvisionerRun(self.site.client, Place(self.site.temporal_address, self.site.cluster), self.site.cluster)

    async def status(self) -> ProvisionerStatus:
        return await asked(self.provisioner.status)

    async def ask(self, action: NodeAction, node: str, **fields: Any) -> int:
        ask = NodeAsk.model_validate({"node": node, "action": action, "by": "the test", **fields})
        return (await self.provisioner.request(ask)).number

    async def ended(self, number: int, seconds: float = 90) -> NodeOutcome:
        found: list[NodeOutcome] = []

        async def check() -> bool:
            found[:] = [one for one in (await self.status()).outcomes if one.number == number]
            return bool(found)

        await until(check, seconds, f"request {number} has ended")
        return found[0]

    async def taints(self, node: str) -> set[str]:
        found = await self.site.kube.get("v1", "Node", node)
        return {f"{one['key']}:{one['effect']}" for one in found["spec"].get("taints") or ()}

    @property
    def quarantine(self) -> str:
        return f"{names.quarantine_taint(self.site.cluster)}:NoSchedule"

    async def is_quarantined(self, node: str) -> bool:
        return self.quarantine in await self.taints(node)

    async def away(self) -> bool:
        """Whether it is known that the service does not answer."""
        return bool((await self.status()).away)

    async def metrics(self) -> dict[tuple[str, str], float]:
        """Return what the first worker's page says of the provisioner, by name and action."""
        log = self.site.workers[0].log.read_text()
        (address,) = re.findall(r'"metrics": "([^"]+)"', log)[:1]
        async with aiohttp.ClientSession() as session, session.get(f"http://{address}/metrics") as answer:
            text = await answer.text()
        found: dict[tuple[str, str], float] = {}
        for name, labels, value in re.findall(r"^(holdfast_provisioner_\w+)\{(.*)\} (\S+)$", text, re.MULTILINE):
            found[name, "".join(re.findall(r'action="(\w+)"', labels))] = float(value)
        return found

    def settings(self, **more: str) -> dict[str, str]:
        return {"HOLDFAST_PROVISIONER_URL": self.redfish.template, **more}


@asynccontextmanager
async def ground(
    stack: Stack, directory: Path, count: int, config: dict[str, Any], **more: str
) -> AsyncIterator[Ground]:
    """Open a site with nodes of its own, whose machines the emulator has."""
    async with open_site(stack, directory, prefix="p") as site, open_nodes(site.kube, count) as nodes:
        redfish = Emulator(directory, nodes.names, **config)
        await nodes.identify(redfish.ids)
        await redfish.start()
        try:
            environment = {"HOLDFAST_PROVISIONER_URL": redfish.template, **more}
            await site.start_worker(kubeconfig=None, **environment)
            async with open_space(site) as space:
                yield Ground(site, space, nodes, redfish)
        finally:
            redfish.kill()


@ROW("L15", level="e2e")
async def test_L15_killed_the_service_leaves_a_queue_a_quarantine_and_ready_nodes_and_drains_in_order(
    stack: Stack, tmp_path: Path
):
    config = {"power_seconds": 1, "off": [1, 2]}
    async with ground(stack, tmp_path, 3, config, HOLDFAST_PROVISIONER_AT_ONCE="1") as here:
        wiped, *others = here.nodes.names
        here.redfish.kill()
        numbers = [
            await here.ask(NodeAction.WIPE, wiped, why="released"),
            *[await here.ask(NodeAction.BOOT, one) for one in others],
        ]
        await until(lambda: here.is_quarantined(wiped), 90, "it is in quarantine")
        await until(here.away, 90, "the service is away")
        shown = await command(here.site, "node", "list", "--cluster", here.site.cluster)
        assert "does not answer" in shown
        assert wiped in shown
        metrics = await here.metrics()
        assert metrics["holdfast_provisioner_pending", "Boot"] == 2
        assert metrics["holdfast_provisioner_pending", "Wipe"] == 1
        assert metrics["holdfast_provisioner_available", ""] == 0
        assert abs(metrics["holdfast_provisioner_oldest_pending_timestamp_seconds", ""] - time.time()) < 60
        doctor = await command(here.site, "doctor", "--cluster", here.site.cluster, expect=2)
        assert "NOT OK  provisioner" in doctor
        # New work lands on every node but that one, however much there is of it.
        handle = await here.space.submit(appwrapper("train", here.nodes.places(job(pods=6))))
        await here.space.reach(handle, "Running", 1)
        places = {pod["spec"]["nodeName"] for pod in await here.space.pods("train")}
        assert places == set(others)
        stays = here.nodes.places(job("stays", pods=1))
        stays["template"]["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": wiped}
        held = await here.space.submit(appwrapper("stays", stays, admissionGracePeriodDuration="10m"))
        told = await here.status()
        assert [one.number for one in told.pending] == numbers
        assert told.quarantined[wiped].why == 'waits for wipe (request 1, asked for with the note "released")'
        assert await here.is_quarantined(wiped)
        assert await here.space.pods("stays") == [] or not [
            pod for pod in await here.space.pods("stays") if pod["spec"].get("nodeName")
        ]
        await here.redfish.start()
        outcomes = [await here.ended(number) for number in numbers]
        assert [one.result for one in outcomes] == [Result.DONE] * 3
        assert sorted(outcomes, key=lambda one: one.ended_at) == outcomes, "in the order of asking"
        assert here.redfish.resets() == others
        assert here.redfish.erasures() == [(wiped, "d1"), (wiped, "d2")]
        log = here.redfish.requests()
        assert log.rindex("Drive.SecureErase") < log.index("ComputerSystem.Reset"), "by the machines' own log"
        assert not await here.is_quarantined(wiped)
        await here.space.reach(held, "Running", 1)
        assert (await here.site.status(handle)).restarts == 0


@ROW("L15", level="e2e")
async def test_L15_a_worker_killed_in_the_middle_leaves_each_machine_told_once(stack: Stack, tmp_path: Path):
    config = {"power_seconds": 8, "erase_seconds": 14}
    async with ground(stack, tmp_path, 2, config) as here:
        off, wiped = here.nodes.names
        numbers = [await here.ask(NodeAction.POWER_OFF, off), await here.ask(NodeAction.WIPE, wiped)]

        async def told() -> bool:
            return here.redfish.resets() == [off] and len(here.redfish.erasures()) == 2

        await until(told, 90, "both machines were told")
        here.site.workers[-1].kill()
        await here.site.start_worker(kubeconfig=None, **here.settings())
        assert [(await here.ended(number)).result for number in numbers] == [Result.DONE] * 2
        assert await here.redfish.power(off) == "Off"
        assert here.redfish.resets() == [off]
        assert here.redfish.erasures() == [(wiped, "d1"), (wiped, "d2")]
        assert not await here.is_quarantined(wiped)


@ROW("L15", level="e2e")
async def test_L15_power_is_not_cut_under_living_work_and_what_fails_stays_in_quarantine(stack: Stack, tmp_path: Path):
    async with ground(stack, tmp_path, 2, {"no_erase": True}) as here:
        busy, _ = here.nodes.names
        component = here.nodes.places(job(pods=1))
        component["template"]["spec"]["template"]["spec"]["nodeName"] = busy
        handle = await here.space.submit(appwrapper("train", component))
        await here.space.reach(handle, "Running", 1)
        wipe = await here.ask(NodeAction.WIPE, busy)

        async def waits() -> bool:
            return f"1 pod is on it: {here.space.namespace}/train-" in (await here.status()).waits.get(wipe, "")

        await until(waits, 30, "it says whom it waits for")
        with pytest.raises(HoldfastError, match=r"is pending, which says the opposite|no node's name"):
            await here.ask(NodeAction.BOOT, "No Node")
        assert here.redfish.erasures() == []
        await handle.signal(names.SIGNAL_CANCEL, "enough")
        outcome = await here.ended(wipe)
        assert outcome.result is Result.REFUSED
        assert "SecureErase is missing" in outcome.said
        assert await here.is_quarantined(busy)
        unknown = await here.ended(await here.ask(NodeAction.WIPE, "nobody"))
        assert (unknown.result, unknown.said) == (Result.REFUSED, "there is no node nobody")
        text = await command(
            here.site,
            *("node", "release", busy, "--reason", "its disks were changed", "--wait", "-o", "json"),
            *("--cluster", here.site.cluster),
        )
        assert json.loads(text)["result"] == "Done"
        assert not await here.is_quarantined(busy)
        assert (await here.status()).quarantined == {}
