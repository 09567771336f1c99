"""Shared parts of the entity workflows: base class, activities, timer, length of a run, messages.

An entity is a workflow that runs no workload: NodeMonitor, Queue, Provisioner, Graph, CheckpointBroker,
ClusterWatch, Rendezvous. No part of this module decides anything (records 0040 and 0062).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError, FailureError

with workflow.unsafe.imports_passed_through():
    from pydantic import BaseModel, ValidationError

    from holdfast import names
    from holdfast.model.entities.document import EntityDocument
    from holdfast.model.packed import unpacked
    from holdfast.workflows import patches
    from holdfast.workflows.clock import Clock
    from holdfast.workflows.operations.dispatch import RETRY

WORDS_MAXIMUM: Final = 200
"""Messages after which a new run begins: a worker that takes over an entity must replay all of them."""
EVENTS_MOST: Final = 6_000
"""Events after which a run stops waiting for work that the next run can repeat. The server ends a run at 51,200."""
AT_ONCE: Final = 200
"""Messages sent at the same time: the server allows 2,000 pending signals per workflow."""

ENDLESS_TRY: Final = timedelta(hours=12)
"""Limit of one try of an endless activity: only this surely ends a try that is cut off from the server."""
_ENDLESS_RETRY: Final = RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=2))
ENDLESS_HEARTBEAT: Final = timedelta(seconds=10)
"""Heartbeat timeout of an endless activity: how long another worker waits before it takes over from one that died.

Each heartbeat is written and may be billed; the activity sends eleven a minute (`worker.runtime.endless`).
"""

_Document = TypeVar("_Document", bound=BaseModel)
_Order = TypeVar("_Order")
_Result = TypeVar("_Result")


class Entity:
    """Base class of the entity workflows: clock, timer, length of the run."""

    def __init__(self) -> None:
        """Start the clock; the workflow's constructor must call this before anything asks for the time."""
        self._clock = Clock()
        self._timer = Timer()
        self._length = RunLength()
        self._problem = ""
        """Why the document is invalid. `run` raises it, because Temporal would retry a constructor that raises."""

    def _refused(self, error: str) -> ApplicationError:
        """Return the error that ends an entity whose document cannot be read."""
        return ApplicationError(self._problem, type=error, non_retryable=True)

    def _check_document(self, document: EntityDocument, error: str) -> None:
        """Validate an update that brings another document.

        Raises:
            ApplicationError: of type `error`, if the entity never began or the document is another entity's.
        """
        if self._problem:
            raise self._refused(error)
        expected = workflow.info().workflow_id
        if document.workflow_id != expected:
            raise ApplicationError(f"{document.workflow_id}: expected {expected}", type=error)


def start(
    activity: str,
    argument: Any,
    result: type[_Result],
    *,
    queue: str,
    within: timedelta,
    summary: str,
    heartbeat: timedelta | None = None,
    retry: RetryPolicy = RETRY,
    in_all: timedelta | None = None,
) -> workflow.ActivityHandle[_Result]:
    """Start an activity that ends by itself.

    Args:
        activity: its name.
        argument: its input.
        result: what it returns.
        queue: the task queue of its workers.
        within: how long one try may take.
        summary: the text in the Temporal UI; cut to 200 characters.
        heartbeat: its heartbeat timeout.
        retry: its retry policy.
        in_all: how long all tries together may take; None: no limit.
    """
    return workflow.start_activity(
        activity,
        argument,
        task_queue=queue,
        result_type=result,
        start_to_close_timeout=within,
        schedule_to_close_timeout=in_all,
        heartbeat_timeout=heartbeat,
        retry_policy=retry,
        summary=summary[:200],
    )


async def serve(activity: str, argument: Any, *, queue: str, summary: str) -> None:
    """Run an activity that serves until it is cancelled; its retries cost no history.

    Raises:
        ActivityError: if it fails with an error that is not retried.
    """
    await workflow.execute_activity(
        activity,
        argument,
        task_queue=queue,
        start_to_close_timeout=ENDLESS_TRY,
        heartbeat_timeout=ENDLESS_HEARTBEAT,
        retry_policy=_ENDLESS_RETRY,
        cancellation_type=workflow.ActivityCancellationType.TRY_CANCEL,
        summary=summary[:200],
    )


async def stop(*tasks: asyncio.Future[Any] | None) -> None:
    """Cancel the tasks, and wait for their end."""
    left = [task for task in tasks if task is not None]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def read(kind: type[_Document], document: Any) -> tuple[_Document | None, str]:
    """Read the document that a workflow was started with.

    A constructor cannot raise the document's errors, because Temporal would retry the task for ever.

    Args:
        kind: its model, which has a `workflow_id`.
        document: as JSON.

    Returns:
        The document, or None and why it is refused: each field with what was expected.
    """
    what = kind.__name__.lower()
    try:
        found = kind.model_validate(unpacked(document))
    except ValidationError as error:
        return None, "; ".join(
            f"{'.'.join(str(part) for part in each['loc']) or what}: {each['msg']}" for each in error.errors()
        )
    except ValueError as error:  # The packed document is damaged.
        return None, f"{what}: {error}"
    expected: str = getattr(found, "workflow_id")  # noqa: B009 - each document has one, models in general do not
    if workflow.info().workflow_id != expected:
        return None, f"workflow id {workflow.info().workflow_id!r}: expected {expected!r}"
    return found, ""


