"""Fencing: a silent node is powered off before workloads learn that it is Down, and when (row L15). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from holdfast.model import NodeBook, NodeRecord, NodeTimings, NodeWord
from holdfast.model.entities.provisioner import FenceAsk, FenceNews
from holdfast.policy.values.edit import edit

ASKED_AGAIN: Final = timedelta(minutes=10)
"""The provisioner remembers requests. But it may have been terminated and started again since."""
UNASKED_AGAIN: Final = timedelta(minutes=1)
FENCES_AT_ONCE: Final = 500
"""How many power-offs are requested at the same time; other nodes follow as these are off, or have had their turn.

The provisioner has room for this many of the longest ordinary names (`fences.FENCES_BYTES`): a node that it turns away
counts here as requested.
"""
REMEMBERED: Final = 50


def is_wanted(record: NodeRecord, timings: NodeTimings) -> bool:
    """Whether a node that is Down must be powered off first; not if its workloads already know that it is Down."""
    return timings.fence and record.word not in {NodeWord.DOWN, NodeWord.LOST}


def renewed(heard: datetime) -> str:
    """Say when a silent node last renewed its lease."""
    return f"its lease was last renewed at {heard:%H:%M:%S} UTC"


def once_off(heard: datetime, why: str) -> str:
    """Say why a silent node is Lost once its power is off; the prover writes it on the node before the monitor does.

    Args:
        heard: the last renewal of its lease, in UTC.
        why: the proof that its power is off.
    """
    return f"{renewed(heard)}; {why}"


def is_passed(record: NodeRecord, word: NodeWord) -> bool:
    """Whether a node that is being fenced needs no look for a later word: only sensitive pods wait for one."""
    return record.word is NodeWord.FENCING and (word is NodeWord.DOWN or not record.sensitive)


def ask_due(record: NodeRecord, now: datetime, *, lost: bool) -> datetime | None:
    """Return when to request a node's power-off from the provisioner, or to withdraw the request; None for never.

    A node without a pod of this installation is left alone: it may belong to another user. A node with pods of a
    sensitive workload stays on for as long as that workload waits.

    Args:
        record: the record of the node.
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
    """Return the due nodes to send to the provisioner now: withdrawals first, then nodes that were never requested.

    The provisioner remembers a bounded number. The others wait here, where each has a record anyway, and show that.
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
    """Return the request to the provisioner."""
    return FenceAsk(node=record.name, uid=record.uid, renewed=record.renewed, why=record.why)


def after_requests(
    book: NodeBook, nodes: Iterable[str], withdrawn: Iterable[str], unasked: dict[str, str], now: datetime
) -> NodeBook:
    """Return the book after requests to the provisioner, whether or not they were sent, and after withdrawals.

    If the provisioner does not exist, it has nothing to withdraw.
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


def on_renewal(record: NodeRecord) -> NodeRecord:
    """Return the record of a node that renews its lease: its power is on, and must stay on."""
    if record.fencing is None and record.fenced is None:
        return record
    withdraw = record.fenced is None and record.ours
    return edit(record, fencing=None, asked=None, unasked="", fenced=None, fenced_why="", withdraw=withdraw)


def fenced(book: NodeBook, news: FenceNews) -> NodeBook:
    """Return the book after proof, or a person's statement, that the power of a node is off.

    News about a node that is not silent yet is kept until it is. For a node that renews its lease the news is out of
    date, and its mark is removed. News of an earlier silence proves nothing: the proof is requested again.
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
    """Whether news of a power-off is about a node's current silence: the node has not renewed its lease since.

    If the news names a renewal of the lease, clocks of different workers are not compared.
    """
    if news.renewed:
        return news.renewed == record.renewed
    return record.heard is None or record.heard <= news.at


def remembered(book: NodeBook) -> NodeBook:
    """Return the book after it applied the kept news of nodes that are silent by now."""
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
