"""The orders of a rendezvous for its hub, one for all members with the same directive; and its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from pydantic import Field

from holdfast.model.base import Time
from holdfast.model.gang.state import Absence
from holdfast.model.gang.status import CloseReason, GangPhase, RoleFigures
from holdfast.model.gang.wire import Coordinator, DirectiveKind, WorkerFailure
from holdfast.model.observation import Payload
from holdfast.model.packed import PackedPayload


class Place(Payload):
    """The data of one member of a round that is needed to count all ranks (row T11)."""

    member: str
    local_world_size: int = 1
    role: str = "default"
    restarts: int = 0


class Round(Payload):
    """A round: its members in the order of their ranks, which are counted on demand."""

    run_id: str
    number: int
    coordinator: Coordinator
    max_restarts: int
    places: tuple[Place, ...]


class Told(Payload):
    """One directive, and the members that receive it; the assignment of Run is counted from the round."""

    kind: DirectiveKind
    revision: int
    members: tuple[str, ...]
    reason: CloseReason | None = None
    exit_code: int = 0
    why: str = ""
    deadline: Time | None = None


class Orders(PackedPayload):
    """The directives for the members of a gang that are new to the hub that asks."""

    attempt: int
    revision: int
    """The revision up to which the hub then knows all directives."""
    phase: GangPhase
    told: tuple[Told, ...] = ()
    round: Round | None = None
    """The round, if some members are told to run in it."""
    due: Time | None = None
    """The next deadline, at which the rendezvous must hear the hub again; in the past: at once."""
    ending: bool = False
    """Whether the rendezvous will soon end, since its attempt has ended."""
    roles: Mapping[str, RoleFigures] = Field(default_factory=dict[str, RoleFigures])


class Holder(Payload):
    """The agent that holds a member's place."""

    member: str
    pod_uid: str
    incarnation: str
    started_at: Time
    absent: Absence | None = None
    life: int = 0


class GangEnding(StrEnum):
    """The outcome of a gang."""

    SUCCEEDED = "Succeeded"
    """All members of its last round have succeeded (row T1)."""
    FAILED = "Failed"
    """A member had no restarts left, or a deadline passed (rows T2, T4, T8)."""
    LOST = "Lost"
    """No round can replace a lost member: the workload's own rules and budget decide (rows T9, T10)."""


class GangOutcome(Payload):
    """The outcome of a gang, as sent to its workload."""

    workload_uid: str
    attempt: int
    ending: GangEnding
    reason: CloseReason
    why: str
    """The reason as a text."""
    at: Time
    round: int = 0
    """The last round that was formed."""
    member: str = ""
    """The member whose failure or loss decided, if it was a single one."""
    pod_uid: str = ""
    node: str = ""
    role: str = ""
    restarts: int = 0
    """The restarts charged to that member before."""
    failure: WorkerFailure | None = None
    """How its first worker failed."""
