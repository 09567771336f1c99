"""torchelastic's failover, as data: what an elastic gang's outer scheduler does, and what it leaves to the rendezvous.

What differs from the other profiles, and why:

- pods that fail, are late or have gone are nobody's failure here: their Job makes them again, and the rendezvous says
  whether the gang goes on without them, is charged, or is over (rows T3, T6, T8, T9, T13);
- a gang that has failed has failed (rows T2, T4, T5): its members' own budgets, `gang.maxRestarts`, were the retries;
- the one loss that is charged here is that of a member where members have no restarts (row T9): all of it is made
  again, by a budget that is the workload's;
- the rest, of what cannot be created or is deleted by another hand, is as for plain manifests.
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
"""The rendezvous is closed: what was to be tried again has been."""

MEMBER_LOST = Rule(
    name="member-lost",
    match=Match(reasons=(Reason.MEMBER_LOST,)),
    action=Action(kind=ActionKind.RESTART, charge=RESTART, grace=False, avoid=NodeAvoidance.PREFER),
)
"""The underlying scheduler's to make good (torchelastic-failover.md: "if TE agent launched with max_restarts=0")."""

JOB_FAILED = Rule(
    name="job-failed",
    match=Match(classes=(FailureClass.APP,), scopes=(Scope.COMPONENT,)),
    action=FAIL_AT_ONCE,
)
"""A Job that gives up says so by limits that its author gave it."""

POLICY = Policy(
    profile="torchelastic",
    timings=manifests.POLICY.timings,
    rules=(NOT_YET_CREATED, CREATE_FAILED, MISSING_COMPONENT, GANG_FAILED, MEMBER_LOST, JOB_FAILED),
    default=Action(kind=ActionKind.IGNORE, charge=None, grace=False),
    budgets=(Budget(name=RESTART, limit=3),),
)
