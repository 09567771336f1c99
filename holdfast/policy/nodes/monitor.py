"""When is a node Down? From leases, conditions and time to states and marks (rows L4, L5, L8, L12, L15). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from holdfast.model import (
    Interval,
    NodeBook,
    NodeMarked,
    NodeRecord,
    NodeSight,
    NodesSeen,
    NodeState,
    NodeTimings,
    NodeWish,
    NodeWord,
    OwnMarks,
    format_duration,
)
from holdfast.model.life.state import INTERVALS_KEPT
from holdfast.policy.failures.blindness import due, union
from holdfast.policy.nodes import fence
from holdfast.policy.values.edit import edit

MASS_SHARE = 0.55
"""As in Kubernetes' node lifecycle controller: beyond this share the monitor doubts its sight, not the nodes."""
MASS_LEAST = 3
"""If there are only two nodes, one of them may well be lost."""
CHECK_LONGEST = timedelta(minutes=10)
TOGETHER = timedelta(seconds=2)
"""Deadlines within this time are decided together: a rack that loses power falls silent over ten seconds."""
AT_ONCE = 500
"""How many nodes one operation looks at or marks."""
REFUSED_AGAIN = timedelta(minutes=1)


class Plan(NamedTuple):
    """The next steps: look at nodes, mark nodes, request or withdraw their power-off, or wait."""

    look: tuple[NodeRecord, ...]
    mark: tuple[NodeWish, ...]
    until: datetime | None
    why: str
    ask: tuple[NodeRecord, ...] = ()


# The observations.


def is_mass(silent: int, total: int) -> bool:
    """Whether so many leases fell silent together that the cause is rather our sight, the API server or etcd."""
    if not silent:
        return False
    return silent >= total or (silent >= MASS_LEAST and silent >= total * MASS_SHARE)


def held_back(silent: int, total: int, since: datetime | None, timings: NodeTimings, now: datetime) -> datetime | None:
    """Return since when no node is found Down because so many are silent; None if nodes may be found Down.

    While no node renews, this holds for ever. If some nodes renew all the time, their API server works: then the others
    are believed to be lost after as long as a sensitive workload waits.

    Args:
        silent: nodes that have been silent for long enough to be Degraded, and are not Down yet.
        total: nodes with a lease that are not Down yet.
        since: the result of the call before.
        timings: the operator's timings.
        now: the time by the observer's clock.
    """
    if not is_mass(silent, total):
        return None
    since = since or now
    return None if silent < total and now - since >= timings.sensitive_down else since


def on_node_news(book: NodeBook, seen: NodesSeen) -> NodeBook:
    """Return the book after news of some nodes."""
    blind = union((*book.blind, *seen.blind), INTERVALS_KEPT)
    if book.held_since is not None and book.held_since != seen.held_since:
        # Silence that was not believed counts as not seen.
        blind = union((*blind, Interval(begin=book.held_since, end=seen.at)), INTERVALS_KEPT)
    nodes = dict(book.nodes)
    for sight in seen.nodes:
        known = nodes.get(sight.name)
        if known is not None and seen.at < known.at:
            continue  # A late message of a watch that was replaced.
        if sight.gone or (known is not None and sight.uid and known.uid and sight.uid != known.uid):
            # Facts about an earlier node of this name do not apply to this one.
            nodes.pop(sight.name, None)
            known = None
        if sight.gone or (known is None and not sight.silent and not sight.fault and sight.own is None):
            continue
        nodes[sight.name] = _seen(known, sight, seen.at)
    book = fence.remembered(edit(book, nodes=nodes))
    return edit(book, total=seen.total, silent=seen.silent, held_since=seen.held_since, blind=blind)


def told_of(book: NodeBook) -> tuple[NodeSight, ...]:
    """Return the last known sight of the nodes in the book, for a watch that begins now."""
    return tuple(
        NodeSight(
            name=one.name,
            uid=one.uid,
            renewed=one.renewed,
            heard=one.heard,
            silent=one.steady is None,
            believed=one.steady is None and (one.believed or one.state is NodeState.DOWN),
            fault=one.fault,
            message=one.message,
        )
        for one in book.nodes.values()
    )


