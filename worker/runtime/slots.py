"""How many of a cluster's operations are begun at once: the bound is on those that are new, not on those that wait."""

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
"""A short operation that lasts longer waits for something: a webhook, a quota, a kind that is not there yet."""
FRESH_WAIT_SECONDS: Final = 1.0
"""After so long a removal has asked for its deletions, and looks from time to time whether they are done."""


@dataclass(slots=True, eq=False)
class _Permit(SlotPermit):
    begun: float | None = None


class FreshSlots(CustomSlotSupplier):
    """Slots of which few may be fresh at once, so that a burst is worked off one workload after the other.

    Two hundred at once on few cores are all late, miss their heartbeats and are begun again, which makes them later; a
    thousand removals went round like that for five minutes. A plain low bound would do, were it not for those that
    wait: a few workloads whose quota is used up would then hold back all the others. So a slot counts as fresh for its
    first seconds only.
    """

    def __init__(self, most: int, fresh: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with all of them free.

        Args:
            most: how many there are.
            fresh: how many of them may be fresh, or held for a poll, at once.
            seconds: for how long one is fresh once it is used.
            clock: seconds that only grow.
        """
        self._most, self._fresh, self._seconds, self._clock = most, fresh, seconds, clock
        self._permits: set[_Permit] = set()
        self._waiting: list[asyncio.Future[None]] = []
        # The SDK's core marks and releases from threads of its own.
        self._lock = threading.Lock()

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
                        self._wake_one()  # What woke this one is for another.
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

    def _take(self) -> _Permit | None:
        old = self._clock() - self._seconds
        fresh = sum(permit.begun is None or permit.begun > old for permit in self._permits)
        if len(self._permits) >= self._most or fresh >= self._fresh:
            return None
        permit = _Permit()
        self._permits.add(permit)
        return permit

    def _until_one_is_old(self) -> float:
        """Return after how many seconds it is worth looking again though nothing was given back."""
        now = self._clock()
        begun = [permit.begun for permit in self._permits if permit.begun is not None]
        # Those held for polls may be put to use, and grow old, without a word to those that wait.
        return min((at for at in begun if at > now - self._seconds), default=now) + self._seconds - now

    def _wake_one(self) -> None:
        if self._waiting:
            woken = self._waiting.pop(0)
            woken.get_loop().call_soon_threadsafe(_wake, woken)


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