def refuse_memory(argument: str, memory: object, *, rebuilt: bool = True) -> str:
    """Return why the memory that this workflow was started with is refused; empty if it may be used (row X3).

    The previous run leaves a memory, and the memo marks one that a worker prepared for an entity. Anything else is an
    accident: the input of another run, started by hand.

    Args:
        argument: the name of the argument.
        memory: its value; None: nothing was given.
        rebuilt: whether a worker may have prepared it, which it does for entities alone.
    """
    if memory is None or workflow.info().continued_run_id is not None:
        return ""
    if rebuilt and workflow.memo_value(names.MEMO_REBUILT, False) is True:
        return ""
    # An earlier release started entities without that mark: those runs replay.
    if not workflow.patched(patches.CONTINUED):
        return ""
    return f"{argument}: expected nothing: only a run that continues a previous one has a memory"


class Timer:
    """One timer, for the next deadline; setting the same deadline again keeps the running timer."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self.until: datetime | None = None
        """The deadline that it is set for."""

    @property
    def is_due(self) -> bool:
        """Whether it has fired, and `take` was not called yet."""
        return self._task is not None and self._task.done()

    def take(self) -> None:
        """Forget a timer that has fired."""
        if self.is_due:
            self._task, self.until = None, None

    def set(self, until: datetime | None, why: str, now: datetime) -> None:
        """Set the timer for a deadline; None clears it. `why` is its text in the Temporal UI."""
        if until == self.until and (until is None) == (self._task is None):
            return
        if self._task is not None:
            self._task.cancel()
        self._task, self.until = None, until
        if until is not None:
            span = max(until - now, timedelta(0))
            self._task = asyncio.create_task(workflow.sleep(span, summary=why[:200]))


class RunLength:
    """Tells when to continue as new, even while messages keep arriving."""

    def __init__(self) -> None:
        self._words = 0

    def count(self, words: int) -> None:
        """Count messages that were taken in."""
        self._words += words

    @property
    def is_enough(self) -> bool:
        """Whether to start no new work, and to continue as new once the work under way has ended."""
        return self._words >= WORDS_MAXIMUM or workflow.info().is_continue_as_new_suggested() or self.is_most

    @property
    def is_most(self) -> bool:
        """Whether to stop waiting for work that the next run can start again."""
        return workflow.info().get_current_history_length() >= EVENTS_MOST


class Message:
    """A signal to another workflow."""

    def __init__(self, workflow_id: str, signal: str, *arguments: Any) -> None:
        """Set the receiver's workflow id, the signal and its arguments."""
        self.workflow_id, self.signal, self.arguments = workflow_id, signal, arguments


async def send(message: Message) -> str:
    """Send a message; return why it was not delivered (there is no such workflow), empty if it was."""
    handle: workflow.ExternalWorkflowHandle[Any] = workflow.get_external_workflow_handle(message.workflow_id)
    try:
        await handle.signal(message.signal, args=message.arguments)
    except FailureError as error:
        workflow.logger.info("%s was not told: %s", message.workflow_id, error)
        return str(error)
    return ""


class Outbox(Generic[_Order]):
    """Orders still to be sent to other workflows, in order; at most `AT_ONCE` at the same time."""

    def __init__(self, message: Callable[[_Order], Message]) -> None:
        """Start empty; `message` turns an order into a message."""
        self._message = message
        self._waiting: list[_Order] = []
        self._sending: dict[asyncio.Task[str], _Order] = {}

    def put(self, orders: Iterable[_Order]) -> None:
        """Add orders to send."""
        self._waiting += orders

    def begin(self) -> None:
        """Send as many orders as `AT_ONCE` allows."""
        count = max(0, AT_ONCE - len(self._sending))
        begun, self._waiting = self._waiting[:count], self._waiting[count:]
        for order in begun:
            self._sending[asyncio.create_task(send(self._message(order)))] = order

    @property
    def is_sending(self) -> bool:
        """Whether a message is being sent: a new run would send it again."""
        return bool(self._sending)

    @property
    def has_ended(self) -> bool:
        """Whether a message was delivered, or could not be."""
        return any(task.done() for task in self._sending)

    @property
    def waiting(self) -> tuple[_Order, ...]:
        """Orders not sent yet: the next run sends them."""
        return tuple(self._waiting)

    def ended(self) -> list[tuple[_Order, str]]:
        """Return the orders finished since the last call, each with why it was not delivered; empty if it was."""
        done = [task for task in self._sending if task.done()]
        return [(self._sending.pop(task), task.result()) for task in done]