def _seen(known: NodeRecord | None, sight: NodeSight, at: datetime) -> NodeRecord:
    record = known or _adopted(sight, sight.own or OwnMarks(), at)
    heard = sight.heard or record.heard or at
    if sight.own is not None and record.heard is not None:
        heard = max(heard, record.heard)  # A mark shows the past, and a record the present.
    return edit(
        record,
        uid=sight.uid or record.uid,
        at=at,
        renewed=sight.renewed or record.renewed,
        heard=heard,
        believed=sight.silent and sight.believed,
        steady=None if sight.silent else record.steady or heard,
        fault=sight.fault,
        message=sight.message,
    )


def _adopted(sight: NodeSight, own: OwnMarks, at: datetime) -> NodeRecord:
    """Return the record of a node from the marks on its object alone, which give its state (row D11).

    A node that is being fenced is marked once more, since only marking shows whose pods are there. A power-off in an
    earlier silence than the current one proves nothing, and neither does the word Lost from that silence.
    """
    record = NodeRecord(name=sight.name, uid=sight.uid, since=own.since or at, at=at)
    proven = own.off is not None and sight.silent and bool(own.off_renewed) and own.off_renewed == sight.renewed
    if own.word is NodeWord.NONE and own.off is None:
        return record
    if own.word is NodeWord.NONE:  # The mark of its power-off is removed, or a word follows.
        record = edit(record, told=NodeWord.FENCING)
    else:
        state = NodeState.RETURNING if own.word is NodeWord.RETURNING else NodeState.DOWN
        told = NodeWord.NONE if own.word is NodeWord.FENCING else own.word
        record = edit(record, state=state, downs=1, word=own.word, told=told, why=own.why)
    if own.word is NodeWord.LOST and own.off is not None and sight.silent and not proven:
        record = edit(record, word=NodeWord.FENCING)
    if record.word is NodeWord.FENCING:
        record = edit(record, fencing=record.since, ours=True)
    if proven:
        record = edit(record, fencing=own.off, fenced=own.off, fenced_why=own.off_why)
    return record


def looked(book: NodeBook, sights: Iterable[NodeSight], begun: datetime, blind: Iterable[Interval]) -> NodeBook:
    """Return the book after a live look that began at a time: the renewals that the leases then had decide."""
    nodes = dict(book.nodes)
    for sight in sights:
        record = nodes.get(sight.name)
        if record is None or _is_of_another(record, sight.asked_uid):
            continue
        if sight.gone or (sight.uid and record.uid and sight.uid != record.uid):
            del nodes[sight.name]
            continue
        if sight.renewed and sight.renewed != record.renewed:
            steady = record.steady or begun
            record = edit(record, renewed=sight.renewed, heard=begun, steady=steady)
        nodes[sight.name] = edit(record, looked=begun, ready=sight.ready, fault=sight.fault, message=sight.message)
    return edit(book, nodes=nodes, blind=union((*book.blind, *blind), INTERVALS_KEPT))


def marked(book: NodeBook, done: Iterable[NodeMarked], now: datetime) -> NodeBook:
    """Return the book after some nodes' objects were marked, or could not be."""
    nodes = dict(book.nodes)
    for one in done:
        record = nodes.get(one.name)
        if record is None or _is_of_another(record, one.uid):
            continue
        if one.gone:
            del nodes[one.name]
        elif one.refused:
            nodes[one.name] = edit(record, refused=one.refused, tried=now)
        else:
            nodes[one.name] = edit(record, told=one.word, refused="", ours=one.ours, sensitive=one.sensitive)
    return edit(book, nodes=nodes)


def _is_of_another(record: NodeRecord, uid: str) -> bool:
    """Whether a result is of an operation on an earlier node of the same name."""
    return bool(uid and record.uid and uid != record.uid)


# The consequences.


def settle(book: NodeBook, timings: NodeTimings, now: datetime) -> NodeBook:
    """Return the book with every node in the state that the evidence and the time require."""
    blind = _blind(book, now)
    nodes: dict[str, NodeRecord] = {}
    decided = book.decided
    for name, before in book.nodes.items():
        record = _settled(before, timings, blind, now, held=book.held_since is not None)
        decided += record.downs - before.downs
        standing = record.state is not NodeState.HEALTHY or record.told is not NodeWord.NONE
        if standing or record.flaps or record.withdraw:
            nodes[name] = record
    return edit(book, nodes=nodes, decided=decided)


