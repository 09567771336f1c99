"""The audit of sensitive workloads: each operation is recorded before it is carried out (row L36).

The record is the workflow's own history, which is append-only. The history contains the text of the report that carries
the entry, and the operation is scheduled only after that report has completed. The cluster has a copy, as an Event of
the workload's anchor, for as long as it keeps Events.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from holdfast.model import Attempt, OperationKind, State, Workload
from holdfast.model.calls.operations import OPERATIONS
from holdfast.policy.values.edit import edit
from holdfast.policy.values.steps import Run, Step

KEPT = 16
_LONGEST = 256


def audited(spec: Workload, state: State, step: Step) -> Step:
    """Return the report that records a step, if the step must be recorded first; else the step itself."""
    attempt = state.attempt
    if not spec.sensitive or not isinstance(step, Run) or not OPERATIONS[step.kind].acts or not state.anchored:
        return step
    if attempt is None or _entry(state, attempt, step.kind) in attempt.audited:
        return step
    account = f"service account {spec.run_as} of namespace {spec.namespace}"
    why = f"{step.why}, as {account}; why: {state.message}"
    return replace(step, kind=OperationKind.REPORT, until=None, audits=_entry(state, attempt, step.kind), why=why)


def written(state: State, entry: str) -> State:
    """Return the state after an entry was recorded."""
    attempt = state.attempt
    if attempt is None or not entry:
        return state
    return edit(state, attempt=edit(attempt, audited=(*attempt.audited, entry)[-KEPT:]))


def _entry(state: State, attempt: Attempt, kind: OperationKind) -> str:
    """Name one act of an attempt; the same act has the same name when it is started again."""
    if kind is OperationKind.REPLACE:
        launches = ",".join(f"{name}={attempt.launches.get(name, 0)}" for name in sorted(attempt.replacing))
        copies = "".join(f" {name}:{','.join(map(str, one))}" for name, one in attempt.replacing_copies.items())
        entry = f"{attempt.number} {kind.value} {launches}{copies}"
        # What is cut must still tell one act from another. Runs of earlier releases go on as they began.
        digest = (
            f" {hashlib.sha256(entry.encode()).hexdigest()[:12]}" if len(entry) > _LONGEST and state.shows_waits else ""
        )
        return entry[: _LONGEST - len(digest)] + digest
    turn = f" {attempt.turns}" if attempt.turns else ""
    return f"{attempt.number} {kind.value}{turn}"
