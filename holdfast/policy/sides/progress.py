"""When a workload's steps are followed, and what follows from what was read (rows P1, P2)."""

from __future__ import annotations

from holdfast.model import Failure, Stage, State, Workload
from holdfast.model.life.progress import StepRecord
from holdfast.policy.values.edit import edit


def followed(spec: Workload, state: State) -> int | None:
    """Return the number of the attempt whose steps are to be followed now; None if none are.

    They are followed from when all its pods run until it is suspended, settled, held or known to have failed.
    """
    attempt = state.attempt
    if spec.progress is None or attempt is None or attempt.stage is not Stage.SUBMITTED or attempt.ready_at is None:
        return None
    if state.outcome is not None or state.held is not None or state.intent.cancel or state.intent.suspend:
        return None
    return attempt.number if attempt.parking is None and attempt.told is None else None


def on_followed(state: State, number: int, record: StepRecord | None, failure: Failure | None) -> State:
    """Return the state after the steps were read; news of an attempt that is gone changes nothing."""
    attempt = state.attempt
    if attempt is None or attempt.number != number or attempt.stage is not Stage.SUBMITTED:
        return state
    if record is not None:
        state = edit(state, steps=record)
    return state if failure is None else edit(state, attempt=edit(attempt, told=failure))
