"""An admission queue: what it lets in at once, who waits in it, what passes between it and its workloads (row L9)."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, ClassVar, Final, Literal, cast

from pydantic import BeforeValidator, Field, field_validator

from holdfast import names
from holdfast.model.base import Time
from holdfast.model.entities.document import EntityDocument
from holdfast.model.observation import Payload
from holdfast.model.packed import PackedPayload
from holdfast.model.quantity import parse_quantity

ITEMS_MAXIMUM: Final = 3000
"""Workloads that one queue remembers, in and out."""
MEMORY_MAXIMUM: Final = 1024 * 1024
"""Characters by which it remembers them, about: with what JSON adds its memory stays below Temporal's 2 MiB."""
RESOURCES_MAXIMUM: Final = 32
PODS: Final = "pods"
"""The resource that is counted in pods."""


class Strategy(StrEnum):
    """Who is let in where the first of those that wait has no room; the terms are Kueue's."""

    STRICT_FIFO = "StrictFIFO"
    """Nobody: they are let in in their order."""
    BEST_EFFORT_FIFO = "BestEffortFIFO"
    """The next in their order that has room."""


class StopPolicy(StrEnum):
    """Whether a queue lets workloads in; the terms are Kueue's."""

    NONE = "None"
    HOLD = "Hold"
    """None is let in; those that were go on."""


def _texts(value: Any) -> Any:
    """Return the amounts of a document as texts: YAML reads `8` as a number."""
    if not isinstance(value, dict):
        return value
    given = cast("dict[Any, Any]", value)
    return {key: str(each) if type(each) in {int, float} else each for key, each in given.items()}


class Queue(EntityDocument):
    """What an operator says of a queue: its quota, and how it lets workloads in."""

    workflow: ClassVar = names.QUEUE_WORKFLOW
    schema_version: Literal[1] = 1
    name: str
    cluster: str
    quota: Annotated[dict[str, str], BeforeValidator(_texts), Field(max_length=RESOURCES_MAXIMUM)] = {}
    """How much all that it has let in may request, by resource, `pods` among them; what is not named is not bounded."""
    strategy: Strategy = Strategy.BEST_EFFORT_FIFO
    stop_policy: StopPolicy = StopPolicy.NONE

    @field_validator("name", "cluster")
    @classmethod
    def _label(cls, value: str) -> str:
        if not names.DNS_LABEL.match(value):
            raise ValueError(f"{value!r}: expected a DNS label, at most 63 characters of [-a-z0-9]")
        return value

    @field_validator("quota")
    @classmethod
    def _quantities(cls, value: dict[str, str]) -> dict[str, str]:
        for key, text in value.items():
            if not key or len(key) > 253:
                raise ValueError(f"{key!r}: expected a resource, such as pods, cpu, memory or nvidia.com/gpu")
            try:
                parse_quantity(text)
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from None
        return value

    @cached_property
    def room(self) -> dict[str, int]:
        """Its quota in thousandths."""
        return {key: parse_quantity(text) for key, text in self.quota.items()}

    @property
    def workflow_id(self) -> str:
        """The id of its workflow."""
        return names.queue_id(self.cluster, self.name)

    @property
    def summary(self) -> str:
        """The title of its workflow in the Temporal UI."""
        return f"Admission queue {self.name} of cluster {self.cluster}"

    @property
    def task_queue(self) -> str:
        """The task queue of the workers that decide for it."""
        return names.queue_admission(self.cluster, self.name)

    @property
    def columns(self) -> dict[str, str]:
        """The search attributes of its workflow."""
        place = {names.SA_CLUSTER: self.cluster, names.SA_NAME: self.name, names.SA_QUEUE: self.name}
        return super().columns | place


class Standing(StrEnum):
    """How a workload stands with its queue, in its own words."""

    ASKS = "Asks"
    """It has nothing in the cluster, and asks to be let in."""
    HOLDS = "Holds"
    """It was let in, and has not let go."""
    RELEASED = "Released"
    """It asks for nothing, no pod of it runs, and none can come."""


