"""The workers of admission queues: each queue has a task queue of its own, so that one pauses alone (row L9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import structlog
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

from holdfast import names
from holdfast.worker.settings import Settings

LOOK_SECONDS: Final = 3.0
"""How often it is looked which queues there are: so long a new one waits for a worker, at most."""

Log: Any = structlog.stdlib.get_logger("holdfast.worker.queues")


class _Served(NamedTuple):
    worker: Worker
    task: asyncio.Task[None]


class Admission:
    """Serves the queues of a cluster, those that are there and those to come, each by a worker of its own."""

    def __init__(self, client: Client, settings: Settings, worker_for: Callable[[str], Worker]) -> None:
        """Prepare; nothing is served yet.

        Args:
            client: of Temporal.
            settings: `cluster`, where empty queues of all clusters are served; and `queues`, where empty all of them.
            worker_for: makes the worker of a task queue.
        """
        self._client = client
        self._settings = settings
        self._worker_for = worker_for
        self._served: dict[str, _Served] = {}
        self._ending = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def task_queue(self) -> str:
        """The task queues that are served, in words."""
        wanted = self._settings.queues
        return names.queue_admission(self._settings.cluster or "*", ",".join(wanted) if wanted else "*")

    async def run(self) -> None:
        """Serve until `shutdown`.

        Raises:
            Exception: what one of the workers has ended with.
        """
        try:
            while not self._ending.is_set():
                await self._follow()
                await self._pause()
        finally:
            served, self._served = self._served, {}
            await asyncio.gather(*(self._end(one) for one in served.values()))
            self._ended.set()

    async def shutdown(self) -> None:
        """Serve no queue any more, and wait until all that is in hand has ended."""
        self._ending.set()
        await self._ended.wait()

    async def _follow(self) -> None:
        try:
            found = await self._open()
        except RPCError as error:
            Log.warning("queues were not listed: those that are served stay", error=error.message)
            return
        for queue in sorted(found - self._served.keys()):
            worker = self._worker_for(queue)
            self._served[queue] = _Served(worker, asyncio.create_task(worker.run()))
            Log.info("serves an admission queue", task_queue=queue)
        for queue in sorted(self._served.keys() - found):
            Log.info("an admission queue has ended", task_queue=queue)
            await self._end(self._served.pop(queue))

    async def _open(self) -> set[str]:
        """Return the task queues of the queues that there are and that are wanted."""
        query = f"WorkflowType = '{names.QUEUE_WORKFLOW}' AND ExecutionStatus = 'Running'"
        cluster, wanted = self._settings.cluster, set(self._settings.queues)
        if cluster:
            query += f" AND {names.SA_CLUSTER} = '{cluster}'"
        found = set[str]()
        async for execution in self._client.list_workflows(query):
            try:
                place, name = names.parse_queue_id(execution.id)
            except ValueError:
                continue  # It is somebody else's, whatever its type is called.
            if not wanted or name in wanted:
                found.add(names.queue_admission(place, name))
        return found

    async def _pause(self) -> None:
        """Wait until it is time to look again, or one of the workers has ended by itself: that ends all."""
        ending = asyncio.create_task(self._ending.wait())
        tasks = [one.task for one in self._served.values()]
        try:
            await asyncio.wait({ending, *tasks}, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
        for task in tasks:
            if task.done():
                task.result()

    @staticmethod
    async def _end(one: _Served) -> None:
        if not one.task.done():
            await one.worker.shutdown()
        await asyncio.gather(one.task, return_exceptions=True)
