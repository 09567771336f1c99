"""The time by which a workflow decides: that of the task which its history will tell of, and no other.

No other module of workflows may ask Temporal for the time (ruff, TID251).
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from temporalio import workflow


class StaleTask(RuntimeError):
    """What has come is shown to the workflow before the task that is to take it in; no decision may be made of it."""


class Clock:
    """`workflow.now()`, refused where it stands still although something has come.

    A query that reaches a worker which does not hold the workflow in its cache replays the history, and with it what
    has come since the last workflow task. There is no task for that yet, so the time is still the last one's. What is
    decided then is kept and carried out by the next task, while a later replay decides it by that task's own, later
    time: the two may differ, and then no worker can go on. Raising ends such a query with this error and drops the
    workflow from the cache; the next task begins anew from the history. No command is written, so recorded histories
    replay as they are.

    Each activation is looked at, whether or not the workflow asks for the time in it: else a task in which nothing was
    decided would be taken for a new one later on.
    """

    def __init__(self) -> None:
        """Begin in a workflow's constructor, so that its first task is seen."""
        self._at: datetime | None = None
        self._length = 0
        self._looks = asyncio.create_task(workflow.wait_condition(self._look))

    def _look(self) -> bool:
        """See by which task this is; what is raised here ends the activation."""
        self.now()
        return False

    def now(self) -> datetime:
        """Return the time of the workflow task that is carried out.

        Raises:
            StaleTask: outside of any task; a query is to be asked again.
        """
        now, length = task_time(), workflow.info().get_current_history_length()
        if now == self._at and length > self._length and not workflow.unsafe.is_replaying():
            raise StaleTask("something has just come that no workflow task has taken in yet: ask again")
        self._at, self._length = now, length
        return now


def task_time() -> datetime:
    """Return the time of the last workflow task, for answers to queries: nothing may be decided by it."""
    return workflow.now()  # noqa: TID251 - this module is where the time comes from


def asked_at() -> datetime:
    """Return the time of a query, for its answer: nothing may be decided by it.

    The workflow's own time stands still between its tasks.
    """
    with workflow.unsafe.sandbox_unrestricted():
        return max(task_time(), datetime.now(UTC))
