"""The rules of an admission queue: what it admits in which cycle, and what it remembers (rows L9, L26, L27). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from holdfast import names
from holdfast.model.entities.queue import (
    ITEMS_MAXIMUM,
    MEMORY_MAXIMUM,
    Queue,
    QueueItem,
    QueueLine,
    QueueNews,
    QueueOrder,
    QueueState,
    QueueStatus,
    Standing,
    StopPolicy,
    Strategy,
)
from holdfast.model.quantity import format_quantity
from holdfast.model.words import amount_of, counted, escaped, shortened
from holdfast.policy.values.edit import edit

CYCLE: Final = timedelta(seconds=1)
"""The shortest duration of a cycle, if a workload waits only for the next cycle."""
LOOK_SOON: Final = timedelta(seconds=15)
"""The time to the next look of a queue that has just begun, or that waits for messages of workloads."""
SETTLING: Final = 2
"""How many looks it takes until the list must have contained every existing workload."""
LOOK_EVERY: Final = timedelta(minutes=10)
"""How often a queue in which workloads wait looks at the cluster for workloads that ended without a message."""
SHOWN: Final = 500
"""How many waiting workloads, and how many admitted ones, a status names."""
_DETAILED: Final = 20
"""How many workloads of a queue the Temporal UI shows."""
_NAMED: Final = 5
"""How many namespaces a message names."""
_ROOMY: Final = 0.9
"""The fill level of a queue's memory below which it asks again the workloads that it turned away."""
_FULL: Final = f"its queue is full: it remembers at most {ITEMS_MAXIMUM:,} workloads, fewer if they request many kinds"


@dataclass(frozen=True, slots=True)
class Order:
    """An order to send to a workload."""

    workload: str
    given: QueueOrder
    about: str | None = None
    """The uid of the submission that waited when it was made, empty for none; None: whichever has the name."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of a look at a queue's cluster."""

    kueue: bool
    """Whether Kueue decides in the whole cluster."""
    workloads: tuple[str, ...]
    """The open workflows of this queue."""
    gone: tuple[str, ...]
    """The uids of admitted workloads whose workflow is closed, and of which no pod is left."""
    kueue_namespaces: tuple[str, ...] = ()
    """The namespaces in which Kueue decides."""
    begun: tuple[str, ...] = ()
    """The uids of those that were no holders, and have begun all the same."""


def begun(queue: Queue) -> QueueState:
    """Return the memory of a queue that has had no message from workloads."""
    return QueueState(queue=queue)


def configured(state: QueueState, queue: Queue) -> QueueState:
    """Return the state with another quota or strategy; admitted workloads stay admitted, whatever the quota is now.

    A queue that was closing goes on: a user who configures it wants it to exist.
    """
    return edit(state, queue=queue, closing="")


def on_workload_news(state: QueueState, news: QueueNews, now: datetime) -> tuple[QueueState, QueueOrder | None]:
    """Return the state after a workload has reported its standing, and the immediate answer.

    A workload requeued after a failed attempt releases its quota and asks again in one message. It keeps its place in
    the order, which is the order of submission.
    """
    if news.workload in state.awaited:
        state = edit(state, awaited=tuple(one for one in state.awaited if one != news.workload))
    item = state.items.get(news.uid)
    if item is not None and news.turn < item.turn:
        # The workload's memory was restored to an earlier time, as by a workflow reset: it must count on from here.
        why = f"queue {state.queue.name} knows of its request {item.turn}"
        return state, QueueOrder(uid=news.uid, turn=item.turn, again=True, why=why)
    if news.standing is Standing.RELEASED:
        return forgotten(state, news.uid), None
    if item is not None and news.turn == item.turn:
        if news.standing is Standing.ASKS and item.admitted:
            # It has lost the order, since its memory was restored to an earlier time, or has not received it yet.
            item = edit(item, demand=news.demand)
            return _kept(state, news.uid, item), let_in(news.uid, item, state)
        holds = news.standing is Standing.HOLDS
        return _kept(state, news.uid, edit(item, demand=news.demand, admitted=holds or item.admitted)), None
    if item is None and news.standing is Standing.ASKS and (state.full or _is_full(state)):
        return edit(state, full=True), QueueOrder(uid=news.uid, turn=news.turn, why=_FULL)
    fresh = QueueItem(
        workload=news.workload,
        turn=news.turn,
        admitted=news.standing is Standing.HOLDS,
        demand=news.demand,
        priority=news.priority,
        since=news.submitted_at or (item.since if item is not None else now),
        cycle=state.cycle + 1 if news.requeued and news.standing is Standing.ASKS else 0,
    )
    return _kept(state, news.uid, fresh), None


