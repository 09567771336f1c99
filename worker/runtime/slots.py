"""Limits how many of a cluster's operations start at once: the limit counts new operations, not waiting ones."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from temporalio.worker import (
    CustomSlotSupplier,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
)

FRESH_SECONDS: Final = 4.0
"""A short operation that runs longer is waiting: for a webhook, a quota, or a kind that is not there yet."""
FRESH_WAIT_SECONDS: Final = 1.0
"""After this time a removal has requested its deletions, and only polls until they are done."""


@dataclass(slots=True, eq=False)
class _Permit(SlotPermit):
    begun: float | None = None


class FreshSlots(CustomSlotSupplier):
    """Supplies slots of which only a few may be fresh at once, so that a burst runs one workload after another.

    Two hundred operations at once on few cores are all late. They miss their heartbeats and are retried, which makes
    them later: a thousand removals looped like that for five minutes. With a plain low limit, a few workloads that wait
    for a used-up quota would hold back all others. So a slot counts as fresh for its first seconds only.
    """

    def __init__(self, most: int, fresh: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with all slots free.

        Args:
            most: the number of slots.
            fresh: how many of them may be fresh, or held for a poll, at once.
            seconds: how long a slot is fresh once it is used.
            clock: a monotonic clock, in seconds.
        """
        self._most, self._fresh, self._seconds, self._clock = most, fresh, seconds, clock
        self._permits: set[_Permit] = set()
        self._waiting: list[asyncio.Future[None]] = []
        # The SDK's core marks and releases slots from its own threads.
        self._lock = threading.Lock()

    @property
    def most(self) -> int:
        """The number of slots."""
        return self._most

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        """Wait for a free slot, and take it."""
        while True:
            woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            with self._lock:
                permit = self._take()
                if permit is not None:
                    return permit
                self._waiting.append(woken)
                left = self._until_one_is_old()
            try:
                await asyncio.wait({woken}, timeout=left)
            except asyncio.CancelledError:
                with self._lock:
                    if woken not in self._waiting:
                        self._wake_one()  # Pass the wake-up on to another waiter.
                raise
            finally:
                with self._lock:
                    if woken in self._waiting:
                        self._waiting.remove(woken)

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:
        """Take a free slot, if there is one."""
        with self._lock:
            return self._take()

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        """Note when an operation began."""
        if isinstance(ctx.permit, _Permit):
            ctx.permit.begun = self._clock()

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        """Give a slot back."""
        with self._lock:
            if isinstance(ctx.permit, _Permit):
                self._permits.discard(ctx.permit)
            self._wake_one()

    def ease(self, begun: float) -> None:
        """Count one operation no longer as fresh: it has done what it had to, and only waits from now on.

        The SDK does not tell which slot an operation has, so this is the one that was used closest to its beginning.

        Args:
            begun: when the operation began, by the clock of the slots.
        """
        old = self._clock() - self._seconds
        if begun <= old:
            return
        with self._lock:
            used = ((permit.begun, permit) for permit in self._permits if permit.begun is not None)
            fresh = [(abs(at - begun), permit) for at, permit in used if at > old]
            if fresh:
                min(fresh, key=lambda one: one[0])[1].begun = old
                self._wake_one()

    def _take(self) -> _Permit | None:
        old = self._clock() - self._seconds
        fresh = sum(permit.begun is None or permit.begun > old for permit in self._permits)
        if len(self._permits) >= self._most or fresh >= self._fresh:
            return None
        permit = _Permit()
        self._permits.add(permit)
        return permit

    def _until_one_is_old(self) -> float:
        """Return the seconds after which to look again even if no slot was released."""
        now = self._clock()
        begun = [permit.begun for permit in self._permits if permit.begun is not None]
        # Slots held for polls may be used, and age, without waking the waiters.
        return min((at for at in begun if at > now - self._seconds), default=now) + self._seconds - now

    def _wake_one(self) -> None:
        if self._waiting:
            woken = self._waiting.pop(0)
            woken.get_loop().call_soon_threadsafe(_wake, woken)


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
