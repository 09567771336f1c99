"""The clocks of a gang's nodes, as its hub sees them: a failure's time is told by the hub's clock (row D43). Pure.

Agents say when they post, by their own clocks. A post takes some time, never less than none: so of the last posts the
one that seems the quickest tells best how far a clock is off.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from holdfast.model.gang.wire import Announcement, Report, WorkerFailure
from holdfast.policy.values.edit import edit

POSTS: Final = 16
"""Posts of an agent that are remembered: after so many a clock that was set back is seen as it is."""


@dataclass(slots=True)
class Clocks:
    """Of each agent, by its incarnation, how far its clock is behind; and the failures it was corrected in."""

    behind: dict[str, deque[float]] = field(default_factory=dict[str, deque[float]])
    corrected: dict[str, tuple[tuple[WorkerFailure, ...], tuple[WorkerFailure, ...]]] = field(
        default_factory=dict[str, tuple[tuple[WorkerFailure, ...], tuple[WorkerFailure, ...]]]
    )
    """As they were said, and as they are handed on: what is said again is handed on as it was."""

    def hears(self, said: Announcement, now: datetime) -> Report:
        """Take in a post that arrives now, and return its report with the times of failures by the hub's clock.

        An agent that does not say when it posts is believed.
        """
        who, report = said.join.incarnation, said.report
        if said.sent is None:
            return report
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
        """An agent is gone."""
        self.behind.pop(incarnation, None)
        self.corrected.pop(incarnation, None)


def _by(at: datetime, behind: float, now: datetime) -> datetime:
    """Return a time of a clock that is so many seconds behind, by the hub's clock; it has passed by now."""
    return min(datetime.fromtimestamp(at.timestamp() + behind, UTC), now)
