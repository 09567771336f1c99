"""The memory of a restarted rendezvous, whose members run on and announce themselves again (row D2). Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from holdfast.model.gang.state import Absence, GangState
from holdfast.model.gang.status import GangPhase
from holdfast.policy.values.edit import edit

ROUNDS_OF_AN_EVENT: Final = 10
"""The most rounds that one history event can cause: a step forms one, and rarely a second."""
_WHY: Final = "its rendezvous was begun anew"


def beyond(number: int, events: int) -> int:
    """Return a number of a round, a revision or a hub that a run has certainly not reached.

    Args:
        number: the number with which the run began.
        events: how many events its history has: no number increases without an event.
    """
    return number + ROUNDS_OF_AN_EVENT * max(1, events)


def rebuilt(state: GangState, events: int, now: datetime) -> GangState:
    """Return the memory of a rendezvous to which no agent has announced itself yet.

    Round numbers continue beyond all that an earlier run can have formed, since an agent takes a lower number for an
    old round. Each member keeps the restarts charged to it when that run began.

    Args:
        state: the state with which the earlier run began.
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
