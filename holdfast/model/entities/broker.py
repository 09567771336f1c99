"""The checkpoint broker: how it weighs a checkpoint's value against its cost, and what it knows (row L11)."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from holdfast import names
from holdfast.model.base import Duration, Time
from holdfast.model.entities.document import EntityDocument
from holdfast.model.observation import Payload

REFUSED_MAXIMUM: Final = 1000
"""How many workloads that took no request are remembered: the last ones."""


class Broker(EntityDocument):
    """The configuration of a cluster's broker."""

    workflow: ClassVar = names.BROKER_WORKFLOW
    schema_version: Literal[1] = 1
    cluster: str
    every: Annotated[Duration, Field(ge=timedelta(seconds=1), le=timedelta(days=1))] = timedelta(minutes=1)
    """How often all running workloads are weighed: a cycle. A lost broker loses at most this much."""
    at_once: Annotated[int, Field(ge=1, le=100)] = 2
    """How many workloads may save at the same time, whoever requested it: the load that storage can take."""
    node_mtbf: Annotated[Duration, Field(ge=timedelta(minutes=1))] = timedelta(days=60)
    """Mean time between failures of one node; a workload of n pods fails n times as often."""
    cost: Annotated[Duration, Field(ge=timedelta(seconds=1))] = timedelta(minutes=2)
    """The assumed duration of a checkpoint if none of this workload was measured yet."""
    least: Annotated[Duration, Field(ge=timedelta(seconds=1))] = timedelta(minutes=10)
    """The shortest time between two checkpoints of a workload."""
    most: Duration = timedelta(hours=6)
    """The longest time between two checkpoints of a workload."""

    @field_validator("cluster")
    @classmethod
    def _label(cls, value: str) -> str:
        if not names.DNS_LABEL.match(value):
            raise ValueError(f"{value!r}: expected a DNS label, at most 63 characters of [-a-z0-9]")
        return value

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.most < self.least:
            raise ValueError("most: is shorter than least")
        return self

    @property
    def workflow_id(self) -> str:
        """The id of its workflow."""
        return names.broker_id(self.cluster)

    @property
    def summary(self) -> str:
        """The title of its workflow in the Temporal UI."""
        return f"Checkpoint broker of cluster {self.cluster}"

    @property
    def columns(self) -> dict[str, str]:
        """The search attributes of its workflow."""
        return super().columns | {names.SA_CLUSTER: self.cluster, names.SA_NAME: self.cluster}


class Candidate(Payload):
    """A running workload that can save its state, as it was when it was looked at."""

    workload: str
    """Its workflow's id."""
    pods: int
    since: Time
    """The time since which its work is not saved."""
    cost: float | None = None
    """Seconds that its last complete checkpoint took; None: none was measured."""


class Weighed(Payload):
    """The result of a look at all running workloads."""

    running: int = 0
    """Workloads that run and can save their state."""
    saving: int = 0
    """Those that are saving now, whoever requested it."""
    due: int = 0
    """Those whose checkpoint is worth more than it costs."""
    candidates: tuple[Candidate, ...] = ()
    """Those of them that may save now, as many as storage can take: each costs history."""
    unheard: int = 0
    """Those that may be due and did not answer."""
    away: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """Why the store cannot be used: no workload is asked to save to it meanwhile (row L14)."""


class Asked(Payload):
    """A workload that was asked to save its state, and why."""

    workload: str
    why: str


class BrokerState(Payload):
    """A broker's memory: losing it costs no more than a cycle."""

    broker: Broker
    cycle: int = 0
    refused: dict[str, Time] = {}
    """Until when workloads that took no request are not asked again, by workflow id."""
    looked_at: Time | None = None
    seen: Weighed = Weighed()
    asked: tuple[Asked, ...] = ()
    """The workloads asked in the last cycle that asked any."""
    asked_total: int = 0


class BrokerStatus(Payload):
    """The status of a broker, for queries."""

    broker: Broker
    message: str
    cycle: int
    looked_at: Time | None = None
    running: int = 0
    saving: int = 0
    due: int = 0
    unheard: int = 0
    asked: tuple[Asked, ...] = ()
    asked_total: int = 0
