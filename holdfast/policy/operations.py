"""How an operation begins: what it brings to the cluster, now and when it ends well."""

from __future__ import annotations

from datetime import datetime

from holdfast.model import Operation, OperationKind, Report, State, Workload
from holdfast.policy.edit import edit
from holdfast.policy.fold import CreateDone, RemoveDone, fold
from holdfast.policy.report import events_of, report_of
from holdfast.policy.settle import settle
from holdfast.policy.steps import Run


def begin(spec: Workload, state: State, run: Run, now: datetime) -> State:
    """Return the state with an operation under way.

    What it reports at its end is the status that its good end will lead to, worked out by the same functions that will
    work it out then, so that the cluster is told without an activity of its own.
    """
    first = report_of(spec, state, state.sequence + 1, events_of(state))
    attempt = state.attempt.number if state.attempt is not None else 0
    operation = Operation(
        kind=run.kind,
        attempt=attempt,
        since=now,
        until=run.until,
        releases=run.kind in {OperationKind.REMOVE, OperationKind.FORCE_REMOVE} and state.outcome is not None,
        report=first,
        causes=state.causes_total,
    )
    state = edit(state, operation=operation, sequence=state.sequence + 1)
    done = promise(spec, state, now)
    if done is None:
        return state
    done = edit(done, sequence=state.sequence + 1)
    return edit(state, operation=edit(operation, report_done=done), sequence=done.sequence)


def promise(spec: Workload, state: State, now: datetime) -> Report | None:
    """Return the status that a good end of the operation under way would lead to; None where it changes none."""
    operation = state.operation
    if operation is None:
        return None
    match operation.kind:
        case OperationKind.CREATE:
            event = CreateDone(objects=(), failure=None)
        case OperationKind.REMOVE | OperationKind.FORCE_REMOVE:
            event = RemoveDone(gone=True, remnants=(), remnants_total=0)
        case OperationKind.PREPARE | OperationKind.OBSERVE | OperationKind.REPORT:
            return None
    return report_of(spec, settle(fold(state, event, now), now))
