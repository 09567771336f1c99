"""A workload's side of its elastic gang: when its rendezvous begins, ends or is resized, and how its outcome counts.

The rendezvous decides the outcome of the rounds (`rendezvous.py`). The workload receives one of three: the gang
succeeded, it failed, or it had a loss that the workload itself must make good (decision record 0030).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final

from pydantic import ConfigDict, Field, ValidationError

from holdfast.model import Attempt, Failure, FailureClass, Meeting, Phase, Reason, Scope, Stage, State, Workload
from holdfast.model.gang.orders import GangEnding
from holdfast.model.gang.state import MEMBERS_MAXIMUM, Gang
from holdfast.model.gang.status import CloseReason
from holdfast.model.observation import ITS_GANG
from holdfast.model.words import counted, shortened
from holdfast.policy.failures.told import is_decided
from holdfast.policy.sides.demand import check_growth
from holdfast.policy.values.addressee import Addressed
from holdfast.policy.values.edit import edit
from holdfast.policy.values.events import GangBegun, GangParted, GangResized, GangScaled, GangTold, GangUnsized
from holdfast.policy.values.record import cause

REASONS: Final[Mapping[CloseReason, Reason]] = {
    CloseReason.RESTARTS_EXHAUSTED: Reason.MAX_RESTARTS_EXHAUSTED,
    CloseReason.ROUNDS_EXHAUSTED: Reason.MAX_ROUNDS_EXHAUSTED,
    CloseReason.EXIT_BARRIER_TIMEOUT: Reason.EXIT_BARRIER_TIMEOUT,
    CloseReason.JOIN_TIMEOUT: Reason.JOIN_TIMEOUT,
    CloseReason.MEMBER_FAILED: Reason.MEMBER_FAILED,
    CloseReason.MEMBER_LOST: Reason.MEMBER_LOST,
}
"""The workload's `Reason` for each way a gang fails; a close reason that is left out is no failure."""
_PASSING: Final = frozenset({FailureClass.NO_PROGRESS, FailureClass.PROBE})
"""Classes of failures told of an attempt that may pass while the attempt lives on."""


class GangScale(Addressed):
    """A new size for the gang of a running workload."""

    max: Annotated[int, Field(ge=1, le=MEMBERS_MAXIMUM)]
    """The most members that a round has from now on."""
    min: Annotated[int | None, Field(ge=1, le=MEMBERS_MAXIMUM)] = None
    """The fewest members with which it still runs; None: as before, or `max` if that is less."""
    note: str = ""

    # Unknown fields are allowed here so that `scaled` can refuse them with a message. A decoding error has none.
    model_config = ConfigDict(extra="allow")


def met(spec: Workload) -> Meeting | None:
    """Return the initial gang state of an attempt that begins now; None for a workload without a gang."""
    return Meeting(gang=spec.gang) if spec.gang is not None else None


def beginning(state: State) -> Attempt | None:
    """Return the attempt to announce to the rendezvous, once there are pods that could meet."""
    attempt = state.attempt
    if attempt is None or attempt.meeting is None or attempt.meeting.begun or state.outcome is not None:
        return None
    return attempt if attempt.stage is Stage.SUBMITTED else None


def parting(state: State) -> Attempt | None:
    """Return the attempt whose end to announce to the rendezvous: it is removed, or the outcome is settled.

    After a success, pods that start later are told there to end: so it waits until no pod can come any more.
    """
    attempt = state.attempt
    if attempt is None or attempt.meeting is None or attempt.meeting.ended or not attempt.meeting.begun:
        return None
    going = attempt.stage in {Stage.REMOVING, Stage.FORCING, Stage.GONE}
    waits = state.outcome is Phase.SUCCEEDED and state.shows_waits and not _is_idle(state, attempt)
    return attempt if going or (state.outcome is not None and not waits) else None


def _is_idle(state: State, attempt: Attempt) -> bool:
    """Whether all objects of an attempt are seen to have ended or to be gone, with all of its pods."""
    seen = state.observation
    if seen is None or seen.attempt != attempt.number or seen.occupies:
        return False
    return all(one.complete or one.failed or not one.found for one in seen.components.values())


def resizing(spec: Workload, state: State) -> Attempt | None:
    """Return the attempt whose Job and rendezvous must be resized to the gang's current size."""
    attempt = state.attempt
    if attempt is None or attempt.meeting is None or state.outcome is not None or attempt.stage is not Stage.SUBMITTED:
        return None
    if attempt.making or attempt.parking is not None or not attempt.meeting.begun or spec.gang is None:
        return None
    return attempt if attempt.meeting.gang != spec.gang else None


