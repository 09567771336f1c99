"""The workflow's memory: all of it, so that it survives replay and continue-as-new. At most 256 KiB."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from holdfast.model.base import Duration, Time
from holdfast.model.entities.graph import GraphNews
from holdfast.model.entities.queue import Turn
from holdfast.model.gang.state import Gang
from holdfast.model.life.report import Report
from holdfast.model.observation import Asked, Failure, Interval, Observation, Payload
from holdfast.model.spec.checkpoint import CheckpointRequest, Saved
from holdfast.model.spec.component import PodSet
from holdfast.model.spec.mount import Staging
from holdfast.model.spec.policy import Limits, Policy
from holdfast.model.vocabulary import Parking, Phase, Reason

CAUSES_KEPT = 50
INTERVALS_KEPT = 32
STANDSTILL = timedelta(seconds=40)
"""For how long nothing of a replacement comes to its end before it comes back without what is left, and before it is
broken off only because what was seen may be old: longer than pods have by default to end."""


class Stage(StrEnum):
    """How far one attempt has come. It only ever moves forward."""

    PLANNED = "Planned"
    PREPARED = "Prepared"
    SUBMITTED = "Submitted"
    REMOVING = "Removing"
    FORCING = "Forcing"
    GONE = "Gone"


class ObjectRef(Payload):
    """One Kubernetes object, by its identity; or several copies, by what their names begin with."""

    api_version: str
    kind: str
    name: str
    uid: str = ""
    """Empty for copies: what is remembered does not grow with them."""
    copies: Annotated[int | None, Field(exclude_if=lambda value: value is None)] = None
    """How many copies were made, of those named `<name>-<index>`; None for one object."""


class Claims(Payload):
    """Claims that were still there once an attempt was gone: the next one mounts what is in them (row D25)."""

    names: tuple[str, ...] = ()
    """The first 16 by name."""
    total: int = 0

    def sentence(self) -> str:
        """Name them: `2 PersistentVolumeClaims (data-web-0, data-web-1)`."""
        more = f" and {self.total - len(self.names)} more" if self.total > len(self.names) else ""
        return f"{self.total} PersistentVolumeClaim{'s' if self.total != 1 else ''} ({', '.join(self.names)}{more})"


class Remnant(Payload):
    """An object that is still there although it is to go, and what holds it."""

    kind: str
    name: str
    deleting_since: Time | None = None
    finalizers: tuple[str, ...] = ()
    node: str = ""
    unreachable: bool = False
    """Its node does not answer: a process of it may still run there after its object is gone."""

    def sentence(self) -> str:
        """Say what is left and why: `Pod worker-3 (finalizer example.com/hold)`."""
        notes = [f"finalizer {name}" for name in self.finalizers]
        if self.unreachable:
            notes.append(f"node {self.node} does not answer: its processes may still run")
        return f"{self.kind} {self.name}" + (f" ({', '.join(notes)})" if notes else "")


class ExcludedNode(Payload):
    """A node that a workload avoids, why, and for how long (rows A17, U9)."""

    name: str
    since: Time
    until: Time
    why: str = ""
    required: bool = False
    """Whether it is not chosen even where no other has room."""
    marked: bool = False
    """Whether it is avoided on the word of those who watch over nodes, and not on that of the workload's failures."""


class Meeting(Payload):
    """How the gang of an attempt stands with its rendezvous, as its workload knows it (rows T1 to T14)."""

    gang: Gang
    """What its Job and its rendezvous were made for last."""
    begun: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether its rendezvous knows of the attempt."""
    ended: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether its rendezvous was told that the attempt ends."""
    succeeded: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """In words, once all of its members have succeeded."""


