"""The checkpoint broker's reads of workloads, from Temporal's list and their own status, and its requests (row L11)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pydantic import ValidationError
from temporalio import activity
from temporalio.client import Client, WorkflowQueryFailedError, WorkflowUpdateFailedError
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.activities.data.settings import Data
from holdfast.activities.entities.executions import memo_of
from holdfast.activities.site.updates import update
from holdfast.model import Phase, Status
from holdfast.model.calls.broker import AskDone, AskInput, WeighInput
from holdfast.model.entities.broker import Broker, Candidate, Weighed
from holdfast.policy.entities.broker import candidate, is_saving, waited, weighed

_PHASE: Final = SearchAttributeKey.for_keyword(names.SA_PHASE)
_AT_ONCE: Final = 8
"""Workloads queried at the same time: a worker may have to replay each of them for the query."""
TURN: Final = 0.25
"""Seconds to wait for an answer before the next workload is queried; the answer may still come by its deadline."""
BUDGET: Final = 240.0
"""Seconds after which a look ends with the answers it has, well before the activity's timeout."""
_AWAY_MAXIMUM: Final = 500
_DEADLINE: Final = timedelta(seconds=10)


async def weigh(client: Client, given: WeighInput, data: Data | None = None) -> Weighed:
    """Weigh all running workloads that can save their state (`policy.broker`); check the store too.

    The list tells when each workload's checkpoint is due, by the status in its memo. Only those that are due are
    queried, since their status may have changed. A workload that does not answer delays no other: the look ends after
    `BUDGET` at the latest, with the answers that it has (row D8). The order is random, so that every workload is
    reached sooner or later, even if many do not answer. One whose memo cannot be read counts as one that does not.

    Raises:
        RPCError: if Temporal does not answer.
    """
    query = (
        f"WorkflowType = '{names.WORKLOAD_WORKFLOW}' AND ExecutionStatus = 'Running' "
        f"AND {names.SA_CLUSTER} = '{given.broker.cluster}' AND {names.SA_PHASE} IN ('Running', 'Checkpointing')"
    )
    now, wanted, known, saving, unheard = datetime.now(UTC), list[str](), 0, 0, 0
    async for execution in client.list_workflows(query):
        activity.heartbeat()
        memo = await memo_of(execution)
        if memo is None:
            unheard += 1
            continue
        if not memo.get(names.MEMO_SAVES):
            continue
        if execution.typed_search_attributes.get(_PHASE) == Phase.CHECKPOINTING:
            saving += 1
        elif given.refused.get(execution.id, now) > now or not _may_be_due(given.broker, execution.id, memo, now):
            known += 1
        else:
            wanted.append(execution.id)
    random.shuffle(wanted)
    statuses = await _answers(client, wanted)
    found = list[Candidate]()
    for workflow_id in wanted:
        status = statuses.get(workflow_id)
        if status is None:
            unheard += 1
        elif is_saving(status):
            saving += 1
        elif (one := candidate(workflow_id, status)) is not None:
            found.append(one)
    seen = weighed(given.broker, found, saving, unheard, now)
    away = await data.away() if data is not None else ""
    return seen.model_copy(update={"running": seen.running + known, "away": away[:_AWAY_MAXIMUM]})


def _may_be_due(broker: Broker, workflow_id: str, memo: Mapping[str, Any], now: datetime) -> bool:
    """Whether a workload's checkpoint is due by the status in its memo, or its memo does not tell."""
    try:
        one = candidate(workflow_id, Status.model_validate(memo[names.MEMO_STATUS]))
    except (KeyError, ValidationError):
        return True
    return one is None or waited(broker, one, now) >= 1


async def _answers(client: Client, wanted: Iterable[str]) -> dict[str, Status]:
    """Query workloads for their status; return the answers received within the budget, by workflow id."""
    loop, found, late = asyncio.get_running_loop(), dict[str, Status](), set[asyncio.Task[None]]()
    end, left = loop.time() + BUDGET, iter(wanted)

    async def query(workflow_id: str) -> None:
        status = await _status(client, workflow_id)
        if status is not None:
            found[workflow_id] = status

    async def take_turns() -> None:
        for workflow_id in left:
            if loop.time() >= end:
                return
            activity.heartbeat()
            task = asyncio.create_task(query(workflow_id))
            late.add(task)
            task.add_done_callback(late.discard)
            await asyncio.wait({task}, timeout=TURN)

    try:
        await asyncio.gather(*(take_turns() for _ in range(_AT_ONCE)))
        activity.heartbeat()
        if late:
            await asyncio.wait(set(late), timeout=_DEADLINE.total_seconds())
    finally:
        for task in late:
            task.cancel()
    return found


async def _status(client: Client, workflow_id: str) -> Status | None:
    handle: Any = client.get_workflow_handle(workflow_id)
    try:
        found = await handle.query(names.QUERY_STATUS, result_type=Status, rpc_timeout=_DEADLINE)
    except (RPCError, WorkflowQueryFailedError):
        return None  # The next cycle queries it again.
    return found if isinstance(found, Status) else None


async def ask(client: Client, given: AskInput) -> AskDone:
    """Ask a workload to save its state and to run on; the result says why if it accepts no request now.

    Raises:
        RPCError: if Temporal does not answer.
        TimeoutError: if the workload does not answer in time.
    """
    handle = client.get_workflow_handle(given.workload)
    # All tries of this activity have the same update id, so that they make one request.
    update_id = f"{activity.info().workflow_run_id}-{activity.info().activity_id}"
    try:
        number = await update(
            handle,
            names.UPDATE_CHECKPOINT,
            {"note": given.note},
            returns=int,
            seconds=_DEADLINE.total_seconds(),
            update_id=update_id,
        )
    except WorkflowUpdateFailedError as error:
        return AskDone(why=str(error.cause))
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return AskDone(why="it has ended")
    return AskDone(number=int(number))
