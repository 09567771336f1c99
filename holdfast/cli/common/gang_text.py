"""Text about an elastic gang: its round, its members, the restarts charged to them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from holdfast.model.gang.status import GangPhase, GangStatus

_NAMED: Final = 3
_BEGAN: Final = "it began because "


def gang(told: GangStatus) -> str:
    """Describe a gang, one fact a line: its round; the members that are not in it, and why; the charged restarts."""
    fixed = told.min == told.max
    size = str(told.max) if fixed else f"{told.min} to {told.max}"
    if told.closed is not None:
        first, began = f"closed after round {told.round}: {told.closed.value}", ""
    elif told.phase is GangPhase.FORMING:
        first, began = f"round {told.round + 1} forms: {told.present} of {size} members are there", "it forms because "
    else:
        members = f"of {size} members" if fixed else f"members ({size} allowed)"
        first, began = f"round {told.round} is {told.phase.value.lower()} with {told.participants} {members}", _BEGAN
    lines = [first]
    if told.why:
        lines.append(f"{began}{told.why}")
    if told.due is not None and told.closed is None:
        lines.append(f"at {_clock(told.due)}: {told.next}")
    apart = [f"{name} ({why})" for name, why in told.absent.items()]
    if told.waiting:
        lines.append(f"waiting for a place: {_listed(list(told.waiting))}")
    if apart and told.closed is None:
        lines.append(f"not there: {_listed(apart)}")
    charged = [f"{name} {number}" for name, number in told.charged.items()]
    left = [f"{role} {one.remaining_restarts}" for role, one in told.roles.items()]
    if charged:
        lines.append(f"restarts used: {_listed(charged)}; least left by role: {', '.join(left)}")
    if not told.hub and told.closed is None:
        lines.append("nobody serves it: does a worker of its cluster take gangs (`holdfast worker --help`)?")
    return "\n".join(lines)


def _listed(words: list[str]) -> str:
    more = len(words) - _NAMED
    return ", ".join(words[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _clock(at: datetime) -> str:
    return f"{at.astimezone(UTC):%H:%M:%S} UTC"
