"""Where a test's seconds go: a meter that gives each second of a process to one part, for `make times`.

Several things can be waited for at once. A second then counts for the first of `PARTS` that is waited for.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

TEMPORAL_NAMESPACE = "Temporal namespace made"
WORKER = "worker process started until ready"
NAMESPACE = "Kubernetes namespace made"
CLEAN_UP = "workers stopped, namespaces removed"
END = "waits for a workload's end"
CONDITION = "waits until a condition holds"
PARTS = (TEMPORAL_NAMESPACE, WORKER, NAMESPACE, CLEAN_UP, END, CONDITION)
"""From the most specific to the least: a condition is waited for within most of the others."""


class Meter:
    """Adds up the seconds of each part; the clock can be another for its own test."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._depth: Counter[str] = Counter()
        self._since = clock()
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def spent(self, part: str) -> Iterator[None]:
        """Count the seconds of this block for a part."""
        self._switch(part, 1)
        try:
            yield
        finally:
            self._switch(part, -1)

    def take(self) -> dict[str, float]:
        """Return the seconds of each part since the last call."""
        self._switch("", 0)
        seconds = {part: round(value, 3) for part, value in self._seconds.items()}
        self._seconds.clear()
        return seconds

    def _switch(self, part: str, by: int) -> None:
        now = self._clock()
        current = next((name for name in PARTS if self._depth[name]), None)
        if current is not None:
            self._seconds[current] += now - self._since
        self._since = now
        if part:
            self._depth[part] += by


METER = Meter()
spent = METER.spent
