"""Makes room for a data set in its namespace's quota: which others go, or why none can (row X10). Pure.

A data set in use never goes. The one that was staged longest ago goes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from holdfast.model.quantity import format_bytes
from holdfast.model.words import counted


@dataclass(frozen=True, slots=True)
class Stored:
    """A data set in the cache, whole or not."""

    digest: str
    bytes: int
    """The room that is reserved for it."""
    staged_at: float
    """When a workload last staged it, in seconds; only the order counts."""
    users: frozenset[str] = frozenset()
    """Workloads that use it."""


@dataclass(frozen=True, slots=True)
class Room:
    """Whether a data set has room."""

    evict: tuple[str, ...] = ()
    """Digests of the data sets that go for it."""
    problem: str = ""
    """Why it has none; empty if it has."""
    waits: bool = False
    """Whether it may have room later."""


def room_for(stored: Sequence[Stored], digest: str, size: int, user: str, quota: int | None) -> Room:
    """Return what must go so that a data set fits into its namespace's quota.

    Args:
        stored: the data sets of the namespace.
        digest: the data set that needs room; it may be one of them.
        size: its bytes.
        user: the workload that reads it.
        quota: bytes of the namespace; None: no limit.
    """
    others = [one for one in stored if one.digest != digest]
    if quota is None:
        return Room()
    own = sum(one.bytes for one in others if user in one.users)
    if own + size > quota:
        with_others = f", {format_bytes(own + size)} with the others that the workload reads" if own else ""
        return Room(
            problem=f"it has {format_bytes(size)}{with_others}: expected at most the quota, {format_bytes(quota)}"
        )
    excess = sum(one.bytes for one in others) + size - quota
    evict: list[str] = []
    for one in oldest_first(others):
        if excess <= 0:
            break
        if not one.users:
            evict.append(one.digest)
            excess -= one.bytes
    if excess <= 0:
        return Room(tuple(evict))
    used = sum(one.bytes for one in others if one.users)
    users = frozenset[str]().union(*(one.users for one in others))
    return Room(
        problem=f"it needs {format_bytes(size)}, and {counted(len(users), 'workload uses', 'workloads use')} "
        f"{format_bytes(used)} of the quota, "
        f"{format_bytes(quota)}",
        waits=True,
    )


def oldest_first(stored: Sequence[Stored]) -> Iterator[Stored]:
    """Yield data sets in the order in which they go."""
    yield from sorted(stored, key=lambda one: (one.staged_at, one.digest))
