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
from holdfast.model.life.data import Staging
from holdfast.model.life.evidence import Evidence
from holdfast.model.life.facts import Barrier, Cause, Claims, ExcludedNode
from holdfast.model.life.progress import Fall, StepRecord
from holdfast.model.life.report import CopyRestarts, Report
from holdfast.model.observation import Asked, Failure, Interval, Observation, Payload
from holdfast.model.spec.checkpoint import CheckpointRequest, Saved
from holdfast.model.spec.component import PodSet
from holdfast.model.spec.policy import Limits, SharedPolicy
from holdfast.model.vocabulary import Parking, Phase, Reason
from holdfast.model.words import Outside, with_note

CAUSES_KEPT = 50
INTERVALS_KEPT = 32
STANDSTILL = timedelta(seconds=40)
"""The time without progress after which a replacement returns without the components that are left, or is broken off
only because the observation may be stale. It is longer than the default grace period of pods."""


class Stage(StrEnum):
    """The stage of one attempt. It only ever moves forward."""

    PLANNED = "Planned"
    PREPARED = "Prepared"
    SUBMITTED = "Submitted"
    REMOVING = "Removing"
    FORCING = "Forcing"
    GONE = "Gone"


class ObjectRef(Payload):
    """One Kubernetes object, by its identity; or several copies, by the prefix of their names."""

    api_version: str
    kind: str
    name: str
    uid: str = ""
    """Empty for copies, so that the memory does not grow with their number."""
    copies: Annotated[int | None, Field(exclude_if=lambda value: value is None)] = None
    """How many copies named `<name>-<index>` were made; None for one object."""


class Remnant(Payload):
    """An object that still exists although it must go, and what holds it."""

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


class Meeting(Payload):
    """The state between an attempt's gang and its rendezvous, as the workload knows it (rows T1 to T14)."""

    gang: Gang
    """The gang for which its Job and its rendezvous were last made."""
    begun: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether its rendezvous knows the attempt."""
    ended: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether its rendezvous was told that the attempt ends."""
    succeeded: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """A message, once all of its members have succeeded."""