def replaced(state: QueueState, news: QueueNews) -> QueueState:
    """Return the state after the first message of a submission, without what waits of earlier ones of its workflow.

    A workflow has one open run, so theirs is closed: nobody told the queue, and it would admit what does not exist. One
    that was admitted may have pods, and keeps its quota until a look proves that none exists (row D13). A late first
    message of an earlier submission replaces nothing.
    """
    if news.uid in state.items or news.submitted_at is None:
        return state
    for uid, item in state.items.items():
        if item.workload != news.workload or item.since >= news.submitted_at:
            continue
        state = edit(state, doubted={**state.doubted, uid: SETTLING}) if item.admitted else forgotten(state, uid)
    return state


def _kept(state: QueueState, uid: str, item: QueueItem) -> QueueState:
    return edit(state, items={**state.items, uid: item})


def forgotten(state: QueueState, uid: str) -> QueueState:
    """Return the state without a workload that neither asks for nor holds quota."""
    items = {key: one for key, one in state.items.items() if key != uid}
    return edit(state, items=items, doubted={key: left for key, left in state.doubted.items() if key != uid})


def gone(state: QueueState, order: Order) -> QueueState:
    """Return the state after an order could not be delivered: most likely the workload's workflow is closed.

    A workload that waits holds nothing, and is forgotten. An admitted one may have pods, whether or not it got that
    message: it keeps its quota until a look at the cluster proves that none exists (row D13). That look is due at
    once.
    """
    state = edit(state, awaited=tuple(one for one in state.awaited if one != order.workload))
    if order.given.admit:
        item = state.items.get(order.given.uid)
        holds = item is not None and item.admitted
        return edit(state, doubted={**state.doubted, order.given.uid: SETTLING}) if holds else state
    for uid in [uid for uid, one in _pending(state) if one.workload == order.workload]:
        if order.about in {None, uid}:  # Another may have been submitted under the name since.
            state = forgotten(state, uid)
    return state


def on_look(state: QueueState, given: Seen, now: datetime) -> tuple[QueueState, tuple[Order, ...]]:
    """Return the state after a look at the cluster, and orders to the workloads that must report their standing.

    A new queue knows no workload, but workloads may hold quota from an earlier queue of its name: it admits none before
    all have reported. It looks a second time soon, since the list may have been stale. A waiting workload that is not
    in the list is asked too: if its workflow is closed, the order cannot be delivered.
    """
    for uid in given.gone:
        state = forgotten(state, uid)
    known, there = {one.workload for one in state.items.values()}, set(given.workloads)
    asked: tuple[str, ...] = ()
    if state.looks < SETTLING or state.awaited or _has_room_again(state):
        asked = tuple(one for one in given.workloads if one not in known)
        state = edit(state, full=state.full and not _has_room_again(state))
    awaited = asked if state.looks < SETTLING else tuple(one for one in state.awaited if one in there)
    missed: tuple[tuple[str, str], ...] = ()
    if state.looks >= SETTLING:
        missed = tuple((one.workload, uid) for uid, one in _pending(state) if one.workload not in there)
    # A holder whose workflow is open but that missed an order is asked: if it still asks, it gets the order again.
    unsure = tuple((state.items[uid].workload, uid) for uid in state.doubted if state.items[uid].workload in there)
    # Its admission was forgotten, as by a reset of the queue's workflow: its answer takes its quota again.
    unsure += tuple((one.workload, uid) for uid, one in _pending(state) if uid in given.begun)
    # The first look may have begun before the doubt arose; the second one has not.
    doubted = {uid: left - 1 for uid, left in state.doubted.items() if left > 1}
    state = edit(state, looked_at=now, looks=state.looks + 1, awaited=awaited, doubted=doubted)
    state = edit(state, kueue=given.kueue, kueue_namespaces=given.kueue_namespaces)
    why = f"queue {state.queue.name} asks how it stands"
    order, every = QueueOrder(uid="", again=True, why=why), (*((one, "") for one in asked), *missed, *unsure)
    return state, tuple(Order(workload, order, uid) for workload, uid in every)


def _is_kueues(state: QueueState, item: QueueItem) -> bool:
    """Whether Kueue, and not this queue, decides when a workload runs (row F19)."""
    return state.kueue or names.parse_workflow_id(item.workload)[1] in state.kueue_namespaces


def _own(state: QueueState) -> list[QueueItem]:
    """Return the workloads that this queue itself decides for."""
    return [one for one in state.items.values() if not _is_kueues(state, one)]


def _is_full(state: QueueState, share: float = 1) -> bool:
    """Whether the number or the size of the remembered workloads reaches this share of the maximum."""
    count, size = len(state.items), sum(one.size for one in state.items.values())
    return count >= ITEMS_MAXIMUM * share or size >= MEMORY_MAXIMUM * share


