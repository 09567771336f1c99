"""One turn of a workload's life: what is decided now, and what its workflow does about it.

The workflow, its past, the simulation and the property tests all take their turns here, so that what is tested and
simulated is what production lives. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.model import Observation, Phase, State, Workload
from holdfast.model.calls.cluster import Cleared, Created, Parked, Prepared, Replaced, Reported
from holdfast.policy.loop import fold as folding
from holdfast.policy.loop.advance import Taken, decisions, step_of
from holdfast.policy.loop.breakable import is_breakable
from holdfast.policy.loop.operations import begin
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Looked, OperationEnd, OperationInterrupted, SourceSeen
from holdfast.policy.values.steps import End, Interrupt, Run, Sleep, Step


@dataclass(frozen=True, slots=True)
class Begin:
    """Start the operation that the state now says is under way."""

    why: str


@dataclass(frozen=True, slots=True)
class Rest:
    """Wait for news, at most until `until`."""

    until: datetime | None = None
    why: str = ""
    breaks: bool = False
    """Whether the operation under way is broken off first: the state says so already."""


@dataclass(frozen=True, slots=True)
class Continue:
    """Begin a new run with this memory: the history is full, and nothing is under way."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Nothing is left to do: end the workflow with this outcome."""

    outcome: Phase


Act = Begin | Rest | Continue | Leave


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn comes to."""

    taken: tuple[Taken, ...]
    """The decisions, in order."""
    state: State
    step: Step
    """What is to be carried out, as `advance` says it."""
    act: Act
    """What the workflow does about it."""


def turn(spec: Workload, state: State, now: datetime, *, full: bool) -> Turn:
    """Decide all that can be decided now, and say what the workflow does.

    Args:
        spec: the workload.
        state: its memory, with all that has come folded in.
        now: the time of the workflow task.
        full: whether the history has grown so long that a new run is to begin as soon as one may.
    """
    taken = tuple(decisions(spec, state, now))
    state = taken[-1].after
    step = step_of(spec, state, taken[-1].decision, now)
    match step:
        case Run(kind, why):
            if full and is_breakable(spec, state, kind):
                act = Continue()
            else:
                # One that cannot be begun again without a trace is not put off: the next run comes after it.
                state, act = begin(spec, state, step, now), Begin(why)
        case Interrupt():
            state, act = _broken_off(state), Rest(breaks=state.operation is not None)
        case Sleep(until, why):
            operation = state.operation
            if full and operation is None:
                act = Continue()
            elif full and operation and is_breakable(spec, state, operation.kind) and not operation.interrupted:
                state, act = _broken_off(state), Rest(until, why, breaks=True)
            else:
                act = Rest(until, why)
        case End(outcome):
            act = Leave(outcome)
    return Turn(taken, state, step, act)


def landed(state: State, end: OperationEnd | Observation | None, now: datetime) -> State:
    """Return the state after the operation under way has come back.

    Args:
        state: the memory; where nothing is under way, it is returned as it is.
        end: what the operation's activity returns, or why it returned nothing; None from a report of an early release.
        now: the time of the workflow task.
    """
    operation = state.operation
    if operation is None:
        return state
    seen = None
    match end:
        case Observation():
            end, seen = Looked(untold=end.untold), edit(end, untold=False)
        case Prepared(broken_off=True):
            end = OperationInterrupted(end.borne)
        case Created(broken_off=True) | Replaced(broken_off=True):
            end = OperationInterrupted(end.borne, end.objects)
        case Prepared(asked=asked) if asked is not None:
            state = folding.fold(state, SourceSeen(asked), now)
        case Cleared() | Parked():
            seen = end.seen
        case None:
            end = Reported()
        case _:
            pass
    state = folding.fold(state, end, now)
    return folding.observed(state, seen, operation.since, now) if seen is not None else state


def _broken_off(state: State) -> State:
    if state.operation is None:
        return state
    return edit(state, operation=edit(state.operation, interrupted=True))
