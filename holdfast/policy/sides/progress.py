"""When a workload's steps are followed, and what follows from what was read (rows P1, P2)."""

from __future__ import annotations

from holdfast.model import Failure, FailureClass, OperationKind, Stage, State, Workload
from holdfast.model.life.progress import StepRecord
from holdfast.policy.failures.told import is_decided
from holdfast.policy.values.edit import edit


def followed(spec: Workload, state: State) -> int | None:
    """Return the number of the attempt whose steps are to be followed now; None if none are.

    They are followed from when all its pods run until it is suspended, settled, held or known to have failed. After a
    stall they are followed again until its removal is decided: a new step withdraws it.
    """
    attempt = state.attempt
    if spec.progress is None or attempt is None or attempt.stage is not Stage.SUBMITTED or attempt.ready_at is None:
        return None
    if state.outcome is not None or state.held is not None or state.intent.cancel or state.intent.suspend:
        return None
    if attempt.parking is not None:
        return None
    if not is_decided(state) or (is_stalled(state) and _is_at_rest(state)):
        return attempt.number
    return None


def is_stalled(state: State) -> bool:
    """Whether the worker has told that the living attempt stands still."""
    attempt = state.attempt
    return attempt is not None and attempt.told is not None and attempt.told.cls is FailureClass.NO_PROGRESS


def _is_at_rest(state: State) -> bool:
    """Whether nothing but a report is under way, so that a decision on the stall is still to come."""
    return state.operation is None or state.operation.kind is OperationKind.REPORT


def on_followed(state: State, number: int, record: StepRecord | None, failure: Failure | None) -> State:
    """Return the state after the steps were read; news of an attempt that is gone changes nothing.

    A stall is withdrawn by news without a failure: a new step, a new phase or new pods have ended it.
    """
    attempt = state.attempt
    if attempt is None or attempt.number != number or attempt.stage is not Stage.SUBMITTED:
        return state
    if record is not None:
        state = edit(state, steps=record)
    if state.shows_waits and attempt.suspended:
        failure = None  # The pods that stood still are being removed, or are gone.
    if failure is not None or is_stalled(state):
        state = edit(state, attempt=edit(attempt, told=failure))
    return state
