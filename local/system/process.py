"""Processes that outlive the command that started them: start, identify (never by pid alone), stop, freeze."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A started process, identifiable even after pids are reused or the machine reboots.

    Attributes:
        pid: process id.
        born: the start time of this pid according to the kernel, opaque; pid and start time identify the process.
    """

    pid: int
    born: str

    def alive(self) -> bool:
        """Whether exactly this process still runs; a zombie or another process with its pid does not count."""
        with contextlib.suppress(ChildProcessError, OSError):
            os.waitpid(self.pid, os.WNOHANG)
        return birth(self.pid) == self.born

    def signal(self, number: int) -> bool:
        """Send a signal; False if the process is gone."""
        if not self.alive():
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True

    def wait(self, seconds: float) -> bool:
        """Wait until the process is gone; False if it still runs after `seconds`."""
        deadline = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def stop(self, grace: float = 10.0) -> None:
        """Send TERM, then KILL after `grace` seconds. Resume a frozen process, so that it can handle TERM."""
        if self.signal(signal.SIGTERM):
            self.signal(signal.SIGCONT)
            if not self.wait(grace) and self.signal(signal.SIGKILL):
                self.wait(5)


def birth(pid: int) -> str:
    """Return the start time of `pid` as an opaque text; empty if there is no such process or it is a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return "" if Path("/proc/self/stat").exists() else _birth_by_ps(pid)
    except OSError:
        return ""
    # The name in parentheses may contain anything, so count the fields after the last one.
    fields = stat.rpartition(")")[2].split()
    if fields[0] in "ZX":
        return ""
    return f"{_boot()}:{fields[19]}"


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "boot"


def _birth_by_ps(pid: int) -> str:
    done = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, started = done.stdout.strip().partition(" ")
    return "" if not state or state.startswith("Z") else started.strip()


def spawn(argv: Sequence[str], log: Path, env: Mapping[str, str], cwd: Path) -> Process:
    """Start `argv` in its own session, its output appended to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        started = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=dict(env),
            cwd=cwd,
            start_new_session=True,
        )
    # The process is tracked by pid from here on; without this, Python warns that the process was not waited for.
    started.returncode = 0
    return Process(started.pid, birth(started.pid))


def tail(log: Path, lines: int = 15) -> str:
    """Return the last lines of a log, empty if there is none."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - 32_768))
            return "\n".join(file.read().decode(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""