class Attempt(Payload):
    """One try at running the workload: attempt n's objects and pods never live beside attempt n+1's."""

    number: int
    stage: Stage = Stage.PLANNED
    owner_uid: str = ""
    objects: tuple[ObjectRef, ...] = ()
    interrupted: str = ""
    """Why its creation was broken off half-made, where that means that all of it is made anew."""
    config: dict[str, str] = Field(default_factory=dict)
    """Of each component, the digest of what it was last made of."""
    launches: dict[str, int] = Field(default_factory=dict)
    """How often a component was made again within this attempt; those never made again are left out."""
    used: dict[str, int] = Field(default_factory=dict)
    """What each component has used of the budget that its replacements are charged to."""
    borne_again: Annotated[float, Field(exclude_if=lambda value: not value)] = 0.0
    """Seconds for which what is being made again has borne refusals, in operations that have ended (row D17)."""
    parted: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether the last operation that made components again has come back without some of them (row D17)."""
    replacing: tuple[str, ...] = ()
    """Components that are being made again, or whose turn has come and that are being made for the first time."""
    waiting: tuple[str, ...] = ()
    """Components whose turn has not come: nothing of them is there, and nothing is missed (row J13)."""
    replaced_at: Time | None = None
    """When a component was last made again; for components that `replaced` does not name, as an earlier release
    remembers it."""
    replaced: Annotated[dict[str, Time], Field(exclude_if=lambda value: not value)] = Field(default_factory=dict)
    """When each component was last made again: its own back-off counts from there (row D18)."""
    warming: dict[str, Time] = Field(default_factory=dict)
    """Components that were made again and have not run since: from when on their graces count."""
    avoided: tuple[ExcludedNode, ...] = ()
    """Nodes its pods keep off. Fixed as it begins, since what is made twice in it must be the same; a component
    that is made again alone may add to it what it failed on."""
    everything: bool = False
    """Whether its removal is that of every attempt of this workload, those included that this memory does not know."""
    launch_failure: Failure | None = None
    """Why its components could not all be created, once that is final."""
    begun_at: Time
    borne: float = 0.0
    """Seconds for which its submission has borne refusals, in preparations and creations that have ended (row S10)."""
    submitted_at: Time | None = None
    ready_at: Time | None = None
    healthy_since: Time | None = None
    """Since when all its pods have run, or succeeded, without a break; None while they do not."""
    removing_at: Time | None = None
    stranded: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """Nodes that were Down as its removal began, with pods of it: what runs there cannot be told to end (row L4)."""
    forced_rounds: int = 0
    strip: bool = False
    """Whether a person has asked for the finalizers of what is left to be taken off."""
    remnants: tuple[Remnant, ...] = ()
    remnants_total: int = 0
    gone_at: Time | None = None
    clearing_at: Annotated[Time | None, Field(exclude_if=lambda value: value is None)] = None
    """Since when what is still active of it is being deleted, its workload having ended."""
    cleared: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether nothing of it is active any more, its workload having ended: proven, or so seen."""
    parking: Annotated[Parking | None, Field(exclude_if=lambda value: value is None)] = None
    """How far it is on its way to be suspended in place; None where it is not (row J14)."""
    parking_at: Annotated[Time | None, Field(exclude_if=lambda value: value is None)] = None
    """Since when it has been suspended in place, or is being so."""
    pod_sets: Annotated[dict[str, tuple[PodSet, ...]], Field(exclude_if=lambda value: not value)] = Field(
        default_factory=dict
    )
    """Of each component, where its pods run, as whoever admitted this attempt has said; empty: as was submitted."""
    parked: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """Components that are suspended in place, or whose turn to be resumed has not come: nothing is missed of them."""
    resuming: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """Components that are being resumed."""
    turns: Annotated[int, Field(exclude_if=lambda value: not value)] = 0
    """How often it was suspended in place or resumed: odd while it is suspended, even while it is not."""
    bodies: Annotated[dict[str, str], Field(exclude_if=lambda value: not value)] = Field(default_factory=dict)
    """Of each component, the digest of what a resumption cannot change, where it may be suspended in place."""
    pause_after: bool = False
    """Whether the retry pause follows its removal: so after a reset, not after a suspension."""
    pause: Duration | None = None
    """The pause that follows instead, as the rule says that has ended it."""
    requeue: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether the workload goes back to its queue once this attempt is gone (rows L22 to L27)."""
    requeued_in: Annotated[int | None, Field(exclude_if=lambda value: value is None)] = None
    """The cycle in which it went back to its queue: it is admitted in a later one (row L27)."""
    walltime_until: Annotated[Time | None, Field(exclude_if=lambda value: value is None)] = None
    """When its walltime is over; None before it runs, while it is suspended, and where it has none (row L18)."""
    walltime_left: Annotated[float | None, Field(exclude_if=lambda value: value is None)] = None
    """Seconds that are left of its walltime while it is suspended in place."""
    told: Annotated[Failure | None, Field(exclude_if=lambda value: value is None)] = None
    """A failure of it that somebody has told who watches over something else, such as its nodes (row L25)."""
    probe_failing: Annotated[dict[str, int], Field(exclude_if=lambda value: not value)] = Field(default_factory=dict)
    """How often in a row pods have not answered their probe, by uid, as asking was broken off (row L28)."""
    meeting: Annotated[Meeting | None, Field(exclude_if=lambda value: value is None)] = None
    """Of its gang, where its workload has one."""
    audited: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """What was written down of it before it was done, where its workload is sensitive (row L36)."""
    resume_from: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """Where its pods find the checkpoint that they go on from; empty: from the beginning."""
    kills: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether its pods get no grace where it is suspended in place."""

    @property
    def later(self) -> tuple[str, ...]:
        """Components whose turn has not come, to be created or to be resumed: nothing is missed of them."""
        return (*self.waiting, *self.parked)

    @property
    def suspended(self) -> bool:
        """Whether it is suspended in place, or on its way to be."""
        return self.parking in {Parking.GOING, Parking.PARKED}

    @property
    def making(self) -> tuple[str, ...]:
        """Components that are being made, made again or resumed."""
        return (*self.replacing, *self.resuming)