def scaled(spec: Workload, state: State, change: GangScale) -> Workload:
    """Return the workload with a gang of the requested size.

    Raises:
        ValueError: if it has no gang, cannot have that size, or has ended; saying what is expected.
    """
    for name in change.model_extra or ():
        raise ValueError(f"{name}: expected one of max, min, note")
    if spec.gang is None:
        raise ValueError("it has no gang: expected a workload with `gang`, whose size may change while it runs")
    if state.outcome is not None or state.intent.cancel:
        what = state.outcome.value if state.outcome is not None else "being deleted"
        raise ValueError(f"it is {what}: nothing of it runs any longer")
    least = change.min if change.min is not None else min(spec.gang.min, change.max)
    try:
        return spec.resized(least, change.max)
    except ValidationError as error:
        raise ValueError("; ".join(each["msg"].removeprefix("Value error, ") for each in error.errors())) from None


def check_scale(spec: Workload, state: State, change: GangScale) -> None:
    """Check a new size before it is accepted.

    It is stricter than `scaled`, which also reads what earlier releases have accepted.

    Raises:
        ValueError: as `scaled` does, and if its queue has admitted less.
    """
    check_growth(f"max: {change.max}", spec, scaled(spec, state, change), state)


def unsized(spec: Workload, state: State, event: GangUnsized) -> Workload:
    """Return the workload with the size that its gang keeps after a refusal, unless another was requested meanwhile."""
    attempt = state.attempt
    if attempt is None or attempt.meeting is None or attempt.number != event.attempt or spec.gang != event.gang:
        return spec
    kept = attempt.meeting.gang
    return spec.resized(kept.min, kept.max)


def on_gang_event(
    state: State,
    event: GangTold | GangBegun | GangParted | GangScaled | GangResized | GangUnsized,
    now: datetime,
) -> State:
    """Return the state after an event about its gang, from the rendezvous or a user."""
    attempt = state.attempt
    if isinstance(event, GangScaled):
        gang = event.gang
        text = f"the gang is to have {size_of(gang)}"
        return cause(state, Reason.SCALED, shortened(f"{event.note}: {text}" if event.note else text), now)
    if attempt is None or attempt.meeting is None or event.attempt != attempt.number:
        return edit(state, dropped=state.dropped + 1)
    meeting = attempt.meeting
    match event:
        case GangBegun():
            return edit(state, attempt=edit(attempt, meeting=edit(meeting, begun=True)))
        case GangParted():
            return edit(state, attempt=edit(attempt, meeting=edit(meeting, ended=True)))
        case GangResized(_, gang, members):
            if state.shows_waits and members and gang.min > meeting.gang.min:
                # The pods that it needs from now on have their graces, as if the component had been made again.
                attempt = edit(attempt, warming={**attempt.warming, members: now})
            return edit(state, attempt=edit(attempt, meeting=edit(meeting, gang=gang)))
        case GangUnsized(why=why):
            return cause(state, Reason.SCALED, shortened(f"the gang keeps its size: {why}"), now)
        case GangTold():
            return _came_to(state, attempt, meeting, event, now)


def _came_to(state: State, attempt: Attempt, meeting: Meeting, event: GangTold, now: datetime) -> State:
    """Record a gang's outcome: its success, or a failure on which the rules decide (rows T4, T9).

    A gang says it once, so it is not lost to a failure that may be withdrawn, or that one component's restart ends.
    """
    live = attempt.stage in {Stage.PREPARED, Stage.SUBMITTED}
    came, told = event.outcome, attempt.told
    passing = came.ending is GangEnding.SUCCEEDED or (told is not None and told.cls in _PASSING)
    late = is_decided(state) and not (state.shows_waits and passing)
    if not live or state.outcome is not None or late or meeting.succeeded:
        return edit(state, dropped=state.dropped + 1)
    if came.ending is GangEnding.SUCCEEDED:
        why = shortened(came.why) or "all of its members have succeeded"
        return edit(state, attempt=edit(attempt, meeting=edit(meeting, succeeded=why)))
    lost = came.ending is GangEnding.LOST
    reason = REASONS.get(came.reason, Reason.MEMBER_LOST if lost else Reason.MEMBER_FAILED)
    failure = Failure(
        cls=FailureClass.NODE_LOST if lost else FailureClass.APP,
        scope=Scope.MEMBER if lost else Scope.COMPONENT,
        reason=reason,
        time=now,
        subject=came.member or ITS_GANG,
        node=came.node,
        exit_code=came.failure.exit_code if came.failure is not None else None,
        message=shortened(f"{came.reason.value}: {came.why}"),
        attempt=attempt.number,
    )
    state = edit(state, attempt=edit(attempt, told=failure))
    return cause(state, reason, failure.sentence(), now)


def size_of(gang: Gang) -> str:
    """Return the size of a gang in words: `2 to 4 members`, `2 to 4 members and 1 spare`."""
    text = f"{gang.min} to {gang.max} members" if gang.min != gang.max else counted(gang.max, "member")
    return text + (f" and {counted(gang.spares, 'spare')}" if gang.spares else "")
