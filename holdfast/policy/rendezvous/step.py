"""One step of a rendezvous: events from agents, hub and workload become rounds, and directives for members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from holdfast.model.gang.state import Gang, GangEvent, GangState, Listening
from holdfast.model.gang.wire import Directive
from holdfast.policy.rendezvous.errors import with_short_errors
from holdfast.policy.rendezvous.members import taken
from holdfast.policy.rendezvous.orders import directives
from holdfast.policy.rendezvous.rounds import GangDeadline, deadlines, settled
from holdfast.policy.values.edit import edit


class Step(NamedTuple):
    """The result of a step."""

    state: GangState
    directives: Mapping[str, Directive]
    """The directives that have changed, by member."""
    deadlines: tuple[GangDeadline, ...]
    """The deadlines that apply without a further event, the earliest first."""


def begun(gang: Gang, run_id: str, attempt: int, now: datetime) -> GangState:
    """Return the state of a rendezvous that no member has joined yet."""
    return GangState(gang=gang, run_id=run_id, attempt=attempt, began=now)


def step(state: GangState, events: Iterable[GangEvent], now: datetime) -> Step:
    """Return the result of events that were sent together, and of the time.

    Events that were sent together are judged together: a loss explains the failures of the lost member's peers, and of
    several failures the earliest is charged. Nothing fails by a deadline unless the hub listens to the gang.
    """
    after, heard = state, False
    for event in events:
        after = taken(after, event, now)
        if isinstance(event, Listening):
            heard = now - event.since >= state.gang.keep_alive
    after = with_short_errors(settled(after, now, heard=heard))
    before = directives(state)
    changed = {name for name, one in directives(after).items() if before.get(name) != one}
    if changed:
        number = after.revision + 1
        members = {name: edit(one, revision=number) if name in changed else one for name, one in after.members.items()}
        after = edit(after, members=members, revision=number)
    told = directives(after)
    return Step(after, {name: told[name] for name in told if name in changed}, deadlines(after))
