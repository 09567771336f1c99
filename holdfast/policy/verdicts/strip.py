"""The request to remove finalizers that block a forced removal: when it is allowed, and for which objects."""

from __future__ import annotations

from datetime import datetime

from holdfast import names
from holdfast.model import Attempt, Reason, Remnant, Stage, State, Workload
from holdfast.model.words import shortened
from holdfast.policy.attempt.health import REMOVING
from holdfast.policy.values.addressee import Addressed
from holdfast.policy.values.displayed import displayed
from holdfast.policy.values.edit import edit
from holdfast.policy.values.record import cause


class StripRequest(Addressed):
    """A user's request not to wait for the work that the finalizers stand for (row U2)."""

    note: str = ""


def held(state: State) -> tuple[Remnant, ...]:
    """Return the remnants whose finalizers may be removed: all that have some, except the attempt's owner."""
    attempt = state.attempt
    left = attempt.remnants if attempt is not None else ()
    return tuple(each for each in left if each.finalizers and each.kind != names.ATTEMPT_KIND)


def check_strip(state: State) -> None:
    """Check that finalizers may be removed now.

    Raises:
        ValueError: if not, saying why and what to do.
    """
    state = displayed(state)
    attempt = state.attempt
    if attempt is None or attempt.stage not in REMOVING:
        raise ValueError(
            f"it is {state.phase.value}, and nothing of it is being removed: finalizers are taken off only what a "
            "removal cannot get rid of; suspend or cancel it first"
        )
    if attempt.stage is Stage.REMOVING:
        raise ValueError(
            f"attempt {attempt.number} still has its grace to go by itself: wait until its removal is forced "
            "(`explain` says when), then ask again"
        )
    if attempt.strip:
        raise ValueError(
            f"that has been asked for attempt {attempt.number} already: what still has its finalizer is named by "
            "`explain`, and must be let go by its owner or by hand"
        )
    if not held(state):
        raise ValueError(
            f"no finalizer holds what is left of attempt {attempt.number}: `explain` says what does; there is nothing "
            "to take off"
        )


def stripping(state: State, note: str, now: datetime) -> State:
    """Record the request and the objects it applies to; a request that came after the removal's end does nothing."""
    attempt = state.attempt
    if attempt is None or attempt.stage is not Stage.FORCING or attempt.strip:
        return state
    what = "; ".join(each.sentence() for each in held(state)[:3])
    said = f", as was asked for: {shortened(note)}" if note else ", as was asked for"
    state = edit(state, attempt=edit(attempt, strip=True))
    return cause(state, Reason.FINALIZERS_STRIPPED, f"taking the finalizers off what is left ({what}){said}", now)


def let_go(spec: Workload, state: State, attempt: Attempt, finalizers: str) -> str:
    """Return a message on what must happen before the objects that only finalizers hold are deleted."""
    waits = f"whoever owns the finalizer {finalizers} must finish"
    if attempt.strip:
        return f"finalizers are being taken off, as was asked for; where that is refused, {waits}"
    if attempt.stage is not Stage.FORCING or not held(state):
        return f"{waits}, or it must be removed by hand"
    command = f"`holdfast strip-finalizers {spec.namespace}/{spec.name}`"
    return f"{waits}; if it never does, {command} takes the finalizer off without that cleanup"
