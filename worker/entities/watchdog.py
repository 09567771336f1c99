"""The watchdog: checks a cluster's entities periodically, and restarts those that are missing or stuck (D2).

Each worker that serves the watch of a cluster runs one. Watchdogs need no coordination: Temporal has one run of an id,
and a run is terminated by its own run id, so two watchdogs have the same effect as one.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import structlog
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.activities.entities.dependents import depended_on
from holdfast.activities.entities.executions import sight
from holdfast.activities.entities.last_documents import NotNow
from holdfast.activities.kube.client import Kube, KubeError
from holdfast.policy.entities.health import (
    ENTITIES,
    MARK,
    Act,
    Entity,
    Sight,
    Source,
    Verdict,
    first_of,
    is_failing,
    is_needed,
    judge,
    patience_with,
    reason_of,
)
from holdfast.worker.entities.begin import begin_monitor, begin_provisioner, begin_watch, provisioner_state
from holdfast.worker.entities.rebuild import PREPARE, Start
from holdfast.worker.runtime.metrics import Metrics
from holdfast.worker.runtime.settings import Settings

_AT_ONCE: Final = 8
"""Entities that are checked at the same time."""
_LEFT_SECONDS: Final = 30.0
"""Seconds for which the finding that nobody needs a missing entity is cached."""
_STAYS_SECONDS: Final = 300.0
"""Seconds for which the finding that an entity was meant to end is cached: it takes reading its whole histories."""

Log: Any = structlog.stdlib.get_logger("holdfast.worker.entities.watchdog")


@dataclass(frozen=True)
class Entities:
    """The cluster whose entities are watched over."""

    client: Client
    settings: Settings
    kube: Kube
    uid: str
    installation: str


class Watchdog:
    """Watches over the entities of one cluster."""

    def __init__(self, place: Entities, metrics: Metrics) -> None:
        """Prepare, without checking anything yet."""
        self._place = place
        self._metrics = metrics
        self._says: dict[str, str] = {}
        """The last log message of each entity."""
        self._left: dict[str, float] = {}
        """Ended runs that nobody needs, each with the time until which that finding holds."""
        self._first: dict[str, Sight] = {}
        """The first sight of each failing entity, taken while codecs worked."""
        self._ends: dict[str, int] = {}
        """How often each entity was terminated."""

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await asyncio.sleep(self._place.settings.watchdog_every.total_seconds())
            try:
                await self.look()
            except (RPCError, TimeoutError) as error:
                Log.warning("entities were not looked at: tried again", why=str(error) or type(error).__name__)
            except Exception:  # An error here must not stop the cluster's watchdog.
                Log.exception("entities were not looked at: tried again")

    async def look(self) -> None:
        """Check all entities once, and act on the verdicts.

        Raises:
            RPCError: if Temporal does not answer.
        """
        turns = asyncio.Semaphore(_AT_ONCE)
        healthy = {entity.type: True for entity in ENTITIES}

        async def look_at(workflow_id: str, entity: Entity) -> None:
            async with turns:
                verdict = await self._looked(workflow_id, entity)
            healthy[entity.type] = healthy[entity.type] and verdict.healthy

        there = await self._entities()
        for memory in (self._first, self._ends):
            for gone in memory.keys() - there.keys():
                del memory[gone]
        await asyncio.gather(*(look_at(*each) for each in there.items()))
        for type_, well in healthy.items():
            self._metrics.entities.labels(type_).set(int(well))

    # The entities.

    async def _entities(self) -> dict[str, Entity]:
        """Return the entities that exist or should exist, by the id of their workflow."""
        found = dict[str, Entity]()
        for entity in ENTITIES:
            if entity.source is Source.DOCUMENT:
                found |= dict.fromkeys(await self._listed(entity), entity)
            elif _is_wanted(entity, self._place.settings):
                found[entity.prefix(self._place.settings.cluster)] = entity
        return found

    async def _listed(self, entity: Entity) -> list[str]:
        """Return the ids of running entities, and of those that did not end by themselves."""
        query = entity.query_watched(self._place.settings.cluster)
        at, found = time.monotonic(), dict[str, bool]()
        self._left = {run: until for run, until in self._left.items() if until > at}
        async for execution in self._place.client.list_workflows(query):
            runs = execution.status is WorkflowExecutionStatus.RUNNING
            if runs or execution.run_id not in self._left:
                found[execution.id] = True
        return list(found)

    # One entity.

    async def _looked(self, workflow_id: str, entity: Entity) -> Verdict:
        place = self._place
        try:
            seen = await sight(place.client, workflow_id)
            patience = patience_with(place.settings.watchdog_patience, self._ends.get(workflow_id, 0))
            verdict = judge(entity, seen, datetime.now(UTC), patience, await self._failing(seen))
            away = verdict.act is Act.BEGIN and entity.source is Source.DOCUMENT
            if away and not is_needed(seen, await depended_on(place.client, entity.type, workflow_id)):
                self._left[seen.run_id] = time.monotonic() + _LEFT_SECONDS
                return Verdict(healthy=True)
            self._log(workflow_id, verdict)
            if verdict.act is not Act.NOTHING and not await self._act(workflow_id, entity, seen, verdict):
                return Verdict(healthy=True)
        except NotNow as why:
            Log.warning("an entity cannot be begun anew yet", workflow_id=workflow_id, why=str(why))
            return Verdict(healthy=False)
        except (RPCError, KubeError) as error:
            Log.warning("an entity was not looked at: tried again", workflow_id=workflow_id, why=str(error))
            return Verdict(healthy=False)
        except (
            Exception
        ):  # An error of one entity, such as a codec that does not answer, must not stop the check of others.
            Log.exception("an entity was not looked at: tried again", workflow_id=workflow_id)
            return Verdict(healthy=False)
        return verdict

    def _log(self, workflow_id: str, verdict: Verdict) -> None:
        if self._says.get(workflow_id, "") != verdict.says:
            self._says[workflow_id] = verdict.says
            if verdict.says:
                Log.warning("an entity is not healthy", workflow_id=workflow_id, why=verdict.says)
        if not verdict.says:
            self._says.pop(workflow_id, None)

    async def _failing(self, seen: Sight) -> Sight | None:
        """Return the first sight of an entity's present failure; None if it is not failing.

        Raises:
            Exception: any error of a codec. While nothing can be encoded and decoded, no entity is at fault: failures
                seen meanwhile are forgotten.
        """
        first = self._first.pop(seen.workflow_id, None)
        if not is_failing(seen):
            return None
        client = self._place.client
        await client.data_converter.decode(await client.data_converter.encode([MARK]))
        self._first[seen.workflow_id] = first_of(first, seen)
        return self._first[seen.workflow_id]

    async def _act(self, workflow_id: str, entity: Entity, seen: Sight, verdict: Verdict) -> bool:
        """Terminate or start an entity; return whether it should exist."""
        client = self._place.client
        start = await self._prepared(workflow_id, entity)
        if verdict.act is Act.END:
            try:
                await client.get_workflow_handle(workflow_id, run_id=seen.run_id).terminate(reason=reason_of(verdict))
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
                return True  # Another worker terminated it, and starts it anew.
            self._ends[workflow_id] = self._ends.get(workflow_id, 0) + 1
        if start is None:
            self._left[seen.run_id] = time.monotonic() + _STAYS_SECONDS
            return False
        await start()
        self._metrics.entities_begun.labels(entity.type).inc()
        Log.warning("an entity was begun anew", workflow_id=workflow_id, ended=seen.run_id, why=verdict.says)
        return True

    async def _prepared(self, workflow_id: str, entity: Entity) -> Start | None:
        """Return the function that starts an entity anew; None if it was about to end, and stays ended."""
        place = self._place
        client, settings, uid = place.client, place.settings, place.uid
        match entity.type:
            case names.CLUSTER_WATCH_WORKFLOW:
                return partial(begin_watch, client, settings, uid, place.installation)
            case names.NODE_MONITOR_WORKFLOW:
                return partial(begin_monitor, client, settings, uid)
            case names.PROVISIONER_WORKFLOW:
                state = await provisioner_state(place.kube, settings.cluster, uid, place.installation)
                return partial(begin_provisioner, client, settings, uid, state)
            case _:
                return await PREPARE[entity.type](client, workflow_id)


def _is_wanted(entity: Entity, settings: Settings) -> bool:
    """Whether this worker's settings want an entity that exists once in a cluster."""
    match entity.type:
        case names.NODE_MONITOR_WORKFLOW:
            return settings.node_monitor
        case names.PROVISIONER_WORKFLOW:
            return bool(settings.provisioner_url)
        case _:
            return True
