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


class Alone(NamedTuple):
    """What a rule restarts alone: a component, or one copy of it."""

    component: str
    copy: int | None = None

    @property
    def key(self) -> str:
        """Identifies it within its workload."""
        return self.component if self.copy is None else f"{self.component}/{self.copy}"

    def title(self, spec: Workload) -> str:
        """Return its display name."""
        of_copy = f"copy {self.copy} of " if self.copy is not None else ""
        return f"{of_copy}{spec.titles([self.component])}"


def pointless(spec: Workload, state: State, failure: Failure, alone: Alone | None = None) -> Fail | None:
    """Return the end of a workload that would only fail again; None if it may restart.

    Args:
        spec: the workload.
        state: its state.
        failure: the failure that would restart it.
        alone: what would be restarted alone; None: the whole workload.
    """
    found = hopeless(spec, state, failure, alone)
    return Fail(found.reason, failure, f"{found.why}: {failure.sentence()}") if found is not None else None


def hopeless(spec: Workload, state: State, failure: Failure, alone: Alone | None = None) -> Hopeless | None:
    """Return why a workload would only fail again; None if it may restart."""
    rules = spec.progress
    if rules is None:
        return None
    fall = fallen(spec, state, failure, alone)
    if fall is not None and fall.times >= rules.poison_limit:
        what = alone.title(spec) if alone is not None else "it"
        why = f"{what} has failed at step {fall.step:,} {counted(fall.times, 'time')} in a row"
        return Hopeless(Reason.POISON_STEP, why)
    # Runs of earlier releases count attempts alone.
    in_place = state.restarts_in_place if state.shows_waits else 0
    again = _restarts_of(state, alone) if alone is not None else 0
    if state.executions + in_place + again >= rules.executions:
        begun = [counted(state.executions, "attempt")]
        begun += [f"{counted(in_place, 'restart')} in place"] if in_place else []
        begun += [f"{counted(again, 'restart')} of {alone.title(spec)} alone"] if alone is not None and again else []
        why = f"it has begun {' and '.join(begun)}, as many as progress.executions allows"
        return Hopeless(Reason.EXECUTIONS_EXCEEDED, why)
    return None


def fallen(spec: Workload, state: State, failure: Failure, alone: Alone | None = None) -> Fall | None:
    """Return the step at which the program has failed now, and how many times in a row.

    None if the step is not known exactly, or the failure is not the program's own: such a failure counts neither way.
    Several components that fail at one step are one failure: what is restarted alone must itself fail again.
    """
    step, last = _step_of(state, failure, alone) if spec.progress is not None else None, state.fall
    if step is None:
        return None
    key = alone.key if alone is not None else ""
    again = last is not None and (last.step, last.alone) == (step, key)
    return Fall(step=step, times=last.times + 1 if last is not None and again else 1, alone=key)


def after(spec: Workload, state: State, failure: Failure) -> State:
    """Return the state after a restart for this failure."""
    fall = fallen(spec, state, failure)
    return state if fall is None else edit(state, fall=fall)


def _restarts_of(state: State, alone: Alone) -> int:
    """Return how often it was made again alone: a copy in all attempts, a component in the living one."""
    attempt = state.attempt
    if alone.copy is not None:
        known = state.copy_restarts.get(alone.component, {}).get(alone.copy)
        return known.restarts if known is not None else 0
    return attempt.ruled.get(alone.component, 0) if attempt is not None else 0


def _is_of(alone: Alone, failure: Failure, component: str, subject: str) -> bool:
    """Whether an object, or a pod of it, is part of what the failure would restart alone."""
    own = alone.copy is None or f"{subject}-".startswith(f"{failure.subject}-")
    return own and component == alone.component


def _step_of(state: State, failure: Failure, alone: Alone | None) -> int | None:
    """Return the step at which the program failed, if it is known exactly.

    What the worker has read may be minutes old for a program that died; one that stood still was read to the end.
    """
    if failure.cls not in _PROGRAMS_OWN:
        return None
    if failure.cls is FailureClass.NO_PROGRESS:
        steps = state.steps
        return steps.step if steps is not None and steps.attempt == failure.attempt else None
    seen = current(state)
    others = seen.failures if seen is not None else ()
    deaths = [(one.component, one.subject, one.message) for one in (failure, *others)]
    if failure.death is not None:
        deaths.append((failure.component, failure.death.pod, failure.death.message))
    if alone is not None:
        deaths = [death for death in deaths if _is_of(alone, failure, *death[:2])]
    messages = [message for _, _, message in deaths]
    steps_told = [int(found[1]) for text in messages if (found := _TOLD.match(text)) is not None]
    return max((step for step in steps_told if step <= STEP_MAXIMUM), default=None)