class QueueNews(Payload):
    """What a workload tells its queue."""

    workload: str
    """Its workflow's id."""
    uid: str
    turn: Annotated[int, Field(ge=0)]
    """Which of its requests this is about; they are numbered from 1."""
    standing: Standing
    demand: dict[str, int] = {}
    """What its pods request together, by resource, in thousandths."""
    priority: int = 0
    submitted_at: Time | None = None
    requeued: bool = False
    """Whether it has just come back from an attempt that failed."""

    @field_validator("workload")
    @classmethod
    def _is_one(cls, value: str) -> str:
        names.parse_workflow_id(value)
        return value


class QueueOrder(Payload):
    """What a queue tells a workload."""

    uid: str
    turn: int = 0
    admit: bool = False
    """Whether it may begin."""
    again: bool = False
    """Whether it is to say anew how it stands, since the queue does not know."""
    why: str


class QueueItem(Payload):
    """What a queue knows of one workload."""

    workload: str
    turn: int
    admitted: bool = False
    demand: dict[str, int] = {}
    priority: Annotated[int, Field(exclude_if=lambda value: not value)] = 0
    since: Time
    """Its submission: what its place goes by, however often it comes back (row L26)."""
    cycle: Annotated[int, Field(exclude_if=lambda value: not value)] = 0
    """In which cycle it was let in; while it waits, that in which it came back, in which it is not let in (row L27)."""
    owed: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether it was let in, and the next run is to tell it."""

    @property
    def size(self) -> int:
        """About how many characters it is remembered by: most of them its name, and what it requests many kinds of."""
        return 200 + len(self.workload) + sum(len(key) + 20 for key in self.demand)


class QueueOwed(Payload):
    """A workload that is to say anew how it stands, and was not asked yet."""

    workload: str
    uid: str = ""
    turn: int = 0


class QueueState(PackedPayload):
    """A queue's memory: of each workload by its uid, since two of one name may still hold something."""

    queue: Queue
    items: dict[str, QueueItem] = {}
    cycle: int = 0
    """Cycles that have begun: in each, all that wait are looked at once."""
    looked_at: Time | None = None
    """When its cluster was looked at last; before the first time nobody is let in."""
    looks: int = 0
    """How often it has looked."""
    awaited: tuple[str, ...] = ()
    """Workflows that are this queue's, of whom a queue that has just begun has yet to hear; nobody is let in before."""
    full: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether somebody was turned away for there being too many: they are asked again once there is room."""
    kueue: bool = False
    """Whether Kueue is installed in its cluster: queues are Kueue's then, and this one lets all in."""
    closing: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """Why it is to end, once a person has said so."""
    owed: Annotated[tuple[QueueOwed, ...], Field(exclude_if=lambda value: not value)] = ()
    """Whom the next run is to ask how it stands."""
    doubted: Annotated[dict[str, int], Field(exclude_if=lambda value: not value)] = {}
    """Holders of quota that could not be told something, by uid: how many looks at the cluster each still waits for.

    Each keeps its quota until a look proves that no pod of it exists.
    """


class QueueLine(Payload):
    """One workload of a queue, for those who ask."""

    namespace: str
    name: str
    uid: str
    admitted: bool
    position: int
    """Among those that wait, from 1; 0 for one that is let in."""
    priority: int
    since: Time
    demand: dict[str, str]
    why: str
    """Why it waits, or in which cycle it was let in."""


class QueueStatus(PackedPayload):
    """How a queue stands, for those who ask."""

    queue: Queue
    message: str
    cycle: int
    used: dict[str, str]
    admitted: int
    waiting: int
    lines: tuple[QueueLine, ...]
    """Those that wait, in their order, then those that were let in; the first 500 of each."""


class Turn(Payload):
    """How a workload stands with its queue."""

    number: int = 0
    """Of its latest request."""
    asks: bool = False
    admitted: bool = False
    begun: bool = False
    """Whether it has held something of the cluster since it was let in."""
    requeued: bool = False
    told: QueueNews | None = None
    """What its queue has heard of it last."""
    again: bool = False
    """Whether its queue has asked how it stands, since it does not know."""
    says: str = ""
    """Why it waits, in words."""
