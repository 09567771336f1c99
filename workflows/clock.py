"""The time by which a workflow decides: that of the task which its history will tell of, and no other."""

from __future__ import annotations

from datetime import datetime

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
    """

    def __init__(self) -> None:
        self._at: datetime | None = None
        self._length = 0

    def now(self) -> datetime:
        """Return the time of the workflow task that is carried out.

        Raises:
            StaleTask: outside of any task; a query is to be asked again.
        """
        now, length = workflow.now(), workflow.info().get_current_history_length()
        if now == self._at and length > self._length and not workflow.unsafe.is_replaying():
            raise StaleTask("something has just come that no workflow task has taken in yet: ask again")
        self._at, self._length = now, length
        return now
