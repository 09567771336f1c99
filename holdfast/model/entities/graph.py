"""A graph of workloads that depend on each other, and the state of each (row L31)."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from holdfast import names
from holdfast.model.base import Model, Time, Word
from holdfast.model.entities.document import EntityDocument
from holdfast.model.observation import Payload
from holdfast.model.packed import PackedPayload
from holdfast.model.vocabulary import Phase, Reason
from holdfast.model.words import counted

ITEMS_MAXIMUM = 1000
"""Workloads of one graph."""
EDGES_MAXIMUM = 10_000


class EdgeKind(StrEnum):
    """What a node waits for in the one that it comes after."""

    SUCCESS = "Success"
    """That all of it has succeeded."""
    FAILURE = "Failure"
    """That some of it has failed, and nothing of it is under way any more."""
    ANY = "Any"
    """That all of it has ended, however."""
    CORRESPONDING = "Corresponding"
    """Each task, that the task of the same number has succeeded."""
    MUTEX = "Mutex"
    """That it is not there, or has ended and no pod of it can run: the two never run at the same time, in any order."""


class Edge(Model):
    """That a node comes after another one."""

    node: str
    on: EdgeKind = EdgeKind.SUCCESS


class GraphNode(Model):
    """One workload of a graph, or as many alike as it has tasks."""

    name: str
    tasks: Annotated[int | None, Field(ge=1, le=ITEMS_MAXIMUM, exclude_if=lambda value: value is None)] = None
    """How many workloads it stands for, numbered from 0; None: one, without a number."""
    after: Annotated[tuple[Edge, ...], Field(exclude_if=lambda value: not value)] = ()

    @field_validator("name")
    @classmethod
    def _label(cls, value: str) -> str:
        if not names.DNS_LABEL.match(value):
            raise ValueError(f"{value!r}: expected a DNS label, at most 63 characters of [-a-z0-9]")
        return value

    @cached_property
    def items(self) -> tuple[str, ...]:
        """What it stands for: its name, or that of each task, `train-0`."""
        return (self.name,) if self.tasks is None else tuple(f"{self.name}-{one}" for one in range(self.tasks))


class Graph(EntityDocument):
    """Workloads of one namespace and what each waits for: acyclic and bounded, or refused."""

    workflow: ClassVar = names.GRAPH_WORKFLOW
    schema_version: Literal[1] = 1
    name: str
    namespace: str = "default"
    cluster: str
    nodes: Annotated[tuple[GraphNode, ...], Field(min_length=1, max_length=ITEMS_MAXIMUM)]
    submitted_at: Time | None = None

    @property
    def uid(self) -> str:
        """What tells its submissions apart: when it was submitted."""
        return self.submitted_at.isoformat() if self.submitted_at is not None else ""

    @field_validator("name", "namespace", "cluster")
    @classmethod
    def _label(cls, value: str) -> str:
        if not names.DNS_LABEL.match(value):
            raise ValueError(f"{value!r}: expected a DNS label, at most 63 characters of [-a-z0-9]")
        return value

    @model_validator(mode="after")
    def _whole(self) -> Self:
        known: dict[str, GraphNode] = {}
        items: dict[str, str] = {}
        for index, node in enumerate(self.nodes):
            if node.name in known:
                raise ValueError(f"nodes[{index}].name: {node.name!r} is used twice")
            known[node.name] = node
            for item in node.items:
                if item in items:
                    raise ValueError(f"nodes[{index}].name: {item!r} is a name in {items[item]!r} too")
                items[item] = node.name
        if len(items) > ITEMS_MAXIMUM:
            raise ValueError(f"nodes: {len(items):,} workloads: expected at most {ITEMS_MAXIMUM:,}")
        edges = sum(len(node.after) for node in self.nodes)
        if edges > EDGES_MAXIMUM:
            raise ValueError(f"nodes: {edges:,} dependencies: expected at most {EDGES_MAXIMUM:,}")
        for index, node in enumerate(self.nodes):
            self._check_edges(known, index, node)
        self._check_order()
        return self

    @staticmethod
    def _check_edges(known: dict[str, GraphNode], index: int, node: GraphNode) -> None:
        given = set[tuple[str, EdgeKind]]()
        for place, edge in enumerate(node.after):
            path, other = f"nodes[{index}].after[{place}]", known.get(edge.node)
            if other is None:
                shown = ", ".join(list(known)[:20])
                raise ValueError(f"{path}.node: {edge.node!r} names no node: expected some of {shown}")
            if (edge.node, edge.on) in given:
                raise ValueError(f"{path}.node: {edge.node!r} is given twice, on {edge.on.value}")
            given.add((edge.node, edge.on))
            if other is node and not (edge.on is EdgeKind.MUTEX and node.tasks is not None):
                raise ValueError(f"{path}.node: {edge.node!r} would wait for itself")
            if edge.on is EdgeKind.CORRESPONDING and (node.tasks is None or node.tasks != other.tasks):
                raise ValueError(
                    f"{path}.on: Corresponding: {node.name!r} has {node.tasks or 'no'} tasks and {other.name!r} "
                    f"{other.tasks or 'none'}: expected as many"
                )

    def _check_order(self) -> None:
        try:
            TopologicalSorter(self.before).prepare()
        except CycleError as error:
            # The library tells the nodes of one cycle, each before the one that waits for it.
            circle = " -> ".join(error.args[1])
            raise ValueError(f"nodes: these wait for each other for ever: {circle}") from None

    @property
    def workflow_id(self) -> str:
        """The id of its workflow."""
        return names.graph_id(self.cluster, self.namespace, self.name)

    @property
    def summary(self) -> str:
        """The title of its workflow in the Temporal UI."""
        size = f"{counted(len(self.nodes), 'node')}, {counted(len(self.items), 'workload')}"
        return f"Graph {self.name}: {size} in namespace {self.namespace}"

    @property
    def columns(self) -> dict[str, str]:
        """The search attributes that its workflow begins with."""
        place = {names.SA_CLUSTER: self.cluster, names.SA_NAMESPACE: self.namespace, names.SA_NAME: self.name}
        return super().columns | place | {names.SA_PHASE: Phase.PENDING.value}

    @cached_property
    def before(self) -> dict[str, tuple[str, ...]]:
        """Of each node, by name, those that must have ended first; being kept apart is no order."""
        return {
            node.name: tuple(dict.fromkeys(edge.node for edge in node.after if edge.on is not EdgeKind.MUTEX))
            for node in self.nodes
        }

    @cached_property
    def items(self) -> dict[str, tuple[GraphNode, int]]:
        """All workloads: of each its node and its number, 0 where it has none."""
        return {item: (node, index) for node in self.nodes for index, item in enumerate(node.items)}

    def workload(self, item: str) -> str:
        """Return the name that the workload of an item has: `etl-train-0`."""
        return f"{self.name}-{item}"


class Place(Model):
    """Where a workload stands in a graph: until that lets it, it does not begin (row L31)."""

    graph: Word
    item: Word


class ItemPhase(StrEnum):
    """The phase of a workload in a graph, as far as its graph knows."""

    AWAITED = "Awaited"
    """Its workflow has not sent a message yet."""
    BLOCKED = "Blocked"
    ADMITTED = "Admitted"
    REFUSED = "Refused"
    """It is told to end, since its condition can no longer be met, or since a person requested it."""
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"

    @property
    def ended(self) -> bool:
        """Whether it has an outcome."""
        return self in {ItemPhase.SUCCEEDED, ItemPhase.FAILED, ItemPhase.CANCELLED}


class Item(Payload):
    """A graph's record of one of its workloads."""

    phase: ItemPhase = ItemPhase.AWAITED
    uid: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    released: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    """Whether it has ended and holds no quota: no pod of it runs, and none can come."""
    why: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """Why it was told to end."""


