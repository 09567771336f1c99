"""Plain manifests, as data: AppWrapper's policy with waits that suit any cluster.

What differs from AppWrapper, and why:

- warm-up 15 m, not 5 m: an autoscaled node and a first pull of a large image take longer than 5 m;
- retry pause 10 s, not 90 s: no queue is known to manage these objects, so nothing needs time to settle.

All other waits and the limit of 3 restarts are AppWrapper's.
"""

from __future__ import annotations

from datetime import timedelta

from holdfast.model import Budget, Policy, Timings
from holdfast.profiles.rules import AFTER_GRACE, COMMON, RESTART

POLICY = Policy(
    profile="manifests",
    timings=Timings(
        admission_grace_period=timedelta(minutes=1),
        warmup_grace_period=timedelta(minutes=15),
        failure_grace_period=timedelta(minutes=1),
        retry_pause_period=timedelta(seconds=10),
        deletion_on_failure_grace_period=timedelta(0),
        forceful_deletion_grace_period=timedelta(minutes=10),
        success_ttl=timedelta(days=7),
    ),
    rules=COMMON,
    default=AFTER_GRACE,
    budgets=(Budget(name=RESTART, limit=3),),
)
