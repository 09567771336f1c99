"""The clocks of a gang's nodes, as its hub sees them: a failure's time is given by the hub's clock (row D43). Pure.

Agents send the time of each post by their own clocks. A post never takes less than no time: so among the last posts,
the one that seems the quickest gives the best estimate of a clock's offset.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from holdfast.model.gang.wire import Announcement, Report, WorkerFailure
from holdfast.policy.values.edit import edit

AGENTS_KEPT: Final = 4
"""How many agents of a member are remembered: each chooses its own incarnation, and may claim many."""
POSTS: Final = 16
"""How many posts of an agent are remembered: after this many, a clock that was set back is measured correctly."""


@dataclass(slots=True)
class Clocks:
    """The seconds that each agent's clock is behind, by incarnation, and the failures whose times were corrected."""

    behind: dict[str, deque[float]] = field(default_factory=dict[str, deque[float]])
    corrected: dict[str, tuple[tuple[WorkerFailure, ...], tuple[WorkerFailure, ...]]] = field(
        default_factory=dict[str, tuple[tuple[WorkerFailure, ...], tuple[WorkerFailure, ...]]]
    )
    """The failures as reported and as forwarded: a repeated report is forwarded unchanged."""
    agents: dict[str, deque[str]] = field(default_factory=dict[str, deque[str]])
    """The last incarnations of each member."""

    def hears(self, said: Announcement, now: datetime) -> Report:
        """Record a post that arrives now, and return its report with the times of failures by the hub's clock.

        The times of an agent that does not send the time of its post are not corrected; none is later than now.
        """
        who, report = said.join.incarnation, said.report
        if said.sent is None:
            late = any(one.at > now for one in report.failures)
            return (
                edit(report, failures=tuple(edit(one, at=min(one.at, now)) for one in report.failures))
                if late
                else report
            )
        known_of = self.agents.setdefault(said.join.member, deque())
        if who not in known_of:
            known_of.append(who)
            if len(known_of) > AGENTS_KEPT:
                self.forgets(known_of.popleft())
        self.behind.setdefault(who, deque(maxlen=POSTS)).append((now - said.sent).total_seconds())
        if not report.failures:
            return report
        known = self.corrected.get(who)
        if known is None or known[0] != report.failures:
            off = min(self.behind[who])
            there = tuple(edit(one, at=_by(one.at, off, now)) for one in report.failures)
            known = self.corrected[who] = (report.failures, there)
        return edit(report, failures=known[1])

    def forgets(self, incarnation: str) -> None:
        """Forget an agent that is gone."""
        self.behind.pop(incarnation, None)
        self.corrected.pop(incarnation, None)


def _by(at: datetime, behind: float, now: datetime) -> datetime:
    """Convert a time of a clock that is this many seconds behind to the hub's clock, at the latest now."""
    try:
        return min(datetime.fromtimestamp(at.timestamp() + behind, UTC), now)
    except (OverflowError, ValueError, OSError):  # A pod may claim any time.
        return min(at, now)
