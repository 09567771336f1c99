"""A graph as text: each node below a node that it comes after, with its status. Pure."""

from __future__ import annotations

import io
from collections import Counter
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from holdfast.cli.common import screen
from holdfast.model.entities.graph import Edge, EdgeKind, GraphNode, GraphStatus, ItemPhase
from holdfast.model.words import counted
from holdfast.policy.entities.graph import DONE, is_there

_WIDTH: Final = 160
"""Columns of a drawing that goes to no terminal."""
_NAMED: Final = 3
_ORDER: Final = tuple(ItemPhase)


def drawn(told: GraphStatus) -> str:
    """Draw a graph: each node once, below the deepest node that it comes after, with its other conditions beside it."""
    tree = Tree(f"{told.namespace}/{told.name}  {told.phase.value}: {told.message}")
    depth = depths(told)
    branches: dict[str, Tree] = {}
    for node in sorted(told.graph.nodes, key=lambda one: depth[one.name]):
        before = told.graph.before[node.name]
        above = max(before, key=lambda one: depth[one]) if before else ""
        branches[node.name] = (branches[above] if above else tree).add(escape(_line(told, node, above)))
    out = io.StringIO()
    Console(file=out, width=screen.width() or _WIDTH, no_color=True, highlight=False).print(tree)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _line(told: GraphStatus, node: GraphNode, above: str) -> str:
    parts = [
        node.name if node.tasks is None else f"{node.name} [{counted(node.tasks, 'task')}]",
        phases_text(told, node),
    ]
    came = [edge for edge in node.after if edge.on is not EdgeKind.MUTEX]
    shown = [edge for edge in came if edge.node != above or edge.on is not EdgeKind.SUCCESS]
    apart = [edge.node for edge in node.after if edge.on is EdgeKind.MUTEX]
    waits = list(dict.fromkeys(told.waits[item] for item in node.items if told.waits.get(item)))
    why = list(dict.fromkeys(told.items[item].why for item in node.items if told.items[item].why))
    if waits:
        parts.append(f"waits for {_listed(waits)}")
    if why:
        parts.append(f"since {_listed(why)}")
    if shown:
        also = "also " if above and all(edge.node != above for edge in shown) else ""
        parts.append(f"{also}needs {', '.join(map(_end, shown))}")
    if apart:
        parts.append(f"never beside {', '.join(apart)}")
    return "  ".join(parts)


def _end(edge: Edge) -> str:
    """Return how the node before must end: `train to succeed, task by task`."""
    return f"{edge.node} to {DONE[edge.on]}" + (", task by task" if edge.on is EdgeKind.CORRESPONDING else "")


def doing(told: GraphStatus) -> str:
    """Return how far a graph has come: `Running, 3 of 7 workloads have ended, left: train-0 and 1 more`."""
    parts = [told.phase.value, told.message]
    left = [name for name, item in told.items.items() if is_there(item)]
    if left:
        parts.append(f"left: {left[0]}" + (f" and {len(left) - 1} more" if len(left) > 1 else ""))
    return ", ".join(parts)


def phases_text(told: GraphStatus, node: GraphNode) -> str:
    """Return the phase of a node, or how many of its tasks are in which."""
    counts = Counter(told.items[item].phase for item in node.items)
    if node.tasks is None:
        return next(iter(counts)).value
    return ", ".join(f"{counts[one]} {one.value}" for one in _ORDER if counts[one])


def _listed(words: list[str]) -> str:
    more = len(words) - _NAMED
    return "; ".join(words[:_NAMED]) + (f"; and {more} more" if more > 0 else "")


def depths(told: GraphStatus) -> dict[str, int]:
    """Return how many nodes must come before each, one after another."""
    from graphlib import TopologicalSorter

    depth: dict[str, int] = {}
    for name in TopologicalSorter(told.graph.before).static_order():
        depth[name] = max((depth[one] + 1 for one in told.graph.before[name]), default=0)
    return depth