def plan(book: NodeBook, timings: NodeTimings, now: datetime) -> Plan:
    """Return the next steps for a settled book."""
    blind = _blind(book, now)
    looks: list[NodeRecord] = []
    marks: list[NodeWish] = []
    asks: list[NodeRecord] = []
    waits: list[tuple[datetime, str]] = []
    for record in book.nodes.values():
        if record.word is not record.told:
            again = (record.tried or now) + REFUSED_AGAIN
            if record.refused and now < again:
                waits.append((again, f"{record.name} could not be marked: tried again"))
            else:
                heard, word = record.heard, record.word
                wish = NodeWish(
                    name=record.name, uid=record.uid, word=word, why=record.why, since=record.since, heard=heard
                )
                marks.append(wish)
        at = fence.ask_due(record, now, lost=_word_due(record, timings, blind, now) is NodeWord.LOST)
        if at is not None and (record.withdraw or book.held_since is None):
            if at <= now:
                asks.append(record)
            else:
                waits.append((at, f"{record.name}: the provisioner is asked again"))
        if book.held_since is not None and record.steady is None:
            continue
        at, what = _next(record, timings, blind)
        if at is None:
            continue
        if at <= now:
            looks.append(record)
        else:
            waits.append((at, f"{record.name}: {what}"))
    first = min(waits, default=None)
    # Deadlines shortly after the first one wait for the last of these, so that one operation handles all.
    at = max((each for each, _ in waits if first and each <= first[0] + TOGETHER), default=None)
    asks = fence.in_turn(book, asks, now)
    return Plan(tuple(looks[:AT_ONCE]), tuple(marks[:AT_ONCE]), at, first[1] if first else "", tuple(asks[:AT_ONCE]))


def _blind(book: NodeBook, now: datetime) -> tuple[Interval, ...]:
    """Return the intervals in which nothing could be seen, or believed."""
    if book.held_since is None or now <= book.held_since:
        return book.blind
    return union((*book.blind, Interval(begin=book.held_since, end=now)), INTERVALS_KEPT)


def _settled(
    record: NodeRecord, timings: NodeTimings, blind: tuple[Interval, ...], now: datetime, *, held: bool
) -> NodeRecord:
    record = edit(record, flaps=tuple(at for at in record.flaps if now - at < timings.flap_window))
    record = fence.on_renewal(record) if record.steady is not None else record
    if record.fault:
        return _faulty(record, timings, blind, now, held=held)
    if record.steady is None:
        return _silent(record, timings, blind, now, held=held)
    match record.state:
        case NodeState.DOWN:
            why = f"heard again after {record.why}; it takes no new pods until a health check passes"
            return _enter(record, NodeState.RETURNING, NodeWord.RETURNING, why, now)
        case NodeState.RETURNING:
            checked = _check_due(record, timings, blind)
            if record.looked is not None and record.looked >= checked and record.ready:
                return _enter(record, NodeState.HEALTHY, NodeWord.NONE, "its health check has passed", now)
            return record
        case NodeState.DEGRADED:
            if now >= _calm(record, timings, blind):
                return _enter(record, NodeState.HEALTHY, NodeWord.NONE, "its lease is renewed", now)
            return record
        case NodeState.HEALTHY:
            return record


def _faulty(
    record: NodeRecord, timings: NodeTimings, blind: tuple[Interval, ...], now: datetime, *, held: bool
) -> NodeRecord:
    """A node with hardware reported as broken is Down at once, whether or not it renews its lease (row L8)."""
    if record.state is not NodeState.DOWN:
        why = f"{record.fault}: {record.message}: Down at once (rule hardware)"
        return _enter(record, NodeState.DOWN, NodeWord.FAULTY, why, now)
    if record.steady is None:
        return _silent(record, timings, blind, now, held=held)
    return edit(record, word=NodeWord.FAULTY)  # It renews again: its pods can be told to end.


