"""JobSet's failure policy, as data: what the published controller does when a document says nothing (rows J1 to J20).

What differs from the other profiles, and why:

- only a Job's own word counts: a failed, late or lost pod is its Job controller's to replace, so none has a rule here,
  and no grace runs;
- nothing is waited for before the next attempt;
- at its end, by success or failure, Jobs that have ended stay, for ever unless the document has a TTL; those that are
  still active are deleted;
- what is suspended stays where it is, its Jobs suspended: it is resumed as the same attempt;
- a Job that somebody deleted is made again, charged to nothing, as the published controller does; with it those of
  its replicated job, which are one component;
- a creation that the cluster refuses for now is waited for without end, as the published controller does; one that it
  always will refuse fails at once, where that controller tries for ever.
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
"""A Job whose own status says that it has failed."""

MISSING_JOB = Rule(
    name="missing-job",
    match=Match(classes=(FailureClass.MISSING,), scopes=(Scope.COMPONENT,)),
    action=Action(kind=ActionKind.RESTART, unit=Scope.COMPONENT, charge=None, grace=False),
)
"""Whoever deleted it did not mean the set: it is made again, and nobody's failure."""

OWNER_DELETED = Rule(
    name="owner-deleted",
    match=Match(classes=(FailureClass.MISSING,), scopes=(Scope.WORKLOAD,)),
    action=Action(kind=ActionKind.RESTART, charge=None, grace=False),
)
"""With the attempt's owner all of it goes: it is made anew. Whoever wants it gone cancels it."""

NO_POLICY = Rule(name="no-failure-policy", match=FAILED_JOB, action=FAIL_AT_ONCE)
"""Without a failure policy the first failed Job ends it (row J1)."""

NO_RULE = Rule(
    name="no-failure-policy-rule",
    match=FAILED_JOB,
    action=Action(kind=ActionKind.RESTART, charge=RESTART, grace=False),
)
"""Of a failure that no rule of the document speaks of (row J5)."""

RULES_BEFORE = (CREATE_FAILED, MISSING_JOB, OWNER_DELETED)
"""What stands before the rules of a document."""

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
