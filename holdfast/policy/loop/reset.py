"""The reset: a live look that goes on to the removal if it repeats the promised restart (record 0086).

While it is under way, the workflow takes no decision: it does not know yet whether the removal has begun. If something
else is to be decided, it breaks the reset off. If that ends without a result, because it never ran or its worker died,
the reset is dispatched again to settle whether the removal has begun. Only then does the workflow decide.
"""

from __future__ import annotations

from datetime import datetime

from holdfast.model import Operation, OperationKind, State, Workload
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
    """Return the state with a reset under way, or with the one to settle under way again.

    Raises:
        ValueError: if the step promises no restart.
    """
    if state.unsettled is not None:
        return edit(state, operation=edit(state.unsettled, settles=True, since=now), unsettled=None)
    if run.restart is None:
        raise ValueError("a reset needs the restart that it promises")
    causes = state.causes_total
    after = restart(state, _decision(run.restart), now)
    assert after.attempt is not None
    until = removal_due(after, after.attempt, now)
    removing = begin(spec, after, Run(OperationKind.REMOVE, run.why, until), now)
    # Its report is above those of the removal: once it is on the anchor, no late worker can begin the removal.
    looking = begin(spec, edit(state, sequence=removing.sequence), run, now)
    assert looking.operation is not None
    operation = edit(looking.operation, until=until, restart=run.restart, removal=removing.operation, causes=causes)
    return edit(looking, operation=operation)


def unsettled(state: State) -> State:
    """Return the state after a reset has ended without a result: its removal may or may not have begun."""
    assert state.operation is not None
    return edit(state, operation=None, unsettled=edit(state.operation, interrupted=False))


def ended_reset(state: State, end: Reset, now: datetime) -> State:
    """Return the state after a reset has returned."""
    operation = state.operation
    if operation is None or operation.restart is None or operation.removal is None:
        return state
    if end.confirmed:
        return _removed(state, operation.restart, operation.removal, end, now)
    if end.seen is None:
        return unsettled(state)
    # Nothing was removed: it was a look. A retry asked for meanwhile was meant for the reset that users saw.
    intent = state.intent if state.held is not None else edit(state.intent, retry=False)
    state = edit(state, intent=intent, operation=edit(operation, kind=OperationKind.OBSERVE))
    return observed(fold(state, Looked(), now), end.seen, operation.since, now)


def _removed(state: State, promise: PromisedRestart, removal: Operation, end: Reset, now: datetime) -> State:
    """Return the state after a removal that has begun, and perhaps ended: only now the restart is charged."""
    operation, held = state.operation, state.held
    assert operation is not None
    if state.causes_total != operation.causes:
        # What was recorded meanwhile is told next, at the price of telling the restart twice.
        removal = edit(removal, causes=operation.causes, causes_done=operation.causes)
    state = edit(state, operation=None)
    if end.seen is not None:
        state = observed(state, end.seen, operation.since, promise.at)
    # If the workload has been held meanwhile, a person decides what follows. What has happened is recorded anyway.
    state = edit(restart(edit(state, held=None), _decision(promise), promise.at), held=held, operation=removal)
    return fold(state, end.removed or OperationInterrupted(), now)


def carried_out(before: State, after: State) -> Taken | None:
    """Return the restart that a reset has carried out by its end; None if it has not.

    Args:
        before: the state with the reset under way.
        after: the state with its end folded in, and nothing decided since.
    """
    promise = before.operation.restart if before.operation is not None else None
    if promise is None or after.restarts == before.restarts:
        return None
    decision, state = _decision(promise), edit(before, operation=None, held=None)
    return Taken(decision, state, restart(state, decision, promise.at))


def _decision(promise: PromisedRestart) -> Restart:
    return Restart(
        promise.failure,
        promise.rule,
        promise.charge,
        promise.exclude,
        limited=promise.limited,
        pause=promise.pause,
    )
