"""The events in a workload's life, as values: users' requests, observations, and results of operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

from pydantic import Field

from holdfast import names
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
from holdfast.model.life.progress import StepRecord
from holdfast.model.observation import Asked


class RequeueRequest(Payload):
    """A request by an outside monitor, such as one of nodes, that a workload goes back to its queue."""

    expected_requeue_count: int = Field(ge=0)
    """How often the sender believes the workload was requeued; if the number differs, nothing is done (row L25)."""
    cls: Literal[FailureClass.NODE_LOST, FailureClass.HARDWARE] = FailureClass.NODE_LOST
    reason: str = Reason.REQUEUE_REQUESTED
    node: str = ""
    message: str = ""
    uid: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """The uid of the submission that it is meant for; empty: the submission that has the name now (row D46)."""


@dataclass(frozen=True, slots=True)
class Suspended:
    """A user or a queue wants the workload suspended; `preempted` is set if it loses its place to another workload."""

    note: str = ""
    preempted: bool = False
    within: float | None = None
    """The longest time to wait for a checkpoint, in seconds; None: as long as the workload itself specifies."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """A user or a queue ends the suspension."""

    note: str = ""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The workload is to be deleted."""

    note: str = ""
    reason: Reason = Reason.CANCEL_REQUESTED
    phases: tuple[Phase, ...] = ()
    """The request applies only in these phases; empty: in any phase."""


NOT_RETRIED: Final = "retry was asked for, but "
"""How the cause of a retry begins that is refused."""


@dataclass(frozen=True, slots=True)
class Retried:
    """A user wants another try now."""

    note: str = ""


@dataclass(frozen=True, slots=True)
class CheckpointAsked:
    """A user wants the workload to save its state and keep running."""

    note: str = ""


@dataclass(frozen=True, slots=True)
class StripAsked:
    """A user wants the finalizers removed from objects that a forced removal cannot delete."""

    note: str = ""


@dataclass(frozen=True, slots=True)
class Observed:
    """A snapshot arrived from the watch."""

    observation: Observation


@dataclass(frozen=True, slots=True)
class SourceSeen:
    """The custom resource of the workload, if it has one, was observed (row F4)."""

    asked: Asked


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """A user changed the policy of a running workload."""

    policy: Policy
    note: str = ""


@dataclass(frozen=True, slots=True)
class WalltimeExtended:
    """A user extended the walltime of a workload."""

    total: float
    """The total extension of its walltime, in seconds."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class RequeueAsked:
    """An outside monitor, such as one of nodes, asks that a workload goes back to its queue (row L25)."""

    request: RequeueRequest


@dataclass(frozen=True, slots=True)
class GraphOrdered:
    """The workload's graph decided whether it may begin, or is to end (row L31)."""

    order: GraphOrder


@dataclass(frozen=True, slots=True)
class GraphTold:
    """The workload's graph has received its status."""

    news: GraphNews
    waits: str = ""
    """What the workload waits for from then on, as a message."""


@dataclass(frozen=True, slots=True)
class GraphMissing:
    """The workload's status could not be delivered to its graph."""

    why: str


@dataclass(frozen=True, slots=True)
class NotUnderstood:
    """A signal was dropped: it could not be decoded, or it does not apply to this workload."""

    signal: str
    why: str


@dataclass(frozen=True, slots=True)
class QueueOrdered:
    """The workload's queue decided whether it may begin (row L9)."""

    order: QueueOrder


@dataclass(frozen=True, slots=True)
class QueueTold:
    """The workload's queue has received its status."""

    news: QueueNews


@dataclass(frozen=True, slots=True)
class QueueMissing:
    """The workload's status could not be delivered to its queue."""

    why: str


@dataclass(frozen=True, slots=True)
class GangTold:
    """The rendezvous reported the outcome of an attempt's gang."""

    outcome: GangOutcome

    @property
    def attempt(self) -> int:
        """The number of the attempt."""
        return self.outcome.attempt


@dataclass(frozen=True, slots=True)
class GangBegun:
    """The rendezvous knows of an attempt."""

    attempt: int


@dataclass(frozen=True, slots=True)
class GangParted:
    """The rendezvous was notified that an attempt ends."""

    attempt: int


@dataclass(frozen=True, slots=True)
class GangScaled:
    """A user wants the gang to have another size."""

    gang: Gang
    note: str = ""


@dataclass(frozen=True, slots=True)
class GangResized:
    """The Job and the rendezvous of an attempt have the requested size."""

    attempt: int
    gang: Gang
    members: str = ""
    """The component of its members; empty: as before release 0.3, which did not wait for those that it needs now."""


@dataclass(frozen=True, slots=True)
class GangUnsized:
    """The cluster refused a gang of that size: the gang keeps its present size."""

    attempt: int
    gang: Gang
    why: str


@dataclass(frozen=True, slots=True)
class Reconfigured:
    """A user changed the definitions of some components."""

    components: tuple[str, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class ProbeEnded:
    """The probing of an attempt's pods ended: a pod did not answer for too long, or the probing was interrupted."""

    attempt: int
    failure: Failure | None = None
    failing: dict[str, int] = field(default_factory=dict[str, int])
    """Consecutive unanswered probes of each pod so far, by uid."""


@dataclass(frozen=True, slots=True)
class StepsRead:
    """The steps of an attempt were read: where they stand, and the failure if they stand still."""

    attempt: int
    record: StepRecord | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Looked:
    """A live look has returned; its snapshot is folded in separately."""

    untold: bool = False
    """Whether the status that the look was to report is left to the next operation."""


@dataclass(frozen=True, slots=True)
class OperationRefused:
    """The cluster's worker refused an operation with a final error; `type` is one of the `ERROR_*` names."""

    type: str
    message: str
    newest: int = 0
    """The highest attempt of this workload in the cluster, if that is the reason; else 0."""


@dataclass(frozen=True, slots=True)
class OperationInterrupted:
    """The workflow interrupted the operation under way."""

    borne: float = 0.0
    """Seconds for which it tolerated refusals (preparations and creations)."""
    objects: tuple[ObjectRef, ...] = ()
    """The objects it created (creations)."""


OperationEnd = Result | Looked | OperationRefused | OperationInterrupted

Wish = Suspended | Resumed | Cancelled | Retried | PolicyChanged
"""What a user or a queue wants. It is recorded in the workload's intent."""
WISHES: Final[dict[str, Callable[[str], Wish]]] = {
    names.SIGNAL_SUSPEND: Suspended,
    names.SIGNAL_RESUME: Resumed,
    names.SIGNAL_CANCEL: Cancelled,
    names.SIGNAL_RETRY: Retried,
}
"""The wishes that are signals with a reason, by the signal."""

Event = (
    Wish
    | CheckpointAsked
    | StripAsked
    | Observed
    | SourceSeen
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
    | StepsRead
    | OperationEnd
)
