"""Where each node of a graph stands in its drawing: a column for each depth, an arrow for each condition. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from holdfast.cli.entities.graph_text import depths, drawn, phases_text
from holdfast.model.entities.graph import EdgeKind, GraphNode, GraphStatus, ItemPhase

NODES_DRAWN: Final = 200
"""A larger graph is shown as text alone."""
_WIDTH, _HEIGHT = 168, 40
_ACROSS, _DOWN = 56, 14
_BEND = _ACROSS // 2
_LABEL: Final = 22
"""The longest label that fits into a box, in characters."""
_KINDS: Final = {
    ItemPhase.AWAITED: "Pending",
    ItemPhase.BLOCKED: "Pending",
    ItemPhase.ADMITTED: "Running",
    ItemPhase.REFUSED: "Cancelled",
    ItemPhase.SUCCEEDED: "Succeeded",
    ItemPhase.FAILED: "Failed",
    ItemPhase.CANCELLED: "Cancelled",
}
_WORST: Final = (
    ItemPhase.FAILED,
    ItemPhase.REFUSED,
    ItemPhase.CANCELLED,
    ItemPhase.ADMITTED,
    ItemPhase.BLOCKED,
    ItemPhase.AWAITED,
    ItemPhase.SUCCEEDED,
)
"""A node of many tasks has the colour of the first of these phases that one of its tasks is in."""


@dataclass(frozen=True, slots=True)
class Box:
    """One node."""

    x: int
    y: int
    kind: str
    """The class that colours it: a phase."""
    label: str
    state: str
    title: str
    """What a pointer that rests on it shows, and a screen reader reads."""
    workload: str
    """The name of its workload; empty if it stands for several tasks."""


@dataclass(frozen=True, slots=True)
class Arrow:
    """One condition: from the node that is waited for to the one that waits."""

    path: str
    """The `d` of an SVG path."""
    apart: bool
    """Whether the two merely never run at the same time."""
    title: str


@dataclass(frozen=True, slots=True)
class GraphDrawing:
    """The drawing of a graph, in pixels."""

    width: int
    height: int
    box: tuple[int, int]
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    text: str
    """The same in words."""


def graph_of(told: GraphStatus) -> GraphDrawing:
    """Draw a graph. One of more than `NODES_DRAWN` nodes has its text alone."""
    if len(told.graph.nodes) > NODES_DRAWN:
        return GraphDrawing(0, 0, (_WIDTH, _HEIGHT), (), (), drawn(told))
    columns = _columns(told)
    at = {
        node.name: (column * (_WIDTH + _ACROSS), row * (_HEIGHT + _DOWN))
        for column, nodes in enumerate(columns)
        for row, node in enumerate(nodes)
    }
    rows = max((len(nodes) for nodes in columns), default=0)
    return GraphDrawing(
        width=len(columns) * (_WIDTH + _ACROSS) - _ACROSS,
        height=rows * (_HEIGHT + _DOWN),
        box=(_WIDTH, _HEIGHT),
        boxes=tuple(_box(told, node, *at[node.name]) for nodes in columns for node in nodes),
        arrows=tuple(
            _arrow(at[edge.node], at[node.name], edge.on, f"{node.name} after {edge.node}: {edge.on.value}")
            for node in told.graph.nodes
            for edge in node.after
            if edge.node != node.name
        ),
        text=drawn(told),
    )


def _columns(told: GraphStatus) -> list[list[GraphNode]]:
    """Return the nodes by depth; in a column, each stands near the middle of those that it comes after."""
    depth = depths(told)
    columns: list[list[GraphNode]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for node in told.graph.nodes:
        columns[depth[node.name]].append(node)
    place: dict[str, float] = {}
    for nodes in columns:
        nodes.sort(key=lambda one: fmean([place[before] for before in told.graph.before[one.name]] or [0.0]))
        place.update({node.name: float(row) for row, node in enumerate(nodes)})
    return columns


def _box(told: GraphStatus, node: GraphNode, x: int, y: int) -> Box:
    counts = Counter(told.items[item].phase for item in node.items)
    name = node.name if node.tasks is None else f"{node.name} [{node.tasks}]"
    state = phases_text(told, node)
    words = [told.waits.get(item) or told.items[item].why for item in node.items]
    why = next((text for text in words if text), "")
    return Box(
        x=x,
        y=y,
        kind=_KINDS[next(one for one in _WORST if counts[one])],
        label=_cut(name),
        state=_cut(state),
        title=f"{name}: {state}" + (f": {why}" if why else ""),
        workload=told.graph.workload(node.name) if node.tasks is None else "",
    )


def _arrow(one: tuple[int, int], other: tuple[int, int], on: EdgeKind, title: str) -> Arrow:
    """Return the line between two boxes: from the right side of the left one, or beside both if they share a column."""
    apart = on is EdgeKind.MUTEX
    (left, top), (right, bottom) = sorted((one, other)) if apart else (one, other)
    y, v, x, u = top + _HEIGHT // 2, bottom + _HEIGHT // 2, left + _WIDTH, right
    if u <= x:
        bend = left - _BEND
        return Arrow(f"M{left},{y} C{bend},{y} {bend},{v} {right},{v}", apart, title)
    if u - x <= _ACROSS:
        return Arrow(f"M{x},{y} C{x + _BEND},{y} {u - _BEND},{v} {u},{v}", apart, title)
    lane = top + _HEIGHT + _DOWN // 2  # Between two rows, so that it passes behind no box.
    return Arrow(f"M{x},{y} Q{x + _BEND},{y} {x + _BEND},{lane} H{u - _BEND} Q{u - _BEND},{v} {u},{v}", apart, title)


def _cut(text: str) -> str:
    return text if len(text) <= _LABEL else f"{text[: _LABEL - 1]}…"
