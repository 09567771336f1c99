"""The record of causes: what decided something, kept so that users can see why."""

from __future__ import annotations

from datetime import datetime

from holdfast.model import Cause, Reason, State
from holdfast.model.life.state import CAUSES_KEPT
from holdfast.model.words import shortened
from holdfast.policy.values.edit import edit


def cause(state: State, reason: Reason, message: str, now: datetime) -> State:
    """Return the state with one more cause; beyond fifty, the oldest is dropped."""
    number = state.attempt.number if state.attempt is not None else 0
    message = shortened(message)
    entry = Cause(time=now, attempt=number, phase=state.phase, reason=reason, message=message)
    return edit(state, causes=(*state.causes, entry)[-CAUSES_KEPT:], causes_total=state.causes_total + 1)
