"""What the workflows of entities share: their base, activities, one timer, the length of a run, messages.

An entity is a workflow beside those of workloads: NodeMonitor, Queue, Provisioner, Graph, CheckpointBroker,
ClusterWatch, Rendezvous. None of these parts decides anything (records 0040 and 0062).
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

    from holdfast.model.packed import unpacked
    from holdfast.workflows.clock import Clock
    from holdfast.workflows.operations.dispatch import RETRY

WORDS_MAXIMUM: Final = 200
"""Messages after which a new run begins: a worker that takes an entity over has to live through all of them."""
EVENTS_MOST: Final = 6_000
"""Events after which a run waits for nothing that the next run can begin anew. The server ends a run at 51,200."""
AT_ONCE: Final = 200
"""Messages under way at once: the server takes 2,000 pending signals of a workflow."""

ENDLESS_TRY: Final = timedelta(hours=12)
"""Length of one try of an endless activity: one that is cut off from the server surely ends only by this."""
_ENDLESS_RETRY: Final = RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=2))
_ENDLESS_HEARTBEAT: Final = timedelta(seconds=5)

_Document = TypeVar("_Document", bound=BaseModel)
_Order = TypeVar("_Order")
_Result = TypeVar("_Result")


class Entity:
    """The base of an entity's workflow: its clock, its timer, the length of its run."""

    def __init__(self) -> None:
        """Begin in the workflow's own constructor, before anything asks for the time."""
        self._clock = Clock()
        self._timer = Timer()
        self._length = RunLength()
        self._problem = ""
        """What is wrong with its document. `run` refuses it: Temporal retries a constructor that raises."""

    def _refused(self, error: str) -> ApplicationError:
        """Return the end of an entity whose document cannot be read."""
        return ApplicationError(self._problem, type=error, non_retryable=True)

    def _check_document(self, document: BaseModel, error: str) -> None:
        """Validate an update that brings another document.

        Raises:
            ApplicationError: of this type, if the entity never began or the document is another entity's.
        """
        if self._problem:
            raise self._refused(error)
        expected = workflow.info().workflow_id
        if workflow_id_of(document) != expected:
            raise ApplicationError(f"{workflow_id_of(document)}: expected {expected}", type=error)


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
        queue: the task queue of the worker that has it.
        within: the length of one try.
        summary: what people read beside it; the first 200 characters.
        heartbeat: how long it may be silent.
        retry: when another try begins.
        in_all: the length of all tries together; None: for ever.
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


async def serve(
    activity: str, argument: Any, *, queue: str, summary: str, heartbeat: timedelta = _ENDLESS_HEARTBEAT
) -> None:
    """Run an activity that serves until it is cancelled; another try costs no history.

    Raises:
        ActivityError: if it refuses for good.
    """
    await workflow.execute_activity(
        activity,
        argument,
        task_queue=queue,
        start_to_close_timeout=ENDLESS_TRY,
        heartbeat_timeout=heartbeat,
        retry_policy=_ENDLESS_RETRY,
        cancellation_type=workflow.ActivityCancellationType.TRY_CANCEL,
        summary=summary[:200],
    )


async def stop(*tasks: asyncio.Future[Any] | None) -> None:
    """Cancel what is under way, and wait for its end."""
    left = [task for task in tasks if task is not None]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def workflow_id_of(document: BaseModel) -> str:
    """Return the workflow that a document belongs to."""
    found: str = getattr(document, "workflow_id")  # noqa: B009 - each document has one, models in general do not
    return found


def read(kind: type[_Document], document: Any) -> tuple[_Document | None, str]:
    """Read the document that a workflow was started with.

    A constructor cannot raise what is wrong with it, since Temporal would retry the task for ever.

    Args:
        kind: its model, which has a `workflow_id`.
        document: as JSON.

    Returns:
        What it says, or None and why it is refused: each field with what was expected.
    """
    what = kind.__name__.lower()
    try:
        found = kind.model_validate(unpacked(document))
    except ValidationError as error:
        return None, "; ".join(
            f"{'.'.join(str(part) for part in each['loc']) or what}: {each['msg']}" for each in error.errors()
        )
    except ValueError as error:  # What is packed is damaged.
        return None, f"{what}: {error}"
    expected = workflow_id_of(found)
    if workflow.info().workflow_id != expected:
        return None, f"workflow id {workflow.info().workflow_id!r}: expected {expected!r}"
    return found, ""


