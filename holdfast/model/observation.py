"""The observation of a workload: a whole compact snapshot, never a delta, and the failures in it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from holdfast.model.base import Time
from holdfast.model.vocabulary import FailureClass, Reason, Scope
from holdfast.model.words import Outside, counted

FAILURES_MAXIMUM = 16
WAITING_MAXIMUM = 8
"""Maximum number of groups of waiting pods in a snapshot: each has a message of at most 320 characters."""
UNSCHEDULABLE = "Unschedulable"
SCHEDULING_GATED = "SchedulingGated"
FAILED_CREATE = "FailedCreate"
ITS_GANG = "its gang"
"""The subject of a gang's failure that no single member has caused."""
_NAMES_A_POD = frozenset(
    {Reason.NO_PROGRESS, Reason.MEMBER_FAILED, Reason.MAX_RESTARTS_EXHAUSTED, Reason.MAX_ROUNDS_EXHAUSTED}
)
"""Reasons of failures of a whole gang or workload whose subject, if there is one, is a pod."""
_WAITS: dict[str, str] = {
    UNSCHEDULABLE: "unschedulable",
    SCHEDULING_GATED: "held by scheduling gates",
    FAILED_CREATE: "not created",
    "ErrImagePull": "cannot pull an image",
    "CreateContainerConfigError": "cannot be configured",
    "PodNotPrepared": "not prepared by their nodes",
}


class Payload(BaseModel):
    """A frozen value exchanged between releases: unknown fields are ignored, so that either side may be newer."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
    )


class Interval(Payload):
    """A span of time in which the observer could not see the cluster."""

    begin: Time
    end: Time


class Death(Payload):
    """The cause of death of a pod whose controller then gave up (row D35)."""

    kind: str = ""
    """Kind of the controller: Job."""
    pod: str
    reason: str = ""
    exit_code: int | None = None
    node: str = ""
    message: str = ""
    time: Time

    def sentence(self) -> str:
        """Describe the death in one line: `pod train-5c49b exited 137 (OOMKilled) on node-7`."""
        text = f"pod {self.pod}{_ended(() if self.exit_code is None else (self.exit_code,), self.reason) or ' failed'}"
        if self.node:
            text += f" on {self.node}"
        return f"{text}: {self.message}" if self.message else text


def _ended(codes: Sequence[int], reason: str) -> str:
    """Say how a pod ended, after its name: ` exited 137 (OOMKilled)`, `: Evicted`; empty if nothing is known."""
    told = reason if reason != "Error" else ""
    if codes:
        return f" exited {' and '.join(map(str, codes))}{f' ({told})' if told else ''}"
    return f": {told}" if told else ""


class Failure(Payload):
    """One failure, as evidence: what happened, where, when."""

    cls: FailureClass
    scope: Scope
    reason: str
    """The reason from the source: a container's reason, a Job condition's reason, or one of `Reason`."""
    time: Time
    component: str = ""
    subject: str = ""
    """The object that failed: a pod's or component's name."""
    node: str = ""
    exit_code: int | None = None
    exit_codes: Annotated[tuple[int, ...], Field(exclude_if=lambda value: not value)] = ()
    """All exit codes other than 0 of a pod's containers, if there are at least two; else empty (row D19)."""
    message: str = ""
    attempt: int = 0
    off: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether its node is proven to be powered off, so that nothing on it still runs (row L15)."""
    stuck: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether its pod has not started but still may: its kubelet retries (row L16)."""
    death: Annotated[Death | None, Field(exclude_if=lambda value: value is None)] = None
    """For the failure of a component: the earliest death of its pods."""

    @property
    def pod(self) -> str:
        """The name of the pod whose failure it is, or that is to blame for it; empty if that is not one pod."""
        if self.death is not None:
            return self.death.pod
        if self.subject != ITS_GANG and (self.scope is Scope.MEMBER or self.reason in _NAMES_A_POD):
            return self.subject
        return ""

    @property
    def codes(self) -> tuple[int, ...]:
        """All exit codes that rules match; the first container's code comes first."""
        if self.exit_codes:
            return self.exit_codes
        return () if self.exit_code is None else (self.exit_code,)

    def order(self) -> tuple[datetime, bool, str, str]:
        """Return the sort key: of failures seen together the earliest decides, ties by name.

        Kubernetes times have a resolution of one second. If a pod and its controller fail in the same second, the pod
        was first.
        """
        return (self.time, self.scope is not Scope.MEMBER, self.component, self.subject)

    def sentence(self) -> str:
        """Describe the failure in one line: `worker-3 exited 137 (OOMKilled) on node-7`."""
        who = self.subject or self.component
        text = who or "the workload"
        if self.death is not None:
            text += f": {self.reason}{f': {self.message}' if self.message else ''}"
            return f"{text}; {self.death.sentence()}"
        if self.codes:
            text += _ended(self.codes, self.reason)
        else:
            text = f"{who}: {self.reason}" if who else self.reason
        if self.node:
            text += f" on {self.node}"
        if self.message:
            text += f": {self.message}"
        return text


