"""Whether the worker that probes pods reaches any: a worker that is cut off knows nothing of them (row D47). Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

SEVERAL: Final = 2
"""How many workloads must have no reached pod for a worker to be cut off: fewer may be down themselves."""


@dataclass(frozen=True, slots=True)
class Round:
    """The last round of probes of one workload."""

    at: datetime
    until: datetime
    """When the round becomes too old to count."""
    reached: bool
    """Whether any pod was reached: it accepted or refused a connection."""
    unreached_since: datetime
    """When the first of the consecutive rounds that reached no pod was; if this round reached one, when this was."""


@dataclass(slots=True)
class Reach:
    """What one worker has reached lately, over all workloads whose pods it probes."""

    rounds: dict[str, Round] = field(default_factory=dict[str, Round])
    """The last round of each workload, by workload uid."""

    def notes(self, workload: str, at: datetime, lasts: timedelta, *, reached: bool) -> None:
        """Record a round of a workload, which counts for `lasts`."""
        before = self.rounds.get(workload)
        since = before.unreached_since if before is not None and not (before.reached or reached) else at
        self.rounds[workload] = Round(at, at + lasts, reached, since)

    def forgets(self, workload: str) -> None:
        """Drop a workload whose pods are no longer probed."""
        self.rounds.pop(workload, None)

    def is_cut_off(self, now: datetime) -> bool:
        """Return whether several workloads have no reached pod, and no workload has had one since that began.

        It began when they became several: one that has been down for long says nothing of what was reached since.
        """
        recent = [one for one in self.rounds.values() if now <= one.until]
        silent = sorted(one.unreached_since for one in recent if not one.reached)
        if len(silent) < SEVERAL:
            return False
        return not any(one.reached and one.at >= silent[SEVERAL - 1] for one in recent)
