"""The simulated cluster behind the activity contract, on the time of a Temporal server that skips it.

Operations take no time here, since that server's clock stands still while an activity runs: a pod is gone as soon as it
is deleted. So a script in which an operation itself must wait cannot be played here (`plays`).
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError
from temporalio.testing import WorkflowEnvironment

from holdfast import names
from holdfast.activities.contract import (
    Created,
    CreateInput,
    ObserveInput,
    Prepared,
    PrepareInput,
    Removed,
    RemoveInput,
    ReportInput,
)
from holdfast.model import ObjectRef, Observation, Status, SuspendMode, format_duration
from holdfast.policy.edit import edit
from holdfast.policy.walltime import WalltimeExtension
from holdfast.simulation.asked import request
from holdfast.simulation.clock import Clock
from holdfast.simulation.happen import happen
from holdfast.simulation.happenings import Asked, Extend, Requeue
from holdfast.simulation.objects import UID
from holdfast.simulation.run import meaning
from holdfast.simulation.script import Event, names_of
from holdfast.simulation.world import World
from tests.simulation.cases import Case, in_store

STEP = timedelta(seconds=5)
SETTLES = 400
"""Looks at the workflow until it has taken in what came."""


def plays(case: Case) -> bool:
    """Whether no operation of a script has to wait for something, or is one that is not played here."""
    spec = case.workload()
    stays = spec.policy.deletion.suspend is SuspendMode.IN_PLACE
    if spec.checkpoint is not None or spec.probe is not None or stays:
        return False
    return all(event.blind is None and event.stuck is None and event.refuse is None for event in case.script.events)


@dataclass
class VirtualCluster:
    """The activities over a simulated world."""

    case: Case
    world: World = field(init=False)

    def __post_init__(self) -> None:
        latencies = edit(self.case.script.pods, stop=timedelta(0))
        self.world = World(self.case.workload(), Clock(), latencies, self.case.script.nodes)

    def now(self, when: datetime) -> None:
        """Let the cluster go on until a time."""
        clock = self.world.clock
        while clock.next is not None and clock.next <= when:
            clock.now = max(clock.now, clock.next)
            while (action := clock.take()) is not None:
                action()
        clock.now = max(clock.now, when)

    @activity.defn(name=names.ACTIVITY_PREPARE)
    async def prepare(self, payload: PrepareInput) -> Prepared:
        self.now(activity.info().scheduled_time)
        owner = self.world.own(payload.attempt)
        return Prepared(cluster_uid="kube", anchor_uid="anchor", owner_uid=owner.uid)

    @activity.defn(name=names.ACTIVITY_CREATE)
    async def create(self, payload: CreateInput) -> Created:
        self.now(activity.info().scheduled_time)
        avoided = (payload.nodes_excluded, payload.nodes_disliked)
        made = [
            one
            for component in payload.components
            for one in self.world.create(component, payload.attempt, 0, *avoided)
        ]
        self.world.submitted(payload.attempt)
        return Created(
            objects=tuple(
                ObjectRef(api_version=one.plan.api_version, kind=one.plan.kind, name=one.name, uid=one.uid)
                for one in made
            )
        )

    @activity.defn(name=names.ACTIVITY_OBSERVE)
    async def observe(self, payload: ObserveInput) -> Observation:
        self.now(activity.info().scheduled_time)
        return self.world.observe(payload.attempt, live=True)

    @activity.defn(name=names.ACTIVITY_REMOVE)
    async def remove(self, payload: RemoveInput) -> Removed:
        self.now(activity.info().scheduled_time)
        self.world.delete_attempt(payload.attempt)
        self.now(self.world.clock.now)
        assert not self.world.remnants(payload.attempt)[1]
        return Removed(gone=True)

    @activity.defn(name=names.ACTIVITY_REPORT)
    async def report(self, payload: ReportInput) -> None:
        self.now(activity.info().scheduled_time)

    def activities(self) -> list[Any]:
        return [self.prepare, self.create, self.observe, self.remove, self.report]


@dataclass
class Player:
    """A script played step by step, with time skipped in between."""

    env: WorkflowEnvironment
    handle: WorkflowHandle[Any, Status]
    cluster: VirtualCluster
    begun: datetime
    told: Observation | None = None
    done: set[tuple[int, int, int]] = field(default_factory=set[tuple[int, int, int]])

    async def play(self) -> Status:
        """Skip time until the workload's life has come to where nothing but its own deadlines is left."""
        status = await self.settled()
        while not status.phase.ended:
            await self.env.sleep(STEP)
            self.cluster.now(await self.env.get_current_time())
            await self.watch()
            status = await self.settled()
            now = self.cluster.world.clock.now
            for due, key, event in in_store(self.cluster.case.script, status.causes, self.begun):
                if due <= now and key not in self.done:
                    self.done.add(key)
                    await self.happens(event)
                    await self.watch()
                    status = await self.settled()
        return status

    async def happens(self, event: Event) -> None:
        name, what = event.what
        if isinstance(what, Extend):
            change = WalltimeExtension(by=format_duration(what.by), note=what.note)
            with contextlib.suppress(WorkflowUpdateFailedError):  # A refusal is part of the script.
                await self.handle.execute_update(names.UPDATE_EXTEND, change)
            return
        if isinstance(what, Requeue):
            requeues = (await self.settled()).requeues
            await self.handle.signal(names.SIGNAL_REQUEUE, request(what, requeues))
            return
        if isinstance(what, Asked):
            await self.handle.signal(getattr(names, f"SIGNAL_{name.upper()}"), what.note)
            return
        known = names_of(self.cluster.world.spec)
        happen(self.cluster.world, what, lambda given: known[given] if given is not None else None)

    async def watch(self) -> None:
        """Signal what has changed, as the watch does."""
        world = self.cluster.world
        live = [owner for owner in world.owners.values() if owner.submitted and owner.deleting is None]
        if not live or not world.changed:
            return
        world.changed = False
        seen = world.observe(max(owner.attempt for owner in live), live=False)
        if self.told is None or meaning(seen) != meaning(self.told):
            self.told = seen
            await self.handle.signal(names.SIGNAL_OBSERVE, seen)

    async def settled(self) -> Status:
        """Return the status once the workflow has nothing under way."""
        for _ in range(SETTLES):
            raw = (await self.handle.describe()).raw_description
            if not raw.pending_activities and not raw.HasField("pending_workflow_task"):
                return await self.handle.query(names.QUERY_STATUS, result_type=Status)
            await asyncio.sleep(0.01)
        raise AssertionError("the workflow does not come to rest")


__all__ = ["UID", "Player", "VirtualCluster", "plays"]
