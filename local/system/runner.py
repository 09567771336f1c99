"""Starts, stops and checks the parts of one stack, and saves the state after each step."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from holdfast.local.system import health
from holdfast.local.system.credentials import ensure_tokens
from holdfast.local.system.errors import NotRunningError, PartError
from holdfast.local.system.lock import file_lock
from holdfast.local.system.parts import Layout, Part
from holdfast.local.system.paths import stacks_dir
from holdfast.local.system.ports import LOOPBACK, choose, is_free
from holdfast.local.system.process import Process, spawn
from holdfast.local.system.state import PartState, StackState, known_stacks

STOP_GRACE_SECONDS = {"kube-apiserver": 2.0}
"""Seconds between TERM and KILL for parts that do not use `STOP_GRACE_DEFAULT`.

The API server waits up to a minute for its clients to close their connections, and has no state to save.
"""
STOP_GRACE_DEFAULT = 15.0
COLLECTED_AT = "200"
"""`GOGC` of all parts: there is enough memory, and garbage collection used a large share of the shared cores."""


def stop_process(name: str, process: Process) -> None:
    """Send TERM, then KILL after the part's grace."""
    process.stop(STOP_GRACE_SECONDS.get(name, STOP_GRACE_DEFAULT))


@dataclass(frozen=True)
class PartStatus:
    """The status of a part.

    Attributes:
        name: the part.
        pid: its process, or None if it has none.
        address: the address at which it listens.
        running: whether its process is alive.
        healthy: whether its health check succeeds.
        note: why it is not healthy, as shown to users.
    """

    name: str
    pid: int | None
    address: str
    running: bool
    healthy: bool
    note: str = ""


class Runner:
    """The processes of one stack."""

    def __init__(self, layout: Layout, state: StackState) -> None:
        self.layout = layout
        self.state = state

    def process(self, name: str) -> Process | None:
        """Return the live process of a part, if it has one."""
        part = self.state.parts.get(name)
        return part.process if part and part.process.alive() else None

    def settle_ports(self, names: tuple[str, ...], owner: dict[str, str]) -> None:
        """Choose the missing ports, and replace ports that another program took while their part was down.

        Args:
            names: ports that the stack needs, by purpose.
            owner: the part that listens on each port, by purpose.
        """
        lost = [
            name
            for name in names
            if name not in self.state.ports
            or (self.process(owner[name]) is None and not self._frees(self.state.ports[name]))
        ]
        # One stack at a time: a chosen port has no listener yet, so two stacks at once may choose the same port.
        with file_lock(stacks_dir() / "ports.lock"):
            taken = {port for state in known_stacks().values() for port in state.ports.values()}
            self.state.ports.update(choose(lost, taken | set(self.state.ports.values())))
            self.state.save(self.layout.directory)

    @staticmethod
    def _frees(port: int, host: str = LOOPBACK) -> bool:
        deadline = time.monotonic() + 2
        while not is_free(port, host):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def launch(self, part: Part) -> bool:
        """Start a part unless it already runs with this command line; does not wait for it.

        Returns:
            Whether it was started.

        Raises:
            PartError: another program uses one of its ports.
        """
        known = self.state.parts.get(part.name)
        if known and known.process.alive():
            if tuple(known.argv) == part.argv:
                # A test that died may have left it frozen.
                known.process.signal(signal.SIGCONT)
                return False
            stop_process(part.name, known.process)
        for number, name in enumerate(part.ports):
            # If the part listens on another address, its loopback port may be in use by another program.
            if not self._frees(self.state.ports[name], LOOPBACK if number else part.host):
                raise PartError(
                    f"{part.name} cannot start: another program listens on port {self.state.ports[name]}",
                    "stop that program, or run `holdfast dev up`, which takes another port",
                )
        # Omit variables that would redirect the parts' own clients to another cluster or through a proxy.
        env = {key: value for key, value in os.environ.items() if not key.startswith(("KUBE", "TEMPORAL_"))}
        env.setdefault("GOGC", COLLECTED_AT)
        if part.path:
            env["PATH"] = f"{part.path}{os.pathsep}{env.get('PATH', os.defpath)}"
        process = spawn(part.argv, self.layout.log(part.name), env, self.layout.directory)
        self.state.parts[part.name] = PartState(list(part.argv), process)
        self.state.save(self.layout.directory)
        return True

    def wait(self, part: Part) -> None:
        """Wait until a launched part is healthy.

        Raises:
            PartError: it does not become healthy; with the end of its log.
        """
        process = self.state.parts[part.name].process
        health.wait_healthy(part, process, self.layout.log(part.name), self._token(), self._authority())

    def start(self, part: Part) -> None:
        """Launch a part and wait until it is healthy."""
        self.launch(part)
        self.wait(part)

    def stop(self, name: str, number: int = signal.SIGTERM) -> None:
        """Stop a part with the given signal and wait until it is gone (KILL if it outlives the grace).

        Raises:
            NotRunningError: the part does not run.
        """
        process = self._running(name)
        self.state.parts[name].stopped = True
        self.state.save(self.layout.directory)
        if number == signal.SIGTERM:
            stop_process(name, process)
            return
        process.signal(number)
        if not process.wait(STOP_GRACE_DEFAULT):
            process.stop(0)

    def freeze(self, name: str) -> None:
        """Send SIGSTOP to a part: its connections stay open and get no answer."""
        self._running(name).signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        """Send SIGCONT to a frozen part."""
        self._running(name).signal(signal.SIGCONT)

    def status(self, part: Part) -> PartStatus:
        """Check a part now, and return its status."""
        process = self.process(part.name)
        if process is None:
            known = self.state.parts.get(part.name)
            note = "stopped" if known and known.stopped else "not running"
            return PartStatus(part.name, None, part.address, False, False, note)
        well = health.healthy(part, self._token(), self._authority())
        note = "" if well else f"does not answer; see {self.layout.log(part.name)}"
        return PartStatus(part.name, process.pid, part.address, True, well, note)

    def _running(self, name: str) -> Process:
        process = self.process(name)
        if process is None:
            parts = ", ".join(sorted(self.state.parts)) or "none"
            raise NotRunningError(f"part {name!r} of stack {self.state.name!r} does not run (parts: {parts})")
        return process

    def _token(self) -> str:
        return ensure_tokens(self.layout.pki / "tokens.csv")["admin"]

    def _authority(self) -> Path:
        return self.layout.pki / "apiserver.crt"