def _silent(
    record: NodeRecord, timings: NodeTimings, blind: tuple[Interval, ...], now: datetime, *, held: bool
) -> NodeRecord:
    heard = record.heard or record.at
    if record.fenced is not None:  # No process is left on the node: there is nothing to wait for.
        if record.word is NodeWord.LOST:
            return record
        return _enter(record, NodeState.DOWN, NodeWord.LOST, fence.once_off(heard, record.fenced_why), now)
    word = _word_due(record, timings, blind, now)
    if word is not NodeWord.NONE and not held and fence.is_wanted(record, timings):
        if record.word is NodeWord.FENCING:
            return record
        down = _down(record, heard, word, timings, now)
        by_hand = f"if you have cut it: `holdfast node fenced {record.name}`"
        why = f"{down}; its pods are replaced only once its power is off (rule fence); {by_hand}"
        return _enter(edit(record, fencing=now), NodeState.DOWN, NodeWord.FENCING, why, now)
    if word is not NodeWord.NONE and not held and record.word not in {word, NodeWord.LOST}:
        return _enter(record, NodeState.DOWN, word, _down(record, heard, word, timings, now), now)
    if record.state is NodeState.HEALTHY:
        record = edit(record, flaps=(*record.flaps, now)[-timings.flaps :])
        why = f"{fence.renewed(heard)} (rule silent {format_duration(timings.degraded)})"
        return _enter(record, NodeState.DEGRADED, record.word, why, now)
    return record


def _word_due(record: NodeRecord, timings: NodeTimings, blind: tuple[Interval, ...], now: datetime) -> NodeWord:
    """Return the word that its silence requires by now, as far as a live look has confirmed the silence."""
    heard = record.heard or record.at
    for word, grace in ((NodeWord.LOST, timings.until_lost), (NodeWord.DOWN, timings.until_down)):
        at = due(heard, grace, blind)
        if now >= at and record.looked is not None and record.looked >= at:
            return word
    return NodeWord.NONE


def _down(record: NodeRecord, heard: datetime, word: NodeWord, timings: NodeTimings, now: datetime) -> str:
    age = format_duration(timedelta(seconds=int((now - heard).total_seconds())))
    grace = timings.sensitive_down if word is NodeWord.LOST else timings.down
    whom = ", for sensitive workloads too" if word is NodeWord.LOST else ""
    return (
        f"{fence.renewed(heard)}, {age} before: Down{whom} "
        f"(rule silent {format_duration(timings.degraded)} + {format_duration(grace)})"
    )


def _enter(record: NodeRecord, state: NodeState, word: NodeWord, why: str, now: datetime) -> NodeRecord:
    anew = state is NodeState.DOWN and record.state is not NodeState.DOWN
    since = record.since if state is record.state else now
    return edit(record, state=state, since=since, word=word, why=why, downs=record.downs + anew, refused="")


def _calm(record: NodeRecord, timings: NodeTimings, blind: tuple[Interval, ...]) -> datetime:
    """Return from when on a node that renews again is healthy: at once, unless it falls silent again and again."""
    steady = record.steady or record.at
    return due(steady, timings.flap_window, blind) if len(record.flaps) >= timings.flaps else steady


def _check_due(record: NodeRecord, timings: NodeTimings, blind: tuple[Interval, ...]) -> datetime:
    """Return when the health check of a node that is back from Down is due."""
    wait = min(CHECK_LONGEST, timings.check * 2 ** min(10, max(0, record.downs - 1)))
    return due(max(record.steady or record.at, record.since), max(wait, timings.check), blind)


def _next(record: NodeRecord, timings: NodeTimings, blind: tuple[Interval, ...]) -> tuple[datetime | None, str]:
    """Return when the next look at a node is due, and what may follow from it."""
    heard = record.heard or record.at
    if record.steady is None:
        for grace, word, what in (
            (timings.until_down, NodeWord.DOWN, "Down"),
            (timings.until_lost, NodeWord.LOST, "Down for sensitive workloads too"),
        ):
            at = due(heard, grace, blind)
            passed = record.word in {word, NodeWord.LOST} or fence.is_passed(record, word)
            if not passed and (record.looked is None or record.looked < at):
                return at, f"{what}, unless its lease is renewed"
        return None, ""
    if record.state is NodeState.RETURNING:
        at = _check_due(record, timings, blind)
        if record.looked is not None and record.looked >= at:  # It was not passed.
            at = record.looked + timings.check
        return at, "health check"
    if record.state is NodeState.DEGRADED:
        return _calm(record, timings, blind), "Healthy, if it is heard without a break"
    return None, ""
