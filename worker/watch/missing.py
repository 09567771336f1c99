"""Finds workloads of which Temporal and the cluster say opposite things when a watch begins: nothing else would."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import structlog
from temporalio.client import Client, WorkflowExecution
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError

from holdfast import names
from holdfast.activities.facts.workload_key import WorkloadKey
from holdfast.model import Observation, Phase
from holdfast.worker.watch.cache import Cache

PATIENCE: Final = 3.0
"""Seconds to wait before the comparison: Temporal's list of workloads may be behind the cluster, or ahead of it."""
AGAIN: Final = 10.0
_DEADLINE: Final = timedelta(seconds=10)
_ATTEMPT: Final = SearchAttributeKey.for_int(names.SA_ATTEMPT)
_PHASE: Final = SearchAttributeKey.for_keyword(names.SA_PHASE)

Log: Any = structlog.stdlib.get_logger("holdfast.watch")


class Missing:
    """Asks Temporal once, when a watch begins.

    Objects deleted while nobody watched left no trace in the cluster. Objects that were restored in that time may look
    as they did when they were last told.
    """

    def __init__(
        self,
        client: Client,
        cluster: str,
        shards: tuple[int, int],
        cache: Cache,
        retell: Callable[[WorkloadKey], None],
    ) -> None:
        """Prepare.

        Args:
            client: to list workloads and signal them.
            cluster: the cluster's name in workflow ids.
            shards: first and last shard, inclusive.
            cache: the objects seen.
            retell: has a workload told again, whatever was told of it before.
        """
        self._client = client
        self._cluster = cluster
        self._shards = shards
        self._cache = cache
        self._retell = retell

    async def tell(self, version: Callable[[], int]) -> int:
        """Signal each workload that is running but absent, so that it looks for itself; return their number.

        One that is suspended and has a living attempt, or runs and has an earlier one, is told what is there.
        """
        while True:
            try:
                await asyncio.sleep(PATIENCE)
                return await self._tell(version)
            except RPCError as error:
                Log.warning("Temporal cannot list workloads: asked again", why=error.message)
                await asyncio.sleep(AGAIN)

    async def _tell(self, version: Callable[[], int]) -> int:
        cluster = self._cluster.replace("\\", "\\\\").replace("'", "\\'")
        query = (
            f"WorkflowType = '{names.WORKLOAD_WORKFLOW}' AND ExecutionStatus = 'Running' "
            f"AND {names.SA_CLUSTER} = '{cluster}' "
            f"AND {names.SA_PHASE} IN ('{Phase.RUNNING.value}', '{Phase.SUSPENDED.value}')"
        )
        told = 0
        async for execution in self._client.list_workflows(query, rpc_timeout=_DEADLINE):
            uid, attempt = await _uid(execution), execution.typed_search_attributes.get(_ATTEMPT)
            if not uid or not attempt or not self._shards[0] <= names.shard_of(uid) <= self._shards[1]:
                continue
            try:
                _, namespace, _ = names.parse_workflow_id(execution.id)
            except ValueError:
                continue  # Somebody has begun it by hand, under an id that is no workload's.
            workload = WorkloadKey(namespace, uid)
            newest = self._cache.newest(workload)
            suspended = execution.typed_search_attributes.get(_PHASE) == Phase.SUSPENDED.value
            if newest is not None and not newest.facts.deleting and (suspended or newest.number < attempt):
                self._retell(workload)
            if newest is not None or suspended:
                continue
            seen = Observation(
                workload_uid=uid,
                attempt=attempt,
                owner_uid="",
                at=datetime.now(UTC),
                revision=version(),
                owner_found=False,
            )
            handle = self._client.get_workflow_handle(execution.id, run_id=execution.run_id)
            try:
                await handle.signal(names.SIGNAL_OBSERVE, seen, rpc_timeout=_DEADLINE)
            except RPCError as error:
                Log.info("a workload that is missing cannot be told", workflow_id=execution.id, why=error.message)
                continue
            Log.warning("said to run, and nothing of it is there", workflow_id=execution.id, attempt=attempt)
            told += 1
        return told


async def _uid(execution: WorkflowExecution) -> str:
    """Return a workload's uid, empty if it cannot be read."""
    try:
        memo: Mapping[str, Any] = await execution.memo()
    except Exception as error:  # A missing codec can raise any error.
        Log.warning("a memo cannot be read", workflow_id=execution.id, why=repr(error)[:200])
        return ""
    return str(memo.get(names.MEMO_UID) or execution.raw_info.first_run_id or "")
