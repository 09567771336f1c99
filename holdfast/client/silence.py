"""No worker answers: since when, and what to do. One rule for every query and update of a workflow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus, WorkflowQueryFailedError
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.activities.entities.executions import sight
from holdfast.codec.codec import is_undecodable
from holdfast.errors import NotAnswering, Undecodable
from holdfast.model import Payload, Time, format_duration
from holdfast.worker.runtime.pollers import how_to_serve, polled

ANSWER_TIMEOUT: Final = timedelta(seconds=3)
"""How long a worker has to answer. Every command reports within 5 s that no answer came."""
BUSY_TIMEOUT: Final = timedelta(seconds=10)
"""How long it has if a worker polls, since that worker may be busy."""
_FAILING: Final = 3
"""The number of tries from which a workflow task is taken to fail permanently, not by chance."""

T = TypeVar("T")


async def answer_of(client: Client, workflow_id: str, ask: Callable[[], Awaitable[T]]) -> T:
    """Return a workflow's answer. If a worker polls, it has 10 s to answer; if none polls, the wait ends after 3 s.

    Raises:
        TimeoutError: if no answer came.
        RPCError: if `ask` raises it.
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
        return error.status is RPCStatusCode.UNIMPLEMENTED  # This server cannot say who polls: a worker may.


class Silence(Payload):
    """States that no worker answers, why, and since when."""

    why: str
    """For example `no worker answers: last poll of the task queue NAME 4m40s ago, at 02:10:10 UTC`."""
    since: Time | None = None
    """The last poll of any worker; None if Temporal knows of none."""
    remedy: str = ""


async def silence_of(
    client: Client,
    description: WorkflowExecutionDescription,
    role: str = "workflows",
    waited: timedelta = ANSWER_TIMEOUT,
) -> Silence:
    """Return why a running workflow does not answer.

    Args:
        client: the Temporal client.
        description: the description of the workflow that did not answer.
        role: the role of the worker that would answer.
        waited: how long the worker had to answer, if one polls.
    """
    begin = how_to_serve(role)
    queue = description.task_queue or names.QUEUE_WORKFLOWS
    try:
        found = await polled(client, queue)
    except RPCError as error:
        return Silence(why=f"no worker answers, and Temporal does not say who polls: {error.message}", remedy=begin)
    if not found.served:
        return Silence(why=f"no worker answers: {found.sentence(datetime.now(UTC))}", since=found.last, remedy=begin)
    if undecodable := await _undecodable(client, description):
        why = f"no worker can answer: {undecodable} ({found.identity} polls)"
        return Silence(why=why, since=found.last, remedy="see docs/how-to/encryption.md")
    tries = description.raw_description.pending_workflow_task.attempt
    if tries >= _FAILING:
        why = f"no worker can answer: its workflow task has been tried {tries} times ({found.identity} polls)"
        return Silence(why=why, since=found.last, remedy="the worker's log says why it fails")
    within, told = format_duration(waited), found.sentence(datetime.now(UTC))
    why = f"no worker answered within {within} ({told}): it has just ended, or is overloaded"
    return Silence(why=why, since=found.last, remedy=f"`holdfast doctor` knows in a minute; if it has ended, {begin}")


async def unserved(client: Client, workflow_id: str, role: str = "workflows") -> Silence | None:
    """Return why a running workflow stands still, and since when; None if a worker polls for it, or it has ended.

    A worker need not answer: what was just begun or asked for is only waited for by others.

    Raises:
        RPCError: if Temporal does not answer, or knows no such workflow.
    """
    description = await client.get_workflow_handle(workflow_id).describe()
    if description.status is not WorkflowExecutionStatus.RUNNING:
        return None
    served = (await polled(client, description.task_queue or names.QUEUE_WORKFLOWS)).served
    return None if served else await silence_of(client, description, role)


async def _undecodable(client: Client, description: WorkflowExecutionDescription) -> str:
    """Return why a worker cannot decode what the workflow consists of; empty if that is not the reason (row X6)."""
    try:
        if found := (await sight(client, description.id)).undecodable:
            return found
        handle = client.get_workflow_handle(description.id, run_id=description.run_id)
        await handle.query(names.QUERY_STATUS, rpc_timeout=ANSWER_TIMEOUT)
    except Undecodable as error:
        return str(error)
    except WorkflowQueryFailedError as error:
        return str(error) if is_undecodable(str(error)) else ""
    except RPCError:
        return ""
    return ""


async def unanswered(client: Client, workflow_id: str, role: str) -> NotAnswering:
    """Return an error that says that no worker answers for a workflow, and since when."""
    try:
        description = await client.get_workflow_handle(workflow_id).describe()
        silence = await silence_of(client, description, role, BUSY_TIMEOUT)
    except RPCError as error:
        return NotAnswering(f"{workflow_id} does not answer: {error.message}")
    return NotAnswering(f"{workflow_id}: {silence.why}; nothing is decided there until one does: {silence.remedy}")
