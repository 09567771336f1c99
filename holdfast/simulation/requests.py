"""Turns requests of users and queues into the events that the workflow makes of its signals and updates."""

from __future__ import annotations

from holdfast.model import State, Workload, format_duration
from holdfast.policy.attempt.checkpoint import check_ask
from holdfast.policy.values.events import (
    WISHES,
    CheckpointAsked,
    Event,
    RequeueAsked,
    RequeueRequest,
    Suspended,
    WalltimeExtended,
)
from holdfast.policy.verdicts.walltime import WalltimeExtension, check_extension, extended
from holdfast.simulation.script.events import Asked, Extend, Preempt, Requeue


def wish(spec: Workload, state: State, name: str, what: Asked) -> tuple[State, Event]:
    """Return the state right after the update, and the event that the workload receives.

    Raises:
        ValueError: if the workflow would refuse the update, with the same message.
    """
    match name, what:
        case "preempt", Preempt(within=within):
            seconds = within.total_seconds() if within is not None else None
            return state, Suspended(what.note, preempted=True, within=seconds)
        case "extend", Extend(by=by):
            total = check_extension(spec, state, WalltimeExtension(by=format_duration(by)))
            return extended(state, total), WalltimeExtended(total, what.note)
        case "requeue", Requeue():
            return state, RequeueAsked(request(what, state.requeues))
        case "checkpoint", _:
            check_ask(spec, state)
            return state, CheckpointAsked(what.note)
        case _:
            return state, WISHES[name](what.note)


def request(what: Requeue, requeues: int) -> RequeueRequest:
    """Return an operator's requeue request to a workload that has been requeued this often."""
    expected = what.expected_requeue_count
    count = requeues if expected is None else expected
    return RequeueRequest(expected_requeue_count=count, cls=what.cls, node=what.node, message=what.note)


def passed_over(state: State, event: Event) -> str:
    """Return a message if a requeue request is ignored since it is about an earlier try (row L25), otherwise empty."""
    if not isinstance(event, RequeueAsked) or event.request.expected_requeue_count == state.requeues:
        return ""
    expected = event.request.expected_requeue_count
    return f"requeue is ignored: it was meant as requeue {expected + 1}, and would be requeue {state.requeues + 1}"
