"""What a bench asks of every system (take work, say when it is over, remove it), and what of a controller besides."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from datetime import datetime
from typing import ClassVar

from bench.audit import Entry
from bench.ground import Ground
from bench.seeing import Json, Seen, in_phase, seeing
from bench.work import finish, in_flight, workload


class System(ABC):
    """One system, opened, with a namespace of its own."""

    name: ClassVar[str]
    manager = ""
    """What an AppWrapper says in `managedBy` that is this system's; empty where it says nothing."""

    def __init__(self, ground: Ground, namespace: str) -> None:
        self.ground = ground
        self.kube = ground.kube
        self.namespace = namespace
        self.past = 0
        """How many workloads have ended before what is measured."""

    @property
    @abstractmethod
    def pids(self) -> dict[str, int]:
        """The processes that are this system's own, those of the cluster aside."""

    @abstractmethod
    def asks(self, entry: Entry) -> bool:
        """Whether a request was sent by this system itself."""

    @abstractmethod
    async def submit(self, document: Json) -> None:
        """Take a workload, as its user would hand it in."""

    @abstractmethod
    async def recorded(self, count: int) -> float:
        """Wait until so many are recorded as running, and return when that was seen."""

    @abstractmethod
    async def ended(self, count: int) -> float:
        """Wait until so many are recorded as succeeded, and return when that was seen."""

    @abstractmethod
    async def remove(self, name: str) -> None:
        """Ask for a workload to be removed for good."""

    @abstractmethod
    async def removed(self) -> float:
        """Wait until no workload is left by this system's own record, and return when that was seen."""

    async def warm(self) -> None:
        """Live one whole life, so that what is measured begins with everything connected and read."""
        if not self.ground.options.warm:
            return
        async with seeing(self.kube, "v1", "Pod", self.namespace, running=in_phase("Running")) as pods:
            await self.submit(workload("warm"))
            await pods.all_reach("running", 2)
            await finish(self.kube, pods.present)
            await self.ended(1)
            await self.remove_all(["warm"], pods)
        self.past += 1

    async def history_bytes(self, workloads: list[str]) -> int | None:
        """Return the size of the histories of workloads so far; None where there is no history."""
        return None

    async def remove_all(self, workloads: list[str], pods: Seen) -> None:
        """Remove workloads, and wait until they and their pods are gone."""
        await in_flight([lambda name=name: self.remove(name) for name in workloads])
        await pods.all_gone()
        await self.removed()

    async def submit_all(self, documents: list[Json]) -> None:
        """Take many, so many at once."""
        await in_flight([lambda each=each: self.submit(each) for each in documents])


class Controller(System):
    """A system with processes of its own, which look after the workloads they have taken and can be killed."""

    @abstractmethod
    def kill(self) -> None:
        """Kill its processes with -9."""

    @abstractmethod
    async def restart(self) -> None:
        """Start what was killed, and wait until it is ready."""

    @abstractmethod
    async def suspend(self, name: str) -> None:
        """Ask for a workload to be taken off the cluster for now."""

    @abstractmethod
    async def suspended(self, count: int) -> None:
        """Wait until so many are recorded as suspended."""

    @abstractmethod
    async def resume(self, name: str) -> None:
        """Ask for a suspended workload to be put back."""

    @abstractmethod
    async def in_grace(self, workloads: list[str]) -> None:
        """Wait until all are recorded as being in their failure grace."""

    @abstractmethod
    def acts(self, entries: Iterable[Entry]) -> list[tuple[str, datetime]]:
        """Return when each reset was first acted on, with the workload's name, in order."""

    async def decided(self, workloads: list[str]) -> dict[str, datetime]:
        """Return when a reset was decided, of those workloads for which the system records that itself."""
        return {}

    async def due(self, workloads: list[str]) -> dict[str, datetime]:
        """Return when a reset fell due, of those workloads for which the system records that itself."""
        return {}

    async def history_events(self, workloads: list[str]) -> int | None:
        """Return how many history events workloads have so far; None where there is no history."""
        return None

    async def nudge(self, workloads: list[str]) -> None:
        """Have workloads looked at now: for the smoke alone, since AppWrapper's controller would take a minute."""
        return