class Cause(Payload):
    """One thing that decided something, kept for whoever asks why."""

    time: Time
    attempt: int
    phase: Phase
    reason: Reason
    message: str


class Intent(Payload):
    """What its people want of the workload. It outlives attempts; only another signal changes it."""

    suspend: bool = False
    suspend_reason: Reason = Reason.SUSPEND_REQUESTED
    cancel: bool = False
    cancel_reason: Reason = Reason.CANCEL_REQUESTED
    retry: bool = False
    note: str = ""
    within: Annotated[Time | None, Field(exclude_if=lambda value: value is None)] = None
    """Until when whoever preempts it waits for its checkpoint."""
    checkpoint: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether it is to save its state and run on."""


class Held(Payload):
    """Why nothing is done until a person says what: the cluster and this memory contradict each other."""

    since: Time
    why: str
    newest: int = 0
    """The highest attempt of this workload that was found in the cluster."""
    rule: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """The rule that would have run it again, where that is why; empty for a contradiction (row L7)."""


class Unhealthy(Payload):
    """Since when the workload is unhealthy without a break, and by what."""

    since: Time
    failure: Failure
    rule: str
    death: Annotated[Failure | None, Field(exclude_if=lambda value: value is None)] = None
    """The first pod's death of that time, which may not be seen any more (row D35)."""


class OperationKind(StrEnum):
    """The things a workflow asks the cluster's worker to do."""

    PREPARE = "prepare"
    CREATE = "create"
    STAGE = "stage"
    REPLACE = "replace"
    CLEAR = "clear"
    PARK = "park"
    UNPARK = "unpark"
    CHECKPOINT = "checkpoint"
    OBSERVE = "observe"
    REMOVE = "remove"
    FORCE_REMOVE = "force_remove"
    REPORT = "report"