class Waiting(Payload):
    """Pods of one component that wait for the same reason: their number, and the reason (row D34)."""

    reason: str
    """The reason from the source: a condition, a container or an Event."""
    count: int
    message: str = ""
    component: str = ""
    subject: str = ""
    """The name of one of the pods; empty if none exists yet."""

    def sentence(self) -> str:
        """Describe the wait in one line: `2 pods unschedulable: 0/8 nodes have enough cpu (each asks for 5000)`."""
        text = f"{counted(self.count, 'pod')} {_WAITS.get(self.reason, 'cannot start')}"
        if self.reason not in _WAITS:
            text += f": {self.reason}"
        return f"{text}: {self.message}" if self.message else text


class PodCounts(Payload):
    """Pods by state. `failed` counts failed pods that no live or succeeded pod has replaced (row A18)."""

    expected: int = 0
    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int = 0

    @property
    def going(self) -> int:
        """Pods that run or may still run, including those being deleted."""
        return self.pending + self.running + self.terminating

    @property
    def present(self) -> int:
        """Pods that exist in any state, except those being deleted."""
        return self.pending + self.running + self.succeeded + self.failed

    @property
    def ready(self) -> int:
        """Pods that run or have already succeeded."""
        return self.running + self.succeeded

    def sentence(self) -> str:
        """Say it in a few words: `3 of 4 pods running, 1 pending`."""
        named = {
            "succeeded": self.succeeded,
            "pending": self.pending,
            "failed": self.failed,
            "terminating": self.terminating,
        }
        rest = "".join(f", {count:,} {word}" for word, count in named.items() if count)
        return f"{self.running:,} of {counted(self.expected, 'pod')} running{rest}"


class CopyCounts(Payload):
    """How many copies are expected, and the observed ones by state; counts, never a list of copies."""

    expected: int = 0
    ready: int = 0
    """Copies that have not ended, with all their pods ready or succeeded."""
    succeeded: int = 0
    failed: int = 0
    active: int = 0
    """Copies that have not ended, with at least one pod that has not ended."""
    suspended: int = 0


class ComponentView(Payload):
    """One component as observed: whether it exists, its own status, and its pods."""

    found: bool = True
    """Whether its object exists; for copies, whether all exist."""
    uid: str = ""
    """The uid of its object; for copies, a digest of their uids."""
    complete: bool = False
    """Its own status reports completion; or, if its status cannot report it, all its expected pods succeeded."""
    failed: bool = False
    """Its own status reports failure; for copies, the status of any."""
    ready: Annotated[bool | None, Field(exclude_if=lambda value: value is None)] = None
    """Whether its own status reports readiness; None if its status cannot report it, and its pods decide."""
    pods: PodCounts = PodCounts()
    copies: Annotated[CopyCounts | None, Field(exclude_if=lambda value: value is None)] = None
    """None if there is one object, under its own name."""
    awaited: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether other components wait for it, or success depends on it: its change is then reported at once."""
    excused: Annotated[int, Field(exclude_if=lambda value: not value)] = 0
    """Expected pods that no longer count as missing, since their copy has ended."""
    released: Annotated[int, Field(exclude_if=lambda value: not value)] = 0
    """Declared pods that its object's own spec does not request now: it was scaled down (row D14)."""
    overrun: Annotated[int, Field(exclude_if=lambda value: not value)] = 0
    """Pods that its object's own spec requests beyond the declared ones (row D14)."""
    starting: Annotated[Time | None, Field(exclude_if=lambda value: value is None)] = None
    """When the last of the pods that will make up its shortfall was created; None if some of them do not exist."""

    ending: Annotated[Time | None, Field(exclude_if=lambda value: value is None)] = None
    """Until when its pods that are being deleted may take to end, if they, with those that start, make up its
    shortfall: until then a controller may not make others (row D14)."""

    backs_off_until: Annotated[Time | None, Field(exclude_if=lambda value: value is None)] = None
    """Until when its Job, which has retries left, may back off before it replaces failed pods (row D22)."""

    unserved: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether the cluster does not (or no longer) serve its kind: its state is unknown, which is no failure (D24)."""

    @property
    def declared(self) -> int:
        """How many pods the workload declares for it, whatever its object's own spec requests now."""
        return self.pods.expected + self.released

    @property
    def absent(self) -> int:
        """How many expected pods do not exist."""
        return 0 if self.complete or self.unserved else max(0, self.pods.expected - self.pods.present - self.excused)

    @property
    def unready(self) -> int:
        """How many expected pods are neither running nor succeeded."""
        return 0 if self.complete or self.unserved else max(0, self.pods.expected - self.pods.ready - self.excused)

    @property
    def started(self) -> bool:
        """Whether it is ready, so that its dependents may start; for copies, as each copy itself reports (J13)."""
        if self.complete:
            return True
        if self.copies is None:
            return not self.unready if self.ready is None else self.ready
        return self.copies.ready + self.copies.succeeded + self.copies.failed >= self.copies.expected


