"""Rules that several profiles share, as data. Order matters: the first rule that matches decides."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.model import Action, ActionKind, FailureClass, Match, NodeAvoidance, Policy, Reason, Rule, Scope

RESTART = "restart"
"""The budget that restarts are charged to."""

LAUNCH = "launch"
"""The budget that launches which fail are charged to."""

AT_ONCE = Action(kind=ActionKind.RESTART, charge=RESTART, grace=False)
AFTER_GRACE = Action(kind=ActionKind.RESTART, charge=RESTART, grace=True)
ELSEWHERE_AFTER_GRACE = Action(kind=ActionKind.RESTART, charge=RESTART, grace=True, avoid=NodeAvoidance.PREFER)
FAIL_AT_ONCE = Action(kind=ActionKind.FAIL, charge=None, grace=False)

PASSING_REFUSALS = ("QuotaExceeded", "WebhookFailed", "Conflict", "BeingDeleted")
"""Reasons for which a component was not created, that may have passed by the next time."""

NOT_YET_CREATED = Rule(
    name="not-yet-created",
    match=Match(classes=(FailureClass.LAUNCH,), scopes=(Scope.COMPONENT, Scope.WORKLOAD), reasons=PASSING_REFUSALS),
    action=AT_ONCE,
)
"""The API server's no was borne for as long as the admission grace, and may be a yes after the pause."""

CREATE_FAILED = Rule(
    name="create-failed",
    match=Match(classes=(FailureClass.LAUNCH,), scopes=(Scope.COMPONENT, Scope.WORKLOAD)),
    action=FAIL_AT_ONCE,
)
"""Any other no (invalid, forbidden, the name is taken) would be the same the next time.

A pod that its node turned away is a member's failure, and not this."""

MISSING_COMPONENT = Rule(name="missing-component", match=Match(classes=(FailureClass.MISSING,)), action=AT_ONCE)
"""No controller brings a deleted top-level resource back, so waiting is in vain (row A6)."""

FAILED_COMPONENT = Rule(
    name="failed-component",
    match=Match(classes=(FailureClass.APP,), scopes=(Scope.COMPONENT,)),
    action=AT_ONCE,
)
"""A component that calls itself failed has given up, so waiting is in vain (row A7)."""

MARKED_NODE = Rule(
    name="marked-node",
    match=Match(classes=(FailureClass.HARDWARE,)),
    action=Action(kind=ActionKind.RESTART, charge=None, grace=False, avoid=NodeAvoidance.REQUIRE),
)
"""The node's fault is none of the workload's, and nothing heals while its pods stay there (row A17)."""

DISPLACED = Match(
    classes=(FailureClass.NODE_LOST,),
    scopes=(Scope.MEMBER,),
    reasons=("Preempting", "Preempted", "PreemptionByScheduler", "EvictionByEvictionAPI"),
)
"""Pods whose place somebody else needed: nothing is wrong with their node."""

DISPLACED_PODS = Rule(name="displaced-pods", match=DISPLACED, action=AFTER_GRACE)
"""As any failed pod (row A3), but for the node, which is not blamed."""

FAILED_PODS = Rule(name="failed-pods", match=Match(scopes=(Scope.MEMBER,)), action=ELSEWHERE_AFTER_GRACE)
"""A pod's own controller is given the grace period to replace it (row A3); next time another node is preferred (U9)."""

LATE_PODS = Rule(
    name="late-pods",
    match=Match(
        classes=(FailureClass.TIMEOUT,),
        reasons=(Reason.PODS_NOT_ADMITTED, Reason.PODS_NOT_RUNNING, Reason.INSUFFICIENT_PODS_READY),
    ),
    action=AFTER_GRACE,
)
"""Pods that are late, or have gone, are given the grace period to come (rows A4, A5, U13)."""

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


def with_exit_codes(policy: Policy, terminal: Iterable[int] = (), retryable: Iterable[int] = ()) -> Policy:
    """Return the policy led by rules that decide at once by a failed container's exit code (row A15).

    Args:
        policy: The policy to lead.
        terminal: Codes after which a retry is pointless. They win over `retryable`.
        retryable: If any, every other code is terminal.
    """
    # 0 is no failure: a pod may fail while one of its containers exits with it.
    fatal, worth = sorted(set(terminal) - {0}), sorted(set(retryable))
    rules: list[Rule] = []
    if fatal:
        rules.append(Rule(name="terminal-exit-codes", match=Match(exit_codes=tuple(fatal)), action=FAIL_AT_ONCE))
    if worth:
        codes = tuple(sorted({0, *worth}))
        rules.append(Rule(name="retryable-exit-codes", match=Match(exit_codes_except=codes), action=FAIL_AT_ONCE))
    return policy.model_copy(update={"rules": (*rules, *policy.rules)})
