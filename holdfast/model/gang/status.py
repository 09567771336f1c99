"""The status of a gang, for people and their tools. A read loads it without the rendezvous's memory (row E13)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from pydantic import Field

from holdfast.model.base import Time
from holdfast.model.observation import Payload


class CloseReason(StrEnum):
    """Why a rendezvous is closed; the names are torchelastic's where it has them."""

    SUCCEEDED = "succeeded"
    RESTARTS_EXHAUSTED = "max_restarts_exhausted"
    EXIT_BARRIER_TIMEOUT = "exit_barrier_timeout"
    JOIN_TIMEOUT = "join_timeout"
    ROUNDS_EXHAUSTED = "max_rounds_exhausted"
    MEMBER_LOST = "member_lost"
    """No new round can replace a lost member: the workload's own budget decides (row T9)."""
    MEMBER_FAILED = "member_failed"
    """A member failed after another had succeeded: then no new round begins (row T10)."""
    ENDED = "ended"
    """The workload's attempt ends for its own reasons."""


class GangPhase(StrEnum):
    """The phase of a rendezvous."""

    FORMING = "Forming"
    """Members gather for the next round."""
    RUNNING = "Running"
    FINISHING = "Finishing"
    """One member has succeeded; no further round begins (rows T2, T10)."""
    CLOSED = "Closed"


class RoleFigures(Payload):
    """The metrics of the members of one role (row T14)."""

    remaining_restarts: int
    """The remaining restarts of the member that has the fewest."""
    flakiness: int
    """The share of its tries, in percent, that the flakiest member has used up; 100 if the gang has failed."""


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
