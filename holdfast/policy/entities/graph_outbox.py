"""The unsent orders that a graph's run leaves to the next run, bounded (D6, D7). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from holdfast.model.entities.graph import GraphOwed, GraphState
from holdfast.policy.entities.graph import Order
from holdfast.policy.values.edit import edit

STRANGERS_MAXIMUM: Final = 1_000
"""Workloads outside the graph whose refusal is unsent. Any beyond this number stays blocked, which is safe."""


def carried_over(state: GraphState, waiting: Iterable[Order]) -> GraphState:
    """Return the memory for the next run, with the unsent orders: for each workload the latest one."""
    ours, strangers = dict[str, GraphOwed](), dict[tuple[str, str], GraphOwed]()
    for order in waiting:
        owed = GraphOwed(item=order.item, uid=order.uid, admit=order.admit, reason=order.reason, why=order.why)
        item = state.items.get(order.item)
        if item is not None and item.uid == order.uid:
            ours[order.item] = owed
        elif len(strangers) < STRANGERS_MAXIMUM:
            strangers[order.item, order.uid] = owed
    return edit(state, owed=(*ours.values(), *strangers.values()))


def taken_over(state: GraphState) -> tuple[GraphState, tuple[Order, ...]]:
    """Return the memory of the run before, and its unsent orders."""
    orders = (Order(one.item, one.uid, one.admit, one.why, one.reason) for one in state.owed)
    return edit(state, owed=()), tuple(orders)