def _has_room_again(state: QueueState) -> bool:
    return state.full and not _is_full(state, _ROOMY)


def looks(state: QueueState, now: datetime) -> bool:
    """Whether a look at the cluster is due now."""
    due = _look_due(state)
    return state.looked_at is None or _has_room_again(state) or (due is not None and now >= due)


def _look_due(state: QueueState) -> datetime | None:
    """Return when the next look at the cluster is due; None: not before the next message."""
    if state.looked_at is None:
        return None
    if SETTLING in state.doubted.values():
        return state.looked_at
    if state.looks < SETTLING or state.awaited or state.doubted:
        return state.looked_at + LOOK_SOON
    needs = any(True for _ in _pending(state)) or (state.closing and state.items)
    return state.looked_at + LOOK_EVERY if needs else None


def wakes(state: QueueState, now: datetime, *, looking: bool = False) -> datetime | None:
    """Return when there is work without a new message; None: never. A queue that is looking is not woken for a look."""
    if any(one.cycle and one.cycle >= state.cycle for _, one in _pending(state)) and not _closed(state):
        return now + CYCLE
    due = None if looking else _look_due(state)
    return max(now, due) if due is not None else None


def step(state: QueueState) -> tuple[QueueState, tuple[Order, ...]]:
    """Return the state after a cycle, and the orders for the workloads that it admits.

    Each waiting workload is examined once, by priority, then submission, then name. Each is admitted at most once,
    since its quota is taken in the same step. A workload requeued in this cycle is not admitted in it (row L27), but
    its demand is reserved, so that workloads submitted after it do not overtake it (row L26).
    """
    if not any(True for _ in _pending(state)) or _closed(state):
        return state, ()
    state = edit(state, cycle=state.cycle + 1)
    items, orders = dict(state.items), list[Order]()
    for uid, item, why in _judged(state):
        if not why:
            admitted = edit(item, admitted=True, cycle=state.cycle)
            items[uid] = admitted
            orders.append(Order(item.workload, let_in(uid, admitted, state)))
    return edit(state, items=items), tuple(orders)


def let_in(uid: str, item: QueueItem, state: QueueState) -> QueueOrder:
    """Return the order that admits a workload."""
    counts = () if _is_kueues(state, item) else tuple(state.queue.room)
    why = f"admitted by queue {state.queue.name} in cycle {item.cycle}"
    return QueueOrder(uid=uid, turn=item.turn, admit=True, counts=counts, why=why)


def _closed(state: QueueState) -> str:
    """Return why the queue admits no workload at all; empty if it may."""
    if state.closing:
        return f"its queue is to be deleted: {state.closing}"
    if state.queue.stop_policy is StopPolicy.HOLD:
        return "its queue is held: stopPolicy Hold"
    if state.looked_at is None:
        return "its queue has just started, and has not seen its cluster yet"
    if state.awaited:
        owing = counted(len(state.awaited), "workload has", "workloads have")
        return f"its queue has just started: {owing} not said yet what they use"
    return ""


def _pending(state: QueueState) -> Iterator[tuple[str, QueueItem]]:
    return ((uid, one) for uid, one in state.items.items() if not one.admitted)


def _in_order(state: QueueState) -> list[tuple[str, QueueItem]]:
    return sorted(_pending(state), key=lambda one: (-one[1].priority, one[1].since, one[1].workload, one[0]))


def _judged(state: QueueState) -> Iterator[tuple[str, QueueItem, str]]:
    """Yield the waiting workloads in their order, each with the reason it is not admitted; empty: it is admitted."""
    room, used = state.queue.room, _used(_own(state))
    first = ""
    for uid, item in _in_order(state):
        if _is_kueues(state, item):
            yield uid, item, ""
            continue
        large = _short(item.demand, room, {})
        if large:
            yield uid, item, f"it cannot be admitted with this quota: {large}"
            continue
        short = _short(item.demand, room, used)
        if first or short:
            strict = state.queue.strategy is Strategy.STRICT_FIFO
            yield uid, item, f"it comes after {first}, which has no room yet" if first else short
            first = first or (_name(item) if strict else "")
            continue
        for key, amount in item.demand.items():
            used[key] = used.get(key, 0) + amount
        if item.cycle and item.cycle >= state.cycle:
            yield uid, item, f"requeued in cycle {item.cycle}: there is room, and it is admitted in the next cycle"
        else:
            yield uid, item, ""


def _used(items: Iterable[QueueItem]) -> dict[str, int]:
    used = dict[str, int]()
    for one in items:
        if one.admitted:
            for key, amount in one.demand.items():
                used[key] = used.get(key, 0) + amount
    return used


