"""JobSet's failure policy, as data: what the published controller does when a document says nothing (rows J1 to J20).

What differs from the other profiles, and why:

- only a Job's own status counts: the Job controller replaces failed, late or lost pods, so they have no rules here,
  and no grace runs;
- the next attempt starts without a wait;
- at the end, by success or failure, Jobs that have ended stay, for ever unless the document has a TTL; Jobs that are
  still active are deleted;
- a suspension leaves the Jobs in place, suspended: a resumption continues the same attempt;
- a deleted Job is created again and charged to no budget, as the published controller does; the other Jobs of its
  replicated job, which are the same component, are created again with it;
- a transient refusal of a creation is retried without end, as the published controller does; a permanent refusal
  fails at once, where that controller retries for ever.
"""

from __future__ import annotations

from datetime import timedelta

from holdfast.model import (
    Action,
    ActionKind,
    AtEnd,
    Budget,
    Deletion,
    FailureClass,
    InterruptedCreate,
    Match,
    Policy,
    RefusedCreate,
    Rule,
    Scope,
    SuspendMode,
    Timings,
)
from holdfast.profiles.rules import CREATE_FAILED, FAIL_AT_ONCE, RESTART

FAILED_JOB = Match(classes=(FailureClass.APP,), scopes=(Scope.COMPONENT,))
"""A Job whose own status reports failure."""

MISSING_JOB = Rule(
    name="missing-job",
    match=Match(classes=(FailureClass.MISSING,), scopes=(Scope.COMPONENT,)),
    action=Action(kind=ActionKind.RESTART, unit=Scope.COMPONENT, charge=None, grace=False),
)
"""The deletion of one Job is not meant for the set: the Job is created again, and no failure is charged."""

OWNER_DELETED = Rule(
    name="owner-deleted",
    match=Match(classes=(FailureClass.MISSING,), scopes=(Scope.WORKLOAD,)),
    action=Action(kind=ActionKind.RESTART, charge=None, grace=False),
)
"""Deleting the attempt's owner deletes the whole attempt: it is created again. To remove the workload, cancel it."""

NO_POLICY = Rule(name="no-failure-policy", match=FAILED_JOB, action=FAIL_AT_ONCE)
"""Without a failure policy the first failed Job fails the set (row J1)."""

NO_RULE = Rule(
    name="no-failure-policy-rule",
    match=FAILED_JOB,
    action=Action(kind=ActionKind.RESTART, charge=RESTART, grace=False),
)
"""For a failure that no rule of the document matches (row J5)."""

RULES_BEFORE = (CREATE_FAILED, MISSING_JOB, OWNER_DELETED)
"""The rules before those of a document."""

POLICY = Policy(
    profile="jobset",
    timings=Timings(
        admission_grace_period=timedelta(0),
        warmup_grace_period=timedelta(0),
        failure_grace_period=timedelta(0),
        retry_pause_period=timedelta(0),
        deletion_on_failure_grace_period=None,
        forceful_deletion_grace_period=timedelta(minutes=10),
        success_ttl=None,
    ),
    rules=(*RULES_BEFORE, NO_POLICY),
    default=Action(kind=ActionKind.IGNORE, charge=None, grace=False),
    budgets=(Budget(name=RESTART, limit=0),),
    interrupted_create=InterruptedCreate.ADOPT,
    refused_create=RefusedCreate.WAIT,
    deletion=Deletion(at_end=AtEnd.ACTIVE, suspend=SuspendMode.IN_PLACE),
)
