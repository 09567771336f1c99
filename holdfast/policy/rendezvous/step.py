"""One step of a rendezvous: what is told by agents, hub and workload becomes rounds, and what each member is to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from holdfast.model.gang.state import Gang, GangEvent, GangState, Listening
from holdfast.model.gang.wire import Directive
from holdfast.policy.rendezvous.errors import curt
from holdfast.policy.rendezvous.members import taken
from holdfast.policy.rendezvous.orders import directives
from holdfast.policy.rendezvous.rounds import GangDeadline, deadlines, settled
from holdfast.policy.values.edit import edit


class Step(NamedTuple):
    """What came of some events."""

    state: GangState
    directives: Mapping[str, Directive]
    """Those that are others than before, by member."""
    deadlines: tuple[GangDeadline, ...]
    """What falls due if nobody says anything, the earliest first."""


def begun(gang: Gang, run_id: str, attempt: int, now: datetime) -> GangState:
    """Return the state of a rendezvous that nobody has joined yet."""
    return GangState(gang=gang, run_id=run_id, attempt=attempt, began=now)


def step(state: GangState, events: Iterable[GangEvent], now: datetime) -> Step:
    """Return what comes of events that were told together, and of the time.

    What was told together is judged together: a loss explains the failures of those who met the lost member, and of
    several failures the earliest is charged. Nothing fails by a deadline unless the gang is being listened to.
    """
    after, heard = state, False
    for event in events:
        after = taken(after, event, now)
        if isinstance(event, Listening):
            heard = now - event.since >= state.gang.keep_alive
    after = curt(settled(after, now, heard=heard))
    before = directives(state)
    changed = {name for name, one in directives(after).items() if before.get(name) != one}
    if changed:
        number = after.revision + 1
        members = {name: edit(one, revision=number) if name in changed else one for name, one in after.members.items()}
        after = edit(after, members=members, revision=number)
    told = directives(after)
    return Step(after, {name: told[name] for name in told if name in changed}, deadlines(after))
