"""Which of two agents of one member is the later one: by the hub's own sight, not by clocks (row D56). Pure.

An agent that the hub has not heard before came later than one that it has. Each later agent has a higher `life`, which
goes to the rendezvous with what it says. Only where a hub has heard neither before (it has just begun) is the time
believed at which an agent says that it began.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from holdfast.model.gang.orders import Holder
from holdfast.model.gang.wire import Join

KEPT: Final = 8
"""Agents of one member that are remembered."""


@dataclass(slots=True)
class Lives:
    """Numbers the agents of each member in the order in which they came."""

    keep_alive: float
    """Seconds."""
    since: float
    """When the hub began, on its clock."""
    known: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    """By member and incarnation, the lives of the agents that were heard."""

    def hears(self, join: Join, holder: Holder | None, at: float) -> int | None:
        """Return which life of its member speaks; None while that cannot be told.

        Args:
            join: who speaks.
            holder: who holds the member's place, as the rendezvous knows it.
            at: now.
        """
        known = self.known.setdefault(join.member, {})
        if join.incarnation not in known:
            life = self._of(join, holder, known, at)
            if life is None:
                return None
            known[join.incarnation] = life
            if len(known) > KEPT:
                del known[min(known, key=known.__getitem__)]
        return known[join.incarnation]

    def of(self, join: Join) -> int | None:
        """Return which life of its member an agent is, if it was heard."""
        return self.known.get(join.member, {}).get(join.incarnation)

    def _of(self, join: Join, holder: Holder | None, known: dict[str, int], at: float) -> int | None:
        if holder is not None and holder.incarnation == join.incarnation:
            return holder.life
        last = max([*known.values(), holder.life if holder is not None else -1])
        if known or holder is None or join.started_at > holder.started_at:
            # Whoever was heard, or is known to hold the place, was there before.
            return last + 1
        # This hub has heard neither: if the holder lives, it is heard before a keep-alive is over.
        return last + 1 if at - self.since >= self.keep_alive else None
