"""An admission queue: its quota, its waiting workloads, and its messages to and from workloads (row L9)."""

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
"""The most workloads that one queue remembers, admitted and waiting."""
MEMORY_MAXIMUM: Final = 1024 * 1024
"""Characters by which it remembers them, about: with what JSON adds its memory stays below Temporal's 2 MiB."""
RESOURCES_MAXIMUM: Final = 32
PODS: Final = "pods"
"""The resource that is counted in pods."""


CLOSING: Final = "it is being deleted, and takes no more workloads: `holdfast queue apply FILE` keeps it"
"""Why a workload is refused that names a queue which is told to end: it would wait for ever, and keep it from that."""


class Strategy(StrEnum):
    """Which workload is admitted if the first waiting one has no room; the terms are Kueue's."""

    STRICT_FIFO = "StrictFIFO"
    """None: workloads are admitted in their order."""
    BEST_EFFORT_FIFO = "BestEffortFIFO"
    """The next in their order that has room."""


class StopPolicy(StrEnum):
    """Whether a queue admits workloads; the terms are Kueue's."""

    NONE = "None"
    HOLD = "Hold"
    """No workload is admitted; admitted ones go on."""


def _texts(value: Any) -> Any:
    """Return the amounts of a document as texts: YAML reads `8` as a number."""
    if not isinstance(value, dict):
        return value
    given = cast("dict[Any, Any]", value)
    return {key: str(each) if type(each) in {int, float} else each for key, each in given.items()}


class Queue(EntityDocument):
    """The configuration of a queue: its quota, and how it admits workloads."""

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
    """The standing of a workload in its queue, as the workload reports it."""

    ASKS = "Asks"
    """It has nothing in the cluster, and asks for admission."""
    HOLDS = "Holds"
    """It was admitted, and has not released its quota."""
    RELEASED = "Released"
    """It asks for nothing, no pod of it runs, and none can come."""


class QueueNews(Payload):
    """A workload's message to its queue."""

    workload: str
    """Its workflow's id."""
    uid: str
    turn: Annotated[int, Field(ge=0)]
    """Which of its requests this is about; they are numbered from 1."""
    standing: Standing
    demand: dict[str, int] = {}
    """The total requests of its pods, by resource, in thousandths."""
    priority: int = 0
    submitted_at: Time | None = None
    requeued: bool = False
    """Whether it was just requeued after a failed attempt."""

    @field_validator("workload")
    @classmethod
    def _is_one(cls, value: str) -> str:
        names.parse_workflow_id(value)
        return value


class QueueOrder(Payload):
    """A queue's message to a workload."""

    uid: str
    turn: int = 0
    admit: bool = False
    """Whether it may begin."""
    again: bool = False
    """Whether it must report its standing again, since the queue does not know it."""
    counts: Annotated[tuple[str, ...] | None, Field(exclude_if=lambda value: value is None)] = None
    """The resources that an admission counts, none where Kueue decides; None: from a release before 0.3."""
    why: str


class QueueItem(Payload):
    """A queue's record of one workload."""

    workload: str
    turn: int
    admitted: bool = False
    demand: dict[str, int] = {}
    priority: Annotated[int, Field(exclude_if=lambda value: not value)] = 0
    since: Time
    """Its submission, which decides its place, however often it is requeued (row L26)."""
    cycle: Annotated[int, Field(exclude_if=lambda value: not value)] = 0
    """The cycle of its admission; while it waits, the cycle of its requeue, in which it is not admitted (row L27)."""
    owed: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether it was admitted, and the next run must send the order."""

    @property
    def size(self) -> int:
        """About how many characters it is remembered by: most of them its name, and what it requests many kinds of."""
        return 200 + len(self.workload) + sum(len(key) + 20 for key in self.demand)


class QueueOwed(Payload):
    """A workload that must report its standing again, and was not asked yet."""

    workload: str
    uid: str = ""
    turn: int = 0


class QueueState(PackedPayload):
    """A queue's memory: of each workload by its uid, since two of one name may still hold something."""

    queue: Queue
    items: dict[str, QueueItem] = {}
    cycle: int = 0
    """The number of cycles begun: each one examines all waiting workloads once."""
    looked_at: Time | None = None
    """When it last looked at its cluster; before the first look no workload is admitted."""
    looks: int = 0
    """How often it has looked."""
    awaited: tuple[str, ...] = ()
    """This queue's workflows that have not reported to the restarted queue; none is admitted before they have."""
    full: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether workloads were turned away because the queue was full: they are asked again once there is room."""
    kueue: bool = False
    """Whether Kueue decides in its whole cluster: then this queue admits all."""
    kueue_namespaces: Annotated[tuple[str, ...], Field(exclude_if=lambda value: not value)] = ()
    """The namespaces in which Kueue decides: this queue admits what is in them, and counts none of it (row F19)."""
    closing: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """Why it must end, once a person has requested that."""
    owed: Annotated[tuple[QueueOwed, ...], Field(exclude_if=lambda value: not value)] = ()
    """The workloads that the next run must ask for their standing."""
    doubted: Annotated[dict[str, int], Field(exclude_if=lambda value: not value)] = {}
    """Holders of quota that missed an order, by uid: the number of looks at the cluster that each still waits for.

    Each keeps its quota until a look proves that no pod of it exists.
    """


class QueueLine(Payload):
    """One workload of a queue, for queries."""

    namespace: str
    name: str
    uid: str
    admitted: bool
    position: int
    """Its place among the waiting workloads, from 1; 0 if it is admitted."""
    priority: int
    since: Time
    demand: dict[str, str]
    why: str
    """Why it waits, or in which cycle it was admitted."""
    workload: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """Its workflow's id; empty from an older worker."""


class QueueStatus(PackedPayload):
    """The status of a queue, for queries."""

    queue: Queue
    message: str
    cycle: int
    used: dict[str, str]
    admitted: int
    waiting: int
    lines: tuple[QueueLine, ...]
    """The waiting workloads in their order, then the admitted ones; the first 500 of each."""


class Turn(Payload):
    """The state of a workload in its queue."""

    number: int = 0
    """The number of its latest request."""
    asks: bool = False
    admitted: bool = False
    counts: Annotated[tuple[str, ...] | None, Field(exclude_if=lambda value: value is None)] = None
    """The resources that its latest admission counts; None: it did not say."""
    begun: bool = False
    """Whether it has held something in the cluster since its admission."""
    requeued: bool = False
    told: QueueNews | None = None
    """The last message that its queue received from it."""
    again: bool = False
    """Whether its queue has asked for its standing, since the queue does not know it."""
    says: str = ""
    """A text of why it waits."""
