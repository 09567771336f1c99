"""AppWrapper fault tolerance, as data: the rules and defaults of the published document (rows A3 to A15)."""

from __future__ import annotations

from datetime import timedelta

from holdfast.model import Budget, Policy, Timings
from holdfast.profiles.rules import AFTER_GRACE, COMMON, RESTART

POLICY = Policy(
    profile="appwrapper",
    timings=Timings(
        admission_grace_period=timedelta(minutes=1),
        warmup_grace_period=timedelta(minutes=5),
        failure_grace_period=timedelta(minutes=1),
        retry_pause_period=timedelta(seconds=90),
        deletion_on_failure_grace_period=timedelta(0),
        forceful_deletion_grace_period=timedelta(minutes=10),
        success_ttl=timedelta(days=7),
    ),
    rules=COMMON,
    default=AFTER_GRACE,
    budgets=(Budget(name=RESTART, limit=3),),
)