def _short(demand: Mapping[str, int], room: Mapping[str, int], used: Mapping[str, int]) -> str:
    """Return a text of the resources that are too short; empty if none. Where nothing is used, the quota is."""
    words: list[str] = []
    for key, amount in demand.items():
        if key in room and amount > room[key] - used.get(key, 0) and amount > 0:
            free, whole = format_quantity(max(0, room[key] - used.get(key, 0))), format_quantity(room[key])
            left = f"{free} of {whole} {'is' if free == '1' else 'are'} free" if used else f"the whole quota is {whole}"
            words.append(f"it requests {amount_of(format_quantity(amount), key)}, and {left}")
    return "; ".join(words)


def status(state: QueueState) -> QueueStatus:
    """Return the status of a queue."""
    used = _used(_own(state))
    admitted = sorted((one.since, uid) for uid, one in state.items.items() if one.admitted)
    waiting = _waiting(state)
    lines = [_line(uid, item, at, why) for at, (uid, item, why) in enumerate(islice(waiting, SHOWN), start=1)]
    for _, uid in admitted[:SHOWN]:
        item = state.items[uid]
        lines.append(_line(uid, item, 0, f"admitted in cycle {item.cycle}" if item.cycle else "admitted before"))
    return QueueStatus(
        queue=state.queue,
        message=_message(state, waiting),
        cycle=state.cycle,
        used={key: format_quantity(used.get(key, 0)) for key in (*state.queue.room, *_beyond(state, used))},
        admitted=len(admitted),
        waiting=len(waiting),
        lines=tuple(lines),
    )


def _beyond(state: QueueState, used: Mapping[str, int]) -> list[str]:
    return [key for key in sorted(used) if key not in state.queue.room]


def _waiting(state: QueueState) -> list[tuple[str, QueueItem, str]]:
    closed = _closed(state)
    return [(uid, item, closed or why or "its turn has come") for uid, item, why in _judged(state)]


def _line(uid: str, item: QueueItem, position: int, why: str) -> QueueLine:
    _, namespace, name = names.parse_workflow_id(item.workload)
    return QueueLine(
        namespace=namespace,
        name=name,
        uid=uid,
        admitted=item.admitted,
        position=position,
        priority=item.priority,
        since=item.since,
        demand={key: format_quantity(amount) for key, amount in item.demand.items()},
        why=why,
        workload=item.workload,
    )


def _name(item: QueueItem) -> str:
    _, namespace, name = names.parse_workflow_id(item.workload)
    return f"{namespace}/{name}"


def _message(state: QueueState, waiting: Sequence[tuple[str, QueueItem, str]]) -> str:
    closed = _closed(state)
    if closed:
        return closed.replace("its queue", "it", 1)
    if state.kueue:
        return "Kueue is installed in its cluster: queues are Kueue's, and this one lets all in"
    if state.kueue_namespaces and any(_is_kueues(state, one) for one in state.items.values()):
        shown = ", ".join(state.kueue_namespaces[:_NAMED]) + ("..." if len(state.kueue_namespaces) > _NAMED else "")
        kueues = f"; Kueue decides in {shown}, and this queue lets in what is there"
    else:
        kueues = ""
    return (
        "nobody waits" if not waiting else f"{len(waiting)} waiting; {_name(waiting[0][1])} is first: {waiting[0][2]}"
    ) + kueues


def details(state: QueueState) -> str:
    """Return the status of a queue in Markdown, for the Temporal UI."""
    waiting, held = _waiting(state), [one for one in state.items.values() if one.admitted]
    used = _used(_own(state))
    rows = [
        f"| {key} | {format_quantity(used.get(key, 0))} | {format_quantity(most)} |"
        for key, most in state.queue.room.items()
    ]
    lines = [
        f"**{len(held)} admitted, {len(waiting)} waiting**: {escaped(_message(state, waiting))} (cycle {state.cycle})",
        "",
    ]
    if rows:
        lines += ["| resource | taken | quota |", "|---|---|---|", *rows, ""]
    if waiting:
        lines += ["| next | priority | since | waits because |", "|---|---|---|---|"]
        lines += [
            f"| {_name(item)} | {item.priority} | {item.since:%Y-%m-%d %H:%M:%S} | {escaped(why)} |"
            for _, item, why in waiting[:_DETAILED]
        ]
    return "\n".join(lines)


def closing(state: QueueState, why: str) -> QueueState:
    """Return the state after a person has asked the queue to end."""
    return edit(state, closing=shortened(why) or "a person asked for it")


def over(state: QueueState) -> bool:
    """Whether a closing queue has no workload left."""
    return bool(state.closing) and not state.items and not state.awaited
