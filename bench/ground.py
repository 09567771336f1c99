"""What every measure stands on: a stack of the bench's own, its clients, its namespaces, and where samples go."""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.audit import AuditLog
from bench.report.samples import REPORTS, Recording, Sample
from bench.seeing import PATIENCE
from holdfast.activities.kube.client import Kube, NotFound
from holdfast.local import Stack
from tests.e2e.ground.site import until

CLUSTER_PARTS = ("kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler", "kwok")
# The benches make many Temporal namespaces: without a system worker for each.
DYNAMIC_CONFIG = {"worker.perNamespaceWorkerCount": "0"}


@dataclass(frozen=True)
class Options:
    """What a run was told."""

    stack: str = "bench"
    keep: bool = False
    """Leave the stack up."""
    repeats: int = 3
    out: Path = REPORTS
    add: bool = False
    """Keep the samples that a measure has already, of the same commit and settings."""
    worker: Mapping[str, str] = field(default_factory=dict)
    """Settings of the Holdfast worker, as environment."""
    dynamic_config: Mapping[str, str] = field(default_factory=dict)
    """Temporal's dynamic config, beyond what a local stack has."""
    systems: tuple[str, ...] = ()
    """The only systems that are measured; none: all."""
    settle: float = 65.0
    """Seconds that running workloads are left alone before something happens to them: AppWrapper's controller looks at
    one every 5 s until it is ready, then once a minute."""

    warm: bool = True
    """Have each system live one life before what is measured."""

    smoke: bool = False
    """Only to see that all works: nothing is waited for that only makes figures better."""

    @property
    def settings(self) -> dict[str, str]:
        """What was told beyond the defaults."""
        return {**self.worker, **self.dynamic_config}


@dataclass
class Floor:
    """A running stack and the bench's own access to it, for one measure or, in a smoke, for all at once."""

    stack: Stack
    kube: Kube
    turns: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    """Whose turn it is, of the controllers of which only one may run on a stack: each would run everybody's objects."""


@dataclass
class Ground:
    """What one measure stands on: a stack, what the run was told, and where its samples go."""

    options: Options
    floor: Floor
    directory: Path
    recording: Recording
    earlier: Sequence[Recording]

    @property
    def stack(self) -> Stack:
        """The stack that is measured on."""
        return self.floor.stack

    @property
    def kube(self) -> Kube:
        """The bench's own client."""
        return self.floor.kube

    @property
    def audit(self) -> AuditLog:
        """The API server's audit log."""
        return AuditLog(self.stack.audit_log)

    def database(self) -> int:
        """Return how many bytes Temporal's SQLite has on the disk."""
        file = self.stack.layout.data("temporal")
        return sum(each.stat().st_size for each in file.parent.glob(f"{file.name}*"))

    def say(self, text: str) -> None:
        """Tell how far the run is."""
        print(f"{datetime.now():%H:%M:%S} {text}", flush=True)  # noqa: DTZ005 - for whoever sits before it

    def pids(self) -> dict[str, int]:
        """Return the processes of the stack, Temporal's included."""
        found = {part: self.stack.pid(part) for part in (*CLUSTER_PARTS, "temporal")}
        return {part: pid for part, pid in found.items() if pid is not None}

    def wants(self, system: str) -> bool:
        """Whether a system is to be measured."""
        return not self.options.systems or system in self.options.systems

    async def rest(self, seconds: float) -> None:
        """Leave everything alone for a while; in a smoke, for a moment."""
        await asyncio.sleep(min(seconds, 0.5) if self.options.smoke else seconds)

    def record(
        self,
        system: str,
        values: Mapping[str, float],
        *,
        size: Mapping[str, int] | None = None,
        repeat: int = 0,
        series: Mapping[str, list[float]] | None = None,
    ) -> None:
        """Keep a sample, in the file too."""
        sample = Sample(
            measure=self.recording.measure,
            system=system,
            size=dict(size or {}),
            repeat=repeat,
            at=datetime.now(UTC),
            values={name: round(value, 4) for name, value in values.items()},
            series={name: [round(each, 3) for each in several] for name, several in (series or {}).items()},
        )
        self.recording.samples.append(sample)
        self.recording.save(self.options.out, self.earlier)
        where = " ".join(f"{name}={value}" for name, value in sample.size.items())
        shown = ", ".join(f"{name} {value:g}" for name, value in sample.values.items() if not name.startswith("peak_"))
        self.say(f"{sample.measure} {where} {system} #{repeat}: {shown}")

    @asynccontextmanager
    async def namespace(self) -> AsyncIterator[str]:
        """Make a namespace, gone afterwards, so that its removal does not weigh on what is measured next."""
        name = f"bench-{secrets.token_hex(3)}"
        await self.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        try:
            yield name
        finally:
            await self.drop(name)

    async def drop(self, namespace: str) -> None:
        """Delete a namespace, and wait until it is gone, unless this is a smoke."""
        found = await self.kube.find("v1", "Namespace", namespace)
        if found is not None:
            try:
                await self.kube.delete("v1", "Namespace", namespace, uid=found["metadata"]["uid"])
            except NotFound:
                return
        if not self.options.smoke:
            await until(lambda: self._lacks(namespace), PATIENCE, f"namespace {namespace} is gone")

    async def _lacks(self, namespace: str) -> bool:
        return await self.kube.find("v1", "Namespace", namespace) is None


async def every(options: Options, runs: Iterable[Callable[[], Coroutine[Any, Any, None]]]) -> None:
    """Carry out runs one after another, since nothing may run beside what is measured; in a smoke, all at once."""
    if options.smoke:
        async with asyncio.TaskGroup() as group:
            for run in runs:
                group.create_task(run())
    else:
        for run in runs:
            await run()


@asynccontextmanager
async def floor(
    options: Options, *, nodes: int = 8, audit_bodies: bool = False, real_node: bool = False
) -> AsyncIterator[Floor]:
    """Bring the stack up, unless it is; its last user takes it down."""
    stack = Stack.up(
        options.stack,
        nodes=nodes,
        audit_bodies=audit_bodies,
        real_node=real_node or None,
        dynamic_config=DYNAMIC_CONFIG | dict(options.dynamic_config),
        progress=lambda line: print(f"    {line}", flush=True),
    )
    kube = await Kube.connect(str(stack.kubeconfig), timeout=60)
    try:
        yield Floor(stack, kube)
    finally:
        await kube.close()
