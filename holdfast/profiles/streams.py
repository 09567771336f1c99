"""The Streams instance operator, as data: a submission is all or nothing, and pods are replaced alone (S1 to S12).

What differs from the other profiles, and why:

- an interrupted creation is replaced as a whole, and a transient refusal is waited out: the document defines neither a
  partial nor a failed submission; with `submissionTimeout` it gives up (off by default, as upstream);
- a failed or deleted pod is replaced within its attempt, a completed pod is not (the operator's own defaults); each
  pod's own launch budget limits the replacements (unlimited by default);
- no failure of a pod restarts the workload: a pod that is not replaced stays as it is, and PodsReady shows it;
- a failed pod is replaced on another node, if one has room; a marked node is left to whoever marked it, as upstream:
  its pods run until they end, and then are replaced elsewhere.
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
"""Deleting the attempt's owner deletes the whole attempt: it is submitted again. To remove the workload, cancel it."""

DISPLACED_PODS = Rule(
    name="displaced-pods", match=DISPLACED, action=Action(kind=ActionKind.IGNORE, charge=None, grace=False)
)
"""Nothing is wrong with a node from which a pod was displaced."""

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
