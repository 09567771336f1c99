"""Where machines are asked: no annotation, redirect or link makes a worker ask another host (row X1)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast import names
from holdfast.local import Stack
from holdfast.model.entities.provisioner import NodeAction, Result
from tests.e2e.nodes.test_provisioner import Ground, ground
from tests.redfish.server import Emulator

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(300)]
ROW = pytest.mark.row


@asynccontextmanager
async def open_elsewhere(directory: Path) -> AsyncIterator[Emulator]:
    """Open another service, which nobody is to ask; its own log tells of each request."""
    folder = directory / "elsewhere"
    folder.mkdir()
    emulator = Emulator(folder, ["trap"])
    try:
        await emulator.start()
        before = emulator.requests()
        yield emulator
        assert emulator.requests() == before
        assert await emulator.power("trap") == "On"
    finally:
        emulator.kill()


async def said(here: Ground, node: str, address: str) -> None:
    """Have a node's annotation name an address, as whoever may change nodes could."""
    await here.nodes.patch(node, {"metadata": {"annotations": {names.ANNOTATION_REDFISH: address}}})


async def outcome(here: Ground, action: NodeAction, node: str) -> tuple[Result, str]:
    ended = await here.ended(await here.ask(action, node))
    return ended.result, ended.said


@ROW("X1", level="e2e")
async def test_X1_no_request_reaches_a_host_that_the_operator_has_not_written(stack: Stack, tmp_path: Path):
    async with open_elsewhere(tmp_path) as elsewhere:
        trap = elsewhere.url(elsewhere.ids["trap"])
        reset = f"{trap}/Actions/ComputerSystem.Reset"
        async with ground(stack, tmp_path, 3, {"moved": {1: trap}, "reset_at": {2: reset}}) as here:
            await _asked(here, elsewhere, trap, reset)


async def _asked(here: Ground, elsewhere: Emulator, trap: str, reset: str) -> None:
    annotated, moved, linked = here.nodes.names
    # As delivered, what a node says is ignored: the machine by the template is powered off.
    await said(here, annotated, trap)
    assert await outcome(here, NodeAction.POWER_OFF, annotated) == (Result.DONE, "its power is Off")
    assert here.redfish.resets() == [annotated]
    looked = await here.provisioner.check(annotated)
    assert (looked.good, "annotation holdfast.dev/redfish is ignored" in looked.found) == (True, True)
    # A machine that sends its caller away, at once or as it is told to go off, is not followed.
    for node, target in ((moved, trap), (linked, reset)):
        result, why = await outcome(here, NodeAction.POWER_OFF, node)
        assert (result, f"leads to {target}, which is not followed" in why) == (Result.REFUSED, True)
        assert await here.redfish.power(node) == "On"
    # Where the operator lists addresses, a node may name one of them, whole, and nothing else.
    listed = here.redfish.url(here.redfish.ids[annotated])
    here.site.workers[-1].kill()
    await here.site.start_worker(kubeconfig=None, **here.settings(HOLDFAST_PROVISIONER_ADDRESSES_FROM_NODES=listed))
    own, other = f"127.0.0.1:{here.redfish.port}", f"127.0.0.1:{elsewhere.port}"
    for address in (
        trap,
        listed.replace(own, other),
        listed.replace(own, f"{own}@{other}"),
        listed.replace(own, f"{other}\\@{own}"),
        here.redfish.url(here.redfish.ids[linked]),
    ):
        await said(here, annotated, address)
        result, why = await outcome(here, NodeAction.BOOT, annotated)
        assert (result, "provisioner_addresses_from_nodes" in why) == (Result.REFUSED, True)
    assert here.redfish.resets() == [annotated]
    await said(here, annotated, listed)
    assert await outcome(here, NodeAction.BOOT, annotated) == (Result.DONE, "its power is On")
    assert here.redfish.resets() == [annotated, annotated]
