"""Holdfast: its worker processes, its client, and Temporal's record of what has ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from bench.audit import Entry, user
from bench.ground import Ground
from bench.seeing import LOOK, PATIENCE, Json
from bench.systems.base import System
from holdfast import names
from holdfast.activities.kube import service_account_user
from holdfast.client import Holdfast
from holdfast.formats import appwrapper
from tests.e2e.site import Site, Worker, open_site

WORKER = service_account_user(names.WORKER_NAMESPACE, names.WORKER_SERVICE_ACCOUNT)


class HoldfastSystem(System):
    """Workers under their own rights, and a client that starts workloads as any would."""

    name = "Holdfast"

    def __init__(self, ground: Ground, namespace: str, site: Site, client: Holdfast) -> None:
        super().__init__(ground, namespace)
        self.site = site
        self.client = client

    @property
    def workers(self) -> list[Worker]:
        """The workers that run."""
        return [worker for worker in self.site.workers if worker.process.poll() is None]

    @property
    def pids(self) -> dict[str, int]:
        """The workers; Temporal is among the stack's processes."""
        found = [worker.process.pid for worker in self.workers]
        return {f"worker{index or ''}": pid for index, pid in enumerate(found)}

    def asks(self, entry: Entry) -> bool:
        """Whatever the worker's account sent, as itself or as a workload's account."""
        return user(entry) == WORKER

    async def start_worker(self) -> Worker:
        """Start one more worker, with the settings of this run, and wait until it is ready."""
        return await self.site.start_worker(kubeconfig=None, **self.ground.options.worker)

    async def submit(self, document: Json) -> None:
        """Read the document and start its workflow, through the client."""
        workload = appwrapper.read(document, cluster=self.site.cluster, namespace=self.namespace)
        await self.client.submit(workload)

    async def ended(self, count: int) -> float:
        """Wait until Temporal lists so many as Succeeded."""
        query = f"{names.SA_PHASE} = 'Succeeded' AND {names.SA_NAMESPACE} = '{self.namespace}'"
        return await self._listed(query, lambda found: found >= self.past + count)

    async def suspend(self, name: str) -> None:
        """Send the signal."""
        await self._signal(name, names.SIGNAL_SUSPEND)

    async def resume(self, name: str) -> None:
        """Send the signal."""
        await self._signal(name, names.SIGNAL_RESUME)

    async def remove(self, name: str) -> None:
        """Send the signal that cancels it."""
        await self._signal(name, names.SIGNAL_CANCEL)

    async def removed(self) -> float:
        """Wait until no workload's workflow is running: each closes when everything is proven gone."""
        query = f"{names.SA_NAMESPACE} = '{self.namespace}' AND ExecutionStatus = 'Running'"
        return await self._listed(query, lambda found: found == 0)

    def workflow_id(self, name: str) -> str:
        """Return the id of a workload's workflow."""
        return names.workflow_id(self.site.cluster, self.namespace, name)

    async def _signal(self, name: str, signal: str) -> None:
        await self.site.client.get_workflow_handle(self.workflow_id(name)).signal(signal)

    async def _listed(self, query: str, reached: Callable[[int], bool]) -> float:
        deadline = time.monotonic() + PATIENCE
        while True:
            found = (await self.site.client.count_workflows(query)).count
            if reached(found):
                return time.monotonic()
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {PATIENCE:g} s; {found} are there by {query}")
            await asyncio.sleep(5 * LOOK)


@asynccontextmanager
async def open_holdfast(ground: Ground, workers: int = 1) -> AsyncIterator[HoldfastSystem]:
    """Run workers with a Temporal namespace and a Kubernetes namespace of their own."""
    async with open_site(ground.stack, ground.directory, prefix="b") as site:
        namespace = await site.namespace()
        async with Holdfast.connect(client=site.client, cluster=site.cluster) as client:
            system = HoldfastSystem(ground, namespace, site, client)
            for _ in range(workers):
                await system.start_worker()
            yield system
        for worker in system.workers:
            worker.stop()
    await ground.drop(namespace)
