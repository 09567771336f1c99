"""The health of the entities that workloads depend on, for `explain` and for `doctor` (row D2)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.common import SearchAttributeKey
from temporalio.service import RPCError

from holdfast import names
from holdfast.activities.entities.executions import sight
from holdfast.policy.entities.health import (
    ENTITIES,
    Entity,
    Execution,
    Source,
    Verdict,
    concerns,
    judge,
    needs_of,
    sentence,
)

_QUEUE: Final = SearchAttributeKey.for_keyword(names.SA_QUEUE)
_NOW: Final = timedelta(0)
_AT_ONCE: Final = 8


@dataclass(frozen=True)
class EntityStanding:
    """The health of one entity."""

    entity: Entity
    workflow_id: str
    verdict: Verdict
    execution: Execution

    @property
    def sentence(self) -> str:
        """What is wrong and what that means; empty if the entity is healthy."""
        return "" if self.verdict.healthy else sentence(self.entity, self.workflow_id, self.verdict)


async def standing(client: Client, entity: Entity, workflow_id: str) -> EntityStanding:
    """Return the health of an entity.

    Raises:
        RPCError: if Temporal does not answer.
    """
    seen = await sight(client, workflow_id)
    return EntityStanding(entity, workflow_id, judge(entity, seen, datetime.now(UTC), _NOW), seen.execution)


async def unhealthy(
    client: Client, workload: WorkflowExecutionDescription, *, gang: bool
) -> tuple[EntityStanding, ...]:
    """Return the unhealthy entities among those that a workload depends on."""
    memo: dict[str, Any] = dict(await workload.memo())
    queue = workload.typed_search_attributes.get(_QUEUE) if memo.get(names.MEMO_QUEUED) else ""
    graph, saves = str(memo.get(names.MEMO_GRAPH, "")), bool(memo.get(names.MEMO_SAVES))
    needs = needs_of(workload.id, queue=queue or "", graph=graph, gang=gang, saves=saves)
    try:
        found = await asyncio.gather(*(standing(client, *need) for need in needs))
    except RPCError:
        return ()  # `explain` already says that Temporal does not answer.
    return tuple(each for each in found if not each.verdict.healthy and concerns(each.entity, each.execution))


async def of_cluster(client: Client, cluster: str) -> list[EntityStanding]:
    """Return the health of all entities of a cluster, except those that are away and that nobody needs.

    Raises:
        RPCError: if Temporal does not answer.
    """
    turns, wanted = asyncio.Semaphore(_AT_ONCE), list[tuple[Entity, str]]()
    for entity in ENTITIES:
        if entity.source is Source.SETTINGS:
            wanted.append((entity, entity.prefix(cluster)))
            continue
        listed = {execution.id async for execution in client.list_workflows(entity.query_watched(cluster))}
        wanted += [(entity, workflow_id) for workflow_id in sorted(listed)]

    async def look_at(entity: Entity, workflow_id: str) -> EntityStanding | None:
        async with turns:
            found = await standing(client, entity, workflow_id)
            if found.execution is Execution.RUNNING:
                return found
            if entity.source is Source.SETTINGS:
                return found if found.execution is not Execution.ABSENT else None
            from holdfast.activities.entities.dependents import depended_on

            away = found.execution is not Execution.ABSENT and not found.verdict.healthy
            return found if away and await depended_on(client, entity.type, workflow_id) else None

    looked = await asyncio.gather(*(look_at(*each) for each in wanted))
    return [found for found in looked if found is not None]
