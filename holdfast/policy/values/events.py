"""What happens to a workload, as values: what its people wish, what was seen, how its operations ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from holdfast.model import (
    Failure,
    FailureClass,
    ObjectRef,
    Observation,
    Payload,
    Phase,
    Policy,
    Reason,
)
from holdfast.model.calls.operations import Result
from holdfast.model.entities.graph import GraphNews, GraphOrder
from holdfast.model.entities.queue import QueueNews, QueueOrder
from holdfast.model.gang.orders import GangOutcome
from holdfast.model.gang.state import Gang
from holdfast.model.observation import Asked


class RequeueRequest(Payload):
    """What somebody who watches over something else tells of a workload: that it must go back to its queue."""

    expected_requeue_count: int = Field(ge=0)
    """How often it has been requeued as far as whoever asks knows: with another number nothing is done (row L25)."""
    cls: Literal[FailureClass.NODE_LOST, FailureClass.HARDWARE] = FailureClass.NODE_LOST
    reason: str = Reason.REQUEUE_REQUESTED
    node: str = ""
    message: str = ""
    uid: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """Of the submission that it is meant for; empty: of whichever has the name (row D46)."""


@dataclass(frozen=True, slots=True)
class Suspended:
    """A person or a queue wants the workload suspended; `preempted` says that it lost its place to another."""

    note: str = ""
    preempted: bool = False
    within: float | None = None
    """Seconds for which a checkpoint is waited for at most; None: as long as the workload itself says."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """A suspension is taken back."""

    note: str = ""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The workload is to be deleted."""

    note: str = ""
    reason: Reason = Reason.CANCEL_REQUESTED
    phases: tuple[Phase, ...] = ()
    """It holds only while the workload is in one of them; none: in any."""


@dataclass(frozen=True, slots=True)
class Retried:
    """A person wants another try now."""

    note: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointAsked:
    """A person wants the workload to save its state and run on."""

    note: str = ""


@dataclass(frozen=True, slots=True)
class StripAsked:
    """A person wants the finalizers taken off what a forced removal cannot get rid of."""

    note: str = ""


@dataclass(frozen=True, slots=True)
class Observed:
    """A snapshot came, from the watch or from a live look."""

    observation: Observation


@dataclass(frozen=True, slots=True)
class SourceSeen:
    """What its custom resource asks for, where one stands for it (row F4)."""

    asked: Asked


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """A person changed the policy of a workload that is under way."""

    policy: Policy
    note: str = ""


@dataclass(frozen=True, slots=True)
class WalltimeExtended:
    """A person lets a workload run longer."""

    total: float
    """Seconds by which its walltime is extended in all."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class RequeueAsked:
    """Somebody who watches over something else says that a workload must go back to its queue (row L25)."""

    request: RequeueRequest


@dataclass(frozen=True, slots=True)
class GraphOrdered:
    """Its graph says whether it may begin, or is to end (row L31)."""

    order: GraphOrder


@dataclass(frozen=True, slots=True)
class GraphTold:
    """Its graph has heard how it stands."""

    news: GraphNews
    waits: str = ""
    """What it waits for from then on, in words."""


@dataclass(frozen=True, slots=True)
class GraphMissing:
    """Its graph could not be told how it stands; why."""

    why: str


@dataclass(frozen=True, slots=True)
class NotUnderstood:
    """A signal was let fall, since what it brought is not what it takes."""

    signal: str
    why: str


@dataclass(frozen=True, slots=True)
class QueueOrdered:
    """Its queue says whether it may begin (row L9)."""

    order: QueueOrder


@dataclass(frozen=True, slots=True)
class QueueTold:
    """Its queue has heard how it stands."""

    news: QueueNews


@dataclass(frozen=True, slots=True)
class QueueMissing:
    """Its queue could not be told how it stands; why."""

    why: str


@dataclass(frozen=True, slots=True)
class GangTold:
    """Its rendezvous says what the gang of an attempt came to."""

    outcome: GangOutcome

    @property
    def attempt(self) -> int:
        """Of which attempt."""
        return self.outcome.attempt


@dataclass(frozen=True, slots=True)
class GangBegun:
    """The rendezvous knows of an attempt."""

    attempt: int


@dataclass(frozen=True, slots=True)
class GangParted:
    """The rendezvous was told that an attempt ends."""

    attempt: int


@dataclass(frozen=True, slots=True)
class GangScaled:
    """A person wants the gang to have another size."""

    gang: Gang
    note: str = ""


@dataclass(frozen=True, slots=True)
class GangResized:
    """The Job and the rendezvous of an attempt have the size that was asked for."""

    attempt: int
    gang: Gang


@dataclass(frozen=True, slots=True)
class GangUnsized:
    """The cluster will not have a gang of that size: it keeps the one it has."""

    attempt: int
    gang: Gang
    why: str


@dataclass(frozen=True, slots=True)
class Reconfigured:
    """A person changed what some components are made of."""

    components: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class ProbeEnded:
    """The asking of an attempt's pods has ended: one has been silent for too long, or it was broken off."""

    attempt: int
    failure: Failure | None = None
    failing: dict[str, int] = field(default_factory=dict[str, int])
    """How often in a row pods have not answered so far, by uid."""


@dataclass(frozen=True, slots=True)
class Looked:
    """A live look has come back; its snapshot is folded in beside it."""

    untold: bool = False
    """Whether the status it was to bring is left to the next operation."""


@dataclass(frozen=True, slots=True)
class OperationRefused:
    """The cluster's worker refused an operation for good; `type` is one of the `ERROR_*` names."""

    type: str
    message: str
    newest: int = 0
    """The highest attempt of this workload in the cluster, where that is why."""


@dataclass(frozen=True, slots=True)
class OperationInterrupted:
    """The operation under way was broken off, at our wish."""

    borne: float = 0.0
    """Seconds for which it has borne refusals (preparations and creations)."""
    objects: tuple[ObjectRef, ...] = ()
    """What it has made (creations)."""


OperationEnd = Result | Looked | OperationRefused | OperationInterrupted

Event = (
    Suspended
    | Resumed
    | Cancelled
    | Retried
    | CheckpointAsked
    | StripAsked
    | Observed
    | SourceSeen
    | PolicyChanged
    | WalltimeExtended
    | RequeueAsked
    | NotUnderstood
    | GraphOrdered
    | GraphTold
    | GraphMissing
    | QueueOrdered
    | QueueTold
    | QueueMissing
    | GangTold
    | GangBegun
    | GangParted
    | GangScaled
    | GangResized
    | GangUnsized
    | Reconfigured
    | ProbeEnded
    | OperationEnd
)
