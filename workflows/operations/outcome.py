"""What the end of an operation means to the engine. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from holdfast import names
from holdfast.model import Answers, Observation, Operation, OperationKind, State
from holdfast.model.calls.cluster import (
    Checkpointed,
    Cleared,
    Created,
    Parked,
    Prepared,
    Removed,
    Replaced,
    Reported,
    Unparked,
)
from holdfast.model.calls.stage import Staged
from holdfast.policy.loop.fold import fold, observed
from holdfast.policy.loop.turn import landed
from holdfast.policy.values import events


def refusal(operation: Operation, type_: str, message: str, details: Sequence[Any]) -> events.OperationRefused | None:
    """Return what an activity's own error means; None where the operation is merely begun again."""
    if type_ == names.ERROR_FOREIGN_ATTEMPT:
        return events.OperationRefused(type_, message, int(details[0]))
    if operation.kind in {OperationKind.PREPARE, OperationKind.CREATE, OperationKind.STAGE}:
        return events.OperationRefused(type_, message)
    return None


def succeeded(state: State, operation: Operation, result: Any, now: datetime) -> State:
    """Return the state after the operation under way has come back with a result."""
    match result:
        case Prepared(broken_off=True) | Created(broken_off=True) | Replaced(broken_off=True):
            made = () if isinstance(result, Prepared) else result.objects
            done = events.OperationInterrupted(result.borne, made)
        case Prepared():
            if result.asked is not None:
                state = fold(state, events.SourceSeen(result.asked), now)
            done = events.PrepareDone(
                result.cluster_uid, result.owner_uid, result.limits, result.sequence, result.borne, result.pod_sets
            )
        case Created():
            done = events.CreateDone(result.objects, result.failure, result.interrupted, result.exhausted)
        case Staged():
            done = events.StageDone(result.sets, result.fetched, result.away, result.problem)
        case Replaced():
            done = events.ReplaceDone(result.objects, result.failure, result.left, result.borne)
        case Cleared():
            state = fold(state, events.ClearDone(result.done), now)
            return observed(state, result.seen, operation.since, now) if result.seen is not None else state
        case Parked():
            state = fold(state, events.ParkDone(result.done, result.refused, result.turn), now)
            return observed(state, result.seen, operation.since, now) if result.seen is not None else state
        case Unparked():
            done = events.UnparkDone(result.done, result.refused, result.turn)
        case Checkpointed():
            number = state.checkpoint.number if state.checkpoint is not None else 0
            done = events.CheckpointDone(number, result.answers, result.blind)
        case Removed():
            # A worker of an earlier release follows nothing: what nobody saw saved is not.
            nothing = Answers(at=now)
            left, total = result.remnants, result.remnants_total
            done = events.RemoveDone(result.gone, left, total, result.blind, result.answers or nothing, result.claims)
        case Reported():
            done = events.ReportDone(result.sequence)
        case Observation():
            return landed(state, result, now)
        case _:
            done = events.ReportDone()
    return fold(state, done, now)
