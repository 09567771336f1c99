"""The published AppWrapper controller, as `tests.e2e.peers.appwrapper_peer` runs it."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

from bench.audit import Entry, agent, when
from bench.ground import Ground
from bench.seeing import PATIENCE, Json, Seen, has_condition, in_phase, seeing
from bench.systems.base import Controller
from bench.work import delete, placed
from holdfast.local.programs.resolve import resolve
from tests.e2e.peers.appwrapper_peer import API_VERSION, KIND, PROGRAM, define, start
from tests.e2e.peers.jobset_peer import stop


class AppWrapperPeer(Controller):
    """The controller's process and AppWrappers as its users create them."""

    name = "AppWrapper"

    def __init__(self, ground: Ground, namespace: str, wrappers: Seen, program: Path, home: str) -> None:
        super().__init__(ground, namespace)
        self.wrappers = wrappers
        self.program = program
        self.home = home
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pids(self) -> dict[str, int]:
        """The controller."""
        return {"controller": self.process.pid} if self.process else {}

    async def restart(self) -> None:
        """Start the controller, with the configuration of this run."""
        log = self.ground.directory / f"{self.home}.log"
        self.process = await start(self.kube, self.program, self.ground.stack.kubeconfig, self.home, log)

    def kill(self) -> None:
        """Kill it as a crash would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    async def suspended(self, count: int) -> None:
        """Wait for the phase Suspended; each is in it for a moment at its start too."""
        await self.wrappers.until(
            lambda: sum(in_phase("Suspended")(life.last) for life in self.wrappers.present) >= count,
            PATIENCE,
            f"{count} are suspended",
        )

    async def in_grace(self, workloads: list[str]) -> None:
        """Wait for the condition Unhealthy."""
        await self.wrappers.all_reach("unhealthy", len(workloads))

    def acts(self, entries: Iterable[Entry]) -> list[tuple[str, datetime]]:
        """Return when each was written to be Resetting."""
        return [
            (entry["objectRef"]["name"], when(entry))
            for entry in entries
            if self.asks(entry)
            and entry["verb"] == "patch"
            and entry["objectRef"].get("resource") == "appwrappers"
            and ((entry.get("requestObject") or {}).get("status") or {}).get("phase") == "Resetting"
        ]

    def asks(self, entry: Entry) -> bool:
        """Whatever its binary sent: it has the administrator's rights, as the bench does."""
        return agent(entry).startswith(PROGRAM)

    async def submit(self, document: Json) -> None:
        """Create the AppWrapper."""
        await self.kube.create(placed(document, self.namespace))

    async def recorded(self, count: int) -> float:
        """Wait for the phase Running."""
        return await self.wrappers.now_reach("running", count)

    async def ended(self, count: int) -> float:
        """Wait for the phase Succeeded."""
        return (await self.wrappers.all_reach("ended", self.past + count))[-1]

    async def suspend(self, name: str) -> None:
        """Suspend it."""
        await self._set(name, True)

    async def resume(self, name: str) -> None:
        """Resume it."""
        await self._set(name, False)

    async def nudge(self, workloads: list[str]) -> None:
        """Change an annotation of each: its controller looks at what has changed."""
        for name in workloads:
            await self._patch(name, {"metadata": {"annotations": {"bench": "look"}}})

    async def _set(self, name: str, suspend: bool) -> None:
        await self._patch(name, {"spec": {"suspend": suspend}})

    async def _patch(self, name: str, patch: Json) -> None:
        uid = next(life.last["metadata"]["uid"] for life in self.wrappers.present if life.name == name)
        await self.kube.patch(API_VERSION, KIND, name, self.namespace, uid=uid, patch=patch)

    async def remove(self, name: str) -> None:
        """Delete it as kubectl does; its finalizer stays until the controller has removed the Job."""
        await delete(self.kube, API_VERSION, KIND, name, self.namespace, "Background")

    async def removed(self) -> float:
        """Wait until all AppWrappers are gone."""
        return await self.wrappers.all_gone()


@asynccontextmanager
async def open_appwrapper(ground: Ground) -> AsyncIterator[AppWrapperPeer]:
    """Run the controller, with a namespace of its own for its work."""
    async with ground.floor.turns[PROGRAM]:
        (program,) = (await asyncio.to_thread(resolve, [PROGRAM], ground.say)).values()
        await define(ground.kube)
        async with _opened(ground, program) as system:
            yield system


@asynccontextmanager
async def _opened(ground: Ground, program: Path) -> AsyncIterator[AppWrapperPeer]:
    async with (
        ground.namespace() as home,
        ground.namespace() as namespace,
        seeing(
            ground.kube,
            API_VERSION,
            KIND,
            namespace,
            running=in_phase("Running"),
            ended=in_phase("Succeeded"),
            unhealthy=has_condition("Unhealthy"),
        ) as wrappers,
    ):
        system = AppWrapperPeer(ground, namespace, wrappers, program, home)
        try:
            await system.restart()
            yield system
        finally:
            if system.process is not None:
                stop(system.process)
