"""Which operations may be broken off and begun again. The workflow, its past and the property tests all ask here."""

from __future__ import annotations

from holdfast.model import OperationKind, RefusedCreate, State, Workload
from holdfast.model.calls.operations import OPERATIONS


def is_breakable(spec: Workload, state: State, kind: OperationKind) -> bool:
    """Whether an operation may be broken off and begun again without a trace, so that a new run can begin."""
    # A preparation that may wait for ever must not keep a history from ending.
    if kind is OperationKind.PREPARE:
        return state.policy.refused_create is RefusedCreate.WAIT or spec.allow_missing_kinds
    return OPERATIONS[kind].breakable
