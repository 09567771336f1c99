"""What was seen of a workload: a whole compact snapshot, never a delta, and the failures in it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from holdfast.model.base import Outside, Time
from holdfast.model.vocabulary import FailureClass, Scope

FAILURES_MAXIMUM = 16
WAITING_MAXIMUM = 8
"""Groups of pods that wait, in a snapshot: each has a message of at most 320 characters."""
UNSCHEDULABLE = "Unschedulable"
SCHEDULING_GATED = "SchedulingGated"
FAILED_CREATE = "FailedCreate"
_WAITS: dict[str, str] = {
    UNSCHEDULABLE: "unschedulable",
    SCHEDULING_GATED: "held by scheduling gates",
    FAILED_CREATE: "not created",
    "ErrImagePull": "cannot pull an image",
    "CreateContainerConfigError": "cannot be configured",
    "PodNotPrepared": "not prepared by their nodes",
}


class Payload(BaseModel):
    """A frozen value on its way between releases: unknown fields are let pass, so that either may be the newer."""

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
    """What a pod died of whose controller then gave up (row D35)."""

    kind: str = ""
    """Of the controller: Job."""
    pod: str
    reason: str = ""
    exit_code: int | None = None
    node: str = ""
    message: str = ""
    time: Time

    def sentence(self) -> str:
        """Say it in one line: `Job failed: pod train-5c49b OOMKilled, exit 137, on node-7`."""
        text = f"{self.kind or 'component'} failed: pod {self.pod} {_died(self.reason)}"
        if self.exit_code is not None:
            text += f", exit {self.exit_code}"
        if self.node:
            text += f", on {self.node}"
        return f"{text}: {self.message}" if self.message else text


def _died(reason: str) -> str:
    return "failed" if reason in {"", "Error"} else reason


class Failure(Payload):
    """One thing that went wrong, as evidence: what, where, when."""

    cls: FailureClass
    scope: Scope
    reason: str
    """The source's own word: a container's reason, a Job condition's reason, or one of `Reason`."""
    time: Time
    component: str = ""
    subject: str = ""
    """The object it happened to: a pod's or component's name."""
    node: str = ""
    exit_code: int | None = None
    exit_codes: Annotated[tuple[int, ...], Field(exclude_if=lambda value: not value)] = ()
    """Of all containers of a pod that ended with another code than 0, where there are several; else empty (row D19)."""
    message: str = ""
    attempt: int = 0
    off: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether its node is proven to be powered off, so that nothing of it runs on (row L15)."""
    stuck: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether it is of a pod that has not started, and may yet: its kubelet tries again (row L16)."""
    death: Annotated[Death | None, Field(exclude_if=lambda value: value is None)] = None
    """Of a component's verdict: the pod's death that came first."""

    @property
    def codes(self) -> tuple[int, ...]:
        """Every exit code that rules read; that of the first container leads."""
        if self.exit_codes:
            return self.exit_codes
        return () if self.exit_code is None else (self.exit_code,)

    def order(self) -> tuple[datetime, bool, str, str]:
        """Sort key: of failures seen together the earliest decides, ties by name.

        Kubernetes tells times to the second, in which a pod fails and its controller says so: the pod was first.
        """
        return (self.time, self.scope is not Scope.MEMBER, self.component, self.subject)

    def sentence(self) -> str:
        """Say what happened in one line: `worker-3 exited 137 (OOMKilled) on node-7`."""
        text = self.subject or self.component or "the workload"
        if self.death is not None:
            text += f": {self.reason}{f': {self.message}' if self.message else ''}"
            return f"{text}; {self.death.sentence()}"
        if self.codes:
            text += f" exited {' and '.join(map(str, self.codes))}"
            if self.reason and self.reason != "Error":
                text += f" ({self.reason})"
        else:
            text += f": {self.reason}"
        if self.node:
            text += f" on {self.node}"
        if self.message:
            text += f": {self.message}"
        return text


class Waiting(Payload):
    """Pods of one component that wait for the same: how many, and for what (row D34)."""

    reason: str
    """The source's own word: a condition's reason, a container's, or an Event's."""
    count: int
    message: str = ""
    component: str = ""
    subject: str = ""
    """One of the pods; empty where there are none yet."""

    def sentence(self) -> str:
        """Say it in one line: `2 pods unschedulable: 0/8 nodes have enough cpu (each asks for 5000)`."""
        text = f"{self.count} pod{'' if self.count == 1 else 's'} {_WAITS.get(self.reason, 'cannot start')}"
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
        """Pods that run or may come to run, those being deleted included."""
        return self.pending + self.running + self.terminating

    @property
    def present(self) -> int:
        """Pods that exist in whatever state, but for those being deleted."""
        return self.pending + self.running + self.succeeded + self.failed

    @property
    def ready(self) -> int:
        """Pods that run or have already succeeded."""
        return self.running + self.succeeded


class CopyCounts(Payload):
    """How many copies there are to be, and how those that were seen stand; counts, never a list of them."""

    expected: int = 0
    ready: int = 0
    """Not ended, and with all their pods ready or succeeded."""
    succeeded: int = 0
    failed: int = 0
    active: int = 0
    """Not ended, and with a pod that has not ended."""
    suspended: int = 0


