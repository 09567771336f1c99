"""Schedules signals: coalesced, spaced per workload, rate-limited overall, failures first. Pure: callers pass time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from holdfast.activities.facts.workload_key import WorkloadKey
from holdfast.worker.watch.facts import DELAYS, Urgency

GAP: Final = 2.0
"""Seconds between two signals to one workload, except urgent ones."""
LAZY_GAP: Final = 10.0
URGENT_BURST: Final = 3
"""Urgent signals to one workload in `URGENT_WINDOW` seconds that need not keep the gap."""
URGENT_WINDOW: Final = 10.0
RETRY_FIRST: Final = 0.5
RETRY_LAST: Final = 15.0


@dataclass(slots=True)
class Wanted:
    """A signal that waits to be sent to one workload."""

    key: WorkloadKey
    urgency: Urgency
    since: float
    due: float


@dataclass(slots=True)
class _Past:
    sent: deque[float] = field(default_factory=lambda: deque[float](maxlen=URGENT_BURST))
    failures: int = 0
    not_before: float = 0.0


class Signals:
    """The waiting signals, and the times of those sent."""

    def __init__(self, rate: float, burst: float | None = None) -> None:
        """Start with no waiting signal and a full token bucket.

        Args:
            rate: signals per second over all workloads.
            burst: how many signals may go at once after a pause; one second's worth by default.
        """
        self._rate = rate
        self._burst = max(1.0, burst if burst is not None else rate)
        self._tokens = self._burst
        self._filled = 0.0
        self._wanted: dict[WorkloadKey, Wanted] = {}
        self._past: dict[WorkloadKey, _Past] = {}

    def __len__(self) -> int:
        """How many signals wait."""
        return len(self._wanted)

    def __contains__(self, key: WorkloadKey) -> bool:
        """Whether a signal to this workload waits."""
        return key in self._wanted

    def want(self, key: WorkloadKey, urgency: Urgency, now: float, since: float | None = None) -> bool:
        """Queue a signal; return whether one was already waiting, which this change then joins."""
        begun = now if since is None else since
        due = max(begun + DELAYS[urgency], now, self._earliest(key, urgency))
        waiting = self._wanted.get(key)
        if waiting is None:
            self._wanted[key] = Wanted(key, urgency, begun, due)
            return False
        waiting.urgency = min(waiting.urgency, urgency)
        waiting.due = min(waiting.due, due)
        return True

    def drop(self, key: WorkloadKey) -> bool:
        """Drop a waiting signal that is no longer news; return whether there was one."""
        return self._wanted.pop(key, None) is not None

    def forget(self, key: WorkloadKey) -> None:
        """Forget everything about a workload."""
        self._wanted.pop(key, None)
        self._past.pop(key, None)

    def take(self, now: float, most: int, busy: Iterable[WorkloadKey] = ()) -> list[Wanted]:
        """Remove and return the signals to send now, the most urgent first; signals to `busy` workloads stay."""
        self._fill(now)
        held = set(busy)
        due = [one for one in self._wanted.values() if one.due <= now and one.key not in held]
        due.sort(key=lambda one: (one.urgency, one.due, one.key))
        taken = due[: max(0, min(most, int(self._tokens)))]
        for one in taken:
            del self._wanted[one.key]
            self._past.setdefault(one.key, _Past()).sent.append(now)
        self._tokens -= len(taken)
        return taken

    def sent(self, key: WorkloadKey) -> None:
        """Record that a signal arrived."""
        if key in self._past:
            self._past[key].failures = 0
            self._past[key].not_before = 0.0

    def failed(self, one: Wanted, now: float) -> None:
        """Record that a signal did not arrive, and queue it again after a pause."""
        past = self._past.setdefault(one.key, _Past())
        past.failures += 1
        past.not_before = now + min(RETRY_LAST, RETRY_FIRST * 2 ** (past.failures - 1))
        self.want(one.key, one.urgency, now, since=one.since)

    def next_due(self, now: float, busy: Iterable[WorkloadKey] = ()) -> float | None:
        """Return when `take` will next return a signal; None if none waits."""
        held = set(busy)
        due = min((one.due for one in self._wanted.values() if one.key not in held), default=None)
        if due is None:
            return None
        self._fill(now)
        lacking = max(0.0, 1.0 - self._tokens)
        return max(due, now + lacking / self._rate)

    def _earliest(self, key: WorkloadKey, urgency: Urgency) -> float:
        past = self._past.get(key)
        if past is None:
            return 0.0
        earliest = past.not_before
        if past.sent:
            last, oldest = past.sent[-1], past.sent[0]
            if urgency is not Urgency.URGENT:
                earliest = max(earliest, last + (LAZY_GAP if urgency is Urgency.LAZY else GAP))
            elif len(past.sent) == URGENT_BURST and last - oldest < URGENT_WINDOW:
                earliest = max(earliest, last + GAP)
        return earliest

    def _fill(self, now: float) -> None:
        if now > self._filled:
            self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._rate)
            self._filled = now
