"""Fencing: a node that is Down by its silence is off before that is told; when that is asked for (row L15). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from holdfast.model import NodeBook, NodeRecord, NodeTimings, NodeWord
from holdfast.model.entities.provisioner import FenceAsk, FenceNews
from holdfast.policy.values.edit import edit

ASKED_AGAIN: Final = timedelta(minutes=10)
"""The provisioner keeps what it was asked. It may have been ended, and begun anew, since."""
UNASKED_AGAIN: Final = timedelta(minutes=1)
FENCES_AT_ONCE: Final = 500
"""Nodes whose power is asked to be off at the same time; the others follow as these are off, or have had their turn.

The provisioner has room for so many of the longest ordinary names (`fences.FENCES_BYTES`): whom it turns away counts
here as asked for.
"""
REMEMBERED: Final = 50


def is_wanted(record: NodeRecord, timings: NodeTimings) -> bool:
    """Whether a node that is Down is to be off first; not where its workloads have been told already."""
    return timings.fence and record.word not in {NodeWord.DOWN, NodeWord.LOST}


def renewed(heard: datetime) -> str:
    """Say when a silent node was last heard of."""
    return f"its lease was last renewed at {heard:%H:%M:%S} UTC"


def once_off(heard: datetime, why: str) -> str:
    """Say why a silent node is Lost once its power is off; who proves it says so on the node before the monitor does.

    Args:
        heard: the last renewal of its lease, in UTC.
        why: by which proof its power is off.
    """
    return f"{renewed(heard)}; {why}"


def is_passed(record: NodeRecord, word: NodeWord) -> bool:
    """Whether a node whose power is to be off needs no look for another word: only sensitive pods wait for that."""
    return record.word is NodeWord.FENCING and (word is NodeWord.DOWN or not record.sensitive)


def ask_due(record: NodeRecord, now: datetime, *, lost: bool) -> datetime | None:
    """Return when the provisioner is to be asked for a node's power to be off, or told to leave it; None for never.

    A node without a pod of this installation is left as it is: it may be somebody else's. One with pods of a sensitive
    workload has as long as that one waits.

    Args:
        record: of the node.
        now: the time.
        lost: whether it has been silent for as long as a sensitive workload waits.
    """
    if record.withdraw:
        return now
    if record.word is not NodeWord.FENCING or record.told is not NodeWord.FENCING or not record.ours:
        return None
    if record.sensitive and not lost:
        return None
    if record.asked is None:
        return now
    return record.asked + (UNASKED_AGAIN if record.unasked else ASKED_AGAIN)


def in_turn(book: NodeBook, due: Iterable[NodeRecord], now: datetime) -> list[NodeRecord]:
    """Return those of whom the provisioner is told now, of all that are due: who was never asked for goes first.

    It remembers a bounded number. So as many wait here, where each has its record anyway, and say so.
    """
    due = sorted(due, key=lambda record: (not record.withdraw, record.asked is not None, record.asked or now))
    withdrawn = sum(record.withdraw for record in due)
    names = {record.name for record in due}
    under_way = sum(
        record.word is NodeWord.FENCING and record.asked is not None and record.name not in names
        for record in book.nodes.values()
    )
    return due[: withdrawn + max(0, FENCES_AT_ONCE - under_way)]


def ask_of(record: NodeRecord) -> FenceAsk:
    """Return what the provisioner is asked."""
    return FenceAsk(node=record.name, uid=record.uid, renewed=record.renewed, why=record.why)


def asked(
    book: NodeBook, nodes: Iterable[str], withdrawn: Iterable[str], unasked: dict[str, str], now: datetime
) -> NodeBook:
    """Return the book after the provisioner was asked, or could not be, and was told which nodes are to be left on.

    Where it is not there, there is nothing that it could leave.
    """
    records = dict(book.nodes)
    for name in nodes:
        record = records.get(name)
        if record is not None and record.steady is None:
            records[name] = edit(record, asked=now, unasked=unasked.get(name, ""))
    for name in withdrawn:
        if name in records:
            records[name] = edit(records[name], withdraw=False)
    return edit(book, nodes=records)


def heard(record: NodeRecord) -> NodeRecord:
    """Return what is remembered of a node that is heard: its power is on, and is to stay so."""
    if record.fencing is None and record.fenced is None:
        return record
    withdraw = record.fenced is None and record.ours
    return edit(record, fencing=None, asked=None, unasked="", fenced=None, fenced_why="", withdraw=withdraw)


def fenced(book: NodeBook, news: FenceNews) -> NodeBook:
    """Return the book after the power of a node was proven, or said, to be off.

    Of a node that is not silent yet it is remembered until it is. Of one that is heard it is not true any more; what
    was put on its object for it is taken off. News of an earlier silence proves nothing: the proof is asked for again.
    """
    record = book.nodes.get(news.node)
    if record is None:
        kept = list(book.fenced.items())[-(REMEMBERED - 1) :]
        return edit(book, fenced={**dict(kept), news.node: news})
    if record.uid and record.uid != news.uid:
        return book
    if record.steady is not None:
        changed = edit(record, told=NodeWord.FENCING)
    elif is_proof(record, news):
        changed = edit(record, fencing=record.fencing or news.at, fenced=news.at, fenced_why=news.why)
    else:
        changed = edit(record, asked=None)
    return edit(book, nodes={**book.nodes, news.node: changed})


def is_proof(record: NodeRecord, news: FenceNews) -> bool:
    """Whether news of a power-off is about the silence that a node is in: nothing was heard of it since.

    Clocks of different workers are not compared where the news names a renewal of the lease.
    """
    if news.renewed:
        return news.renewed == record.renewed
    return record.heard is None or record.heard <= news.at


def remembered(book: NodeBook) -> NodeBook:
    """Return the book with what was said of nodes that have fallen silent by now."""
    if not book.fenced:
        return book
    found = [one for one in book.fenced.values() if one.node in book.nodes]
    kept = {name: one for name, one in book.fenced.items() if name not in book.nodes}
    book = edit(book, fenced=kept)
    for news in found:
        record = book.nodes[news.node]
        if record.steady is None and is_proof(record, news):
            book = fenced(book, news)
    return book
