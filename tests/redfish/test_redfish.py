"""The adapter against OpenStack's published Redfish emulator, a real process that is killed with -9 (row L15)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
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
    machine, notes = await redfish.machine(redfish.url_of("a", "")), Notes()
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

    machine = await Redfish(Access(template=emulator.template), Noting().machines()).machine(emulator.url("a"))
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
    machine, notes = await redfish.machine(redfish.url_of("a", "")), Notes()
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
    machine, notes = await redfish.machine(emulator.url(emulator.ids["a"])), Notes()
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
        machine = await redfish.machine(emulator.url(emulator.ids["a"]))
        wiping = asyncio.create_task(wipe(machine, Progress(), notes))

        async def ordered() -> bool:
            return bool(notes.all) and len(notes.all[-1].tasks) == 2

        await until(ordered, 20, "both are ordered")
        emulator.kill()
        with pytest.raises(Away, match="Unable to connect"):
            await wiping
        with pytest.raises(Away):
            await redfish.machine(emulator.url("a"))
        assert not (await redfish.check(emulator.url("a"))).good
        assert not await redfish.answers(emulator.service)
        await emulator.start()
        machine = await redfish.machine(emulator.url("a"))
        assert (await wipe(machine, notes.all[-1], notes)).result is Result.DONE
        assert emulator.erasures() == [("a", "d1"), ("a", "d2")]
    finally:
        emulator.kill()


async def test_L15_what_the_service_refuses_for_good_is_told_as_it_says_it(emulator: Emulator, redfish: Redfish):
    with pytest.raises(Refusal, match=r"looking at /redfish/v1/Systems/nobody: .*404"):
        await redfish.machine(emulator.url("nobody"))
    machine = await redfish.machine(emulator.url("a"))
    with pytest.raises(Refusal, match=r"405"):
        await redfish.threaded("asking", lambda: machine._connector.post("/redfish/v1/Systems"))
    checked = await redfish.check(emulator.url("nobody"))
    assert (checked.good, "provisioner_url" in checked.remedy) == (False, True)
    found = await redfish.check(emulator.template)
    assert (found.good, found.found) == (True, f"{emulator.service} answers, and knows 2 machines")
    assert (await redfish.check(emulator.url("a"))).found.endswith("/Systems/a is On")


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
        machine = await Redfish(Access(template=emulator.template)).machine(emulator.url("a"))
        with pytest.raises(Refusal, match=said):
            await wipe(machine, Progress(), Notes())
    finally:
        emulator.kill()


async def test_an_erasure_that_is_done_at_once_needs_no_task(tmp_path: Path):
    emulator = Emulator(tmp_path, ["a"], erase_at_once=True)
    await emulator.start()
    try:
        machine = await Redfish(Access(template=emulator.template)).machine(emulator.url("a"))
        step = await wipe(machine, Progress(), Notes())
        assert (step.result, step.progress.tasks) == (Result.DONE, {})
    finally:
        emulator.kill()


async def test_L15_a_wrong_password_is_a_service_that_takes_nothing_and_the_file_is_read_each_time(tmp_path: Path):
    auth, password = tmp_path / "htpasswd", tmp_path / "password"
    auth.write_bytes(b"admin:" + bcrypt.hashpw(b"swordfish", bcrypt.gensalt(4)) + b"\n")
    password.write_text("wrong\n")
    emulator = Emulator(tmp_path, ["a"], auth_file=str(auth))
    await emulator.start()
    try:
        redfish = Redfish(Access(template=emulator.template, user="admin", password_file=password))
        with pytest.raises(Away, match="401"):
            await redfish.machine(emulator.url("a"))
        checked = await redfish.check(emulator.template)
        assert (checked.good, "password are right" in checked.remedy) == (False, True)
        with pytest.raises(Away, match="401"):
            await Redfish(Access(template=emulator.template)).machine(emulator.url("a"))
        password.write_text("swordfish\n")
        assert await (await redfish.machine(emulator.url("a"))).power() == "On"
        password.unlink()
        with pytest.raises(Away, match="the file of the password cannot be read"):
            await redfish.machine(emulator.url("a"))
    finally:
        emulator.kill()


async def test_L15_a_nodes_annotation_cannot_send_the_password_to_a_place_of_its_own():
    redfish = Redfish(Access(template="https://bmc.example.com/redfish/v1/Systems/{node}"))
    assert redfish.service_of(redfish.url_of("n1", "")) == "https://bmc.example.com"
    elsewhere = "https://elsewhere.example.com/redfish/v1/Systems/1"
    for url in (elsewhere, "http://bmc.example.com/redfish/v1/Systems/1", "https://bmc.example.com.evil/x"):
        with pytest.raises(Refusal, match="none of the services that may be asked"):
            redfish.service_of(url)
        with pytest.raises(Refusal, match="none of the services that may be asked"):
            await redfish.machine(url)
        checked = await redfish.check(url)
        assert "none of the services that may be asked" in checked.found, "nor is it asked whether it answers"
    for url in ("bmc", "file:///etc/passwd", "https://bmc.example.com", "https:///x"):
        with pytest.raises(Refusal, match="no URL of a ComputerSystem"):
            redfish.service_of(url)
    allowed = Redfish(
        Access(template="https://{node}.bmc:8443/redfish/v1/Systems/1", services=("https://elsewhere.example.com",))
    )
    assert allowed.service_of(elsewhere) == "https://elsewhere.example.com"
    assert allowed.service_of(allowed.url_of("n7", "")) == "https://n7.bmc:8443"
    with pytest.raises(Refusal, match="none of the services"):
        allowed.service_of("https://evil/x.bmc:8443/redfish")


async def test_without_the_client_it_says_what_is_to_be_installed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "sushy", None)
    redfish = Redfish(Access(template="http://127.0.0.1:1/redfish/v1/Systems/{node}"))
    with pytest.raises(Refusal, match=r"pip install 'holdfast\[redfish\]'"):
        await redfish.machine("http://127.0.0.1:1/redfish/v1/Systems/a")


@ROW("D9", level="pure")
async def test_D9_a_machine_says_its_uuid(emulator: Emulator, redfish: Redfish):
    for name in ("a", "b"):
        assert await (await redfish.machine(redfish.url_of(name, ""))).uuid() == emulator.ids[name]
    assert not redfish.allows_unverified


@ROW("D9", level="pure")
@pytest.mark.parametrize("swapped", [False, True])
async def test_D9_a_fence_by_a_wrong_url_resets_nothing_of_the_published_emulators(
    emulator: Emulator, redfish: Redfish, swapped: bool
):
    cluster = Cluster(named("n", emulator.ids["a"]), others=[named("m", emulator.ids["b"])])
    assert cluster.node is not None
    cluster.node["metadata"] |= {"uid": "u", "resourceVersion": "1"}
    url = emulator.url("b" if swapped else emulator.ids["a"])
    cluster.node["metadata"]["annotations"] = {names.ANNOTATION_REDFISH: url}
    cluster.node["spec"] = {}
    fence = request(NodeAction.POWER_OFF, fence=True, renewed="r0")
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