class Attempt(Payload):
    """One try at running the workload: attempt n's objects and pods never live beside attempt n+1's."""

    number: int
    unlike_restarts: Annotated[int, Field(exclude_if=lambda value: not value)] = 0
    """How many more attempts than restarts of all copies were before it: a resumption after a suspension that deletes
    is no restart (row J11)."""
    stage: Stage = Stage.PLANNED
    owner_uid: str = ""
    objects: tuple[ObjectRef, ...] = ()
    interrupted: str = ""
    """Why its creation was broken off halfway, if the whole attempt must therefore be made again."""
    config: dict[str, str] = Field(default_factory=dict)
    """For each component, the digest of its last created form."""
    launches: dict[str, int] = Field(default_factory=dict)
    """How often a component was made again within this attempt; those never made again are left out."""
    missed: Annotated[dict[str, int], Field(exclude_if=lambda value: not value)] = Field(default_factory=dict)
    """How often of these times only because somebody had deleted it: no restart (row J11)."""
    ruled: Annotated[dict[str, int], Field(exclude_if=lambda value: not value)] = Field(default_factory=dict)
    """How often of these times because it had failed, by a rule (row P4)."""
    used: dict[str, int] = Field(default_factory=dict)
    """How much each component has used of the budget to which its replacements are charged."""
    borne_again: Annotated[float, Field(exclude_if=lambda value: not value)] = 0.0
    """Seconds of refusals that the current replacement has tolerated in operations that have ended (row D17)."""
    parted: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether the last replacement returned without some of its components (row D17)."""
    replacing: tuple[str, ...] = ()
    """Components that are being made again, or made for the first time because their turn has come."""
    replacing_copies: Annotated[dict[str, tuple[int, ...]], Field(exclude_if=lambda value: not value)] = Field(
        default_factory=dict
    )
    """Of the components in `replacing`, those of which only these copies are made again, by index (row J23)."""
    waiting: tuple[str, ...] = ()
    """Components whose turn has not come: nothing of them exists, and nothing counts as missing (row J13)."""
    replaced_at: Time | None = None
    """When a component was last made again; it applies to components that are not in `replaced`, from an earlier
    release."""
    replaced: Annotated[dict[str, Time], Field(exclude_if=lambda value: not value)] = Field(default_factory=dict)
    """When each component was last made again: its own back-off counts from there (row D18)."""
    completed: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """Components of one object that were seen complete since they were last made: whoever deletes one changes nothing
    (row D23)."""
    warming: dict[str, Time] = Field(default_factory=dict)
    """Components that were made again and have not run since: the time from which their grace periods count."""
    avoided: tuple[ExcludedNode, ...] = ()
    """Nodes that its pods avoid. Fixed when the attempt begins, since an object that is made twice must be the same; a
    component that is made again alone may add the node on which it failed."""
    everything: bool = False
    """Whether its removal removes every attempt of this workload, including attempts that this memory does not know."""
    launch_failure: Failure | None = None
    """Why its components could not all be created, once that is final."""
    begun_at: Time
    borne: float = 0.0
    """Seconds of refusals that its submission has tolerated in preparations and creations that have ended (row S10)."""
    submitted_at: Time | None = None
    ready_at: Time | None = None
    healthy_since: Time | None = None
    """The time since which all its pods have run, or succeeded, without a break; None while they do not."""
    removing_at: Time | None = None
    stranded: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """Nodes with its pods that were Down when its removal began: processes there cannot be told to end (row L4)."""
    forced_rounds: int = 0
    strip: bool = False
    """Whether a person has asked to remove the finalizers of the remaining objects."""
    remnants: tuple[Remnant, ...] = ()
    remnants_total: int = 0
    gone_at: Time | None = None
    evidence: Annotated[Evidence | None, Field(exclude_if=lambda value: value is None)] = None
    """What was kept of it before its removal; None if nothing was to be kept (row P3)."""
    clearing_at: Annotated[Time | None, Field(exclude_if=lambda value: value is None)] = None
    """The time since which its active objects are being deleted, after its workload has ended."""
    cleared: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether none of its objects is active any more, after its workload has ended: proven or observed."""
    parking: Annotated[Parking | None, Field(exclude_if=lambda value: value is None)] = None
    """The progress of its suspension in place; None if it is not being suspended (row J14)."""
    parking_at: Annotated[Time | None, Field(exclude_if=lambda value: value is None)] = None
    """The time since which it has been, or is being, suspended in place."""
    pod_sets: Annotated[dict[str, tuple[PodSet, ...]], Field(exclude_if=lambda value: not value)] = Field(
        default_factory=dict
    )
    """For each component, where its pods run, as set by the admitter of this attempt; empty: as submitted."""
    parked: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """Components that are suspended in place, or whose turn to resume has not come: they do not count as missing."""
    resuming: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """Components that are being resumed."""
    turns: Annotated[int, Field(exclude_if=lambda value: not value)] = 0
    """How often it was suspended in place or resumed: odd while it is suspended, even while it is not."""
    bodies: Annotated[dict[str, str], Field(exclude_if=lambda value: not value)] = Field(default_factory=dict)
    """For each component that may be suspended in place, the digest of the parts that a resume cannot change."""
    pause_after: bool = False
    """Whether the retry pause follows its removal: true after a reset, not after a suspension."""
    pause: Duration | None = None
    """The pause that follows instead, from the rule that has ended the attempt."""
    requeue: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether the workload goes back to its queue once this attempt is gone (rows L22 to L27)."""
    requeued_in: Annotated[int | None, Field(exclude_if=lambda value: value is None)] = None
    """The cycle in which it went back to its queue: it is admitted in a later one (row L27)."""
    walltime_until: Annotated[Time | None, Field(exclude_if=lambda value: value is None)] = None
    """When its walltime is over; None before it runs, while it is suspended, and if it has none (row L18)."""
    walltime_left: Annotated[float | None, Field(exclude_if=lambda value: value is None)] = None
    """Seconds that are left of its walltime while it is suspended in place."""
    told: Annotated[Failure | None, Field(exclude_if=lambda value: value is None)] = None
    """A failure of the attempt that an external observer has reported, such as a monitor of nodes (row L25)."""
    probe_failing: Annotated[dict[str, int], Field(exclude_if=lambda value: not value)] = Field(default_factory=dict)
    """How often in a row pods had not answered their probe, by uid, when probing was broken off (row L28)."""
    meeting: Annotated[Meeting | None, Field(exclude_if=lambda value: value is None)] = None
    """The meeting of its gang, if its workload has one."""
    audited: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """The audit entries of its operations, recorded before each was carried out, for a sensitive workload (row L36)."""
    resume_from: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """Where its pods find the checkpoint that they resume from; empty: they start from the beginning."""
    kills: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether its pods get no grace period when it is suspended in place."""
    barrier: Annotated[Barrier | None, Field(exclude_if=lambda value: value is None)] = None
    """The barrier at which its pods wait; None: their programs start as their containers do (row J24)."""

    @property
    def is_restarting(self) -> bool:
        """Whether its pods restart in place."""
        return self.barrier is not None and self.barrier.until is not None

    @property
    def later(self) -> tuple[str, ...]:
        """Components whose turn to be created or resumed has not come: they do not count as missing."""
        return (*self.waiting, *self.parked)

    @property
    def suspended(self) -> bool:
        """Whether it is suspended in place, or on its way to be."""
        return self.parking in {Parking.GOING, Parking.PARKED}

    @property
    def making(self) -> tuple[str, ...]:
        """Components that are being made, made again or resumed."""
        return (*self.replacing, *self.resuming)

    @property
    def submission(self) -> str:
        """The name of its submission for people; its id is the uid of the attempt's owner (row S12)."""
        return f"submission {self.owner_uid}" if self.owner_uid else "its submission"


