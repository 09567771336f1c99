"""The status on its way to the cluster: conditions, Events, and the report that carries them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from holdfast.model.base import Time
from holdfast.model.life.facts import Barrier
from holdfast.model.observation import CopyCounts, Failure, Payload
from holdfast.model.vocabulary import ConditionType, Phase, Reason


class Condition(Payload):
    """A Kubernetes-style condition."""

    type: ConditionType
    status: bool
    reason: Reason
    message: str = ""


class Event(Payload):
    """A Kubernetes Event to be written once."""

    type: Literal["Normal", "Warning"] = "Normal"
    reason: Reason
    message: str
    attempt: int = 0
    """The attempt that the Event is about; 0 before the first."""


class Entry(Payload):
    """A Service by which clients find an attempt's pods: the workload's entry in the cluster's registry."""

    name: str
    uid: str


class CopyRestarts(Payload):
    """How often one copy of a component was restarted alone (row J23)."""

    restarts: int
    """Over all attempts."""
    charged: Annotated[int, Field(exclude_if=lambda value: not value)] = 0
    """How many of these charged a budget of the workload, and have not been forgiven."""
    attempt: int
    """The attempt in which it was last restarted."""
    launches: int
    """How often it was restarted in that attempt."""
    at: Time
    """When it was last restarted: its back-off counts from there."""

    def launches_in(self, attempt: int) -> int:
        """Return how often it was restarted in this attempt, the last or a later one."""
        return self.launches if self.attempt == attempt else 0


class Report(Payload):
    """A status on its way to the anchor: applied only over a lower sequence, so that it may arrive twice or late."""

    sequence: int
    phase: Phase
    reason: Reason
    message: str = ""
    attempt: int = 0
    executions: int = 0
    restarts: int = 0
    conditions: tuple[Condition, ...] = ()
    generation: Annotated[int | None, Field(exclude_if=lambda value: value is None)] = None
    """The applied generation of the custom resource that stands for the workload; None if an Anchor does."""
    copies: Annotated[dict[str, CopyCounts], Field(exclude_if=lambda value: not value)] = {}
    """The counts of each component that is made in copies, for a custom resource whose status shows them (row F16)."""
    copy_restarts: Annotated[dict[str, dict[int, CopyRestarts]], Field(exclude_if=lambda value: not value)] = {}
    """How often each copy was restarted alone, for the same."""
    used: Annotated[dict[str, int], Field(exclude_if=lambda value: not value)] = {}
    """The use of each budget, for a custom resource: an AppWrapper and a JobSet show it."""
    failure: Annotated[Failure | None, Field(exclude_if=lambda value: value is None)] = None
    """The failure that ended it, for a custom resource whose status shows copies."""
    barrier: Annotated[Barrier | None, Field(exclude_if=lambda value: value is None)] = None
    """The barrier of the living attempt, for the same (row J24)."""
    events: tuple[Event, ...] = ()
    unlist: Annotated[tuple[Entry, ...], Field(exclude_if=lambda value: not value)] = ()
    """The entries that must leave the registry before this report is written (row L30)."""
    before: Annotated[Report | None, Field(exclude_if=lambda value: value is None)] = None
    """A report that an earlier operation left unwritten, since a decision depended on it: it is written first."""
    repeats: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether the last report, which has reached the cluster, said the same: then this one is not written."""

    @property
    def is_status_alone(self) -> bool:
        """Whether to apply it is to write a status and nothing else."""
        return not (self.events or self.unlist or self.before)

    def says_the_same_as(self, other: Report | None) -> bool:
        """Whether the other report would result in the same anchor status as this one, but for counts of copies."""
        way: dict[str, Any] = {"sequence": 0, "events": (), "unlist": (), "before": None, "copies": {}}
        way |= {"generation": None, "repeats": False}
        return other is not None and self.model_copy(update=way) == other.model_copy(update=way)
