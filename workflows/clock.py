"""The time by which workflows decide: always the time of a workflow task that the history records.

No other module of workflows may ask Temporal for the time (ruff, TID251).
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from temporalio import workflow

from holdfast import names


class StaleTask(RuntimeError):
    """The workflow sees new events before the task that takes them in; it must not decide anything by them."""


class Clock:
    """Returns `workflow.now()`, and raises where that time stands still although new events have arrived.

    A query that reaches a worker without the workflow in its cache replays the history, with the events since the last
    workflow task. No task exists for those events yet, so the time is still that of the last task. The workflow would
    keep a decision made then, and the next task would carry it out; a later replay would decide by that task's own,
    later time. The two may differ, and then no worker can go on. Raising ends such a query with this error and evicts
    the workflow from the cache; the next task starts again from the history. No command is written, so recorded
    histories replay as they are.

    The clock checks every activation, even if the workflow does not ask for the time in it. Otherwise it would later
    mistake a task in which nothing was decided for a new one.
    """

    def __init__(self) -> None:
        """Start in a workflow's constructor, so that the clock sees the first task."""
        self._at: datetime | None = None
        self._length = 0
        self._looks = asyncio.create_task(workflow.wait_condition(self._look))

    def _look(self) -> bool:
        """Record the current task; an error raised here ends the activation."""
        self.now()
        return False

    def now(self) -> datetime:
        """Return the time of the current workflow task.

        Raises:
            StaleTask: outside of any task; the caller must repeat the query.
        """
        now, length = task_time(), workflow.info().get_current_history_length()
        if now == self._at and length > self._length and not workflow.unsafe.is_replaying():
            raise StaleTask(names.STALE)
        self._at, self._length = now, length
        return now


def task_time() -> datetime:
    """Return the time of the last workflow task, for answers to queries; no decision may use it."""
    return workflow.now()  # noqa: TID251 - this module is where the time comes from


def asked_at() -> datetime:
    """Return the time of a query, for its answer; no decision may use it.

    The workflow's own time stands still between its tasks.
    """
    with workflow.unsafe.sandbox_unrestricted():
        return max(task_time(), datetime.now(UTC))
