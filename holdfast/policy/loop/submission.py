"""The state of a workload when it is submitted."""

from __future__ import annotations

from datetime import datetime

from holdfast.model import State, Workload
from holdfast.model.observation import Asked
from holdfast.policy.status.blocked import waiting
from holdfast.policy.status.queued import first_turn
from holdfast.policy.values.edit import edit


def submitted(spec: Workload, now: datetime) -> State:
    """Return the initial state: nothing is created yet, and a workload submitted suspended stays suspended."""
    state = State(since=now, policy=spec.policy, blocked=waiting(spec), turn=first_turn(spec))
    if spec.source.generation is not None:
        # Its custom resource exists already, and receives the status from the start.
        asked = Asked(kind=spec.source.kind, generation=spec.source.generation, suspend=spec.suspend)
        state = edit(state, asked=asked, anchored=True)
    if spec.suspend:
        state = edit(state, intent=edit(state.intent, suspend=True, note="submitted suspended"))
    return state