class Intent(Payload):
    """What users want from the workload. It outlives attempts; only another signal changes it."""

    suspend: bool = False
    suspend_reason: Reason = Reason.SUSPEND_REQUESTED
    by_hand: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether a signal suspended it: its custom resource does not resume it (rows F4, F7, F8)."""
    cancel: bool = False
    cancel_reason: Reason = Reason.CANCEL_REQUESTED
    retry: bool = False
    note: str = ""
    within: Annotated[Time | None, Field(exclude_if=lambda value: value is None)] = None
    """The time until which a preemption waits for its checkpoint."""
    checkpoint: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether it must save its state and keep running."""

    @property
    def why_suspended(self) -> str:
        """Why it is to be suspended, with the words of whoever asked for it."""
        return with_note("preempted" if self.suspend_reason is Reason.PREEMPTED else "suspended", self.note)


class Held(Payload):
    """Why nothing is done until a person decides: the cluster and this memory contradict each other."""

    since: Time
    why: str
    newest: int = 0
    """The highest attempt of this workload that was found in the cluster."""
    rule: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """The rule that would have run it again, if that is why it is held; empty for a contradiction (row L7)."""


class Unhealthy(Payload):
    """Since when the workload has been unhealthy without a break, and why."""

    since: Time
    failure: Failure
    rule: str
    death: Annotated[Failure | None, Field(exclude_if=lambda value: value is None)] = None
    """The first death of a pod in that time, which may no longer be visible (row D35)."""
    lost: Annotated[Failure | None, Field(exclude_if=lambda value: value is None)] = None
    """The first pod in that time that its node lost, or that had to make room, while nothing has taken its place: it
    may no longer be visible (row L22)."""


class OperationKind(StrEnum):
    """The operations that a workflow requests from the cluster's worker."""

    PREPARE = "prepare"
    CREATE = "create"
    STAGE = "stage"
    REPLACE = "replace"
    CLEAR = "clear"
    BARRIER = "barrier"
    PARK = "park"
    UNPARK = "unpark"
    CHECKPOINT = "checkpoint"
    OBSERVE = "observe"
    RESET = "reset"
    REMOVE = "remove"
    FORCE_REMOVE = "force_remove"
    REPORT = "report"


class PromisedRestart(Payload):
    """The restart that follows if a live look confirms a failure (record 0086)."""

    at: Time
    """When it was promised: it is charged as of this time."""
    failure: Failure
    rule: str
    charge: str | None = None
    exclude: tuple[ExcludedNode, ...] = ()
    limited: bool = False
    pause: Duration | None = None


