"""Delays a final failure until it is known whether the application failed or its node is lost unnoticed (L22)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.model import ActionKind, Failure, FailureClass, Policy, Reason, Scope, State, Workload
from holdfast.policy.attempt.health import current
from holdfast.policy.failures.avoided_nodes import speaks_of_loss
from holdfast.policy.failures.blindness import due
from holdfast.policy.failures.rules import SKEW, Ruling, rule_on
from holdfast.policy.values.decision import Look, Wait

_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)
LOOKS = (timedelta(seconds=12), timedelta(seconds=45))
"""When to look, after a node's last renewal: kubelets renew every ten seconds, and a late one is most likely dead."""


def matters(policy: Policy) -> bool:
    """Whether the policy treats the two differently: a lost node restarts the workload, and some action fails it."""
    if not speaks_of_loss(policy):
        return False
    lost = Failure(cls=FailureClass.NODE_LOST, scope=Scope.MEMBER, reason=Reason.NODE_DOWN, time=_ANY_TIME)
    actions = [one.action for one in policy.rules] + [policy.default]
    fatal = any(action.kind is ActionKind.FAIL for action in actions)
    return fatal and rule_on(policy, lost).action.kind is ActionKind.RESTART


def open_fate(spec: Workload, state: State, ruling: Ruling, now: datetime) -> Look | Wait | None:
    """Return what to wait for before a failure ends the workload; None if nothing.

    When a node is lost with one rank of a gang, the other ranks exit within seconds, long before that node is Down.
    So a final failure waits until each node that still runs pods of the workload has renewed after the failure, or has
    had the time to be found Down. That is longer for sensitive workloads, and no node is found Down while nobody sees
    the cluster (row L4).
    """
    failure, seen = ruling.failure, current(state)
    if ruling.action.kind is not ActionKind.FAIL or failure.cls is not FailureClass.APP or not matters(state.policy):
        return None
    quiet = seen.quietest if seen is not None else None
    # The time of the failure is by one node's clock, and the time of the renewal by another's.
    if quiet is None or quiet.renewed > failure.time + SKEW or state.looked_at is None:
        return None
    found_at = quiet.lost_at if spec.sensitive and quiet.lost_at is not None else quiet.down_at
    if state.shows_waits:
        found_at = due(quiet.renewed, found_at - quiet.renewed, state.blind)
    if now >= found_at:
        return None
    why = f"held until {quiet.node} is heard of, or is Down: {failure.sentence()}"
    dues = [quiet.renewed + after for after in LOOKS]
    next_due = next((at for at in dues if state.looked_at < at < found_at), found_at)
    return Wait(next_due, why) if now < next_due else Look(f"has {quiet.node} been heard of: {failure.sentence()}")
