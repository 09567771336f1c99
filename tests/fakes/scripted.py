"""A cluster of a few numbers that implements the activity contract: for workflow mechanics and long durations only.

What Kubernetes means is tested against a real API server (tests/e2e); here only the workflow's own conduct is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from temporalio import activity
from temporalio.client import WorkflowHandle
from temporalio.exceptions import ApplicationError

from holdfast import names
from holdfast.model import (
    Answers,
    Component,
    ComponentView,
    CopyCounts,
    Failure,
    FailureClass,
    Observation,
    OperationKind,
    PodCounts,
    Quiet,
    Reason,
    Remnant,
    Report,
    Scope,
)
from holdfast.model.calls.barrier import BarrierInput, Lifted
from holdfast.model.calls.cluster import (
    Checkpointed,
    CheckpointInput,
    Cleared,
    ClearInput,
    Created,
    CreateInput,
    DataVolume,
    ObserveInput,
    Parked,
    ParkInput,
    Prepared,
    PrepareInput,
    Probed,
    ProbeInput,
    Rehearsed,
    RehearseInput,
    Removed,
    RemoveInput,
    Replaced,
    ReplaceInput,
    Reported,
    ReportInput,
    Reset,
    ResetInput,
    Scaled,
    ScaleInput,
    Unparked,
    UnparkInput,
)
from holdfast.model.calls.gang import GangBegin
from holdfast.model.calls.progress import Followed, FollowInput
from holdfast.model.calls.queue import LookQueueInput, SeenQueue
from holdfast.model.calls.stage import Staged, StageInput
from holdfast.model.life.data import DataSet
from holdfast.model.life.progress import StepRecord
from holdfast.policy.loop.promise import is_repeated
from holdfast.policy.sides.probe import silence
from holdfast.policy.verdicts.progress import stall


@dataclass
class ScriptedCluster:
    """The activities, and the levers that tests pull."""

    pods: int = 2
    view: dict[str, Any] = field(default_factory=dict)
    stubborn: bool = False
    finalizers: tuple[str, ...] = ()
    """What holds its pods, until it is stripped."""
    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    marks: set[str] = field(default_factory=set)
    """The resets that have begun to remove their attempt."""
    """An activity named here waits until its gate is opened."""
    entered: list[str] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)
    alive: set[int] = field(default_factory=set)
    owners: dict[int, str] = field(default_factory=dict)
    revision: int = 0
    uid: str = ""
    overlaps: int = 0
    interruptions: int = 0
    """How many creations still to come find an earlier try's half-made work."""
    replaced: list[dict[str, int]] = field(default_factory=list)
    """The launches that were made again, by component."""
    told: tuple[Failure, ...] = ()
    """Failures that it tells of beside those of its pods, until there is nothing left to fail."""
    quietest: Quiet | None = None
    """Which node a live look has heard of least lately."""
    saves: Answers | None = None
    """How pods answer that are asked to save their state; None: they never do."""
    resumed: dict[int, str | None] = field(default_factory=dict[int, "str | None"])
    """What each attempt goes on from, as it was told to its creation."""
    turns: list[int] = field(default_factory=list[int])
    """The turns of suspension in place, and back, that were taken."""
    refusal: str = ""
    """What the API server has against any change."""
    rehearsed: list[str] = field(default_factory=list)
    """What each rehearsal that has ended was about: the text in the component."""
    rehearsing: int = 0
    views: dict[str, ComponentView] = field(default_factory=dict[str, ComponentView])
    """The components by name, where there are several; those that are made come to be in it."""
    probes: list[ProbeInput] = field(default_factory=list[ProbeInput])
    silent_in: int = 0
    """The attempt in which a pod does not answer its probe any more."""
    broken_off: int = 0
    """How many probes have handed over what they had counted."""
    follows: list[FollowInput] = field(default_factory=list[FollowInput])
    news: int = 0
    """How many times still to come the worker has new steps to tell at once."""
    hangs_in: int = 0
    """The attempt that stands still."""
    begun: list[GangBegin] = field(default_factory=list[GangBegin])
    """Attempts of which a rendezvous was told."""
    scaled: list[ScaleInput] = field(default_factory=list[ScaleInput])
    scale_refused: str = ""
    """Why the cluster will have no other size."""
    staging: list[Staged] = field(default_factory=list[Staged])
    """What stagings still to come find, before all lies ready."""
    staged: list[StageInput] = field(default_factory=list[StageInput])
    data: dict[int, tuple[DataVolume, ...]] = field(default_factory=dict[int, "tuple[DataVolume, ...]"])
    """What each attempt reads, as it was told to its creation."""
    foreign: int = 0
    """A later attempt than any that was asked for, which is in the cluster all the same."""

    at_once = False
    """Whether a preparation that is given what to create creates it, as the real one does when nothing goes wrong."""

    def close(self, name: str) -> None:
        self.gates[name] = asyncio.Event()

    def open(self, name: str) -> None:
        self.gates.pop(name).set()

    async def _enter(self, name: str, report: Report | None = None) -> None:
        self.entered.append(name)
        if report is not None:
            self.reports.append(report)
        gate = self.gates.get(name)
        while gate is not None and not gate.is_set():
            activity.heartbeat()
            await asyncio.sleep(0.05)

    @activity.defn(name=OperationKind.PREPARE)
    async def prepare(self, payload: PrepareInput) -> Prepared:
        await self._enter("prepare", payload.report)
        self.uid = payload.target.workload_uid
        self.owners[payload.attempt] = f"owner-{payload.attempt}"
        prepared = Prepared(cluster_uid="kube", owner_uid=self.owners[payload.attempt])
        if payload.create is None or not self.at_once:
            return prepared
        self.alive.add(payload.attempt)
        self._made(payload.create.components or payload.components)
        self.reports.append(payload.create.report_submitted)
        return prepared.model_copy(update={"created": Created()})

    @activity.defn(name=names.ACTIVITY_REHEARSE)
    async def rehearse(self, payload: RehearseInput) -> Rehearsed:
        assert not self.rehearsing, "changes are rehearsed one after the other"
        self.rehearsing += 1
        await self._enter("rehearse")
        self.rehearsing -= 1
        self.rehearsed += [one.template["spec"]["text"] for one in payload.components]
        return Rehearsed(refusal=self.refusal)

    @activity.defn(name=OperationKind.STAGE)
    async def stage(self, payload: StageInput) -> Staged:
        await self._enter("stage")
        self.staged.append(payload)
        if self.staging:
            return self.staging.pop(0)
        digests = {one.name: payload.versions.get(one.name, "d" * 64) for one in payload.mounts}
        return Staged(sets=tuple(DataSet(mount=name, digest=each, files=1, bytes=5) for name, each in digests.items()))

    @activity.defn(name=OperationKind.CREATE)
    async def create(self, payload: CreateInput) -> Created:
        await self._enter("create", payload.report)
        self.data[payload.attempt] = payload.data
        self.resumed[payload.attempt] = payload.resume_from
        self.overlaps += bool(self.alive)
        self.alive.add(payload.attempt)
        if self.interruptions and payload.replaces_interrupted:
            self.interruptions -= 1
            return Created(interrupted=f"the submission of attempt {payload.attempt} was interrupted")
        self._made(payload.components)
        self.reports.append(payload.report_submitted)
        return Created()

    @activity.defn(name=OperationKind.REPLACE)
    async def replace(self, payload: ReplaceInput) -> Replaced:
        await self._enter("replace", payload.report)
        self.replaced.append(dict(payload.launches))
        self._made(payload.components)
        self.reports.append(payload.report_done)
        return Replaced()

    @activity.defn(name=OperationKind.CLEAR)
    async def clear(self, payload: ClearInput) -> Cleared:
        await self._enter("clear", payload.report)
        self.view = {}
        self.reports.append(payload.report_done)
        return Cleared(done=True, seen=self.look(payload.attempt, live=True))

    @activity.defn(name=OperationKind.BARRIER)
    async def barrier(self, payload: BarrierInput) -> Lifted:
        await self._enter("barrier", payload.report)
        return Lifted(done=True)

    @activity.defn(name=OperationKind.PARK)
    async def park(self, payload: ParkInput) -> Parked:
        await self._enter("park", payload.report)
        self.turns.append(payload.turn)
        self.view = {}
        self.reports.append(payload.report_done)
        return Parked(done=True, seen=self.look(payload.attempt, live=True))

    @activity.defn(name=OperationKind.CHECKPOINT)
    async def checkpoint(self, payload: CheckpointInput) -> Checkpointed:
        await self._enter("checkpoint", payload.report)
        while self.saves is None and datetime.now(UTC) < payload.until:
            activity.heartbeat()
            await asyncio.sleep(0.02)
        silent = Answers(at=datetime.now(UTC), running=payload.running, silent=payload.running)
        return Checkpointed(answers=self.saves or silent)

    @activity.defn(name=OperationKind.UNPARK)
    async def unpark(self, payload: UnparkInput) -> Unparked:
        await self._enter("unpark", payload.report)
        self.turns.append(payload.turn)
        self._made(payload.components)
        self.reports.append(payload.report_done)
        return Unparked(done=True)

    def _made(self, components: Sequence[Component]) -> None:
        self.view = {"pending": self.pods}
        for one in components:
            copies = CopyCounts(expected=one.copies) if one.copies is not None else None
            pods = PodCounts(expected=one.expected_pods, pending=one.expected_pods)
            self.views[one.name] = ComponentView(pods=pods, copies=copies)

    @activity.defn(name=OperationKind.OBSERVE)
    async def observe(self, payload: ObserveInput) -> Observation:
        await self._enter("observe", payload.report)
        look = self.look_at_all if len(payload.plan) > 1 else self.look
        return look(payload.attempt, live=True)

    @activity.defn(name=OperationKind.RESET)
    async def reset(self, payload: ResetInput) -> Reset:
        """Look, then remove if the decision is repeated; each is entered under its own name, as two activities were."""
        if payload.settles:
            self.entered.append("settle")
            begun = payload.mark in self.marks
            return Reset(confirmed=begun, seen=None if begun else self.look(payload.look.attempt, live=True))
        if payload.mark in self.marks:
            return Reset(confirmed=True, removed=await self.remove(payload.removal))
        seen, now = await self.observe(payload.look), datetime.now(UTC)
        if not is_repeated(payload.workload, payload.memory, payload.promise, seen, payload.since, now):
            return Reset(seen=seen)
        self.marks.add(payload.mark)
        return Reset(confirmed=True, seen=seen, removed=await self.remove(payload.removal))

    @activity.defn(name=OperationKind.REMOVE)
    async def remove(self, payload: RemoveInput) -> Removed:
        await self._enter("remove", payload.report)
        return await self._remove(payload, forced=False)

    @activity.defn(name=OperationKind.FORCE_REMOVE)
    async def force_remove(self, payload: RemoveInput) -> Removed:
        await self._enter("force_remove", payload.report)
        return await self._remove(payload, forced=True)

    async def _remove(self, payload: RemoveInput, *, forced: bool) -> Removed:
        if self.foreign > payload.attempt and not payload.everything:
            message = f"the cluster holds attempt {self.foreign}"
            raise ApplicationError(message, self.foreign, type=names.ERROR_FOREIGN_ATTEMPT, non_retryable=True)
        while (self.stubborn and not forced) or (self.finalizers and not payload.strip_finalizers):
            activity.heartbeat()
            if datetime.now(UTC) >= payload.until:
                left = Remnant(kind="Pod", name="train-0", finalizers=self.finalizers)
                return Removed(gone=False, remnants=(left,), remnants_total=1)
            await asyncio.sleep(0.02)
        self.alive.discard(payload.attempt)
        self.told = ()
        self.reports.append(payload.report_gone)
        return Removed(gone=True, answers=self.saves if payload.follows is not None else None)

    @activity.defn(name=names.ACTIVITY_PROBE)
    async def probe(self, payload: ProbeInput) -> Probed:
        self.probes.append(payload)
        try:
            while self.silent_in != payload.attempt:
                activity.heartbeat()
                await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            self.broken_off += 1
            return Probed(failing={"uid": 2})
        return Probed(failure=silence(payload.attempt, datetime.now(UTC), "train", "train-0", "node-7", "no answer"))

    @activity.defn(name=names.ACTIVITY_FOLLOW)
    async def follow_progress(self, payload: FollowInput) -> Followed:
        self.follows.append(payload)
        before = payload.known.step or 0 if payload.known is not None else 0
        record = StepRecord(attempt=payload.attempt, at=datetime.now(UTC), pods="x", step=before + 1)
        if self.news:
            self.news -= 1
            return Followed(record=record)
        try:
            while (self.hangs_in == payload.attempt) == payload.stalled:
                activity.heartbeat()
                await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            return Followed(record=record)
        if payload.stalled:
            return Followed(record=record)
        return Followed(record=record, failure=stall(payload.attempt, record.at, message="no new step for 5m"))

    @activity.defn(name=names.ACTIVITY_BEGIN_GANG)
    async def begin_gang(self, payload: GangBegin) -> None:
        await self._enter("begin_gang")
        self.begun.append(payload)

    @activity.defn(name=names.ACTIVITY_SCALE)
    async def scale(self, payload: ScaleInput) -> Scaled:
        await self._enter("scale")
        self.scaled.append(payload)
        return Scaled(done=not self.scale_refused, refused=self.scale_refused)

    @activity.defn(name=OperationKind.REPORT)
    async def report(self, payload: ReportInput) -> Reported:
        await self._enter("report", payload.report)
        return Reported(anchored=payload.anchor is not None)

    @activity.defn(name=names.ACTIVITY_LOOK_QUEUE)
    async def look_queue(self, payload: LookQueueInput) -> SeenQueue:
        return SeenQueue(kueue=False, workloads=(), gone=())

    def look(self, attempt: int, *, live: bool = False) -> Observation:
        self.revision += 1
        view = dict(self.view)
        found, job_failed, complete = (
            view.pop("found", True),
            view.pop("job_failed", False),
            view.pop("complete", False),
        )
        counts = PodCounts(expected=self.pods, **view)
        now = datetime.now(UTC)
        failures: list[Failure] = []
        if not found:
            failures.append(
                Failure(
                    cls=FailureClass.MISSING,
                    scope=Scope.COMPONENT,
                    reason=Reason.MISSING_COMPONENT,
                    time=now,
                    component="train",
                )
            )
        if job_failed:
            failures.append(
                Failure(
                    cls=FailureClass.APP,
                    scope=Scope.COMPONENT,
                    reason="BackoffLimitExceeded",
                    time=now,
                    component="train",
                )
            )
        failures += [
            Failure(
                cls=FailureClass.APP,
                scope=Scope.MEMBER,
                reason="Error",
                exit_code=1,
                time=now,
                component="train",
                subject=f"train-{index}",
                node="node-7",
            )
            for index in range(counts.failed)
        ]
        failures += self.told
        return Observation(
            workload_uid=self.uid,
            attempt=attempt,
            owner_uid=self.owners.get(attempt, ""),
            at=now,
            live=live,
            revision=self.revision,
            components={"train": ComponentView(found=found, complete=complete, failed=job_failed, pods=counts)},
            failures=tuple(failures[:16]),
            failures_total=len(failures),
            quietest=self.quietest if live else None,
        )

    async def sees(self, handle: WorkflowHandle[Any, Any], attempt: int, **view: Any) -> None:
        """The cluster changes, and the watch says so."""
        self.view = view
        await handle.signal(names.SIGNAL_OBSERVE, self.look(attempt))

    def look_at_all(self, attempt: int, *, live: bool = False) -> Observation:
        """Return a snapshot of several components: how their copies stand, and which of them has failed."""
        failures = tuple(
            Failure(
                cls=FailureClass.APP,
                scope=Scope.COMPONENT,
                reason="BackoffLimitExceeded",
                time=datetime.now(UTC),
                component=name,
                subject=f"{name}-1",
            )
            for name, view in self.views.items()
            if view.failed
        )
        seen = self.look(attempt, live=live)
        return seen.model_copy(
            update={"components": dict(self.views), "failures": failures, "failures_total": len(failures)}
        )

    async def sees_all(self, handle: WorkflowHandle[Any, Any], attempt: int, **views: ComponentView) -> None:
        """Some components change, and the watch says so."""
        self.views |= views
        await handle.signal(names.SIGNAL_OBSERVE, self.look_at_all(attempt))