class GraphOwed(Payload):
    """An unsent order for a workload of a graph, or for a stranger to it."""

    item: str
    uid: str
    admit: Annotated[bool, Field(exclude_if=lambda value: not value)] = False
    reason: Reason
    why: str


class GraphState(PackedPayload):
    """A graph's memory."""

    items: dict[str, Item]
    cancelled: Annotated[str, Field(exclude_if=lambda value: not value)] = ""
    """Why all workloads that have not ended must end, once a person has requested that."""
    owed: Annotated[tuple[GraphOwed, ...], Field(exclude_if=lambda value: not value)] = ()
    """The orders that the run before has decided but not sent."""


class GraphNews(Payload):
    """A workload's message to its graph."""

    item: str
    workload_uid: str
    outcome: Phase | None = None
    """None: the workload exists and waits."""
    released: bool = False
    """Whether it has ended and holds no quota: no pod of it runs, and none can come."""


class GraphOrder(Payload):
    """A graph's message to one of its workloads."""

    workload_uid: str
    admit: bool
    """Whether the workload may begin; else it must end."""
    reason: Reason = Reason.QUEUED
    why: str


class GraphStatus(PackedPayload):
    """The status of a graph, for queries."""

    name: str
    namespace: str
    cluster: str
    phase: Phase
    message: str
    counts: dict[str, int]
    """How many workloads are in which phase."""
    graph: Graph
    items: dict[str, Item]
    waits: dict[str, str]
    """What each waiting workload waits for."""
