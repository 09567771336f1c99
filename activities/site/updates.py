"""Updates of a workflow, asked for by an activity: a cancellation stays one."""

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
    """Have a workflow do an update, and return its result.

    The SDK tells a task that is cancelled meanwhile the same as one whose call timed out, and who tries again after a
    timeout would never end; here the one is a `CancelledError`, the other a `TimeoutError`.

    Args:
        handle: the workflow.
        name: the update's.
        given: its argument.
        returns: what its result is read as.
        seconds: until it is given up, which says nothing of whether the workflow has it; None: never.
        update_id: under which it is done once, however often it is asked for.

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
