"""The ledger of a workload's life: each millisecond belongs to exactly one bucket (row P5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from holdfast.model.base import Time
from holdfast.model.life.history import Exported
from holdfast.model.words import counted

_MILLISECOND: Final = timedelta(milliseconds=1)
_NAMED: Final = 3
"""How many workloads, nodes or queues a note names."""


class Bucket(StrEnum):
    """What a workload's time was spent on. `docs/reference/ledger.md` defines each by events of its history."""

    QUEUED = "queued"
    """It waits for its turn: in its queue, for its graph, or for a worker."""
    STAGING = "staging"
    """Its data sets are staged, or their store is unavailable."""
    STARTING = "starting"
    """From the creation of an attempt until all its expected pods run; the same for pods that are created again."""
    PRODUCTIVE = "productive"
    """All its expected pods run, and nothing has thrown the work away."""
    LOST = "lost"
    """Its pods ran, and a restart threw the work away: it came after the last confirmed checkpoint."""
    CHECKPOINTING = "checkpointing"
    """Its pods were asked to save their state, and have not answered yet."""
    DETECTING = "detecting"
    """From the failure, by the failed pod's own time, until the decision on it or until it healed."""
    REMOVING = "removing"
    """Its pods are being deleted, and are not proven gone."""
    PAUSING = "pausing"
    """The pause before the next attempt."""
    SUSPENDED = "suspended"
    """It is suspended, or held until a person decides."""


class Span(Exported):
    """A stretch of time in one bucket. The spans of a ledger follow each other without a gap."""

    bucket: Bucket
    begin: Time
    """A whole millisecond."""
    end: Time
    """A whole millisecond, after `begin`."""
    attempt: int = 0
    """The attempt whose time it is, or that came before it; 0 before the first."""
    cause: str = ""
    """What it is the price of: a failure class or a reason; empty: nothing went wrong."""
    node: str = ""
    """The node of the failure that it is the price of; empty: none is known."""

    @property
    def milliseconds(self) -> int:
        """Its length."""
        return milliseconds(self.begin, self.end)


class Charge(Exported):
    """What one cause on one node cost in one bucket."""

    cause: str
    node: str = ""
    bucket: Bucket
    milliseconds: int


class Share(Exported):
    """The part of one workload in an account."""

    name: str
    namespace: str
    cluster: str
    uid: str
    milliseconds: dict[Bucket, int]


class Account(Exported):
    """The ledgers of several workloads together, or the part of them that one node or one cause has."""

    queue: str = ""
    """Only workloads of this queue; empty: of any."""
    node: str = ""
    """Only time that is the price of failures on this node; empty: all time."""
    cause: str = ""
    """Only time that is the price of this cause; empty: all time."""
    milliseconds: dict[Bucket, int]
    goodput: float | None = None
    """As in a ledger; None if only one node or one cause is counted."""
    charges: tuple[Charge, ...] = ()
    workloads: tuple[Share, ...] = ()
    """Those that have any of this time, the largest first."""
    notes: tuple[str, ...] = ()
    """What is left out, and how it was counted where a history does not know."""


class Ledger(Exported):
    """Where a workload's time went: `milliseconds` of all buckets add up to `age`, exactly."""

    name: str
    namespace: str
    cluster: str
    uid: str
    queue: str = ""
    begun_at: Time
    """When its workflow began; if Temporal no longer keeps its first run, when the first kept run began."""
    until: Time
    """When its life ended, or up to when it is counted."""
    ended: bool
    """Whether its life has ended: nothing more will be counted."""
    age: int
    """Milliseconds from `begun_at` to `until`."""
    milliseconds: dict[Bucket, int]
    """The length of each of the ten buckets."""
    goodput: float | None = None
    """Productive share of the time in which it was neither queued nor suspended; None if there was no such time."""
    executions: int = 0
    """How many attempts were made."""
    pods: int = 0
    """How many pods one attempt has, as its queue counts them."""
    devices: dict[str, int] = {}
    """Extended resources that one attempt requests, such as `nvidia.com/gpu`."""
    charges: tuple[Charge, ...] = ()
    """The part of the time that has a cause, by cause, node and bucket; the largest first."""
    spans: tuple[Span, ...] = ()
    notes: tuple[str, ...] = ()
    """How it was counted where the history does not know."""


def together(
    ledgers: Sequence[Ledger], *, queue: str = "", node: str = "", cause: str = "", notes: tuple[str, ...] = ()
) -> Account:
    """Return the account of several ledgers.

    Args:
        ledgers: The ledgers, of workloads of the queue, if one is named.
        queue: The queue; empty: any.
        node: Only time with this node; empty: all time.
        cause: Only time with this cause; empty: all time.
        notes: What is left out.
    """
    shares: list[Share] = []
    spans: list[Span] = []
    said: dict[str, list[str]] = {}
    for ledger in ledgers:
        mine = [one for one in ledger.spans if node in {"", one.node} and cause in {"", one.cause}]
        if not mine:
            continue
        spans += mine
        shares.append(
            Share(
                name=ledger.name,
                namespace=ledger.namespace,
                cluster=ledger.cluster,
                uid=ledger.uid,
                milliseconds=totals(mine),
            )
        )
        for note in ledger.notes:
            said.setdefault(note, []).append(f"{ledger.namespace}/{ledger.name}")
    if node and ledgers and not any(one.node == node for ledger in ledgers for one in ledger.spans):
        nodes = sorted({one.node for ledger in ledgers for one in ledger.spans if one.node})
        others = f"nodes that have: {some(nodes)}" if nodes else "none has a node"
        notes = (*notes, f"of {counted(len(ledgers), 'workload')}, no time has node {node}; {others}")
    total = totals(spans)
    shares.sort(key=lambda one: (-sum(one.milliseconds.values()), one.cluster, one.namespace, one.name))
    return Account(
        queue=queue,
        node=node,
        cause=cause,
        milliseconds=total,
        goodput=None if node or cause else goodput(total),
        charges=charges(spans),
        workloads=tuple(shares),
        notes=(*notes, *(f"{some(who)}: {note}" for note, who in said.items())),
    )


def some(who: Sequence[str]) -> str:
    """Name the first of many, and count the others."""
    return ", ".join(who[:_NAMED]) + (f" and {len(who) - _NAMED} more" if len(who) > _NAMED else "")


def milliseconds(begin: datetime, end: datetime) -> int:
    """Return the whole milliseconds between two instants."""
    return (end - begin) // _MILLISECOND


def totals(spans: Iterable[Span]) -> dict[Bucket, int]:
    """Return the milliseconds of each of the ten buckets, in their order."""
    total = dict.fromkeys(Bucket, 0)
    for span in spans:
        total[span.bucket] += span.milliseconds
    return total


def charges(spans: Iterable[Span]) -> tuple[Charge, ...]:
    """Return the spans that have a cause, summed by cause, node and bucket; the largest first."""
    total: dict[tuple[str, str, Bucket], int] = {}
    for span in spans:
        if span.cause:
            key = (span.cause, span.node, span.bucket)
            total[key] = total.get(key, 0) + span.milliseconds
    found = [Charge(cause=key[0], node=key[1], bucket=key[2], milliseconds=ms) for key, ms in total.items()]
    return tuple(sorted(found, key=lambda one: (-one.milliseconds, one.cause, one.node, one.bucket)))


def goodput(total: dict[Bucket, int]) -> float | None:
    """Return the productive share of the time that was neither queued nor suspended; None if there was no such time."""
    active = sum(total.values()) - total[Bucket.QUEUED] - total[Bucket.SUSPENDED]
    return total[Bucket.PRODUCTIVE] / active if active else None
