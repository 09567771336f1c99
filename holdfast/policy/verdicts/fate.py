"""Has the application failed, or has a node gone that nobody has missed yet? Not decided before that is known (L22)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.model import ActionKind, Failure, FailureClass, Policy, Reason, Scope, State
from holdfast.policy.attempt.health import current
from holdfast.policy.failures.avoided_nodes import speaks_of_loss
from holdfast.policy.failures.rules import SKEW, Ruling, rule_on
from holdfast.policy.values.decision import Look, Wait

_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)
LOOKS = (timedelta(seconds=12), timedelta(seconds=45))
"""After the last renewal: kubelets renew every ten seconds, and when one is late it is most likely dead."""


def matters(policy: Policy) -> bool:
    """Whether it makes a difference: a node that is lost is got over, and a failed application may not be."""
    if not speaks_of_loss(policy):
        return False
    lost = Failure(cls=FailureClass.NODE_LOST, scope=Scope.MEMBER, reason=Reason.NODE_DOWN, time=_ANY_TIME)
    actions = [one.action for one in policy.rules] + [policy.default]
    fatal = any(action.kind is ActionKind.FAIL for action in actions)
    return fatal and rule_on(policy, lost).action.kind is ActionKind.RESTART


def open_fate(state: State, ruling: Ruling, now: datetime) -> Look | Wait | None:
    """Return what is to be waited for before a failure ends the workload; None where nothing is.

    Ranks of a gang exit when one of them has gone with its node: within seconds, and so long before that node is Down.
    So what would be final is held until each node where pods of it still run has been heard of after the failure, or
    has had the time to be found Down.
    """
    failure, seen = ruling.failure, current(state)
    if ruling.action.kind is not ActionKind.FAIL or failure.cls is not FailureClass.APP or not matters(state.policy):
        return None
    quiet = seen.quietest if seen is not None else None
    # One node tells of the failure by its clock, the other of its own renewal.
    if quiet is None or quiet.renewed > failure.time + SKEW or state.looked_at is None or now >= quiet.down_at:
        return None
    why = f"held until {quiet.node} is heard of, or is Down: {failure.sentence()}"
    dues = [quiet.renewed + after for after in LOOKS]
    due = next((at for at in dues if at > state.looked_at and at < quiet.down_at), quiet.down_at)
    return Wait(due, why) if now < due else Look(f"has {quiet.node} been heard of: {failure.sentence()}")
