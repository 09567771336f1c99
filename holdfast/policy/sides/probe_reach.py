"""Whether the worker that asks pods reaches any: one that is cut off knows nothing of them (row D47). Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

SEVERAL: Final = 2
"""Workloads of which no pod was reached: fewer may be down themselves."""


@dataclass(frozen=True, slots=True)
class Round:
    """The last round in which pods of one workload were asked."""

    at: datetime
    until: datetime
    """When it is too old to say anything."""
    reached: bool
    """Whether any pod was: it took, or refused, a connection."""
    unreached_since: datetime
    """When the first of the rounds in a row was in which none was; of one that was reached, of this one."""


@dataclass(slots=True)
class Reach:
    """What one worker has reached lately, over all workloads whose pods it asks."""

    rounds: dict[str, Round] = field(default_factory=dict[str, Round])
    """By workload uid."""

    def notes(self, workload: str, at: datetime, lasts: timedelta, *, reached: bool) -> None:
        """Note a round of a workload, which says something for so long."""
        before = self.rounds.get(workload)
        since = before.unreached_since if before is not None and not (before.reached or reached) else at
        self.rounds[workload] = Round(at, at + lasts, reached, since)

    def forgets(self, workload: str) -> None:
        """Nobody asks its pods any more."""
        self.rounds.pop(workload, None)

    def is_cut_off(self, now: datetime) -> bool:
        """Return whether no pod of several workloads is reached, and none of any since that began."""
        recent = [one for one in self.rounds.values() if now <= one.until]
        silent = [one.unreached_since for one in recent if not one.reached]
        return len(silent) >= SEVERAL and not any(one.reached and one.at >= min(silent) for one in recent)
