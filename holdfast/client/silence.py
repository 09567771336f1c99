"""Nobody answers: since when, and what can be done. One rule for whatever asks a workflow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.errors import NotAnswering
from holdfast.model import Payload, Time, format_duration
from holdfast.worker.runtime.pollers import polled

ANSWER_TIMEOUT: Final = timedelta(seconds=3)
"""How long a worker has for an answer. Every command says within 5 s that none came."""
BUSY_TIMEOUT: Final = timedelta(seconds=10)
"""How long it has if a worker polls: it may be busy."""
_FAILING: Final = 3
"""So many tries of one workflow task, and it does not fail by chance."""

T = TypeVar("T")


async def answer_of(client: Client, workflow_id: str, ask: Callable[[], Awaitable[T]]) -> T:
    """Return what a workflow answers. A worker that polls has 10 s for it; where none polls, 3 s are enough.

    Raises:
        TimeoutError: if no answer came.
        RPCError: as `ask` does.
    """
    asking = asyncio.ensure_future(ask())
    try:
        done, _ = await asyncio.wait({asking}, timeout=ANSWER_TIMEOUT.total_seconds())
        if not done and await _is_polled(client, workflow_id):
            await asyncio.wait({asking}, timeout=(BUSY_TIMEOUT - ANSWER_TIMEOUT).total_seconds())
        if not asking.done():
            raise TimeoutError
        return asking.result()
    finally:
        asking.cancel()


async def _is_polled(client: Client, workflow_id: str) -> bool:
    try:
        description = await client.get_workflow_handle(workflow_id).describe()
        return (await polled(client, description.task_queue or names.QUEUE_WORKFLOWS)).served
    except RPCError as error:
        return error.status is RPCStatusCode.UNIMPLEMENTED  # A server that cannot say who polls: somebody may.


class Silence(Payload):
    """That no worker answers."""

    why: str
    """Says since when: `no worker answers: last poll of the task queue NAME 4m40s ago, at 02:10:10 UTC`."""
    since: Time | None = None
    """The last poll of any worker; None where Temporal remembers none."""
    remedy: str = ""


async def silence_of(
    client: Client,
    description: WorkflowExecutionDescription,
    role: str = "workflows",
    waited: timedelta = ANSWER_TIMEOUT,
) -> Silence:
    """Return why a workflow that runs does not answer.

    Args:
        client: of Temporal.
        description: of the workflow that was asked and did not answer.
        role: of the worker that would answer.
        waited: how long it had, if a worker polls.
    """
    remedy = f"start one: holdfast worker --roles {role}"
    queue = description.task_queue or names.QUEUE_WORKFLOWS
    try:
        found = await polled(client, queue)
    except RPCError as error:
        return Silence(why=f"no worker answers, and Temporal does not say who polls: {error.message}", remedy=remedy)
    if not found.served:
        return Silence(why=f"no worker answers: {found.sentence(datetime.now(UTC))}", since=found.last, remedy=remedy)
    tries = description.raw_description.pending_workflow_task.attempt
    if tries >= _FAILING:
        why = f"no worker can answer: its workflow task has been tried {tries} times ({found.identity} polls)"
        return Silence(why=why, since=found.last, remedy="the worker's log says why it fails")
    within, told = format_duration(waited), found.sentence(datetime.now(UTC))
    why = f"no worker answered within {within} ({told}): it has just ended, or is overloaded"
    return Silence(why=why, since=found.last, remedy=f"holdfast doctor knows in a minute; if it has ended, {remedy}")


async def unanswered(client: Client, workflow_id: str, role: str) -> NotAnswering:
    """Return the error that says that no worker answers for a workflow, and since when."""
    try:
        description = await client.get_workflow_handle(workflow_id).describe()
        silence = await silence_of(client, description, role, BUSY_TIMEOUT)
    except RPCError as error:
        return NotAnswering(f"{workflow_id} does not answer: {error.message}")
    return NotAnswering(f"{workflow_id}: {silence.why}; nothing is decided there until one does: {silence.remedy}")
