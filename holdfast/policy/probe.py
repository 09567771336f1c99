"""Whether a workload is asked whether it still serves, and what its silence is (rows L28, L29)."""

from __future__ import annotations

from datetime import datetime

from holdfast.model import ActionKind, Failure, FailureClass, Reason, Scope, Stage, State, Workload
from holdfast.policy.edit import edit
from holdfast.policy.rules import rule_on


def probed(spec: Workload, state: State) -> int | None:
    """Return the attempt whose pods are to be asked now; None where nobody is.

    Nobody is before all of it runs, while it is suspended, and once it is settled, held or known to have failed; nor
    where a failed probe would come to nothing, since each would have to be followed by another.
    """
    attempt = state.attempt
    if spec.probe is None or attempt is None or attempt.stage is not Stage.SUBMITTED or attempt.ready_at is None:
        return None
    if state.outcome is not None or state.held is not None or state.intent.cancel or state.intent.suspend:
        return None
    if attempt.parking is not None or attempt.told is not None:
        return None
    asked = rule_on(state.policy, silence(attempt.number, attempt.ready_at))
    return attempt.number if asked.action.kind is not ActionKind.IGNORE else None


def silence(
    attempt: int, time: datetime, component: str = "", subject: str = "", node: str = "", message: str = ""
) -> Failure:
    """Return the failure that a pod is which has not answered as often as it may."""
    return Failure(
        cls=FailureClass.PROBE,
        scope=Scope.MEMBER,
        reason=Reason.PROBE_FAILED,
        time=time,
        component=component,
        subject=subject,
        node=node,
        message=message,
        attempt=attempt,
    )


def heard(state: State, number: int, failure: Failure | None, failing: dict[str, int]) -> State:
    """Return the state after a round of asking has ended: with a failure, or broken off with what was counted."""
    attempt = state.attempt
    if attempt is None or attempt.number != number or attempt.stage is not Stage.SUBMITTED:
        return state
    if failure is None:
        return edit(state, attempt=edit(attempt, probe_failing=failing))
    return edit(state, attempt=edit(attempt, told=failure, probe_failing={}))
