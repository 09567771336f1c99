"""The rules of a graph: which workloads may begin as others end, and which never can (row L31). Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import islice
from typing import Final

from holdfast.model.entities.graph import (
    Edge,
    EdgeKind,
    Graph,
    GraphNews,
    GraphNode,
    GraphState,
    GraphStatus,
    Item,
    ItemPhase,
)
from holdfast.model.vocabulary import Phase, Reason
from holdfast.model.words import counted, escaped, shortened
from holdfast.policy.values.edit import edit

_OUTCOMES: Final = {
    Phase.SUCCEEDED: ItemPhase.SUCCEEDED,
    Phase.FAILED: ItemPhase.FAILED,
    Phase.CANCELLED: ItemPhase.CANCELLED,
}
_CANCELLED: Final = "its graph was cancelled"
_SHOWN: Final = 20
"""How many workloads of a graph the Temporal UI shows."""
_NAMED: Final = 3
"""How many dependencies one sentence names."""
_WAITS: Final = {ItemPhase.AWAITED, ItemPhase.BLOCKED}
DONE: Final = {
    EdgeKind.SUCCESS: "succeed",
    EdgeKind.CORRESPONDING: "succeed",
    EdgeKind.FAILURE: "fail",
    EdgeKind.ANY: "end",
}
"""How the node before must end, for people; a mutex has no order."""


@dataclass(frozen=True, slots=True)
class Order:
    """An order to send to a workload."""

    item: str
    uid: str
    admit: bool
    why: str
    reason: Reason = Reason.DEPENDENCY_UNSATISFIABLE


@dataclass(frozen=True, slots=True)
class _Answer:
    """The answer of an edge to the workload that waits on it; empty once its condition is met."""

    never: str = ""
    """Why the condition can no longer be met; empty: it still can be, or is."""
    waits: str = ""


_MET: Final = _Answer()


def begun(graph: Graph) -> GraphState:
    """Return the memory of a graph that has had no message from its workloads."""
    return GraphState(items={name: Item() for name in graph.items})


def on_workload_news(graph: Graph, state: GraphState, news: GraphNews) -> GraphState:
    """Return the state after a message of a workload; a repeated message, or one of a stranger, changes nothing.

    The first outcome of a workload counts for those that wait for it. A person may revive it afterwards, and then it is
    in the cluster again.
    """
    item = state.items.get(news.item)
    if item is None or (item.uid and item.uid != news.workload_uid):
        return state
    fresh = edit(item, uid=news.workload_uid, released=news.released)
    if news.outcome is not None:
        if not item.phase.ended or not item.uid:
            fresh = edit(fresh, phase=_OUTCOMES[news.outcome])
    elif not item.uid:
        # A workload that was refused before it was submitted is refused again, now that it can receive the order.
        fresh = edit(fresh, phase=ItemPhase.BLOCKED)
    return edit(state, items={**state.items, news.item: fresh}) if fresh != item else state


def stranger(state: GraphState, news: GraphNews) -> Order | None:
    """Return the order for a workload that is not in the graph, or not the one that the graph knows; else None."""
    item = state.items.get(news.item)
    if item is not None and (not item.uid or item.uid == news.workload_uid):
        return None
    if news.outcome is not None:
        return None
    known = "its graph has no such workload" if item is None else "its graph has counted another workload of this name"
    return Order(news.item, news.workload_uid, False, known)


def gone(state: GraphState, order: Order) -> GraphState:
    """Return the state after an order could not be delivered: the workflow is closed, and sends no more messages."""
    found = state.items.get(order.item)
    if found is None or found.uid != order.uid:
        return state
    phase = found.phase if found.phase.ended else ItemPhase.CANCELLED
    return edit(state, items={**state.items, order.item: edit(found, phase=phase, released=True)})


def cancelled(state: GraphState, why: str) -> GraphState:
    """Return the state after a person cancelled the graph."""
    return state if state.cancelled else edit(state, cancelled=shortened(why) or "the graph was cancelled")


def step(graph: Graph, state: GraphState) -> tuple[GraphState, tuple[Order, ...]]:
    """Return the state after everything that can be decided is decided, and the orders for workloads.

    A workload that can no longer begin is refused, and with it those that wait for its success. Workloads that may
    begin are admitted in the order of the document; of those that exclude each other, the first.
    """
    items, orders = dict(state.items), list[Order]()
    if state.cancelled:
        for name, item in items.items():
            if item.phase in _WAITS or item.phase is ItemPhase.ADMITTED:
                _refuse(items, orders, name, _CANCELLED, Reason.CANCEL_REQUESTED, state.cancelled)
            elif item.phase.ended and is_there(item) and item.why != _CANCELLED:
                # A person may have revived it since then.
                items[name] = edit(item, why=_CANCELLED)
                orders.append(Order(name, item.uid, False, state.cancelled, Reason.CANCEL_REQUESTED))
        return edit(state, items=items), tuple(orders)
    books = _Books(graph, items)
    # In this order, a refusal and the refusals that follow from it happen in the same step.
    for node in books.sorted:
        for name in node.items:
            item = items[name]
            if item.phase in _WAITS:
                never = books.never(node, name)
                if never:
                    _refuse(items, orders, name, never)
                    books.moved(node, item, items[name])
    for node in graph.nodes:
        for name in node.items:
            item = items[name]
            if item.phase is ItemPhase.BLOCKED and not books.waits(node, name):
                items[name] = edit(item, phase=ItemPhase.ADMITTED)
                orders.append(Order(name, item.uid, True, books.met(node), Reason.QUEUED))
                books.moved(node, item, items[name])
    return edit(state, items=items), tuple(orders)


def _refuse(
    items: dict[str, Item],
    orders: list[Order],
    name: str,
    why: str,
    reason: Reason = Reason.DEPENDENCY_UNSATISFIABLE,
    said: str = "",
) -> None:
    item = items[name]
    if item.phase is ItemPhase.AWAITED:
        # No workload has reported yet that could receive the order; one that is submitted later gets it then.
        items[name] = edit(item, phase=ItemPhase.CANCELLED, released=True, why=why)
        return
    items[name] = edit(item, phase=ItemPhase.REFUSED, why=why)
    orders.append(Order(name, item.uid, False, said or why, reason))


class _Books:
    """The count of each node's workloads by phase, kept up to date as items change."""

    def __init__(self, graph: Graph, items: Mapping[str, Item]) -> None:
        self._graph, self._items = graph, items
        self._nodes = {node.name: node for node in graph.nodes}
        self._counts = {node.name: self._counted(node) for node in graph.nodes}
        self._there = {node.name: self._active(node) for node in graph.nodes}
        self._against: dict[str, set[str]] = {node.name: set() for node in graph.nodes}
        for node in graph.nodes:
            for edge in node.after:
                if edge.on is EdgeKind.MUTEX:
                    self._against[node.name].add(edge.node)
                    self._against[edge.node].add(node.name)
        self._shared: dict[str, tuple[_Answer, ...]] = {}
        """A node's answers of the edges that are the same for all its tasks, until a node that it waits for changes."""
        self._own = {
            node.name: [edge for edge in node.after if edge.on is EdgeKind.CORRESPONDING] for node in graph.nodes
        }
        self._followers: dict[str, set[str]] = {node.name: set() for node in graph.nodes}
        for node in graph.nodes:
            for edge in node.after:
                self._followers[edge.node].add(node.name)

    @property
    def sorted(self) -> list[GraphNode]:
        """All nodes, each after the nodes that it waits for."""
        return [self._nodes[name] for name in TopologicalSorter(self._graph.before).static_order()]

    def moved(self, node: GraphNode, before: Item, after: Item) -> None:
        counts = self._counts[node.name]
        counts[before.phase] -= 1
        counts[after.phase] += 1
        self._there[node.name] += is_there(after) - is_there(before)
        for one in self._followers[node.name]:
            self._shared.pop(one, None)

    def never(self, node: GraphNode, name: str) -> str:
        return next((answer.never for answer in self._answers(node, name) if answer.never), "")

    def waits(self, node: GraphNode, name: str) -> str:
        """Return a text of what it waits for; empty if nothing."""
        waits = [answer.waits for answer in self._answers(node, name) if answer.waits]
        waits += [f"{other} to be gone" for other in sorted(self._against[node.name]) if self._there[other]]
        return _listed("; ", waits)

    @staticmethod
    def met(node: GraphNode) -> str:
        came = [f"{edge.node} ({edge.on.value})" for edge in node.after]
        return f"what it waited for has come: {_listed(', ', came)}" if came else "it waits for nothing in its graph"

    def _answers(self, node: GraphNode, name: str) -> Iterator[_Answer]:
        shared = self._shared.get(node.name)
        if shared is None:
            alike = (edge for edge in node.after if edge.on not in {EdgeKind.CORRESPONDING, EdgeKind.MUTEX})
            shared = tuple(answer for answer in map(self._answer, alike) if answer != _MET)
            self._shared[node.name] = shared
        yield from shared
        for edge in self._own[node.name]:
            yield self._corresponding(edge, name)

    def _corresponding(self, edge: Edge, name: str) -> _Answer:
        one = self._nodes[edge.node].items[self._graph.items[name][1]]
        phase = self._items[one].phase
        if phase is ItemPhase.SUCCEEDED:
            return _MET
        lost = phase.ended or phase is ItemPhase.REFUSED
        return _Answer(never=f"{one} has not succeeded" if lost else "", waits=f"{one} to succeed")

    def _answer(self, edge: Edge) -> _Answer:
        other = self._nodes[edge.node]
        counts, total = self._counts[other.name], len(other.items)
        good, bad = counts[ItemPhase.SUCCEEDED], counts[ItemPhase.FAILED]
        lost = counts[ItemPhase.CANCELLED] + counts[ItemPhase.REFUSED]
        ended = good + bad + counts[ItemPhase.CANCELLED]
        waits = f"{other.name} to {DONE[edge.on]}"
        if total > 1:
            waits += f" ({ended} of {total} tasks have ended)"
        match edge.on:
            case EdgeKind.SUCCESS:
                never = f"{other.name} has not succeeded" if bad + lost else ""
                return _MET if good == total else _Answer(never=never, waits=waits)
            case EdgeKind.FAILURE:
                if ended == total:
                    return _MET if bad else _Answer(never=f"{other.name} has not failed")
                return _Answer(never="" if good + lost < total else f"{other.name} has not failed", waits=waits)
            case _:
                return _MET if ended == total else _Answer(waits=waits)

    def _counted(self, node: GraphNode) -> Counter[ItemPhase]:
        return Counter(self._items[name].phase for name in node.items)

    def _active(self, node: GraphNode) -> int:
        return sum(1 for name in node.items if is_there(self._items[name]))


