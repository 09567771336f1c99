"""Elastic gangs: the number of members, the waits for them, and the memory of the rendezvous (T1-T14)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from holdfast.model.base import Duration, Model, Time, format_duration
from holdfast.model.gang.status import CloseReason, GangPhase
from holdfast.model.gang.wire import Join, MemberState, Report
from holdfast.model.observation import Payload

MEMBERS_MAXIMUM: Final = 4096
_SHORTEST: Final = timedelta(seconds=1)

Count = Annotated[int, Field(ge=1, le=MEMBERS_MAXIMUM)]


class Gang(Model):
    """How members of an elastic gang meet, and what their failures come to. Defaults are torchelastic's."""

    min: Count
    """With fewer there is no round (`--nnodes MIN:MAX`)."""
    max: Count
    """With as many a round begins at once; more wait."""
    last_call: Duration = timedelta(seconds=30)
    """How long others may still join once there are enough (row T8)."""
    join_timeout: Duration = timedelta(minutes=10)
    """How long there may be too few, and how long a newcomer waits for a place (rows T7, T8)."""
    finalization_barrier: Duration = timedelta(minutes=5)
    """How long the others may take once one has succeeded (row T2)."""
    heartbeat: Duration = timedelta(seconds=5)
    """How often a member says that it is there."""
    keep_alive_attempts: Annotated[int, Field(ge=2, le=100)] = 3
    """How many heartbeats in a row may be missing (row T9)."""
    max_restarts: Annotated[int, Field(ge=0)] = 3
    """How many failures each member is forgiven; 0: a lost member, too, is the workload's to make good (T3, T9)."""
    max_rounds: Annotated[int, Field(ge=1, le=1000)] | None = None
    """How many rounds may begin within the window; none: any number, as upstream."""
    rounds_window: Duration = timedelta(hours=1)
    spares: Annotated[int, Field(ge=0, le=MEMBERS_MAXIMUM)] = 0
    """How many members beyond the maximum may wait without a time limit."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min: {self.min}: expected at most max, {self.max}")
        if self.max + self.spares > MEMBERS_MAXIMUM:
            raise ValueError(f"spares: {self.spares}: expected at most {MEMBERS_MAXIMUM - self.max} beside max")
        for name in ("join_timeout", "heartbeat", "rounds_window"):
            span: timedelta = getattr(self, name)
            if span < _SHORTEST:
                raise ValueError(f"{name}: {format_duration(span)}: expected at least 1s")
        if self.last_call > self.join_timeout:
            given, allowed = format_duration(self.last_call), format_duration(self.join_timeout)
            raise ValueError(f"last_call: {given}: expected at most the join timeout, {allowed}")
        return self

    @property
    def pods(self) -> int:
        """The wanted number of pods: the most members of a round, plus the spares."""
        return self.max + self.spares

    @property
    def keep_alive(self) -> timedelta:
        """How long a member may be silent before it is lost."""
        return self.heartbeat * self.keep_alive_attempts


class Absence(StrEnum):
    """Why a member is absent."""

    SILENT = "Silent"
    """It was not heard for the keep-alive. If it is heard again, it may join again."""
    GONE = "Gone"
    """Its pod is proven gone or ended."""
    LEFT = "Left"
    """Its agent was told to end, and reported that (row T13)."""
    EVICTED = "Evicted"
    """It was told to leave: its index goes, it must make room, or it found no place in time (rows D39, T7, T13)."""


class MemberRecord(Payload):
    """The record of one member."""

    join: Join
    report: Report
    since: Time
    """When it last became ready to join: places are given in this order."""
    round: int = 0
    """The round in which it has, or last had, a place."""
    succeeded: bool = False
    """Whether its workers have succeeded in that round, whatever happened to it since."""
    restarts: int = 0
    """The restarts charged to it, over all its incarnations."""
    absent: Absence | None = None
    why: str = ""
    """The reason for its absence."""
    revision: int = 0
    """The revision of its directive."""

    @property
    def ready(self) -> bool:
        """Whether it is ready to join the next round."""
        return self.absent is None and self.report.state is MemberState.INIT


class GangState(Payload):
    """The memory of a rendezvous."""

    gang: Gang
    run_id: str
    attempt: int
    phase: GangPhase = GangPhase.FORMING
    round: int = 0
    """The last round that was formed."""
    participants: tuple[str, ...] = ()
    """The members of that round, in the order of their ranks, whatever happened to them since."""
    members: Mapping[str, MemberRecord] = {}
    began: Time
    """When this phase began."""
    enough: Time | None = None
    """Forming: the time since which there are enough members for a round."""
    rounds: tuple[Time, ...] = ()
    """The begin times of rounds within the window, if rounds are bounded."""
    revision: int = 0
    closed: CloseReason | None = None
    why: str = ""
    """A text of what ended the last round, or the gang."""


class Said(Payload):
    """A member's agent has posted something new."""

    kind: Literal["Said"] = "Said"
    join: Join
    report: Report


class Reported(Payload):
    """As `Said`, for an agent that is already known: its identity is not repeated."""

    kind: Literal["Reported"] = "Reported"
    member: str
    incarnation: str
    report: Report


class Lost(Payload):
    """A pod that held a place is proven gone, or is silent."""

    kind: Literal["Lost"] = "Lost"
    member: str
    pod_uid: str
    absence: Absence
    why: str = ""


class Listening(Payload):
    """The hub has listened to the gang without a break since `since`: deadlines take effect by this event."""

    kind: Literal["Listening"] = "Listening"
    since: Time


class Evicted(Payload):
    """A member must make room (row T13)."""

    kind: Literal["Evicted"] = "Evicted"
    member: str
    why: str = ""


class Resized(Payload):
    """The gang gets another size from now on."""

    kind: Literal["Resized"] = "Resized"
    min: Count
    max: Count


class Ended(Payload):
    """The workload's attempt ends."""

    kind: Literal["Ended"] = "Ended"
    why: str = ""


GangEvent = Annotated[Said | Reported | Lost | Listening | Evicted | Resized | Ended, Field(discriminator="kind")]
