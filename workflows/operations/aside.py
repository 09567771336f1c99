"""A long activity beside the one operation under way, for one attempt at a time: it asks the pods. No decisions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from temporalio import workflow
from temporalio.common import Priority
from temporalio.exceptions import ActivityError
from temporalio.workflow import ActivityCancellationType

with workflow.unsafe.imports_passed_through():
    from holdfast.policy.values import events
    from holdfast.workflows.operations.dispatch import RETRY, Call


class Aside:
    """One such activity, begun and cancelled with its attempt."""

    def __init__(self, event: Callable[[int, Any], events.Event]) -> None:
        """Take the function that makes an event of the attempt's number and the activity's result."""
        self._event = event
        self._handle: workflow.ActivityHandle[Any] | None = None
        self._attempt = 0

    @property
    def busy(self) -> bool:
        """Whether the activity is under way."""
        return self._handle is not None and not self._handle.done()

    def woken(self) -> bool:
        """Whether the activity has ended."""
        return self._handle is not None and self._handle.done()

    def ended(self) -> list[events.Event]:
        """Return the event of an activity that has ended; empty if there is none, or if it ended without a result."""
        if self._handle is None or not self._handle.done():
            return []
        handle, self._handle = self._handle, None
        try:
            return [self._event(self._attempt, handle.result())]
        except (ActivityError, asyncio.CancelledError):
            return []

    def follow(self, attempt: int | None, call: Callable[[], Call], summary: str, *, full: bool) -> None:
        """Have the activity run for this attempt, unless the history is full; None: for none."""
        if self._handle is not None and attempt != self._attempt:
            self._handle.cancel()
            self._handle = None
        if attempt is None or self._handle is not None or full:
            return
        made = call()
        self._attempt = attempt
        self._handle = workflow.start_activity(
            made.activity,
            made.argument,
            task_queue=made.queue,
            result_type=made.result_type,
            start_to_close_timeout=made.start_to_close,
            heartbeat_timeout=made.heartbeat,
            retry_policy=RETRY,
            cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=summary,
            priority=Priority(priority_key=made.priority),
        )

    def cancel(self) -> None:
        """Cancel the activity: its result says how far it came."""
        if self._handle is not None:
            self._handle.cancel()

    def settled(self) -> bool:
        """Whether no activity is under way."""
        return not self.busy
