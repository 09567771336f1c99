"""Decides when trying again is pointless: a step at which the program always fails, or too many attempts (row P4)."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from holdfast.model import Failure, FailureClass, Reason, State, Workload
from holdfast.model.life.progress import STEP_MAXIMUM, Fall
from holdfast.model.words import counted
from holdfast.policy.attempt.health import current
from holdfast.policy.values.decision import Fail
from holdfast.policy.values.edit import edit

_PROGRAMS_OWN: Final = frozenset({FailureClass.APP, FailureClass.NO_PROGRESS})
"""Failures of the program itself: a node that is lost says nothing about the step."""
_TOLD: Final = re.compile(r"step ([0-9]{1,16})\b")
"""What a program leaves as its termination message (`holdfast.progress`)."""


class Hopeless(NamedTuple):
    """Why a workload would only fail again, as a reason and in words."""

    reason: Reason
    why: str


def pointless(spec: Workload, state: State, failure: Failure) -> Fail | None:
    """Return the end of a workload that would only fail again; None if it may restart.

    Args:
        spec: the workload.
        state: its state.
        failure: the failure that would restart it.
    """
    found = hopeless(spec, state, failure)
    return Fail(found.reason, failure, f"{found.why}: {failure.sentence()}") if found is not None else None


def hopeless(spec: Workload, state: State, failure: Failure) -> Hopeless | None:
    """Return why a workload would only fail again; None if it may restart."""
    rules = spec.progress
    if rules is None:
        return None
    fall = fallen(state, failure)
    if fall is not None and fall.times >= rules.poison_limit:
        why = f"it has failed at step {fall.step:,} {counted(fall.times, 'time')} in a row"
        return Hopeless(Reason.POISON_STEP, why)
    if state.executions >= rules.executions:
        begun = counted(state.executions, "attempt")
        return Hopeless(Reason.EXECUTIONS_EXCEEDED, f"it has begun {begun}, as many as progress.executions allows")
    return None


def fallen(state: State, failure: Failure) -> Fall | None:
    """Return the step at which the program has failed now, and how many times in a row.

    None if the step is not known exactly, or the failure is not the program's own: such a failure counts neither way.
    """
    step, last = _step_of(state, failure), state.fall
    if step is None:
        return None
    return Fall(step=step, times=last.times + 1 if last is not None and last.step == step else 1)


def after(spec: Workload, state: State, failure: Failure) -> State:
    """Return the state after a restart for this failure."""
    fall = fallen(state, failure) if spec.progress is not None else None
    return state if fall is None else edit(state, fall=fall)


def _step_of(state: State, failure: Failure) -> int | None:
    """Return the step at which the program failed, if it is known exactly.

    What the worker has read may be minutes old for a program that died; one that stood still was read to the end.
    """
    if failure.cls not in _PROGRAMS_OWN:
        return None
    if failure.cls is FailureClass.NO_PROGRESS:
        steps = state.steps
        return steps.step if steps is not None and steps.attempt == failure.attempt else None
    seen = current(state)
    deaths = [failure, *(seen.failures if seen is not None else ())]
    messages = [one.message for one in deaths] + ([failure.death.message] if failure.death is not None else [])
    steps_told = [int(found[1]) for text in messages if (found := _TOLD.match(text)) is not None]
    return max((step for step in steps_told if step <= STEP_MAXIMUM), default=None)
