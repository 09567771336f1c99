"""Runs the workers of admission queues: each queue has its own task queue, so that it can pause alone (row L9)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, NamedTuple

import structlog
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from holdfast import names
from holdfast.worker.runtime.settings import Settings

LOOK_SECONDS: Final = 3.0
"""Seconds between two lists of the queues: a new queue waits at most this long for a worker."""

_DEADLINE: Final = timedelta(seconds=5)
"""Deadline for asking whether a queue's own workflow has ended."""

Log: Any = structlog.stdlib.get_logger("holdfast.worker.entities.queues")


class _Served(NamedTuple):
    workflow_id: str
    worker: Worker
    task: asyncio.Task[None]


class Admission:
    """Serves the present and future queues of a cluster, each by a worker of its own."""

    def __init__(self, client: Client, settings: Settings, worker_for: Callable[[str], Worker]) -> None:
        """Prepare, without serving anything yet.

        Args:
            client: the Temporal client.
            settings: `cluster` (empty: queues of all clusters are served) and `queues` (empty: all queues).
            worker_for: makes the worker of a task queue.
        """
        self._client = client
        self._settings = settings
        self._worker_for = worker_for
        self._served: dict[str, _Served] = {}
        self._leaving: dict[str, asyncio.Task[None]] = {}
        """Workers that are ending: their running tasks may take time, and no other queue waits for them."""
        self._ending = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def client(self) -> Client:
        """The Temporal client."""
        return self._client

    @client.setter
    def client(self, value: Client) -> None:
        """Give all running workers this client; a worker that is ending keeps its own."""
        self._client = value
        for one in self._served.values():
            if not one.task.done():
                one.worker.client = value

    @property
    def task_queue(self) -> str:
        """The task queues that are served, in words."""
        wanted = self._settings.queues
        return names.queue_admission(self._settings.cluster or "*", ",".join(wanted) if wanted else "*")

    async def run(self) -> None:
        """Serve until `shutdown`.

        Raises:
            Exception: the error with which one of the workers ended.
        """
        try:
            while not self._ending.is_set():
                await self._follow()
                await self._pause()
        finally:
            served, self._served = self._served, {}
            await asyncio.gather(*(self._end(one) for one in served.values()), *self._leaving.values())
            self._ended.set()

    async def shutdown(self) -> None:
        """Stop serving all queues, and wait until all running tasks have ended."""
        self._ending.set()
        await self._ended.wait()

    async def _follow(self) -> None:
        try:
            found = await self._open()
        except RPCError as error:
            Log.warning("queues were not listed: those that are served stay", error=error.message)
            return
        # A queue whose worker is still ending is served again once it has ended.
        for queue in sorted(found.keys() - self._served.keys() - self._leaving.keys()):
            worker = self._worker_for(queue)
            self._served[queue] = _Served(found[queue], worker, asyncio.create_task(worker.run()))
            Log.info("serves an admission queue", task_queue=queue)
        missing = sorted(self._served.keys() - found.keys())
        ended = await asyncio.gather(*(self._has_ended(self._served[queue].workflow_id) for queue in missing))
        for queue in (queue for queue, is_ended in zip(missing, ended, strict=True) if is_ended):
            Log.info("an admission queue has ended", task_queue=queue)
            leaving = asyncio.create_task(self._end(self._served.pop(queue)), name=queue)
            self._leaving[queue] = leaving
            leaving.add_done_callback(lambda task: self._leaving.pop(task.get_name(), None))

    async def _has_ended(self, workflow_id: str) -> bool:
        """Whether a queue that is missing in the list has ended; if unknown, it has not (row D59).

        The list may be wrongly empty: visibility lags, and is a different store from that of the workflows.
        """
        try:
            found = await self._client.get_workflow_handle(workflow_id).describe(rpc_timeout=_DEADLINE)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return True
            Log.warning("an admission queue is not listed, and did not answer: it is served on", why=error.message)
            return False
        if found.status is WorkflowExecutionStatus.RUNNING:
            Log.warning("an admission queue runs, but is not listed: it is served on", workflow_id=workflow_id)
            return False
        return True

    async def _open(self) -> dict[str, str]:
        """Return the task queues of the running queues that are wanted, each with its workflow's id."""
        query = f"WorkflowType = '{names.QUEUE_WORKFLOW}' AND ExecutionStatus = 'Running'"
        cluster, wanted = self._settings.cluster, set(self._settings.queues)
        if cluster:
            query += f" AND {names.SA_CLUSTER} = '{cluster}'"
        found = dict[str, str]()
        async for execution in self._client.list_workflows(query):
            try:
                place, name = names.parse_queue_id(execution.id)
            except ValueError:
                continue  # It belongs to someone else who uses the same workflow type.
            if not wanted or name in wanted:
                found[names.queue_admission(place, name)] = execution.id
        return found

    async def _pause(self) -> None:
        """Wait until the next look, or until one of the workers ends by itself: its error then ends all."""
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
            await asyncio.gather(one.worker.shutdown(), return_exceptions=True)
        await asyncio.gather(one.task, return_exceptions=True)
