"""Workflow updates that an activity requests; its cancellation stays a cancellation."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio.client import WorkflowHandle, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.types import AnyType


async def update(
    handle: WorkflowHandle[Any, Any],
    name: str,
    given: object,
    *,
    returns: type[AnyType],
    seconds: float | None = None,
    update_id: str | None = None,
) -> AnyType:
    """Execute an update on a workflow, and return its result.

    The SDK raises the same error for a cancelled task as for a call that timed out, so a caller that retries after a
    timeout would never end. Here the first is a `CancelledError`, and the second a `TimeoutError`.

    Args:
        handle: the workflow.
        name: the update's name.
        given: its argument.
        returns: the type of its result.
        seconds: time limit, after which it is unknown whether the workflow has the update; None for no limit.
        update_id: the id under which it is executed once, however often it is requested.

    Raises:
        CancelledError: if the calling task is cancelled.
        RPCError: if Temporal does not answer, or knows of no such workflow.
        TimeoutError: if there was no result in time.
        WorkflowUpdateFailedError: if the workflow refuses it.
    """
    typed: Any = handle  # Its overloads for updates are only partly typed.
    try:
        async with asyncio.timeout(seconds):
            return await typed.execute_update(name, given, id=update_id, result_type=returns)
    except WorkflowUpdateRPCTimeoutOrCancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError from error
        raise TimeoutError(f"no answer to the update {name}") from error
