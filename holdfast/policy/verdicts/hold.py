"""Holds a workload when the cluster contradicts its state: a restore from a backup must not count as a failure."""

from __future__ import annotations

from datetime import datetime

from holdfast.model import Attempt, Held, Observation, Reason, Stage, State
from holdfast.policy.values.edit import edit
from holdfast.policy.values.record import cause

_RESTORED = "either was restored from a backup"


def hold(state: State, why: str, newest: int, now: datetime, rule: str = "") -> State:
    """Return the state held: nothing happens until a user says `retry` or `cancel`.

    `rule` is the rule that would have restarted a sensitive workload. A contradiction has priority over it.
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
    """Return a message that the cluster has an attempt which the workflow's state does not know."""
    return (
        f"the cluster holds attempt {newest} of this workload, and this memory ends at attempt {known}: {_RESTORED}, "
        "and what lives is not touched"
    )


def contradiction(attempt: Attempt, seen: Observation) -> str:
    """Return how a live look contradicts the workflow's state; empty if it does not.

    A cluster or a Temporal server that was restored from a backup is older than the other. What then runs in the
    cluster may be work that someone relies on, so only a user can decide what happens to it.
    """
    number = attempt.number
    if seen.others and max(seen.others) > number:
        return foreign_attempt(max(seen.others), number)
    # An owner alone was created too late by a worker that another had replaced: nothing runs under it.
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
