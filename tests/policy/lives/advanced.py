"""What a turn decides and carries out next, without what its workflow does about it."""

from __future__ import annotations

from datetime import datetime

from holdfast.model import State, Workload
from holdfast.policy.loop.advance import decisions, step_of
from holdfast.policy.values.steps import Step


def advance(spec: Workload, state: State, now: datetime) -> tuple[State, Step]:
    *_, last = decisions(spec, state, now)
    return last.after, step_of(spec, last.after, last.decision, now)
