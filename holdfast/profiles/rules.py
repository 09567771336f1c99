"""Rules that several profiles share, as data. Order matters: the first rule that matches decides."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.model import Action, ActionKind, FailureClass, Match, NodeAvoidance, Policy, Reason, Rule, Scope

RESTART = "restart"
"""The budget that restarts charge."""

LAUNCH = "launch"
"""The budget that failed launches charge."""

AT_ONCE = Action(kind=ActionKind.RESTART, charge=RESTART, grace=False)
AFTER_GRACE = Action(kind=ActionKind.RESTART, charge=RESTART, grace=True)
ELSEWHERE_AFTER_GRACE = Action(kind=ActionKind.RESTART, charge=RESTART, grace=True, avoid=NodeAvoidance.PREFER)
FAIL_AT_ONCE = Action(kind=ActionKind.FAIL, charge=None, grace=False)

PASSING_REFUSALS = ("QuotaExceeded", "WebhookFailed", "Conflict", "BeingDeleted")
"""Transient reasons for a refused creation, which may be gone at the next try."""

NOT_YET_CREATED = Rule(
    name="not-yet-created",
    match=Match(classes=(FailureClass.LAUNCH,), scopes=(Scope.COMPONENT, Scope.WORKLOAD), reasons=PASSING_REFUSALS),
    action=AT_ONCE,
)
"""The API server refused for the whole admission grace, and may accept after the pause."""

CREATE_FAILED = Rule(
    name="create-failed",
    match=Match(classes=(FailureClass.LAUNCH,), scopes=(Scope.COMPONENT, Scope.WORKLOAD)),
    action=FAIL_AT_ONCE,
)
"""Any other refusal (invalid, forbidden, the name is taken) would be repeated at the next try.

A pod that its node rejected is a member's failure, and does not match."""

MISSING_COMPONENT = Rule(name="missing-component", match=Match(classes=(FailureClass.MISSING,)), action=AT_ONCE)
"""No controller recreates a deleted top-level resource, so waiting does not help (row A6)."""

FAILED_COMPONENT = Rule(
    name="failed-component",
    match=Match(classes=(FailureClass.APP,), scopes=(Scope.COMPONENT,)),
    action=AT_ONCE,
)
"""A component whose status reports failure has given up, so waiting does not help (row A7)."""

MARKED_NODE = Rule(
    name="marked-node",
    match=Match(classes=(FailureClass.HARDWARE,)),
    action=Action(kind=ActionKind.RESTART, charge=None, grace=False, avoid=NodeAvoidance.REQUIRE),
)
"""The fault is the node's, not the workload's, and nothing heals while its pods stay there (row A17)."""

DISPLACED = Match(
    classes=(FailureClass.NODE_LOST,),
    scopes=(Scope.MEMBER,),
    reasons=("Preempting", "Preempted", "PreemptionByScheduler", "EvictionByEvictionAPI"),
)
"""Pods that were preempted, or evicted through the API: nothing is wrong with their node."""

DISPLACED_PODS = Rule(name="displaced-pods", match=DISPLACED, action=AFTER_GRACE)
"""Treated like any failed pod (row A3), except that the node is not blamed."""

FAILED_PODS = Rule(name="failed-pods", match=Match(scopes=(Scope.MEMBER,)), action=ELSEWHERE_AFTER_GRACE)
"""A pod's own controller has the grace period to replace it (row A3); the next attempt prefers another node (U9)."""

LATE_PODS = Rule(
    name="late-pods",
    match=Match(
        classes=(FailureClass.TIMEOUT,),
        reasons=(Reason.PODS_NOT_ADMITTED, Reason.PODS_NOT_RUNNING, Reason.INSUFFICIENT_PODS_READY),
    ),
    action=AFTER_GRACE,
)
"""Late or missing pods have the grace period to appear (rows A4, A5, U13)."""

COMMON = (
    NOT_YET_CREATED,
    CREATE_FAILED,
    MISSING_COMPONENT,
    FAILED_COMPONENT,
    MARKED_NODE,
    DISPLACED_PODS,
    FAILED_PODS,
    LATE_PODS,
)

POD_RESTARTED = Rule(
    name="pod-restarted",
    match=Match(classes=(FailureClass.APP,), scopes=(Scope.MEMBER,), reasons=(Reason.POD_RESTARTED,)),
    action=AT_ONCE,
)
"""Where pods restart in place: one that restarts, or is replaced, restarts them all (row J24).

It cannot heal by itself, so it has no grace. It keeps its node, so none is avoided.
"""


def with_exit_codes(policy: Policy, terminal: Iterable[int] = (), retryable: Iterable[int] = ()) -> Policy:
    """Return the policy, preceded by rules that decide at once by a failed container's exit code (row A15).

    Args:
        policy: The policy to extend.
        terminal: Codes after which a retry is pointless. They take precedence over `retryable`.
        retryable: If any, every other code is terminal.
    """
    # 0 is no failure: a pod may fail while one of its containers exits with 0.
    fatal, worth = sorted(set(terminal) - {0}), sorted(set(retryable))
    rules: list[Rule] = []
    if fatal:
        rules.append(Rule(name="terminal-exit-codes", match=Match(exit_codes=tuple(fatal)), action=FAIL_AT_ONCE))
    if worth:
        codes = tuple(sorted({0, *worth}))
        rules.append(Rule(name="retryable-exit-codes", match=Match(exit_codes_except=codes), action=FAIL_AT_ONCE))
    return policy.model_copy(update={"rules": (*rules, *policy.rules)})
