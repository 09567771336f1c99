"""The simulated cluster behind the activity contract, on the time of a Temporal server that skips it.

That server's clock stands still while an activity runs. So an operation that waits fails, to be tried again a moment
later: between its tries time is skipped. A pod is gone as soon as it is deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment

from holdfast import names
from holdfast.model import ObjectRef, Observation, OperationKind, Status, format_duration
from holdfast.model.calls.barrier import BarrierInput, Lifted
from holdfast.model.calls.cluster import (
    Checkpointed,
    CheckpointInput,
    Created,
    CreateInput,
    ObserveInput,
    Parked,
    ParkInput,
    Prepared,
    PrepareInput,
    Probed,
    ProbeInput,
    Removed,
    RemoveInput,
    ReportInput,
    Reset,
    ResetInput,
    Unparked,
    UnparkInput,
)
from holdfast.policy.loop.promise import is_repeated
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import ProbeEnded
from holdfast.policy.verdicts.walltime import WalltimeExtension
from holdfast.simulation.cluster.objects import UID
from holdfast.simulation.cluster.probing import Asking
from holdfast.simulation.cluster.saving import saved
from holdfast.simulation.cluster.views import observe, remnants
from holdfast.simulation.cluster.world import World
from holdfast.simulation.effects import happen
from holdfast.simulation.requests import request
from holdfast.simulation.run import meaning
from holdfast.simulation.script.clock import Clock
from holdfast.simulation.script.events import Asked, Extend, Preempt, Requeue
from holdfast.simulation.script.read import Event, names_of
from tests.simulation.cases import Case, in_store

STEP = timedelta(seconds=5)
STRIDE = timedelta(hours=6)
"""How much time is skipped at most where nothing is due."""
AGAIN = timedelta(seconds=4)
"""When an operation that waits is tried again: within each step."""
IDLE = 100
"""Steps in which nothing is due until a life is found to stand still."""
NEWS = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED,
    EventType.EVENT_TYPE_TIMER_FIRED,
    EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED,
    EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED,
    EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT,
    EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED,
}
"""What a workflow has not taken in yet where it comes after its last task."""
_COMPLETED = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
SETTLES = 400
"""Looks at the workflow until it has taken in what came."""


def plays(case: Case) -> bool:
    """Whether all that a script has happen is played here: refusals are borne inside an operation."""
    return all(event.refuse is None for event in case.script.events)


@dataclass
class VirtualCluster:
    """The activities over a simulated world."""

    case: Case
    world: World = field(init=False)
    waits: dict[str, datetime] = field(default_factory=dict[str, datetime])
    """The operations that wait, by their activities, and when each is tried again."""
    marks: set[str] = field(default_factory=set[str])
    """The resets that have begun to remove their attempt."""
    silent: ProbeEnded | None = None
    """What the last asking of pods came to."""

    def __post_init__(self) -> None:
        latencies = edit(self.case.script.pods, stop=timedelta(0))
        self.world = World(self.case.workload(), Clock(), latencies, self.case.script.nodes)
        self._asking = Asking(self.world.spec, self.world, self._told)

    def now(self, when: datetime) -> None:
        """Let the cluster go on until a time."""
        clock = self.world.clock
        while clock.next is not None and clock.next <= when:
            clock.now = max(clock.now, clock.next)
            while (action := clock.take()) is not None:
                action()
        clock.now = max(clock.now, when)

    def _begin(self) -> None:
        """Come to the time at which an activity is tried, which waits where the API server cannot be reached."""
        info = activity.info()
        self.waits.pop(info.activity_id, None)
        self.now(info.current_attempt_scheduled_time)
        if self.world.dark:
            raise self._later()

    def _later(self) -> ApplicationError:
        """Return what has an activity tried again."""
        self.waits[activity.info().activity_id] = self.world.clock.now + AGAIN
        return ApplicationError("it is waited for", type=names.ERROR_UNREACHABLE, next_retry_delay=AGAIN)

    def _told(self, said: ProbeEnded) -> None:
        self.silent = said

    @activity.defn(name=OperationKind.PREPARE)
    async def prepare(self, payload: PrepareInput) -> Prepared:
        self._begin()
        owner = self.world.own(payload.attempt)
        return Prepared(cluster_uid="kube", owner_uid=owner.uid)

    @activity.defn(name=OperationKind.CREATE)
    async def create(self, payload: CreateInput) -> Created:
        self._begin()
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

    @activity.defn(name=OperationKind.OBSERVE)
    async def observe(self, payload: ObserveInput) -> Observation:
        self._begin()
        return observe(self.world, payload.attempt, live=True)

    @activity.defn(name=OperationKind.CHECKPOINT)
    async def checkpoint(self, payload: CheckpointInput) -> Checkpointed:
        self._begin()
        before = (payload.running, payload.finished)
        answers = saved(self.world, payload.attempt, payload.components, payload.number, before, payload.until)
        if answers is None:
            raise self._later()
        return Checkpointed(answers=answers, blind=self.world.blindness())

    @activity.defn(name=names.ACTIVITY_PROBE)
    async def probe(self, payload: ProbeInput) -> Probed:
        self._begin()
        if self.silent is None or self.silent.attempt != payload.attempt:
            self._asking.ask(payload.attempt)
            raise self._later()
        return Probed(failure=self.silent.failure, failing=dict(self.silent.failing))

    @activity.defn(name=OperationKind.BARRIER)
    async def barrier(self, payload: BarrierInput) -> Lifted:
        self._begin()
        return Lifted(done=True)

    @activity.defn(name=OperationKind.PARK)
    async def park(self, payload: ParkInput) -> Parked:
        self._begin()
        self.world.suspend(payload.attempt)
        self.now(self.world.clock.now)
        assert not [pod for pod in self.world.pods if pod.thing.attempt == payload.attempt and not pod.finished]
        self.world.parked(payload.attempt)
        return Parked(done=True, seen=observe(self.world, payload.attempt, live=True))

    @activity.defn(name=OperationKind.UNPARK)
    async def unpark(self, payload: UnparkInput) -> Unparked:
        self._begin()
        self.world.resume(payload.attempt, [one.name for one in payload.components])
        return Unparked(done=True)

    @activity.defn(name=OperationKind.RESET)
    async def reset(self, payload: ResetInput) -> Reset:
        self._begin()
        if payload.mark not in self.marks:
            seen, now = observe(self.world, payload.look.attempt, live=True), self.world.clock.now
            repeated = is_repeated(payload.workload, payload.memory, payload.promise, seen, payload.since, now)
            if payload.settles or not repeated:
                return Reset(seen=seen)
            self.marks.add(payload.mark)
        if payload.settles:
            return Reset(confirmed=True)
        self.world.delete_attempt(payload.removal.attempt)
        return Reset(confirmed=True, removed=self._removed(payload.removal))

    @activity.defn(name=OperationKind.REMOVE)
    async def remove(self, payload: RemoveInput) -> Removed:
        self._begin()
        self.world.delete_attempt(payload.attempt)
        return self._removed(payload)

    @activity.defn(name=OperationKind.FORCE_REMOVE)
    async def force_remove(self, payload: RemoveInput) -> Removed:
        self._begin()
        self.world.delete_attempt(payload.attempt)
        for pod in [one for one in self.world.pods if one.thing.attempt == payload.attempt]:
            self.world.delete_pod(pod, forced=True)
        return self._removed(payload)

    def _removed(self, payload: RemoveInput) -> Removed:
        self.now(self.world.clock.now)
        left, total = remnants(self.world, payload.attempt)
        if total and self.world.clock.now < payload.until:
            raise self._later()
        blind = self.world.blindness()
        return Removed(gone=not total, remnants=left, remnants_total=total, blind=blind)

    @activity.defn(name=OperationKind.REPORT)
    async def report(self, payload: ReportInput) -> None:
        self._begin()


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
        idle = 0
        while not status.phase.ended:
            idle = 0 if self._due(status) else idle + 1
            assert idle < IDLE, f"nothing is due any more, and it has not ended: {status.model_dump_json()}"
            await self.env.sleep(self._until_due(status))
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

    def _until_due(self, status: Status) -> timedelta:
        """Return whole steps until shortly before the next thing that the script, the cluster or the workflow does."""
        now = self.cluster.world.clock.now
        ahead = min((at - now for at in self._due(status)), default=STEP)
        return max(STEP, min(ahead, STRIDE) // STEP * STEP)

    def _due(self, status: Status) -> list[datetime]:
        """Return when the script, the cluster and the workflow do something next."""
        clock = self.cluster.world.clock
        script = in_store(self.cluster.case.script, status.causes, self.begun)
        due = [at for at, key, _ in script if key not in self.done] + list(self.cluster.waits.values())
        due += [at for at in (clock.next, status.next.at if status.next else None) if at is not None]
        return [at for at in due if at > clock.now]

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
        if isinstance(what, Preempt):
            within = what.within.total_seconds() if what.within is not None else None
            await self.handle.signal(names.SIGNAL_PREEMPT, args=[what.note, within])
            return
        if isinstance(what, Asked):
            await self.handle.signal(name, what.note)
            return
        known = names_of(self.cluster.world.spec)
        happen(self.cluster.world, what, lambda given: known[given] if given is not None else None)

    async def watch(self) -> None:
        """Signal what has changed, as the watch does."""
        world = self.cluster.world
        live = [owner for owner in world.owners.values() if owner.submitted and owner.deleting is None]
        if not live or not world.changed or world.dark:
            return
        world.changed = False
        seen = observe(world, max(owner.attempt for owner in live), live=False)
        if self.told is None or meaning(seen) != meaning(self.told):
            self.told = seen
            await self.handle.signal(names.SIGNAL_OBSERVE, seen)

    async def settled(self) -> Status:
        """Return the status once the workflow has nothing under way, and has taken in all that came.

        By its history: the server that skips time tells nobody of a workflow task that is pending.
        """
        events = list[HistoryEvent]()
        for _ in range(SETTLES):
            raw = (await self.handle.describe()).raw_description
            if raw.workflow_execution_info.history_length != len(events):
                events = list((await self.handle.fetch_history()).events)
            now = self.cluster.world.clock.now
            waits = {name for name, due in self.cluster.waits.items() if due > now}
            busy = any(one.activity_id not in waits for one in raw.pending_activities)
            same = raw.workflow_execution_info.history_length == len(events)
            if same and not busy and not _news(events):
                return await self.handle.query(names.QUERY_STATUS, result_type=Status)
            await asyncio.sleep(0.01)
        raise AssertionError("the workflow does not come to rest")


def _news(events: list[HistoryEvent]) -> bool:
    """Whether a workflow has something to take in since its last task."""
    last = max((at for at, one in enumerate(events) if one.event_type == _COMPLETED), default=-1)
    return any(one.event_type in NEWS for one in events[last + 1 :])


__all__ = ["UID", "Player", "VirtualCluster", "plays"]
