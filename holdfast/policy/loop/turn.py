"""One turn of a workload's life: what to decide now, and what the workflow does next.

The workflow, its past, the simulation and the property tests all call this module, so tests and simulations run the
same code as production. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from holdfast.model import Observation, OperationKind, Phase, Reason, State, Workload
from holdfast.model.calls.cluster import Cleared, Created, Parked, Prepared, Replaced, Reported, Reset
from holdfast.policy.loop import fold as folding
from holdfast.policy.loop.advance import Taken, decisions, step_of
from holdfast.policy.loop.breakable import is_breakable
from holdfast.policy.loop.operations import begin
from holdfast.policy.loop.reset import begin_reset, ended_reset, unsettled
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import Looked, OperationEnd, OperationInterrupted, SourceSeen
from holdfast.policy.values.record import cause
from holdfast.policy.values.steps import End, Interrupt, Run, Sleep, Step


@dataclass(frozen=True, slots=True)
class Begin:
    """Start the operation that the state now records as under way."""

    why: str


@dataclass(frozen=True, slots=True)
class Rest:
    """Wait for an event, at most until `until`."""

    until: datetime | None = None
    why: str = ""
    breaks: bool = False
    """Whether the operation under way is interrupted first: the state already records that."""


@dataclass(frozen=True, slots=True)
class Continue:
    """Begin a new run with this state: the history is full, and no operation is under way."""


@dataclass(frozen=True, slots=True)
class Leave:
    """End the workflow with this outcome: nothing is left to do."""

    outcome: Phase


Act = Begin | Rest | Continue | Leave


@dataclass(frozen=True, slots=True)
class Turn:
    """The result of one turn."""

    taken: tuple[Taken, ...]
    """The decisions, in order."""
    state: State
    step: Step
    """What to carry out, as `advance` returns it."""
    act: Act
    """What the workflow does next."""


def turn(spec: Workload, state: State, now: datetime, *, full: bool) -> Turn:
    """Decide all that can be decided now, and return what the workflow does.

    Args:
        spec: the workload.
        state: its state, with all received events folded in.
        now: the time of the workflow task.
        full: whether the history is so long that a new run is to begin as soon as possible.
    """
    taken = tuple(decisions(spec, state, now))
    state = taken[-1].after
    step = step_of(spec, state, taken[-1].decision, now)
    match step:
        case Run(kind, why):
            if full and is_breakable(spec, state, kind):
                act = Continue()
            else:
                # An operation that cannot be restarted without a trace is not put off: the new run begins after it.
                begun = begin_reset if kind is OperationKind.RESET else begin
                state, act = begun(spec, state, step, now), Begin(why)
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
    """Return the state after the operation under way has returned.

    Args:
        state: the state; returned unchanged if no operation is under way.
        end: what the operation's activity returned, or why it returned nothing; None from a report of an early release.
        now: the time of the workflow task.
    """
    operation = state.operation
    if operation is None:
        return state
    seen = None
    creator = end.creator if isinstance(end, Prepared | Reported) else ""
    if isinstance(end, Reset):
        return ended_reset(state, end, now)
    if isinstance(end, OperationInterrupted) and operation.kind is OperationKind.RESET:
        return unsettled(state)
    match end:
        case Observation():
            end, seen = Looked(untold=end.untold), edit(end, untold=False)
        case Prepared(broken_off=True):
            end = OperationInterrupted(end.borne, end.created.objects if end.created is not None else ())
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
    # After the fold: the operation's own report has told the causes that it added, and not this one.
    state = _named(folding.fold(state, end, now), creator, now)
    return folding.observed(state, seen, operation.since, now) if seen is not None else state


def _named(state: State, creator: str, now: datetime) -> State:
    """Record who created the custom resource, once a worker has read it there (rows F13, X13)."""
    if not creator or state.creator or state.asked is None:
        return state
    text = f"its {state.asked.kind} was created by {creator}"
    return cause(edit(state, creator=creator), Reason.SUBMITTED, text, now)


def _broken_off(state: State) -> State:
    if state.operation is None:
        return state
    return edit(state, operation=edit(state.operation, interrupted=True))
