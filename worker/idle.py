"""Takes workflows that have had no task for minutes out of the worker's cache, and gives their memory back.

An idle workload needs no memory in the worker: Temporal has its history, and its next task replays that, in about
20 ms. Without this, a worker keeps what a burst has filled its cache with for as long as it lives.
"""

from __future__ import annotations

import asyncio
import copy
import ctypes
import gc
import time
from collections.abc import Callable
from typing import Any, Final

import structlog
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.worker import Worker, WorkflowInstance, WorkflowInstanceDetails, WorkflowRunner

from holdfast.runner import Activate

IDLE_SECONDS: Final = 300.0
KEPT: Final = 6
"""This part of what the cache may hold stays however idle it is (100 of 600): its next task comes without a replay."""
LOOK_SECONDS: Final = 30.0
GIVEN_BACK: Final = 50
"""So many evictions are worth a collection of garbage, which stops everything for two tenths of a second."""
LEAVES: Final = 5.0
"""Seconds that evicted workflows have to end their tasks before memory is given back."""

Log: Any = structlog.stdlib.get_logger("holdfast.worker")


class Idle:
    """Knows when each workflow in a worker's cache had its last task."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with none; `clock` is monotonic, in seconds."""
        self._clock = clock
        self._tasks: dict[str, float] = {}
        """By run id. Written by the threads that run workflows."""

    def noting(self, runner: WorkflowRunner) -> WorkflowRunner:
        """Return a copy of a runner that notes each task of its workflows here."""

        def create_instance(details: WorkflowInstanceDetails) -> WorkflowInstance:
            instance = runner.create_instance(details)
            instance.activate = self._noted(details.info.run_id, instance.activate)  # type: ignore[method-assign]
            return instance

        noting = copy.copy(runner)
        object.__setattr__(noting, "create_instance", create_instance)
        return noting

    def cached(self) -> int:
        """Return how many workflows are in the cache."""
        return len(self._tasks)

    def over(self, seconds: float, kept: int) -> list[str]:
        """Return the run ids of those without a task for so many seconds, without the `kept` that had one last."""
        latest_last = sorted(self._tasks.copy().items(), key=lambda one: one[1])
        old = self._clock() - seconds
        return [run for run, at in latest_last[: max(0, len(latest_last) - kept)] if at <= old]

    def _noted(self, run: str, activate: Activate) -> Activate:
        def noted(given: WorkflowActivation) -> Any:
            if any(job.HasField("remove_from_cache") for job in given.jobs):
                done = activate(given)
                self._tasks.pop(run, None)
                return done
            self._tasks[run] = self._clock()
            return activate(given)

        return noted


async def keep_evicting(
    worker: Worker, idle: Idle, kept: int, *, seconds: float = IDLE_SECONDS, look: float = LOOK_SECONDS
) -> None:
    """Evict what is idle for so many seconds but for the `kept` that had a task last, and give their memory back.

    The SDK's way is not public. Without it, only the cache's limit evicts, and the log says so.
    """
    evict = eviction(worker)
    if evict is None:
        Log.warning("this temporalio evicts no workflow on request: idle ones stay in the cache")
        return
    evicted = 0
    while True:
        await asyncio.sleep(look)  # The worker begins to serve meanwhile.
        runs = idle.over(seconds, kept)
        for run in runs:
            evict(run)
        evicted += len(runs)
        if evicted >= GIVEN_BACK:
            await asyncio.sleep(LEAVES)
            await asyncio.to_thread(give_back)
            Log.info("idle workflows are out of the cache", evicted=evicted, cached=idle.cached())
            evicted = 0


def eviction(worker: Worker) -> Callable[[str], None] | None:
    """Return what takes a run out of a worker's cache; None if this temporalio has no such thing."""
    return getattr(getattr(worker, "_bridge_worker", None), "request_workflow_eviction", None)


def give_back() -> None:
    """Collect garbage, and return free memory to the system, where the C library can."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
