"""Back to the queue: when a workload is in it, in which cycle it may leave it, and who may send it there (L22 to L29).

Each workload has cycles of its own. A cycle is one round of the engine in which something waits to be admitted; it
begins when the pause after a requeue is over, or a person says `retry`. What came back in cycle n is admitted in n+1 at
the earliest. Where a queue's workflow lets workloads in, its cycles come on top of that (`queue.py`, `queued.py`);
where there is none, a workload admits itself.
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
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import RequeueRequest
from holdfast.policy.values.record import cause, shortened

CYCLE = timedelta(seconds=1)
"""What a cycle takes at least: a requeued workload stays in its queue for so long, whatever its pause."""


def asked(state: State, request: RequeueRequest, now: datetime) -> State:
    """Return the state with a failure that was told, on which the rules decide; once for each count that is expected.

    Whoever is late, or says it again, changes nothing: the count has moved on, or the failure is known.
    """
    attempt = state.attempt
    live = attempt is not None and attempt.stage in {Stage.PLANNED, Stage.PREPARED, Stage.SUBMITTED}
    if attempt is None or not live or state.outcome is not None:
        return edit(state, dropped=state.dropped + 1)
    if attempt.told is not None or request.expected_requeue_count != state.requeues:
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
    state = edit(state, attempt=edit(attempt, told=failure))
    why = f"requeue {state.requeues + 1} was asked for: {failure.sentence()}"
    return cause(state, Reason.REQUEUE_REQUESTED, why, now)


def pause(attempt: Attempt, span: timedelta) -> timedelta:
    """Return how long the next attempt waits, where the policy says `span`."""
    return max(span, CYCLE) if attempt.requeue else span


def queues(state: State) -> bool:
    """Whether a workload has come back and is still to be put into its queue."""
    attempt = state.attempt
    if attempt is None or attempt.stage is not Stage.GONE or not attempt.requeue:
        return False
    return attempt.requeued_in is None and state.outcome is None and state.phase is Phase.RESETTING


def is_queued(state: State) -> bool:
    """Whether it came back in the cycle that it is in, and so cannot be admitted in it."""
    attempt = state.attempt
    return (
        attempt is not None
        and attempt.stage is Stage.GONE
        and attempt.requeued_in is not None
        and attempt.requeued_in >= state.cycle
    )


def kept_out(state: State) -> str:
    """Return why it may not begin, where its queue has not let it in; empty if it may."""
    return (state.turn.says or "it waits in its queue") if state.turn is not None and not state.turn.admitted else ""


def next_cycle(state: State, now: datetime) -> State:
    """Return the state in the next cycle, where it is time for one."""
    waits = state.pause_until is not None and now < state.pause_until and not state.intent.retry
    if state.outcome is not None or waits or not is_queued(state):
        return state
    return edit(state, cycle=state.cycle + 1)


def place(spec: Workload, state: State) -> str:
    """Say where it stands in its queue: as of when, and from which cycle on it may be admitted."""
    since = f", as of {spec.submitted_at:%Y-%m-%d %H:%M:%S} UTC" if spec.submitted_at is not None else ""
    return f"in queue {spec.queue}{since}: it came back in cycle {state.cycle}, and is admitted in {state.cycle + 1}"