def is_there(item: Item) -> bool:
    """Whether pods of a workload may be running."""
    begun_ = item.phase in {ItemPhase.ADMITTED, ItemPhase.REFUSED} or item.phase.ended
    return begun_ and not item.released


def over(graph: Graph, state: GraphState) -> Phase | None:
    """Return the outcome of a graph once all of its workloads have ended; None before.

    It has failed if a workload failed whose node has no node after it on Failure or Any. It is cancelled if a person
    cancelled the graph, or a workload whose node has no such node after it.
    """
    if any(not item.phase.ended or is_there(item) for item in state.items.values()):
        return None
    if state.cancelled:
        return Phase.CANCELLED
    followed = {edge.node for node in graph.nodes for edge in node.after if edge.on in {EdgeKind.FAILURE, EdgeKind.ANY}}
    left = [item for name, item in state.items.items() if graph.items[name][0].name not in followed]
    if any(item.phase is ItemPhase.FAILED for item in left):
        return Phase.FAILED
    if any(item.phase is ItemPhase.CANCELLED and not item.why for item in left):
        return Phase.CANCELLED
    return Phase.SUCCEEDED


def phase_of(graph: Graph, state: GraphState) -> Phase:
    """Return the phase of a graph."""
    ended = over(graph, state)
    if ended is not None:
        return ended
    return Phase.RUNNING if any(item.phase not in _WAITS for item in state.items.values()) else Phase.PENDING


