"""When a workload that does not begin at once gets its Anchor, so that kubectl shows it (row E10, record 0096)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from holdfast.model import Phase, Report, State
from holdfast.policy.values.decision import Decision, Fetch, Hold

SHOWN_AFTER: Final = timedelta(seconds=2)
"""How long a wait must last. A queue with room, or a graph, answers sooner: such a life costs no request more."""


def anchored_at(state: State, decision: Decision) -> datetime | None:
    """Return when to make the Anchor of a workload that waits for its first attempt; None: not before that attempt.

    It is tried once: where the workload may not begin, its first attempt says why.
    """
    if not state.shows_waits or state.attempt is not None or state.anchored or state.told is not None:
        return None
    # Only a person, or the store, ends these waits.
    is_long = state.phase is Phase.SUSPENDED or isinstance(decision, Hold | Fetch)
    return state.since if is_long else state.since + SHOWN_AFTER


def says_another_reason(state: State, report: Report, last: Report) -> bool:
    """Whether a workload that has not begun waits for something else than its anchor says."""
    return state.shows_waits and state.attempt is None and report.reason is not last.reason
