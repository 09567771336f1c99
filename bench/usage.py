"""What processes use: CPU seconds and resident memory, read from /proc while something runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_EVERY = 0.5


@dataclass
class Usage:
    """What each process used meanwhile, by the process's name."""

    begun: float
    cpu: dict[str, float] = field(default_factory=dict)
    """CPU seconds."""
    peak: dict[str, float] = field(default_factory=dict)
    """The most memory seen, in MiB."""
    times: list[float] = field(default_factory=list)
    memory: dict[str, list[float]] = field(default_factory=dict)
    """Memory in MiB at each of `times`, which are seconds since it began."""
    seconds: float = 0.0

    def values(self) -> dict[str, float]:
        """Return it as values of a sample."""
        cpu = {f"cpu_{name}_s": round(seconds, 2) for name, seconds in self.cpu.items()}
        return cpu | {f"peak_{name}_mib": round(most, 1) for name, most in self.peak.items()}


def memory_of(pid: int) -> float:
    """Return what a process holds in memory, in MiB.

    Raises:
        ProcessLookupError: if there is no such process.
    """
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 2**20
    except FileNotFoundError:
        raise ProcessLookupError(pid) from None


def peak_of(pid: int) -> float:
    """Return the most that a process has held in memory so far, in MiB.

    Raises:
        ProcessLookupError: if there is no such process.
    """
    try:
        told = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        raise ProcessLookupError(pid) from None
    (line,) = (line for line in told.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 2**10


def cpu_of(pid: int) -> float:
    """Return the CPU seconds a process has used so far, its threads and ended children included.

    Raises:
        ProcessLookupError: if there is no such process.
    """
    try:
        # The name in parentheses may contain anything, so count the fields after the last one.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        raise ProcessLookupError(pid) from None
    return sum(int(each) for each in fields[11:15]) / _TICKS


@asynccontextmanager
async def using(pids: Mapping[str, int]) -> AsyncIterator[Usage]:
    """Measure what processes use from here to the end of the block, which they must outlive."""
    usage = Usage(time.monotonic())
    before = {name: cpu_of(pid) for name, pid in pids.items()}

    def look() -> None:
        usage.times.append(round(time.monotonic() - usage.begun, 2))
        for name, pid in pids.items():
            held = memory_of(pid)
            usage.memory.setdefault(name, []).append(round(held, 1))
            usage.peak[name] = max(held, usage.peak.get(name, 0.0))

    async def keep_looking() -> None:
        while True:
            look()
            await asyncio.sleep(_EVERY)

    task = asyncio.create_task(keep_looking())
    try:
        yield usage
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, ProcessLookupError):
            await task
        with contextlib.suppress(ProcessLookupError):
            look()
            usage.cpu = {name: cpu_of(pid) - before[name] for name, pid in pids.items()}
        usage.seconds = time.monotonic() - usage.begun
