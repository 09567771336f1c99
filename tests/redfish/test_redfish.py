"""The adapter against OpenStack's published Redfish emulator, a real process that is killed with -9 (row L15)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import bcrypt
import pytest

from holdfast import names
from holdfast.activities.nodes import machine as port
from holdfast.activities.nodes.machine import Away, Refusal, switch, wipe
from holdfast.activities.nodes.redfish import Access, Redfish
from holdfast.model.entities.provisioner import NodeAction, Progress, Result
from holdfast.worker.failpoints import Failpoints, Passing
from tests.activities.nodes.test_provisioner import Cluster, named, request, tried
from tests.e2e.ground.site import until
from tests.redfish.server import Emulator

ROW = pytest.mark.row
pytestmark = pytest.mark.timeout(90)


class Notes:
    """What an action has written down, each before it went on."""

    def __init__(self) -> None:
        self.all: list[Progress] = []

    async def __call__(self, progress: Progress) -> None:
        self.all.append(progress)


@pytest.fixture
async def emulator(tmp_path: Path) -> AsyncIterator[Emulator]:
    emulator = Emulator(tmp_path, ["a", "b"])
    await emulator.start()
    yield emulator
    emulator.kill()


@pytest.fixture
def redfish(emulator: Emulator) -> Redfish:
    return Redfish(Access(template=emulator.template))


async def test_L15_a_machine_is_found_by_its_nodes_name_and_switched_off_and_on_once(
    emulator: Emulator, redfish: Redfish
):
    machine, notes = await redfish.machine("a"), Notes()
    off = await switch(machine, False, Progress(), notes)
    assert (off.result, off.said) == (Result.DONE, "its power is Off")
    assert await emulator.power("a") == "Off"
    assert [one.sent is not None for one in notes.all] == [True], "written down before it was sent"
    assert (await switch(machine, False, Progress(), notes)).result is Result.DONE
    assert emulator.resets() == ["a"], "it was looked at first"
    on = await switch(machine, True, Progress(), notes, pxe=True)
    assert (on.result, on.said) == (Result.DONE, "its power is On")
    assert emulator.resets() == ["a", "a"]
    assert "PATCH /redfish/v1/Systems/" in emulator.requests()
    assert await emulator.boots_from("a") == "Pxe"
    assert await emulator.power("b") == "On"


async def test_each_order_to_a_machine_has_a_point_before_and_one_after(emulator: Emulator):
    passed: list[str] = []

    class Noting(Failpoints):
        def passing(self, point: str) -> None:
            passed.append(point)

    machine = await Redfish(Access(template=emulator.template), Noting().machines()).machine("a")
    await machine.boot_from_network_once()
    await machine.set_power(False)
    (drive, *_) = await machine.drives()
    await machine.erase(drive)
    orders = ("boot_from_network_once", "set_power", "erase")
    assert passed == [f"machine.{one}.{when}" for one in orders for when in ("before", "after")]
    assert all(str(Passing.parse(f"{one}:1")) == f"{one}:1" for one in passed)
    assert (emulator.resets(), emulator.erasures()) == (["a"], [("a", drive.rpartition("/")[2])])


async def test_L15_who_goes_on_does_not_reset_a_machine_that_was_just_told(
    emulator: Emulator, redfish: Redfish, monkeypatch: pytest.MonkeyPatch
):
    machine, notes = await redfish.machine("a"), Notes()
    await machine.set_power(False)
    told = Progress(sent=datetime.now(UTC))
    assert (await switch(machine, False, told, notes)).result is Result.DONE
    assert (emulator.resets(), notes.all) == (["a"], [])
    lost = Progress(sent=datetime.now(UTC) - port.SENT_PATIENCE - timedelta(seconds=1))
    monkeypatch.setattr(port, "TURN_SECONDS", 0.0)
    step = await switch(machine, True, lost, notes)
    assert step.result is Result.WAITS, "it was told so long ago that it is told again"
    assert "told to be On" in step.said
    assert emulator.resets() == ["a", "a"]


async def test_L15_a_wipe_erases_each_drive_once_and_is_proven_by_its_tasks(emulator: Emulator, redfish: Redfish):
    machine, notes = await redfish.machine(emulator.ids["a"]), Notes()
    step = await wipe(machine, Progress(), notes)
    assert (step.result, step.said) == (Result.DONE, "all 2 drives are erased")
    assert emulator.erasures() == [("a", "d1"), ("a", "d2")]
    first = notes.all[0]
    assert (len(first.ordered), first.tasks) == (1, {}), "written down before it is ordered"
    again = await wipe(machine, step.progress, notes)
    assert again.result is Result.DONE
    # Killed between what was written down and what would have been: the order is found, and none is given anew.
    resumed = await wipe(machine, first, notes)
    assert resumed.result is Result.DONE
    assert emulator.erasures() == [("a", "d1"), ("a", "d2"), ("a", "d2")], "only what was never written down"


async def test_L15_killed_and_started_again_the_service_goes_on_with_its_tasks(tmp_path: Path):
    emulator = Emulator(tmp_path, ["a"], erase_seconds=4, power_seconds=2)
    await emulator.start()
    try:
        redfish, notes = Redfish(Access(template=emulator.template)), Notes()
        machine = await redfish.machine(emulator.ids["a"])
        wiping = asyncio.create_task(wipe(machine, Progress(), notes))

        async def ordered() -> bool:
            return bool(notes.all) and len(notes.all[-1].tasks) == 2

        await until(ordered, 20, "both are ordered")
        emulator.kill()
        with pytest.raises(Away, match="Unable to connect"):
            await wiping
        with pytest.raises(Away):
            await redfish.machine("a")
        assert not (await redfish.check("a")).good
        assert not await redfish.answers("a", emulator.service)
        await emulator.start()
        machine = await redfish.machine("a")
        assert (await wipe(machine, notes.all[-1], notes)).result is Result.DONE
        assert emulator.erasures() == [("a", "d1"), ("a", "d2")]
    finally:
        emulator.kill()


async def test_L15_what_the_service_refuses_for_good_is_told_as_it_says_it(emulator: Emulator, redfish: Redfish):
    with pytest.raises(Refusal, match=r"looking at /redfish/v1/Systems/nobody: .*404"):
        await redfish.machine("nobody")
    machine = await redfish.machine("a")
    with pytest.raises(Refusal, match=r"405"):
        await redfish.threaded("asking", lambda: machine._connector.post("/redfish/v1/Systems"))
    checked = await redfish.check("nobody")
    assert (checked.good, "provisioner_url" in checked.remedy) == (False, True)
    found = await redfish.check()
    assert (found.good, found.found) == (True, f"{emulator.service} answers, and knows 2 machines")
    assert (await redfish.check("a")).found.endswith("/Systems/a is On")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"no_erase": True}, r"action #Drive.SecureErase is missing"),
        ({"erase_fails": ["d2"]}, r"has ended as Exception the drive is frozen"),
        ({"drives": []}, r"it names no drive"),
    ],
)
async def test_L15_a_wipe_that_cannot_be_proven_is_refused(tmp_path: Path, config: dict[str, object], said: str):
    emulator = Emulator(tmp_path, ["a"], **config)
    await emulator.start()
    try:
        machine = await Redfish(Access(template=emulator.template)).machine("a")
        with pytest.raises(Refusal, match=said):
            await wipe(machine, Progress(), Notes())
    finally:
        emulator.kill()


async def test_an_erasure_that_is_done_at_once_needs_no_task(tmp_path: Path):
    emulator = Emulator(tmp_path, ["a"], erase_at_once=True)
    await emulator.start()
    try:
        machine = await Redfish(Access(template=emulator.template)).machine("a")
        step = await wipe(machine, Progress(), Notes())
        assert (step.result, step.progress.tasks) == (Result.DONE, {})
    finally:
        emulator.kill()


async def test_L15_a_wrong_password_is_a_service_that_takes_nothing_and_the_file_is_read_each_time(tmp_path: Path):
    auth, password = tmp_path / "htpasswd", tmp_path / "password"
    auth.write_bytes(b"admin:" + bcrypt.hashpw(b"swordfish", bcrypt.gensalt(4)) + b"\n")
    password.write_text("wrong\n")
    emulator = Emulator(tmp_path, ["a"], auth_file=str(auth), tls=True)
    await emulator.start()
    try:
        access = Access(emulator.template, "admin", password, emulator.certificate)
        redfish = Redfish(access)
        with pytest.raises(Away, match="401"):
            await redfish.machine("a")
        checked = await redfish.check()
        assert (checked.good, "password are right" in checked.remedy) == (False, True)
        with pytest.raises(Away, match="401"):
            await Redfish(replace(access, user="")).machine("a")
        with pytest.raises(Away, match="Unable to connect"):
            await Redfish(replace(access, ca_file=None)).machine("a")
        password.write_text("swordfish\n")
        assert await (await redfish.machine("a")).power() == "On"
        password.unlink()
        with pytest.raises(Away, match="the file of the password cannot be read"):
            await redfish.machine("a")
    finally:
        emulator.kill()


@ROW("X1", level="pure")
async def test_X1_what_a_node_names_is_asked_only_where_it_is_listed(tmp_path: Path, emulator: Emulator):
    elsewhere = await another(tmp_path)
    before = elsewhere.requests()
    try:
        said = elsewhere.url(elsewhere.ids["a"])
        ignoring = Redfish(Access(template=emulator.template))
        assert await (await ignoring.machine("a", said)).uuid() == emulator.ids["a"]
        assert ignoring.service_of("a", said) == emulator.service
        assert "annotation holdfast.dev/redfish is ignored" in (await ignoring.check("a", said)).found
        listed = emulator.url(emulator.ids["b"])
        reading = Redfish(Access(template=emulator.template, from_nodes=(listed,)))
        assert await (await reading.machine("a", listed)).uuid() == emulator.ids["b"]
        assert (await reading.check("a", listed)).found == f"{emulator.service} answers: {listed} is On"
        for wrong in (said, said.replace("/redfish", f"\\@127.0.0.1:{emulator.port}/redfish"), emulator.url("b")):
            with pytest.raises(Refusal, match="provisioner_addresses_from_nodes"):
                reading.service_of("a", wrong)
            with pytest.raises(Refusal, match="provisioner_addresses_from_nodes"):
                await reading.machine("a", wrong)
            checked = await reading.check("a", wrong)
            assert (checked.good, "provisioner_addresses_from_nodes" in checked.found) == (False, True)
        assert await reading.answers("a", emulator.service)
        assert not await reading.answers("a", elsewhere.service), "nor where an earlier worker was sent"
        assert elsewhere.requests() == before
    finally:
        elsewhere.kill()


@ROW("X1", level="pure")
async def test_X1_no_redirect_and_no_link_of_a_machine_leads_to_another_service(tmp_path: Path):
    elsewhere = await another(tmp_path)
    before = elsewhere.requests()
    target = elsewhere.url(elsewhere.ids["a"])
    reset = f"{target}/Actions/ComputerSystem.Reset"
    emulator = Emulator(tmp_path, ["a", "b", "c"], moved={0: target}, reset_at={1: reset})
    await emulator.start()
    try:
        redfish = Redfish(Access(template=emulator.template))
        with pytest.raises(Refusal, match=f"{emulator.service} leads to {target}, which is not followed"):
            await redfish.machine("a")
        machine = await redfish.machine("b")
        with pytest.raises(Refusal, match=f"{emulator.service} leads to {reset}, which is not followed"):
            await machine.set_power(False)
        assert await (await redfish.machine("c")).uuid() == emulator.ids["c"], "a redirect of its own is followed"
        assert 'GET /redfish/v1/Systems/c HTTP/1.1" 307' in emulator.requests()
        assert elsewhere.requests() == before
        assert await elsewhere.power("a") == "On"
    finally:
        emulator.kill()
        elsewhere.kill()


async def another(directory: Path) -> Emulator:
    """Start an emulator that nobody is to ask."""
    (directory / "elsewhere").mkdir()
    emulator = Emulator(directory / "elsewhere", ["a"])
    await emulator.start()
    return emulator


async def test_without_the_client_it_says_what_is_to_be_installed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "sushy", None)
    redfish = Redfish(Access(template="http://127.0.0.1:1/redfish/v1/Systems/{node}"))
    with pytest.raises(Refusal, match=r"pip install 'holdfast\[redfish\]'"):
        await redfish.machine("a")


@ROW("D9", level="pure")
async def test_D9_a_machine_says_its_uuid(emulator: Emulator, redfish: Redfish):
    for name in ("a", "b"):
        assert await (await redfish.machine(name)).uuid() == emulator.ids[name]
    assert not redfish.allows_unverified


@ROW("D9", level="pure")
@pytest.mark.parametrize("swapped", [False, True])
async def test_D9_a_fence_by_a_wrong_url_resets_nothing_of_the_published_emulators(emulator: Emulator, swapped: bool):
    cluster = Cluster(named("n", emulator.ids["a"]), others=[named("m", emulator.ids["b"])])
    assert cluster.node is not None
    cluster.node["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    url = emulator.url(emulator.ids["b" if swapped else "a"])
    cluster.node["metadata"]["annotations"] = {names.ANNOTATION_REDFISH: url}
    cluster.node["spec"] = {}
    fence = request(NodeAction.POWER_OFF, fence=True, renewed="r0")
    redfish = Redfish(Access(template=emulator.template, from_nodes=(url,)))
    result, said = await tried(redfish, cluster, fence)
    if swapped:
        assert result is Result.REFUSED
        assert said.startswith(f"its URL leads to the machine of node m (UUID {emulator.ids['b']})")
        assert emulator.resets() == []
        assert cluster.log == []
    else:
        assert result is Result.DONE
        assert emulator.resets() == ["a"]
    assert await emulator.power("b") == "On"
