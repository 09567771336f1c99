"""What a rendezvous tells its hub, once for all members that are to do the same; and what it tells its workload."""

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
    """What of one member of a round is needed to count the ranks of all (row T11)."""

    member: str
    local_world_size: int = 1
    role: str = "default"
    restarts: int = 0


class Round(Payload):
    """A round: its members in the order of their ranks, which are counted where they are asked for."""

    run_id: str
    number: int
    coordinator: Coordinator
    max_restarts: int
    places: tuple[Place, ...]


class Told(Payload):
    """One directive, and who is given it; the assignment of Run is counted from the round."""

    kind: DirectiveKind
    revision: int
    members: tuple[str, ...]
    reason: CloseReason | None = None
    exit_code: int = 0
    why: str = ""
    deadline: Time | None = None


class RoleFigures(Payload):
    """Of the members of one role (row T14)."""

    remaining_restarts: int
    """Of the member that has fewest."""
    flakiness: int
    """Percent of what it may fail that the flakiest member has; 100 where the gang has failed."""


class Orders(PackedPayload):
    """What the members of a gang are to do, as far as it is news to the hub that asks."""

    attempt: int
    revision: int
    """All up to here is told."""
    phase: GangPhase
    told: tuple[Told, ...] = ()
    round: Round | None = None
    """Where some are told to run in it."""
    due: Time | None = None
    """When something falls due for which the hub is to be heard again; in the past: at once."""
    ending: bool = False
    """Whether the rendezvous will soon be no more, since its attempt has ended."""
    roles: Mapping[str, RoleFigures] = Field(default_factory=dict[str, RoleFigures])


class Holder(Payload):
    """Which agent holds a member's place."""

    member: str
    pod_uid: str
    incarnation: str
    started_at: Time
    absent: Absence | None = None
    life: int = 0


class GangEnding(StrEnum):
    """What a gang came to."""

    SUCCEEDED = "Succeeded"
    """All members of its last round have (row T1)."""
    FAILED = "Failed"
    """By a member that had no restarts left, or by a deadline (rows T2, T4, T8)."""
    LOST = "Lost"
    """A member was lost that no round makes good: the workload's own rules and budget decide (rows T9, T10)."""


class GangOutcome(Payload):
    """What a gang came to, as its workload is told."""

    workload_uid: str
    attempt: int
    ending: GangEnding
    reason: CloseReason
    why: str
    """In words."""
    at: Time
    round: int = 0
    """The last that was formed."""
    member: str = ""
    """Whose failure or loss it was, where it was one's."""
    pod_uid: str = ""
    node: str = ""
    role: str = ""
    restarts: int = 0
    """What had been charged to that member before."""
    failure: WorkerFailure | None = None
    """How its first worker failed."""


class GangStatus(Payload):
    """Where a gang stands, for people and their tools; answer of the query `status`."""

    workload_uid: str
    attempt: int
    phase: GangPhase
    round: int
    min: int
    max: int
    present: int
    """Members that are there, in the round or not."""
    participants: int
    """Members the last round was formed of."""
    waiting: tuple[str, ...] = ()
    """Those that have no place, who came first before the others; at most 20."""
    absent: Mapping[str, str] = Field(default_factory=dict[str, str])
    """Why members are none now, by name; at most 20."""
    charged: Mapping[str, int] = Field(default_factory=dict[str, int])
    """Restarts used, by member, the most first; at most 20."""
    rounds: int = 0
    """Begun within the window, where they are bounded."""
    since: Time
    """When this phase began."""
    due: Time | None = None
    next: str = ""
    """What falls due then."""
    why: str = ""
    """What ended the last round, or the gang."""
    closed: CloseReason | None = None
    roles: Mapping[str, RoleFigures] = Field(default_factory=dict[str, RoleFigures])
    ended: str | None = None
    """torchelastic's word for how it ended (row T14): `run_success_no_retries` and the like."""
    hub: int = 0
    """How many hubs have served it so far; 0: none has come yet."""
