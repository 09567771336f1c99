"""A network that parts the real node's agent from the API server, while both of them live (row L12)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.local import Stack
from tests.e2e.ground.proxy import Proxy, api_proxy


@asynccontextmanager
async def partible(stack: Stack, directory: Path) -> AsyncIterator[Proxy]:
    """Have the real node's kubelet speak to the API server through a proxy, for as long as the block lasts.

    It is begun anew for that, as it is afterwards: what runs on its node goes on.
    """
    async with api_proxy(stack.layout.user_kubeconfig("kubelet"), directory) as (proxy, through):
        await asyncio.to_thread(stack.start_part, "kubelet", kubeconfig=str(through))
        try:
            yield proxy
        finally:
            await proxy.heal()
            await asyncio.to_thread(stack.start_part, "kubelet")


def shells(marker: str) -> dict[int, str]:
    """Return the shells whose script has a marker, by their pids, with the whole script; none that one forks."""
    found: dict[int, tuple[int, str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):  # It has ended.
                continue
            if words[0] == b"sh" and len(words) > 2 and marker.encode() in words[2]:
                found[int(entry.name)] = parent, words[2].decode()
    return {pid: script for pid, (parent, script) in found.items() if parent not in found}


def turns(pid: int) -> int:
    """Return how often a process has waited of its own accord: it grows as long as the process does something."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (count,) = (line.split()[1] for line in lines if line.startswith("voluntary_ctxt_switches:"))
    return int(count)


class Sampled:
    """Which processes were there at the same time, looked at again and again."""

    def __init__(self, marker: str) -> None:
        self.seen: list[frozenset[int]] = []
        """Each set of them that was found, in order."""
        self._marker = marker

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Look all the time, for as long as the block lasts."""
        task = asyncio.create_task(self._look())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _look(self) -> None:
        while True:
            found = frozenset(await asyncio.to_thread(shells, self._marker))
            if not self.seen or self.seen[-1] != found:
                self.seen.append(found)
            await asyncio.sleep(0.02)

    @property
    def together(self) -> Iterable[frozenset[int]]:
        """Those that ran at once with another."""
        return [found for found in self.seen if len(found) > 1]
