"""What a queue's run leaves to the next one to tell: bounded, however many there are to be told (D6, D7). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from holdfast.model.entities.queue import QueueOrder, QueueOwed, QueueState
from holdfast.policy.entities.queue import Order, let_in
from holdfast.policy.values.edit import edit

ASKED_MAXIMUM: Final = 500
"""Workloads that are still to be asked how they stand, as they are carried over; the next look finds the others."""


def carried_over(state: QueueState, waiting: Iterable[Order]) -> QueueState:
    """Return the memory for the next run, with what has yet to be told.

    That a workload was let in is a mark on what is known of it, so that it costs next to nothing, and is told once. An
    answer to a request that is not the workload's latest any more is of no use. One that was turned away since the
    queue is full is not told why: it is asked again once there is room.
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
    # Those that count on from an earlier time are found by no look.
    first = sorted(asked.values(), key=lambda one: not one.uid)
    return edit(state, items=items, owed=tuple(first[:ASKED_MAXIMUM]))


def taken_over(state: QueueState) -> tuple[QueueState, tuple[Order, ...]]:
    """Return the memory of the run before, and what it has left to tell."""
    orders = [Order(item.workload, let_in(uid, item, state.queue)) for uid, item in state.items.items() if item.owed]
    why = f"queue {state.queue.name} asks how it stands"
    orders += [Order(one.workload, QueueOrder(uid=one.uid, turn=one.turn, again=True, why=why)) for one in state.owed]
    items = {uid: edit(item, owed=False) if item.owed else item for uid, item in state.items.items()}
    return edit(state, items=items, owed=()), tuple(orders)