class Asked(Payload):
    """What the custom resource that represents a workload requests (row F4)."""

    kind: str
    """Kind of the resource: AppWrapper."""
    generation: int
    """Generation of its `spec`: of two messages, the one with the higher generation is newer (row F7)."""
    suspend: bool = False
    deleting: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    foreground: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether the garbage collector deletes its dependents first, and at once (row F3)."""
    by: Annotated[Outside, Field(exclude_if=lambda value: not value)] = ""
    """The user who changed it last, as the API server reports (row F13)."""


class Quiet(Payload):
    """A node with pods of the attempt, and when its lease was last renewed, by the node's own clock."""

    node: str
    renewed: Time
    down_at: Time
    """When the node will be declared Down if it stays silent."""
    lost_at: Annotated[Time | None, Field(exclude_if=lambda value: value is None)] = None
    """When it will be declared Down for sensitive workloads too."""


class Observation(Payload):
    """A whole snapshot of one attempt, from the watch's cache or from a live read.

    `revision` is the highest resource version seen; `epoch` counts restorations of the cluster, since a restored
    cluster restarts its resource versions. `blind` lists the spans in which the observer could not see.
    """

    workload_uid: str
    attempt: int
    owner_uid: str
    at: Time
    live: bool = False
    epoch: int = 0
    revision: int = 0
    owner_found: bool = True
    owner_deleting: bool = False
    anchor_deleting: bool = False
    anchor_found: bool = True
    """Whether the workload's anchor exists and still has our finalizer (live reads)."""
    owner_submitted: bool | None = None
    """Whether the attempt's owner is marked submitted; None if not read (live reads)."""
    parked: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether the attempt's owner is marked as suspended in place, with proof that it has no pods."""
    others: tuple[int, ...] = ()
    """Other attempts of this workload that are live in the cluster: submitted, or with pods (live reads)."""
    components: dict[str, ComponentView] = {}
    unplanned: int = 0
    """Pods of the attempt that have not ended and belong to no component of its plan, such as a controller's own."""
    failures: tuple[Failure, ...] = ()
    """At most 16, in the order in which they decide."""
    failures_total: int = 0
    stuck: Annotated[tuple[Failure, ...], Field(exclude_if=lambda value: not value)] = ()
    """Pods that their kubelets could not start so far, at most 16; failures only if the policy says so (row L16)."""
    waiting: Annotated[tuple[Waiting, ...], Field(exclude_if=lambda value: not value)] = ()
    """What pods that do not run yet wait for, at most 8 groups: the largest first."""
    foreign: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """Pods with the workload's labels that belong to a foreign object, such as a copied Job: left alone (row D26)."""
    quietest: Annotated[Quiet | None, Field(exclude_if=lambda value: value is None)] = None
    """Of the nodes with its pods, the one whose lease was renewed least recently (live reads that ask for it)."""
    asked: Annotated[Asked | None, Field(exclude_if=lambda value: value is None)] = None
    """What its custom resource requests, if one represents it; None if it was not seen."""
    blind: tuple[Interval, ...] = ()
    untold: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether the read left the status that it should have written to a later operation (live reads)."""

    @property
    def pods(self) -> PodCounts:
        """All components' pods together."""
        total: dict[str, int] = dict.fromkeys(PodCounts.model_fields, 0)
        for view in self.components.values():
            for field in total:
                total[field] += getattr(view.pods, field)
        return PodCounts(**total)

    @property
    def occupies(self) -> bool:
        """Whether a pod of the attempt runs or may still run, and so uses its quota."""
        return bool(self.pods.going or self.unplanned)

    @property
    def complete(self) -> bool:
        """Whether every component is complete; false while no component is known."""
        return bool(self.components) and all(view.complete and view.found for view in self.components.values())

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the components whose object is missing."""
        return tuple(name for name, view in sorted(self.components.items()) if not view.found)

    def newer_than(self, other: Observation | None) -> bool:
        """Whether this snapshot is at least as new as the other, by the cluster's own versions and never by clocks."""
        return other is None or (self.attempt, self.epoch, self.revision) >= (
            other.attempt,
            other.epoch,
            other.revision,
        )