class Operation(Payload):
    """The operation under way. At most one, so that a crash leaves at most one thing half done."""

    kind: OperationKind
    attempt: int
    since: Time
    until: Time | None = None
    """When it returns even if it is not done (removals, clearings)."""
    interrupted: bool = False
    strips: bool = False
    """Whether it removes finalizers, as requested (forced removals)."""
    releases: bool = False
    """Whether it releases the anchor once all is gone (removals)."""
    report: Report
    """The status it applies to the cluster when it begins."""
    decides: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether a failure that it confirms is acted on at once (looks)."""
    audits: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """The audit entry that it records before the audited operation (reports; row L36)."""
    causes: int = 0
    """The number of causes written as Events once it has begun."""
    causes_done: int = 0
    """The same number once it has succeeded, if nothing else has happened meanwhile."""
    patience: float | None = None
    """Seconds of refusals that its whole submission may tolerate; None: for ever (preparations and creations)."""
    launches: dict[str, int] = Field(default_factory=dict)
    """The launch that it makes of each component (replacements)."""
    copies: Annotated[dict[str, tuple[int, ...]], Field(exclude_if=lambda value: not value)] = Field(
        default_factory=dict
    )
    """`Attempt.replacing_copies` as it was when it began (replacements)."""
    report_done: Report | None = None
    """The status it applies to the cluster when it succeeds."""
    creates: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether it also creates the components, as soon as the attempt's owner exists (preparations)."""
    anchors: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether it first makes the anchor, since no attempt has begun (reports; record 0096)."""
    restart: Annotated[PromisedRestart | None, Field(exclude_if=lambda value: value is None)] = None
    """The decision that its look must repeat before it removes anything (resets)."""
    removal: Annotated[Operation | None, Field(exclude_if=lambda value: value is None)] = None
    """The removal that it goes on to (resets)."""
    settles: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether it only finds out if an earlier dispatch has begun the removal, and looks if not (resets)."""

    @property
    def is_creating(self) -> bool:
        """Whether it creates an attempt's components: a creation, or a preparation that goes on to it."""
        return self.creates or self.kind is OperationKind.CREATE


