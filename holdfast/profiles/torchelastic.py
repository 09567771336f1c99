"""torchelastic's failover, as data: what an elastic gang's outer scheduler does, and what it leaves to the rendezvous.

What differs from the other profiles, and why:

- failed, late or missing pods are no failure here: their Job replaces them, and the rendezvous decides whether the
  gang continues without them, is charged, or ends (rows T3, T6, T8, T9, T13);
- a gang's failure is final (rows T2, T4, T5): its members' own budgets, `gang.maxRestarts`, were the retries;
- a loss is charged here only if no round can follow: the gang allows no restarts (row T9), or another member has
  succeeded (row T10). The whole workload is restarted, and charges the workload's budget;
- everything else (objects that cannot be created, or that others delete) is as for plain manifests.
"""

from __future__ import annotations

from holdfast.model import (
    Action,
    ActionKind,
    Budget,
    FailureClass,
    Match,
    NodeAvoidance,
    Policy,
    Reason,
    Rule,
    Scope,
)
from holdfast.profiles import manifests
from holdfast.profiles.rules import CREATE_FAILED, FAIL_AT_ONCE, MISSING_COMPONENT, NOT_YET_CREATED, RESTART

GANG_FAILED = Rule(
    name="gang-failed",
    match=Match(
        reasons=(
            Reason.MAX_RESTARTS_EXHAUSTED,
            Reason.MAX_ROUNDS_EXHAUSTED,
            Reason.EXIT_BARRIER_TIMEOUT,
            Reason.JOIN_TIMEOUT,
            Reason.MEMBER_FAILED,
        )
    ),
    action=FAIL_AT_ONCE,
)
"""The rendezvous is closed: all retries have been made."""

MEMBER_LOST = Rule(
    name="member-lost",
    match=Match(reasons=(Reason.MEMBER_LOST,)),
    action=Action(kind=ActionKind.RESTART, charge=RESTART, grace=False, avoid=NodeAvoidance.PREFER),
)
"""The underlying scheduler restarts it (torchelastic-failover.md: "if TE agent launched with max_restarts=0").

A loss after a success restarts it too, while a failure ends it: a lost node says nothing against the work."""

JOB_FAILED = Rule(
    name="job-failed",
    match=Match(classes=(FailureClass.APP,), scopes=(Scope.COMPONENT,)),
    action=FAIL_AT_ONCE,
)
"""A failed Job has reached a limit that its author set."""

POLICY = Policy(
    profile="torchelastic",
    timings=manifests.POLICY.timings,
    rules=(NOT_YET_CREATED, CREATE_FAILED, MISSING_COMPONENT, GANG_FAILED, MEMBER_LOST, JOB_FAILED),
    default=Action(kind=ActionKind.IGNORE, charge=None, grace=False),
    budgets=(Budget(name=RESTART, limit=3),),
)
