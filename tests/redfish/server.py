"""The emulator as a process of a test's own: started, killed with -9, started again on the same port and state."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import aiohttp

from tests.e2e.ground.site import free_port, until

ROOT = Path(__file__).parents[2]
RESET = re.compile(r"POST /redfish/v1/Systems/([^/ ]+)/Actions/ComputerSystem\.Reset HTTP\S+ 204")
ERASE = re.compile(r"POST \S*/Systems/([^/ ]+)/Storage/\S+/Drives/([^/ ]+)/Actions/Drive\.SecureErase HTTP\S+ 20")
COLOURS = re.compile(r"\x1b\[\d+m")


class Emulator:
    """Some machines' Redfish service."""

    def __init__(self, directory: Path, machines: Iterable[str], **config: Any) -> None:
        self.directory = directory / "redfish"
        self.directory.mkdir(exist_ok=True)
        self.log = self.directory / "emulator.log"
        self.port = free_port()
        self.ids = {name: str(uuid.uuid4()) for name in machines}
        """By machine, the id by which the emulator knows it."""
        self._process: subprocess.Popen[bytes] | None = None
        self._tls = bool(config.pop("tls", False))
        config["off"] = [list(self.ids)[place] for place in config.get("off", ())]
        for kind in ("moved", "reset_at"):
            config[kind] = {list(self.ids)[place]: url for place, url in config.get(kind, {}).items()}
        self._config: dict[str, Any] = {
            "port": self.port,
            "state": str(self.directory / "state"),
            "systems": {identity: name for name, identity in self.ids.items()},
            "off": [],
            "drives": ["d1", "d2"],
            "power_seconds": 1,
            "erase_seconds": 1,
            "erase_fails": [],
            "erase_at_once": False,
            "no_erase": False,
            "auth_file": "",
            "certificate": self._certified() if self._tls else None,
            **config,
        }

    @property
    def service(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def certificate(self) -> Path:
        """The certificate that it shows, which is its own authority."""
        return self.directory / "server.crt"

    @property
    def template(self) -> str:
        """What the setting `provisioner_url` is: the emulator sends whoever asks for a name on to its id."""
        return f"{self.service}/redfish/v1/Systems/{{node}}"

    def url(self, machine: str) -> str:
        return f"{self.service}/redfish/v1/Systems/{machine}"

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        self._launch()

        async def answers() -> bool:
            assert self._process is not None
            assert self._process.poll() is None, self.log.read_text()[-4000:]
            try:
                async with (
                    aiohttp.ClientSession() as session,
                    session.get(f"{self.service}/redfish/v1/", ssl=False) as answer,
                ):
                    return answer.status == 200
            except aiohttp.ClientError:
                return False

        await until(answers, 30, "the Redfish emulator answers")

    def _launch(self) -> None:
        path = self.directory / "config.json"
        path.write_text(json.dumps(self._config))
        with self.log.open("ab") as out:
            argv = [sys.executable, "-m", "tests.redfish.emulator", str(path)]
            self._process = subprocess.Popen(argv, cwd=ROOT, stdout=out, stderr=out)

    def _certified(self) -> tuple[str, str]:
        made, key = self.certificate, self.directory / "server.key"
        subject = ("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2")
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        argv = ["openssl", "req", "-x509", *curve, *subject, "-keyout", str(key), "-out", str(made)]
        subprocess.run(argv, check=True, capture_output=True)
        return str(made), str(key)

    def kill(self) -> None:
        """Kill it with -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    async def power(self, machine: str) -> str:
        """Return how a machine's power is."""
        return (await self._system(machine))["PowerState"]

    async def boots_from(self, machine: str) -> str:
        """Return what a machine is to boot from."""
        return (await self._system(machine))["Boot"]["BootSourceOverrideTarget"]

    async def _system(self, machine: str) -> dict[str, Any]:
        async with aiohttp.ClientSession() as session, session.get(self.url(self.ids[machine])) as answer:
            return await answer.json()

    def requests(self) -> str:
        """Return the emulator's own log."""
        return COLOURS.sub("", self.log.read_text())

    def resets(self) -> list[str]:
        """Return the machines that were reset, in order, by the emulator's own log."""
        names = {identity: name for name, identity in self.ids.items()}
        return [names[found] for found in RESET.findall(self.requests())]

    def erasures(self) -> list[tuple[str, str]]:
        """Return the drives whose erasure was ordered, in order, each with its machine."""
        names = {identity: name for name, identity in self.ids.items()}
        return [(str(names.get(found, found)), drive) for found, drive in ERASE.findall(self.requests())]
