"""Lattice's failure matrix, as data: a profile for each kind of allocation, by its requeue policy (rows L16 to L29).

| profile | requeue | what requeues it |
|---|---|---|
| `lattice-batch` | `on_node_failure` | a node that is lost or broken |
| `lattice-interactive` | `never` | nothing |
| `lattice-service` | `always` | any failure |

What differs from the other profiles, and why:

- a requeue releases the workload's quota and returns it to the queue, at most 3 times (a limit up to 100 may be set);
- only time-based failures wait for a grace: the document decides at once, and a lost node has had its grace before it
  is reported; an operation that a kubelet retries by itself, such as an image pull, has one minute;
- a service whose pods are gone, but have not failed, may be in a rolling replacement by its own controller: that has
  the failure grace;
- a prologue that fails (its node would not start it) is tried on other nodes: a first try and 3 retries, which a
  requeue renews. It is not a requeue, so it applies to all three profiles;
- an exceeded walltime is final under every policy: it takes precedence over the rules;
- a transient refusal of a creation is waited out: delayed staging uses up no attempt.
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
from holdfast.profiles.rules import DISPLACED, FAIL_AT_ONCE, LAUNCH, RESTART

MAX_REQUEUE = 3
MAX_REQUEUE_MAXIMUM = 100
PROLOGUE_RETRIES = 3

UNKNOWN = Rule(
    name="unknown",
    match=Match(classes=(FailureClass.UNKNOWN,)),
    action=Action(kind=ActionKind.IGNORE, charge=None, grace=False),
)
"""An unknown state is no failure."""

DEADLINE = Rule(name="deadline", match=Match(classes=(FailureClass.DEADLINE,)), action=FAIL_AT_ONCE)
"""A pod or Job that its own deadline ended, including the walltime's backstop: final under every policy."""

JOB_DEADLINE = Rule(
    name="job-deadline",
    match=Match(scopes=(Scope.COMPONENT,), reasons=(DEADLINE_EXCEEDED,)),
    action=FAIL_AT_ONCE,
)
"""The same, as the Job's own status reports it."""

PROLOGUE = Rule(
    name="prologue",
    match=Match(classes=(FailureClass.LAUNCH,), scopes=(Scope.MEMBER,)),
    action=Action(kind=ActionKind.RESTART, charge=LAUNCH, grace=False, avoid=NodeAvoidance.REQUIRE),
)
"""Its node would not start the pod: this workload, and no other, avoids that node (row L16)."""

HARDWARE = Match(classes=(FailureClass.HARDWARE,))
"""A node that was found broken: it is not used again."""

NODE_LOST = Match(classes=(FailureClass.NODE_LOST,))
"""A node that is unreachable, or whose agent is silent: other nodes are preferred, since it may come back."""

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
"""Requeue `on_node_failure`: an application failure is final (rows L17, L22)."""

INTERACTIVE = _policy(
    "lattice-interactive",
    (
        Rule(name="hardware", match=HARDWARE, action=FAIL_AT_ONCE),
        Rule(name="node-lost", match=NODE_LOST, action=FAIL_AT_ONCE),
    ),
    FAIL_AT_ONCE,
    (_LAUNCHES,),
)
"""Requeue `never`: no user waits for a session that comes back later (row L21)."""

ABSENT_PODS = Rule(
    name="absent-pods",
    match=Match(classes=(FailureClass.TIMEOUT,), reasons=(Reason.INSUFFICIENT_PODS_READY,)),
    action=REQUEUE.model_copy(update={"grace": True}),
)
"""Missing pods, which their controller may be replacing one by one: it has the failure grace to do so."""

DISPLACED_PODS = Rule(name="displaced-pods", match=DISPLACED, action=ABSENT_PODS.action)
"""Evicted and preempted pods, for the same: a drain takes them one by one."""

SERVICE = _policy(
    "lattice-service",
    (
        ABSENT_PODS,
        DISPLACED_PODS,
        Rule(name="hardware", match=HARDWARE, action=REQUEUE_ELSEWHERE),
        Rule(name="node-lost", match=NODE_LOST, action=REQUEUE),
    ),
    REQUEUE,
    (_REQUEUES, _LAUNCHES),
)
"""Requeue `always`: for any failure, including an application's (row L23)."""

POLICIES = (BATCH, INTERACTIVE, SERVICE)