def status(graph: Graph, state: GraphState) -> GraphStatus:
    """Return the status of a graph."""
    books = _Books(graph, state.items)
    # The graph was validated when it was submitted; with 10,000 dependencies it is not validated again for each query.
    return GraphStatus.model_construct(
        name=graph.name,
        namespace=graph.namespace,
        cluster=graph.cluster,
        phase=phase_of(graph, state),
        message=_message(state),
        counts={one.value: count for one, count in _counts(state).items()},
        graph=graph,
        items=dict(state.items),
        waits={
            name: books.waits(graph.items[name][0], name)
            for name, item in state.items.items()
            if item.phase in _WAITS and not state.cancelled
        },
    )


def details(graph: Graph, state: GraphState) -> str:
    """Return the status of a graph in Markdown, for the Temporal UI."""
    counts = ", ".join(f"{count} {one.value}" for one, count in _counts(state).items())
    lines = [f"**{phase_of(graph, state).value}**: {escaped(_message(state))} ({counts})", ""]
    left = ((name, item) for name, item in state.items.items() if not item.phase.ended)
    shown = list(islice(left, _SHOWN))
    if shown:
        books = _Books(graph, state.items)
        lines += ["| workload | is | waits for |", "|---|---|---|"]
        for name, item in shown:
            waits = books.waits(graph.items[name][0], name) if item.phase in _WAITS else ""
            lines.append(f"| {name} | {item.phase.value} | {escaped(waits or item.why)} |")
    if state.cancelled:
        lines += ["", f"Cancelled: {escaped(state.cancelled)}"]
    return "\n".join(lines)


def _counts(state: GraphState) -> dict[ItemPhase, int]:
    counts = Counter(item.phase for item in state.items.values())
    return {one: counts[one] for one in ItemPhase if counts[one]}


def _message(state: GraphState) -> str:
    counts = _counts(state)
    message = _ended(sum(count for one, count in counts.items() if one.ended), len(state.items))
    awaited = counts.get(ItemPhase.AWAITED, 0)
    if awaited and not state.cancelled:
        message += f"; {counted(awaited, 'is', 'are')} not submitted yet: submit its file again if that was broken off"
    return message


def _ended(count: int, total: int) -> str:
    return f"{count:,} of {counted(total, 'workload has', 'workloads have')} ended"


def _listed(between: str, words: Sequence[str]) -> str:
    more = len(words) - _NAMED
    return between.join(words[:_NAMED]) + (f" and {more} more" if more > 0 else "")