class ComponentView(Payload):
    """One component as seen: whether it is there, what its own status says, and its pods."""

    found: bool = True
    """Whether its object is there; of several copies, whether all are."""
    uid: str = ""
    """Its object's; of several copies, a digest of theirs."""
    complete: bool = False
    """Its own status says it is complete, or, where that has no word for it, all its expected pods succeeded."""
    failed: bool = False
    """Its own status says it has failed; of several copies, that of any."""
    ready: Annotated[bool | None, Field(exclude_if=lambda value: value is None)] = None
    """Whether its own status says that it is ready; None where it has no word for that, and its pods tell."""
    pods: PodCounts = PodCounts()
    copies: Annotated[CopyCounts | None, Field(exclude_if=lambda value: value is None)] = None
    """None where there is one object, under its own name."""
    awaited: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether others are created once it is ready or complete, or success looks at it: that is news at once."""
    excused: Annotated[int, Field(exclude_if=lambda value: not value)] = 0
    """Expected pods that are not missed any more, since their copy has ended."""
    released: Annotated[int, Field(exclude_if=lambda value: not value)] = 0
    """Declared pods that its object's own spec does not ask for now: somebody scaled it down (row D14)."""
    overrun: Annotated[int, Field(exclude_if=lambda value: not value)] = 0
    """Pods that its object's own spec asks for beyond the declared ones (row D14)."""
    starting: Annotated[Time | None, Field(exclude_if=lambda value: value is None)] = None
    """When the pods that are to make up what it lacks had all been created; None where some of them do not exist."""

    backs_off_until: Annotated[Time | None, Field(exclude_if=lambda value: value is None)] = None
    """Until when its Job, which has retries left, may wait by itself before it replaces failed pods (row D22)."""

    unserved: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether the cluster does not serve its kind (any more): nothing is known of it, and nothing fails (row D24)."""

    @property
    def declared(self) -> int:
        """How many pods the workload declares for it, whatever its object's own spec asks for now."""
        return self.pods.expected + self.released

    @property
    def absent(self) -> int:
        """How many expected pods are not there."""
        return 0 if self.complete or self.unserved else max(0, self.pods.expected - self.pods.present - self.excused)

    @property
    def unready(self) -> int:
        """How many expected pods neither run nor have succeeded."""
        return 0 if self.complete or self.unserved else max(0, self.pods.expected - self.pods.ready - self.excused)

    @property
    def started(self) -> bool:
        """Whether it is ready, so that what waits for it may start: of copies, as each of them says of itself (J13)."""
        if self.complete:
            return True
        if self.copies is None:
            return not self.unready if self.ready is None else self.ready
        return self.copies.ready + self.copies.succeeded + self.copies.failed >= self.copies.expected


class Asked(Payload):
    """What the custom resource that stands for a workload asks for (row F4)."""

    kind: str
    """Of the resource: AppWrapper."""
    generation: int
    """Of its `spec`: of two that come, the higher one is the later word (row F7)."""
    suspend: bool = False
    deleting: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    foreground: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether the collector deletes what it owns first, and at once (row F3)."""
    by: Annotated[Outside, Field(exclude_if=lambda value: not value)] = ""
    """Who changed it last, by the API server's own word (row F13)."""


class Quiet(Payload):
    """A node where pods of the attempt live, and when its lease was last renewed by its own clock."""

    node: str
    renewed: Time
    down_at: Time
    """When it will have had the time to be found Down, if it is not heard of."""


class Observation(Payload):
    """A whole snapshot of one attempt, from the watch's cache or from a live read.

    `revision` is the highest resource version seen; `epoch` counts restorations of the cluster, since a restored
    cluster starts its versions anew. `blind` lists the spans in which the observer could not see.
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
    """Whether the workload's anchor is there and still bears our finalizer (live looks)."""
    owner_submitted: bool | None = None
    """Whether the attempt's owner is marked submitted; None where that was not asked (live looks)."""
    parked: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether the attempt's owner says that it is suspended in place, and was proven to have no pods."""
    others: tuple[int, ...] = ()
    """Other attempts of this workload that live in the cluster: submitted, or with pods (live looks)."""
    components: dict[str, ComponentView] = {}
    unplanned: int = 0
    """Pods of the attempt that have not ended and belong to no component of its plan, such as a controller's own."""
    failures: tuple[Failure, ...] = ()
    """At most 16, in deciding order."""
    failures_total: int = 0
    stuck: Annotated[tuple[Failure, ...], Field(exclude_if=lambda value: not value)] = ()
    """Pods that their kubelets could not start so far, at most 16; failures only to a policy that says so (row L16)."""
    waiting: Annotated[tuple[Waiting, ...], Field(exclude_if=lambda value: not value)] = ()
    """What pods wait for that do not run yet, at most 8 groups: the largest first."""
    foreign: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """Pods that bear the workload's labels and come of another's object, such as a copied Job: left alone (row D26)."""
    quietest: Annotated[Quiet | None, Field(exclude_if=lambda value: value is None)] = None
    """Of the nodes where its pods live, the one that was heard of least lately (live looks that ask for it)."""
    asked: Annotated[Asked | None, Field(exclude_if=lambda value: value is None)] = None
    """What its custom resource asks for, where one stands for it; None where that was not seen."""
    blind: tuple[Interval, ...] = ()
    untold: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether the status that the look was to bring is left to what follows it (live looks)."""

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
        """Whether a pod of the attempt runs or may come to run, and so uses what it was given."""
        return bool(self.pods.going or self.unplanned)

    @property
    def complete(self) -> bool:
        """Whether every component is complete; false while nothing is known."""
        return bool(self.components) and all(view.complete and view.found for view in self.components.values())

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the components whose object is gone."""
        return tuple(name for name, view in sorted(self.components.items()) if not view.found)

    def newer_than(self, other: Observation | None) -> bool:
        """Whether this snapshot is at least as new as the other, by the cluster's own order and never by clocks."""
        return other is None or (self.attempt, self.epoch, self.revision) >= (
            other.attempt,
            other.epoch,
            other.revision,
        )
