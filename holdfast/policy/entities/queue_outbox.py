"""The unsent orders that a queue's run leaves to the next run: bounded, however many there are (D6, D7). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from holdfast.model.entities.queue import QueueOrder, QueueOwed, QueueState
from holdfast.policy.entities.queue import Order, let_in
from holdfast.policy.values.edit import edit

ASKED_MAXIMUM: Final = 500
"""How many workloads still to be asked for their standing are carried over; the next look finds the others."""


def carried_over(state: QueueState, waiting: Iterable[Order]) -> QueueState:
    """Return the memory for the next run, with the unsent orders.

    An unsent admission is a mark on the workload's item: it costs next to nothing, and is sent once. An answer to a
    request that is no longer the workload's latest is useless. A workload that was turned away because the queue is
    full does not get the reason: it is asked again once there is room.
    """
    items = dict(state.items)
    asked = dict[tuple[str, str], QueueOwed]()
    for order in waiting:
        given, item = order.given, items.get(order.given.uid)
        if given.admit:
            if item is not None and item.admitted and item.turn == given.turn:
                items[given.uid] = edit(item, owed=True)
        elif given.again:
            asked[order.workload, given.uid] = QueueOwed(workload=order.workload, uid=given.uid, turn=given.turn)
    # No look finds the workloads that must count on from an earlier time, so they come first.
    first = sorted(asked.values(), key=lambda one: not one.uid)
    return edit(state, items=items, owed=tuple(first[:ASKED_MAXIMUM]))


def taken_over(state: QueueState) -> tuple[QueueState, tuple[Order, ...]]:
    """Return the memory of the run before, and its unsent orders."""
    orders = [Order(item.workload, let_in(uid, item, state)) for uid, item in state.items.items() if item.owed]
    why = f"queue {state.queue.name} asks how it stands"
    orders += [Order(one.workload, QueueOrder(uid=one.uid, turn=one.turn, again=True, why=why)) for one in state.owed]
    items = {uid: edit(item, owed=False) if item.owed else item for uid, item in state.items.items()}
    return edit(state, items=items, owed=()), tuple(orders)
