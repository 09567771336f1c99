"""What users see of a workload while a reset is under way; requests that depend on the phase are judged by it."""

from __future__ import annotations

from holdfast.model import Stage, State
from holdfast.policy.values.edit import edit


def displayed(state: State) -> State:
    """Return the state that a reset under way leads to, as users see it. No decision on the attempt is taken from it.

    The workflow learns only at the end of a reset whether its look confirmed the failure, and the removal may take
    minutes. So users see Resetting from the look on, as they see it on the anchor; if the look finds the workload
    healthy, they see Running again. The restart itself counts once it is known: a look may fail for long (row U1).
    """
    operation, attempt = state.operation, state.attempt
    if operation is None or operation.removal is None or attempt is None:
        return state
    told, since = operation.removal.report, operation.removal.since
    return edit(
        state,
        phase=told.phase,
        reason=told.reason,
        message=told.message,
        since=since,
        attempt=edit(attempt, stage=Stage.REMOVING, removing_at=since),
    )
