"""Lattice's failure matrix, as data: a profile for each kind of allocation, by its requeue policy (rows L16 to L29).

| profile | requeue | what brings it back to its queue |
|---|---|---|
| `lattice-batch` | `on_node_failure` | a node that is lost or broken |
| `lattice-interactive` | `never` | nothing |
| `lattice-service` | `always` | any failure |

What differs from the other profiles, and why:

- a requeue lets go of the workload's quota and goes back to the queue, at most 3 times (100 may be asked for);
- nothing waits for a grace but what a clock tells: the document decides at once, and a lost node has had its grace
  before it is told; what a kubelet tries again by itself, such as the pull of an image, has one minute for it;
- a service whose pods have gone, and have not failed, may be being renewed one by one by its own controller: that
  has the failure grace;
- a prologue that fails (its node would not start it) is tried on other nodes, first try and 3 retries, which a requeue
  renews: it is no requeue, so that it holds for all three;
- a walltime that is over is final, whatever the policy: it stands above the rules;
- a creation that the cluster refuses for now is waited for: staging that is held up burns no attempt.
"""

from __future__ import annotations

from datetime import timedelta

from holdfast.model import (
    DEADLINE_EXCEEDED,
    Action,
    ActionKind,
    Budget,
    Deletion,
    FailureClass,
    Match,
    NodeAvoidance,
    Policy,
    Reason,
    RefusedCreate,
    Renewal,
    Rule,
    Scope,
    Timings,
)
from holdfast.profiles.rules import FAIL_AT_ONCE, LAUNCH, RESTART

MAX_REQUEUE = 3
MAX_REQUEUE_MAXIMUM = 100
PROLOGUE_RETRIES = 3

UNKNOWN = Rule(
    name="unknown",
    match=Match(classes=(FailureClass.UNKNOWN,)),
    action=Action(kind=ActionKind.IGNORE, charge=None, grace=False),
)
"""What is not known is no failure."""

DEADLINE = Rule(name="deadline", match=Match(classes=(FailureClass.DEADLINE,)), action=FAIL_AT_ONCE)
"""A pod or Job that was ended by its own deadline, the walltime's backstop among them: final under every policy."""

JOB_DEADLINE = Rule(
    name="job-deadline",
    match=Match(scopes=(Scope.COMPONENT,), reasons=(DEADLINE_EXCEEDED,)),
    action=FAIL_AT_ONCE,
)
"""The same, as a Job says it of itself."""

PROLOGUE = Rule(
    name="prologue",
    match=Match(classes=(FailureClass.LAUNCH,), scopes=(Scope.MEMBER,)),
    action=Action(kind=ActionKind.RESTART, charge=LAUNCH, grace=False, avoid=NodeAvoidance.REQUIRE),
)
"""Its node would not start it: others are tried, for this workload alone (row L16)."""

HARDWARE = Match(classes=(FailureClass.HARDWARE,))
"""A node that somebody found broken: it is not chosen again."""

NODE_LOST = Match(classes=(FailureClass.NODE_LOST,))
"""A node whose agent is silent, or that cannot be reached: others are preferred, since it may come back."""

REQUEUE = Action(kind=ActionKind.RESTART, charge=RESTART, grace=False, avoid=NodeAvoidance.PREFER, requeue=True)
REQUEUE_ELSEWHERE = REQUEUE.model_copy(update={"avoid": NodeAvoidance.REQUIRE})

_REQUEUES = Budget(name=RESTART, limit=MAX_REQUEUE, maximum=MAX_REQUEUE_MAXIMUM, exceeded=Reason.MAX_REQUEUE_EXCEEDED)
_LAUNCHES = Budget(
    name=LAUNCH,
    limit=PROLOGUE_RETRIES,
    renewal=Renewal.REQUEUE,
    exceeded=Reason.PROLOGUE_FAILURE_MAX_RETRIES,
)


def _policy(profile: str, rules: tuple[Rule, ...], default: Action, budgets: tuple[Budget, ...]) -> Policy:
    return Policy(
        profile=profile,
        timings=Timings(
            admission_grace_period=timedelta(minutes=1),
            warmup_grace_period=timedelta(minutes=15),
            launch_grace_period=timedelta(minutes=1),
            failure_grace_period=timedelta(minutes=1),
            retry_pause_period=timedelta(seconds=5),
            deletion_on_failure_grace_period=timedelta(0),
            forceful_deletion_grace_period=timedelta(minutes=10),
            success_ttl=timedelta(days=7),
        ),
        rules=(UNKNOWN, DEADLINE, JOB_DEADLINE, PROLOGUE, *rules),
        default=default,
        budgets=budgets,
        refused_create=RefusedCreate.WAIT,
        deletion=Deletion(termination_grace=timedelta(seconds=30)),
    )


BATCH = _policy(
    "lattice-batch",
    (
        Rule(name="hardware", match=HARDWARE, action=REQUEUE_ELSEWHERE),
        Rule(name="node-lost", match=NODE_LOST, action=REQUEUE),
    ),
    FAIL_AT_ONCE,
    (_REQUEUES, _LAUNCHES),
)
"""Requeue `on_node_failure`: an application that fails has failed (rows L17, L22)."""

INTERACTIVE = _policy(
    "lattice-interactive",
    (
        Rule(name="hardware", match=HARDWARE, action=FAIL_AT_ONCE),
        Rule(name="node-lost", match=NODE_LOST, action=FAIL_AT_ONCE),
    ),
    FAIL_AT_ONCE,
    (_LAUNCHES,),
)
"""Requeue `never`: nobody sits before a session that comes back (row L21)."""

ABSENT_PODS = Rule(
    name="absent-pods",
    match=Match(classes=(FailureClass.TIMEOUT,), reasons=(Reason.INSUFFICIENT_PODS_READY,)),
    action=REQUEUE.model_copy(update={"grace": True}),
)
"""Pods that have gone, which their controller may be replacing one by one: it has the failure grace for it."""

SERVICE = _policy(
    "lattice-service",
    (
        ABSENT_PODS,
        Rule(name="hardware", match=HARDWARE, action=REQUEUE_ELSEWHERE),
        Rule(name="node-lost", match=NODE_LOST, action=REQUEUE),
    ),
    REQUEUE,
    (_REQUEUES, _LAUNCHES),
)
"""Requeue `always`: any failure, an application's too (row L23)."""

POLICIES = (BATCH, INTERACTIVE, SERVICE)