class Timer:
    """One timer, for the next deadline; the same deadline keeps the timer it has."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self.until: datetime | None = None
        """The deadline that it is set for."""

    @property
    def is_due(self) -> bool:
        """Whether it has fired, and was not taken yet."""
        return self._task is not None and self._task.done()

    def take(self) -> None:
        """Forget a timer that has fired."""
        if self.is_due:
            self._task, self.until = None, None

    def set(self, until: datetime | None, why: str, now: datetime) -> None:
        """Set it for a deadline; None: for none. `why` is what people read beside it."""
        if until == self.until and (until is None) == (self._task is None):
            return
        if self._task is not None:
            self._task.cancel()
        self._task, self.until = None, until
        if until is not None:
            span = max(until - now, timedelta(0))
            self._task = asyncio.create_task(workflow.sleep(span, summary=why[:200]))


class RunLength:
    """When a run is to make room for the next one, also while messages go on coming."""

    def __init__(self) -> None:
        self._words = 0

    def count(self, words: int) -> None:
        """Count messages that were taken in."""
        self._words += words

    @property
    def is_enough(self) -> bool:
        """Whether the next run is to begin, as soon as what is under way has ended; nothing else is begun before."""
        return self._words >= WORDS_MAXIMUM or workflow.info().is_continue_as_new_suggested() or self.is_most

    @property
    def is_most(self) -> bool:
        """Whether nothing is waited for any more that the next run can begin anew."""
        return workflow.info().get_current_history_length() >= EVENTS_MOST


class Message:
    """A signal to another workflow."""

    def __init__(self, workflow_id: str, signal: str, *arguments: Any) -> None:
        """Say to whom, and what."""
        self.workflow_id, self.signal, self.arguments = workflow_id, signal, arguments


async def send(message: Message) -> str:
    """Send a message; return why it could not be delivered: there is no such workflow. Empty if it was."""
    handle: workflow.ExternalWorkflowHandle[Any] = workflow.get_external_workflow_handle(message.workflow_id)
    try:
        await handle.signal(message.signal, args=message.arguments)
    except FailureError as error:
        workflow.logger.info("%s was not told: %s", message.workflow_id, error)
        return str(error)
    return ""


class Outbox(Generic[_Order]):
    """What is still to be told to other workflows, in its order; at most so much at once."""

    def __init__(self, message: Callable[[_Order], Message]) -> None:
        """Begin with nothing; `message` says how an order is told."""
        self._message = message
        self._waiting: list[_Order] = []
        self._sending: dict[asyncio.Task[str], _Order] = {}

    def put(self, orders: Iterable[_Order]) -> None:
        """Have something told."""
        self._waiting += orders

    def begin(self) -> None:
        """Send as much as may be under way."""
        count = max(0, AT_ONCE - len(self._sending))
        begun, self._waiting = self._waiting[:count], self._waiting[count:]
        for order in begun:
            self._sending[asyncio.create_task(send(self._message(order)))] = order

    @property
    def is_sending(self) -> bool:
        """Whether something is under way: a new run would tell it once more."""
        return bool(self._sending)

    @property
    def has_ended(self) -> bool:
        """Whether something has been told, or could not be."""
        return any(task.done() for task in self._sending)

    @property
    def waiting(self) -> tuple[_Order, ...]:
        """What was not begun yet: the next run tells it."""
        return tuple(self._waiting)

    def ended(self) -> list[tuple[_Order, str]]:
        """Return what has been told since, each with why it could not be delivered; empty if it was."""
        done = [task for task in self._sending if task.done()]
        return [(self._sending.pop(task), task.result()) for task in done]
