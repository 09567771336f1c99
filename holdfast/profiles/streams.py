"""The Streams instance operator, as data: a submission is whole or made anew, pods are made again alone (S1 to S12).

What differs from the other profiles, and why:

- an interrupted creation is replaced whole, and a refusal that may pass is waited for: the document knows no partial
  submission, and no failed one either; with `submissionTimeout` it gives up (off by default, as upstream);
- a pod that failed or was deleted is made again within its attempt, one that completed is not (the operator's own
  defaults); each pod's own launch budget bounds that (unlimited by default);
- no failure of a pod restarts the workload: what is not made again stays as it is, and is told by PodsReady;
- a pod that failed is made again on another node, where one has room; a marked node is left to whoever marked it, as
  upstream: its pods run until they end, and then are made again elsewhere.
"""

from __future__ import annotations

from datetime import timedelta

from holdfast.model import (
    Action,
    ActionKind,
    Budget,
    FailureClass,
    InterruptedCreate,
    Match,
    NodeAvoidance,
    Policy,
    RefusedCreate,
    Replacement,
    Rule,
    Scope,
    Timings,
)
from holdfast.profiles.rules import CREATE_FAILED, DISPLACED, LAUNCH

OWNER_DELETED = Rule(
    name="owner-deleted",
    match=Match(classes=(FailureClass.MISSING,), scopes=(Scope.WORKLOAD,)),
    action=Action(kind=ActionKind.RESTART, charge=None, grace=False),
)
"""With the attempt's owner all of it goes: it is submitted anew. Whoever wants it gone cancels it."""

DISPLACED_PODS = Rule(
    name="displaced-pods", match=DISPLACED, action=Action(kind=ActionKind.IGNORE, charge=None, grace=False)
)
"""Nothing is wrong with a node on which somebody else needed the place."""

POLICY = Policy(
    profile="streams",
    timings=Timings(
        failure_grace_period=timedelta(0),
        retry_pause_period=timedelta(0),
        forceful_deletion_grace_period=timedelta(minutes=10),
        deletion_on_failure_grace_period=timedelta(0),
        success_ttl=timedelta(days=7),
        submission_timeout=None,
    ),
    rules=(CREATE_FAILED, OWNER_DELETED, DISPLACED_PODS),
    default=Action(kind=ActionKind.IGNORE, charge=None, grace=False, avoid=NodeAvoidance.PREFER),
    budgets=(Budget(name=LAUNCH, limit=None, scope=Scope.MEMBER),),
    interrupted_create=InterruptedCreate.REPLACE,
    refused_create=RefusedCreate.WAIT,
    replacement=Replacement(failed=True, completed=False, deleted=True, charge=LAUNCH),
)
