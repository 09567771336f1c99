"""Requeues: when a workload is in its queue, in which cycle it may leave, and who may requeue it (L22 to L29).

Each workload has its own cycles. A cycle is one round of the engine in which something waits for admission. It begins
when the pause after a requeue ends, or a user says `retry`. A workload requeued in cycle n is admitted in cycle n+1 at
the earliest. If a queue's workflow admits workloads, its own cycles apply as well (`queue.py`, `queued.py`). If there
is none, a workload admits itself.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from holdfast.model import (
    Attempt,
    Failure,
    Phase,
    Reason,
    Scope,
    Stage,
    State,
    Workload,
)
from holdfast.model.words import shortened
from holdfast.policy.failures.told import is_acted_on, is_decided
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import RequeueRequest
from holdfast.policy.values.record import cause

CYCLE = timedelta(seconds=1)
"""The shortest cycle: a requeued workload stays in its queue at least this long, whatever its pause."""


def on_requeue_request(state: State, request: RequeueRequest, now: datetime) -> State:
    """Return the state with the failure in a request, on which the rules decide; once for each expected count.

    A late or repeated request changes nothing: the count has moved on, or a rule acts on a failure already. Nor does
    one on which no rule acts, and the next request with the same count is considered.
    """
    attempt = state.attempt
    live = attempt is not None and attempt.stage in {Stage.PLANNED, Stage.PREPARED, Stage.SUBMITTED}
    asleep = state.shows_waits and attempt is not None and attempt.suspended  # It speaks of pods that are removed.
    if attempt is None or not live or asleep or state.outcome is not None:
        return edit(state, dropped=state.dropped + 1)
    if is_decided(state) or request.expected_requeue_count != state.requeues:
        return edit(state, dropped=state.dropped + 1)
    failure = Failure(
        cls=request.cls,
        scope=Scope.WORKLOAD,
        reason=shortened(request.reason),
        time=now,
        node=request.node[:253],
        message=shortened(request.message),
        attempt=attempt.number,
    )
    if state.shows_waits and not is_acted_on(state.policy, attempt, failure):
        state = edit(state, dropped=state.dropped + 1)
        why = f"requeue {state.requeues + 1} was asked for, but no rule acts on it: {failure.sentence()}"
        # Monitors repeat their requests, and the causes kept are few.
        known = any(one.message == shortened(why) for one in state.causes)
        return state if known else cause(state, Reason.REQUEUE_REQUESTED, why, now)
    state = edit(state, attempt=edit(attempt, told=failure))
    why = f"requeue {state.requeues + 1} was asked for: {failure.sentence()}"
    return cause(state, Reason.REQUEUE_REQUESTED, why, now)


def pause(attempt: Attempt, span: timedelta) -> timedelta:
    """Return how long the next attempt waits, if the policy says `span`."""
    return max(span, CYCLE) if attempt.requeue else span


def queues(state: State) -> bool:
    """Whether a workload is to be requeued and is not in its queue yet."""
    attempt = state.attempt
    if attempt is None or attempt.stage is not Stage.GONE or not attempt.requeue:
        return False
    return attempt.requeued_in is None and state.outcome is None and state.phase is Phase.RESETTING


def is_queued(state: State) -> bool:
    """Whether it was requeued in the current cycle, and so cannot be admitted in it."""
    attempt = state.attempt
    return (
        attempt is not None
        and attempt.stage is Stage.GONE
        and attempt.requeued_in is not None
        and attempt.requeued_in >= state.cycle
    )


def kept_out(state: State) -> str:
    """Return why it may not begin, if its queue has not admitted it; empty if it may."""
    return (state.turn.says or "it waits in its queue") if state.turn is not None and not state.turn.admitted else ""


def awaits_kueue(state: State) -> bool:
    """Whether Kueue counts its quota, and its custom resource is suspended until Kueue admits it (row F8)."""
    return state.kueue_admits and state.shows_waits and state.asked is not None and state.asked.suspend


def next_cycle(state: State, now: datetime) -> State:
    """Return the state in the next cycle, if it is time for one."""
    waits = state.pause_until is not None and now < state.pause_until and not state.intent.retry
    if state.outcome is not None or waits or not is_queued(state):
        return state
    return edit(state, cycle=state.cycle + 1)


def place(spec: Workload, state: State) -> str:
    """Return a message on its place in the queue: as of when, and from which cycle on it may be admitted."""
    since = f" since {spec.submitted_at:%Y-%m-%d %H:%M:%S} UTC" if spec.submitted_at is not None else ""
    cycles = f"requeued in cycle {state.cycle}, admitted in cycle {state.cycle + 1} at the earliest"
    return f"wait in queue {spec.queue}{since}: {cycles}"
