"""When cluster and memory contradict each other: what one of them was restored to must not be taken for a failure."""

from __future__ import annotations

from datetime import datetime

from holdfast.model import Attempt, Held, Observation, Reason, Stage, State
from holdfast.policy.values.edit import edit
from holdfast.policy.values.record import cause

_RESTORED = "either was restored from a backup"


def hold(state: State, why: str, newest: int, now: datetime, rule: str = "") -> State:
    """Return the state held: nothing is done until a person says `retry` or `cancel`.

    `rule` is what would have run it again, where it is sensitive; a contradiction stands above that.
    """
    if state.held is not None and (rule or not state.held.rule):
        return edit(state, held=edit(state.held, newest=max(newest, state.held.newest)))
    return cause(
        edit(state, held=Held(since=now, why=why, newest=newest, rule=rule), intent=edit(state.intent, retry=False)),
        Reason.HELD,
        why,
        now,
    )


def foreign_attempt(newest: int, known: int) -> str:
    """Say that the cluster knows an attempt which the memory does not."""
    return (
        f"the cluster holds attempt {newest} of this workload, and this memory ends at attempt {known}: {_RESTORED}, "
        "and what lives is not touched"
    )


def contradiction(attempt: Attempt, seen: Observation) -> str:
    """Return what a live look found that cannot be after what is remembered; empty where there is nothing.

    A cluster or a Temporal that was restored from a backup is older than the other. What then lives in the cluster may
    be work that somebody counts on, so only a person can say what is to become of it.
    """
    number = attempt.number
    if seen.others and max(seen.others) > number:
        return foreign_attempt(max(seen.others), number)
    # An owner alone is what a worker makes too late that another had taken over from: nothing runs under it.
    lives = seen.owner_found and not seen.owner_deleting and (seen.owner_submitted or seen.pods.present > 0)
    if attempt.stage is Stage.GONE and lives:
        return f"attempt {number}, which was proven gone, is there again: {_RESTORED}"
    if seen.others:
        return f"attempt {min(seen.others)}, which was proven gone, is there again beside {number}: {_RESTORED}"
    if attempt.stage is not Stage.SUBMITTED:
        return ""
    if not seen.anchor_found:
        return f"its anchor is gone or was let go of by another hand, and this memory knows of no end: {_RESTORED}"
    if seen.owner_found and not seen.owner_deleting and seen.owner_submitted is False:
        return f"attempt {number} was submitted, and the cluster says that it was not yet: {_RESTORED}"
    return ""
