"""Plain Kubernetes: Jobs, and nobody who looks after them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.audit import Entry
from bench.ground import Ground
from bench.seeing import Json, Seen, has_condition, seeing
from bench.systems.base import System
from bench.work import PODS, delete, job_of, placed


class Plain(System):
    """Jobs as they are; removal is foreground deletion."""

    name = "plain"

    def __init__(self, ground: Ground, namespace: str, jobs: Seen) -> None:
        super().__init__(ground, namespace)
        self.jobs = jobs

    @property
    def pids(self) -> dict[str, int]:
        """None: all of it is the cluster's."""
        return {}

    def asks(self, entry: Entry) -> bool:
        """Nothing: all of it is the cluster's."""
        return False

    async def submit(self, document: Json) -> None:
        """Create the Job."""
        await self.kube.create(placed(job_of(document), self.namespace))

    async def recorded(self, count: int) -> float:
        """Wait until the Jobs' status says that all their pods are ready."""
        return await self.jobs.now_reach("running", count)

    async def ended(self, count: int) -> float:
        """Wait for the Jobs' condition Complete."""
        return (await self.jobs.all_reach("ended", self.past + count))[-1]

    async def remove(self, name: str) -> None:
        """Delete the Job in the foreground."""
        await delete(self.kube, "batch/v1", "Job", name, self.namespace, "Foreground")

    async def removed(self) -> float:
        """Wait until the Jobs are gone."""
        return await self.jobs.all_gone()


@asynccontextmanager
async def open_plain(ground: Ground) -> AsyncIterator[Plain]:
    """Have a namespace for plain Jobs."""
    async with (
        ground.namespace() as namespace,
        seeing(ground.kube, "batch/v1", "Job", namespace, ended=has_condition("Complete"), running=_is_ready) as jobs,
    ):
        yield Plain(ground, namespace, jobs)


def _is_ready(job: Json) -> bool:
    return int((job.get("status") or {}).get("ready") or 0) >= PODS
