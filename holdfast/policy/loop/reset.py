"""The reset: a live look that goes on to the removal if it repeats the promised restart (record 0074).

While it is under way, the workflow takes no decision: it does not know yet whether the removal has begun. If something
else is to be decided, it breaks the reset off, learns how far that came, and then decides.
"""

from __future__ import annotations

from datetime import datetime

from holdfast.model import OperationKind, State, Workload
from holdfast.model.calls.cluster import Reset
from holdfast.model.life.state import PromisedRestart
from holdfast.policy.attempt.health import removal_due
from holdfast.policy.loop.advance import Taken, restart
from holdfast.policy.loop.fold import fold, observed
from holdfast.policy.loop.operations import begin
from holdfast.policy.values.decision import Restart
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Looked, OperationInterrupted
from holdfast.policy.values.steps import Run


def begin_reset(spec: Workload, state: State, run: Run, now: datetime) -> State:
    """Return the state with a reset under way.

    Raises:
        ValueError: if the step promises no restart.
    """
    if run.restart is None:
        raise ValueError("a reset needs the restart that it promises")
    causes = state.causes_total
    after = restart(state, _decision(run.restart), now)
    assert after.attempt is not None
    until = removal_due(after, after.attempt, now)
    removing = begin(spec, after, Run(OperationKind.REMOVE, run.why, until), now)
    removal = removing.operation
    assert removal is not None
    # Its report is above those of the removal: once it is on the anchor, no late worker can begin the removal.
    looking = begin(spec, edit(state, sequence=removing.sequence), run, now)
    assert looking.operation is not None
    operation = edit(looking.operation, until=until, restart=run.restart, removal=removal, causes=causes)
    return edit(looking, operation=operation)


def confirmed(state: State, end: Reset) -> Taken | None:
    """Return the decision that a reset has carried out; None if it removed nothing, or if the workload is held now."""
    operation = state.operation
    if not end.confirmed or operation is None or operation.restart is None:
        return None
    state = edit(state, operation=None)
    if end.seen is not None:
        state = observed(state, end.seen, operation.since, operation.since)
    if state.held is not None:
        return None
    decision = _decision(operation.restart)
    return Taken(decision, state, restart(state, decision, operation.since))


def ended_reset(state: State, end: Reset, now: datetime) -> State:
    """Return the state after a reset has returned."""
    operation = state.operation
    if operation is None:
        return state
    taken, removal = confirmed(state, end), operation.removal
    if taken is not None and removal is not None:
        if state.causes_total != operation.causes:
            # What was recorded meanwhile is told next, at the price of telling the restart twice.
            removal = edit(removal, causes=operation.causes, causes_done=operation.causes)
        return fold(edit(taken.after, operation=removal), end.removed or OperationInterrupted(), now)
    # Nothing was removed, or a person is to decide: it was a look.
    state = edit(state, operation=edit(operation, kind=OperationKind.OBSERVE, removal=None, restart=None))
    if end.seen is None or end.confirmed:
        return fold(state, OperationInterrupted(), now)
    return observed(fold(state, Looked(), now), end.seen, operation.since, now)


def _decision(promise: PromisedRestart) -> Restart:
    return Restart(
        promise.failure,
        promise.rule,
        promise.charge,
        promise.exclude,
        limited=promise.limited,
        pause=promise.pause,
    )
