"""Which operations may be interrupted and restarted; used by the workflow, its past and the property tests."""

from __future__ import annotations

from holdfast.model import OperationKind, RefusedCreate, State, Workload
from holdfast.model.calls.operations import OPERATIONS


def is_breakable(spec: Workload, state: State, kind: OperationKind) -> bool:
    """Whether an operation may be interrupted and restarted without a trace, so that a new run can begin."""
    # A preparation may wait forever. It must not prevent continue-as-new.
    if kind is OperationKind.PREPARE:
        return state.policy.refused_create is RefusedCreate.WAIT or spec.allow_missing_kinds
    return OPERATIONS[kind].breakable
