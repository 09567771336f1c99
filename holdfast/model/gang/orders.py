"""The orders of a rendezvous for its hub, one for all members with the same directive; and its outcome."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from pydantic import Field

from holdfast.model.base import Time
from holdfast.model.gang.state import Absence, GangPhase
from holdfast.model.gang.wire import CloseReason, Coordinator, DirectiveKind, WorkerFailure
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


class RoleFigures(Payload):
    """The metrics of the members of one role (row T14)."""

    remaining_restarts: int
    """The remaining restarts of the member that has the fewest."""
    flakiness: int
    """The share of its tries, in percent, that the flakiest member has used up; 100 if the gang has failed."""


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


class GangStatus(Payload):
    """The status of a gang, for people and their tools; answer of the query `status`."""

    workload_uid: str
    attempt: int
    phase: GangPhase
    round: int
    min: int
    max: int
    present: int
    """The number of present members, in the round or not."""
    participants: int
    """The number of members of which the last round was formed."""
    waiting: tuple[str, ...] = ()
    """Members without a place, by arrival; at most 20."""
    absent: Mapping[str, str] = Field(default_factory=dict[str, str])
    """Why members are absent, by name; at most 20."""
    charged: Mapping[str, int] = Field(default_factory=dict[str, int])
    """Restarts used, by member, the most first; at most 20."""
    rounds: int = 0
    """The number of rounds begun within the window, if rounds are bounded."""
    since: Time
    """When this phase began."""
    due: Time | None = None
    next: str = ""
    """What happens at that time."""
    why: str = ""
    """What ended the last round, or the gang."""
    closed: CloseReason | None = None
    roles: Mapping[str, RoleFigures] = Field(default_factory=dict[str, RoleFigures])
    ended: str | None = None
    """torchelastic's name for how it ended (row T14): `run_success_no_retries` and the like."""
    hub: int = 0
    """How many hubs have served it so far; 0: none yet."""
