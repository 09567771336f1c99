"""The status on its way to the cluster: conditions, Events, and the report that carries them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from holdfast.model.observation import Payload
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
        """Whether the other report would result in the same anchor status as this one."""
        way: dict[str, Any] = {"sequence": 0, "events": (), "unlist": (), "before": None}
        way |= {"generation": None, "repeats": False}
        return other is not None and self.model_copy(update=way) == other.model_copy(update=way)