class Operation(Payload):
    """What is under way. At most one, so that a crash leaves at most one thing half done."""

    kind: OperationKind
    attempt: int
    since: Time
    until: Time | None = None
    """When it comes back even if it is not done (removals, clearings)."""
    interrupted: bool = False
    strips: bool = False
    """Whether it takes finalizers off, as was asked for (forced removals)."""
    releases: bool = False
    """Whether it lets go of the anchor, once all is gone (removals)."""
    report: Report
    """The status it brings to the cluster when it begins."""
    decides: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether what it confirms is acted on at once (looks)."""
    audits: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """What it writes down before that is done (reports; row L36)."""
    causes: int = 0
    """How many causes have been written as Events once it has begun."""
    causes_done: int = 0
    """How many, once it has ended well with nothing else having happened meanwhile."""
    patience: float | None = None
    """Seconds for which its whole submission may bear refusals; None for ever (preparations and creations)."""
    launches: dict[str, int] = Field(default_factory=dict)
    """Which launch of which component it makes (replacements)."""
    report_done: Report | None = None
    """The status it brings to the cluster when it ends well."""


class State(Payload):
    """Everything a workload's workflow knows."""

    phase: Phase = Phase.PENDING
    reason: Reason = Reason.QUEUED
    message: str = ""
    since: Time
    policy: Policy
    """The policy in force: the submitted one, or what an update made of it, within the operator's limits."""
    limits: Limits = Limits()
    cluster_uid: str = ""
    intent: Intent = Intent()
    attempt: Attempt | None = None
    executions: int = 0
    restarts: int = 0
    requeues: Annotated[int, Field(exclude_if=lambda value: not value)] = 0
    """How often it went back to its queue: what whoever asks for that expects it to be (row L25)."""
    cycle: Annotated[int, Field(exclude_if=lambda value: not value)] = 0
    """The admission cycle that it is in: a new one begins only where something waits to be admitted (row L27)."""
    extended: Annotated[float, Field(exclude_if=lambda value: not value)] = 0.0
    """Seconds by which its walltime was extended, for this attempt and those to come."""
    used: dict[str, int] = Field(default_factory=dict)
    """What has been used of each budget."""
    acted: dict[str, int] = Field(default_factory=dict)
    """How often each rule that has a limit has acted, by its name."""
    excluded: tuple[ExcludedNode, ...] = ()
    """Nodes that failures are blamed on, for the attempts to come; the one blamed last comes last."""
    observation: Observation | None = None
    observed_at: Time | None = None
    """When the latest observation came in."""
    looked_at: Time | None = None
    """When the live look that gave the latest observation was begun; None if the latest came from the watch."""
    held: Held | None = None
    in_doubt: bool = False
    """Whether a snapshot came that could not be told old from new: a live look must settle it."""
    unhealthy: Unhealthy | None = None
    blind: tuple[Interval, ...] = ()
    outcome: Phase | None = None
    """Settled outcome: Succeeded, Failed or Cancelled. What remains is holding and removing."""
    outcome_failure: Failure | None = None
    preempted_at: Time | None = None
    """When the preemption was asked for that what is in the cluster is being removed for; None once all is gone."""
    checkpoint: Annotated[CheckpointRequest | None, Field(exclude_if=lambda value: value is None)] = None
    """The latest request to save, and what came of it."""
    saved: Annotated[Saved | None, Field(exclude_if=lambda value: value is None)] = None
    """The last complete checkpoint, from which the next attempt goes on."""
    claims: Annotated[Claims | None, Field(exclude_if=lambda value: value is None)] = None
    """What of its attempts' storage was there when the last of them was gone (row D25)."""
    blocked: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """What it waits for before it begins, in words; empty: nothing (row L31)."""
    graph_told: Annotated[GraphNews | None, Field(exclude_if=lambda value: value is None)] = None
    """What its graph has heard of it last."""
    turn: Annotated[Turn | None, Field(exclude_if=lambda value: value is None)] = None
    """How it stands with its queue; None where no queue lets it in (rows L9, L26, L27)."""
    staging: Annotated[Staging | None, Field(exclude_if=lambda value: value is None)] = None
    """How it stands with the data sets that it reads; None before the first of them was asked for (row L14)."""
    pause_until: Time | None = None
    hold_until: Time | None = None
    asked: Annotated[Asked | None, Field(exclude_if=lambda value: value is None)] = None
    """What its custom resource asked for last, where one stands for it."""
    anchored: bool = False
    """Whether the anchor may exist: from the first preparation on, until it is released."""
    operation: Operation | None = None
    told: Report | None = None
    """The last status that reached the cluster."""
    owed: Annotated[Report | None, Field(exclude_if=lambda value: value is None)] = None
    """A status that a look has left to the next operation to bring."""
    told_causes: int = 0
    """How many causes have been written as Kubernetes Events."""
    sequence: int = 0
    """Of reports made so far."""
    causes: tuple[Cause, ...] = ()
    causes_total: int = 0
    dropped: int = 0
    """Observations of older attempts or older versions that were let fall."""
    runs: int = 1
    """Workflow runs so far: 1 + continued-as-new."""