class State(Payload):
    """Everything a workload's workflow knows."""

    phase: Phase = Phase.PENDING
    reason: Reason = Reason.QUEUED
    message: str = ""
    since: Time
    policy: SharedPolicy
    """The policy in force: the submitted one, or its updated form, within the operator's limits."""
    limits: Limits = Limits()
    cluster_uid: str = ""
    creates_at_once: Annotated[bool, Field(exclude_if=lambda value: value)] = True
    """Whether a preparation may create (record 0065). A run that began under an earlier release goes on as that did."""
    resets_at_once: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether a look may go on to the removal (record 0086). A run of an earlier release goes on as it began."""
    shows_waits: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether a report may make the anchor before the first attempt (record 0096). Likewise."""
    kueue_admits: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether Kueue counts its quota, which others get for good once it has failed: it is not tried again (row F8)."""
    begins_suspended: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether what is submitted suspended may be created so (record 0102). Likewise."""
    intent: Intent = Intent()
    attempt: Attempt | None = None
    executions: int = 0
    unaccepted: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether the API server has accepted the components of no attempt, although one has begun: its preparation was
    broken off or refused. The next attempt is then checked as the first one is."""
    restarts: int = 0
    restarts_in_place: Annotated[int, Field(exclude_if=lambda value: not value)] = 0
    """How often an attempt has restarted in place: `progress.executions` caps these with the attempts (row P4)."""
    requeues: Annotated[int, Field(exclude_if=lambda value: not value)] = 0
    """How often it was requeued: a requeue request must expect this number (row L25)."""
    cycle: Annotated[int, Field(exclude_if=lambda value: not value)] = 0
    """The admission cycle that it is in: a new one begins only where something waits to be admitted (row L27)."""
    extended: Annotated[float, Field(exclude_if=lambda value: not value)] = 0.0
    """Seconds by which its walltime was extended, for this attempt and those to come."""
    used: dict[str, int] = Field(default_factory=dict)
    """The use of each budget."""
    acted: dict[str, int] = Field(default_factory=dict)
    """How often each rule that has a limit has acted, by its name."""
    copy_restarts: Annotated[dict[str, dict[int, CopyRestarts]], Field(exclude_if=lambda value: not value)] = Field(
        default_factory=dict
    )
    """By component and index: the copies that were restarted alone."""
    excluded: tuple[ExcludedNode, ...] = ()
    """Nodes blamed for failures, for the attempts to come; the node blamed last comes last."""
    observation: Observation | None = None
    observed_at: Time | None = None
    """When the latest observation arrived."""
    looked_at: Time | None = None
    """When the live look that gave the latest observation began; None if the latest came from the watch."""
    held: Held | None = None
    in_doubt: bool = False
    """Whether a snapshot arrived that may be old or new: a live look must decide."""
    unhealthy: Unhealthy | None = None
    blind: tuple[Interval, ...] = ()
    outcome: Phase | None = None
    """Settled outcome: Succeeded, Failed or Cancelled. What remains is holding and removing."""
    outcome_failure: Failure | None = None
    preempted_at: Time | None = None
    """When the preemption was requested for which its objects are being removed; None once all are gone."""
    checkpoint: Annotated[CheckpointRequest | None, Field(exclude_if=lambda value: value is None)] = None
    """The latest request to save, and its result."""
    saved: Annotated[Saved | None, Field(exclude_if=lambda value: value is None)] = None
    """The last complete checkpoint, from which the next attempt resumes."""
    steps: Annotated[StepRecord | None, Field(exclude_if=lambda value: value is None)] = None
    """What its steps have taught so far; None if they are not followed, or none was read (row P1)."""
    best_saved: Annotated[int | None, Field(exclude_if=lambda value: value is None)] = None
    """The highest step of a complete checkpoint: one beyond it renews the budgets (row P4)."""
    fall: Annotated[Fall | None, Field(exclude_if=lambda value: value is None)] = None
    """The step at which its program failed last (row P4)."""
    claims: Annotated[Claims | None, Field(exclude_if=lambda value: value is None)] = None
    """The storage of its attempts that existed when the last of them was gone (row D25)."""
    blocked: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """A text of what it waits for before it begins; empty: nothing (row L31)."""
    graph_told: Annotated[GraphNews | None, Field(exclude_if=lambda value: value is None)] = None
    """The last message that its graph received from it."""
    turn: Annotated[Turn | None, Field(exclude_if=lambda value: value is None)] = None
    """Its turn in its queue; None if it has no queue (rows L9, L26, L27)."""
    staging: Annotated[Staging | None, Field(exclude_if=lambda value: value is None)] = None
    """The state of the data sets that it reads; None before the first of them was requested (row L14)."""
    pause_until: Time | None = None
    hold_until: Time | None = None
    asked: Annotated[Asked | None, Field(exclude_if=lambda value: value is None)] = None
    """The last request in its custom resource, if one stands for it."""
    creator: Annotated[Outside, Field(exclude_if=lambda value: not value)] = ""
    """The user who created that resource, as a worker has read it there, whatever a document says (rows F13, X13)."""
    anchored: bool = False
    """Whether the anchor may exist: from the first preparation or `Operation.anchors` on, until it is released."""
    operation: Operation | None = None
    unsettled: Annotated[Operation | None, Field(exclude_if=lambda value: value is None)] = None
    """A reset that ended without a result: whether its removal has begun is found out before anything is decided."""
    told: Report | None = None
    """The last status that reached the cluster."""
    owed: Annotated[Report | None, Field(exclude_if=lambda value: value is None)] = None
    """A status that a look has left for the next operation to apply."""
    told_causes: int = 0
    """How many causes have been written as Kubernetes Events."""
    sequence: int = 0
    """The sequence of the last report made."""
    causes: tuple[Cause, ...] = ()
    causes_total: int = 0
    dropped: int = 0
    """The number of dropped observations of older attempts or older versions."""
    runs: int = 1
    """Workflow runs so far: 1 + continued-as-new."""
