"""What the checkpoint broker sees and says: workloads, by Temporal's list and by their own word (row L11)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from temporalio import activity
from temporalio.client import Client, WorkflowQueryFailedError, WorkflowUpdateFailedError
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.activities.broker_contract import AskDone, AskInput, WeighInput
from holdfast.activities.data import Data
from holdfast.model import Phase, Status
from holdfast.model.broker import Candidate, Weighed
from holdfast.model.later import key_of
from holdfast.policy.broker import candidate, is_saving, weighed

_PHASE: Final = SearchAttributeKey.for_keyword(names.SA_PHASE)
_AT_ONCE: Final = 8
"""How many workloads are asked how they stand at the same time: each may have to be replayed for it."""
_AWAY_MAXIMUM: Final = 500
_DEADLINE: Final = timedelta(seconds=10)


async def weigh(client: Client, given: WeighInput, data: Data | None = None) -> Weighed:
    """Look at all that run and can save their state, and weigh them (`policy.broker`); at a store, too.

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
        memo: dict[str, Any] = dict(await execution.memo())
        if not memo.get(names.MEMO_SAVES):
            continue
        if execution.typed_search_attributes.get(_PHASE) == Phase.CHECKPOINTING:
            saving += 1
        elif given.later.get(key_of(execution.id), now) > now:
            known += 1
        else:
            wanted.append(execution.id)
    turns = asyncio.Semaphore(_AT_ONCE)
    statuses = await asyncio.gather(*(_status(client, one, turns) for one in wanted))
    found = list[Candidate]()
    for workflow_id, status in zip(wanted, statuses, strict=True):
        if status is None:
            unheard += 1
        elif is_saving(status):
            saving += 1
        elif (one := candidate(workflow_id, status)) is not None:
            found.append(one)
    seen = weighed(given.broker, found, saving, unheard, now)
    away = await data.away() if data is not None else ""
    return seen.model_copy(update={"running": seen.running + known, "away": away[:_AWAY_MAXIMUM]})


async def _status(client: Client, workflow_id: str, turns: asyncio.Semaphore) -> Status | None:
    async with turns:
        activity.heartbeat()
        handle: Any = client.get_workflow_handle(workflow_id)
        try:
            found = await handle.query(names.QUERY_STATUS, result_type=Status, rpc_timeout=_DEADLINE)
        except (RPCError, WorkflowQueryFailedError):
            return None  # It is looked at in the next cycle.
        return found if isinstance(found, Status) else None


async def ask(client: Client, given: AskInput) -> AskDone:
    """Ask a workload to save its state and to run on; one that takes no request now says why.

    Raises:
        RPCError: if Temporal does not answer.
    """
    handle: Any = client.get_workflow_handle(given.workload)
    # Whoever asks twice for one cycle has asked once.
    update_id = f"{activity.info().workflow_run_id}-{activity.info().activity_id}"
    try:
        number = await handle.execute_update(
            names.UPDATE_CHECKPOINT, {"note": given.note}, id=update_id, result_type=int, rpc_timeout=_DEADLINE
        )
    except WorkflowUpdateFailedError as error:
        return AskDone(why=str(error.cause))
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return AskDone(why="it has ended")
    return AskDone(number=int(number))
