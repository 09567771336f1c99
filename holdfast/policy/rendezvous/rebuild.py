"""The memory of a rendezvous that is begun anew, whose members run on and announce themselves again (row D2). Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from holdfast.model.gang.state import Absence, GangPhase, GangState
from holdfast.policy.values.edit import edit

ROUNDS_OF_AN_EVENT: Final = 10
"""Rounds that one event of a history can bring about, at most: a step forms one, and rarely a second."""
_WHY: Final = "its rendezvous was begun anew"


def beyond(number: int, events: int) -> int:
    """Return a number that a run has surely not reached: of a round, a revision or a hub.

    Args:
        number: that with which the run began.
        events: how many events its history has: without an event nothing is counted up.
    """
    return number + ROUNDS_OF_AN_EVENT * max(1, events)


def rebuilt(state: GangState, events: int, now: datetime) -> GangState:
    """Return the memory of a rendezvous that nobody has announced itself to yet.

    Rounds go on beyond all that an earlier run can have formed, since an agent takes a lower one for an old one. Of
    each member stays what was charged to it when that run began.

    Args:
        state: as the earlier run began with it.
        events: how many events that run's history has.
        now: the time.
    """
    if state.closed is not None:
        return state
    members = {
        name: edit(member, round=0, succeeded=False, absent=member.absent or Absence.SILENT, why=member.why or _WHY)
        for name, member in state.members.items()
    }
    return edit(
        state,
        phase=GangPhase.FORMING,
        round=beyond(state.round, events),
        revision=beyond(state.revision, events),
        participants=(),
        members=members,
        began=now,
        enough=None,
        why=_WHY,
    )
