"""Which of two agents of one member is the later one: by the hub's observations, not by clocks (row D56). Pure.

An agent that is new to the hub came later than one that the hub has heard. Each later agent has a higher `life`, which
goes to the rendezvous with its posts. The start time that an agent sends decides only if a hub has heard neither agent
(it has just begun).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from holdfast.model.gang.orders import Holder
from holdfast.model.gang.wire import Join

KEPT: Final = 8
"""How many agents of one member are remembered."""


@dataclass(slots=True)
class Lives:
    """Numbers the agents of each member in the order of their arrival."""

    keep_alive: float
    """Seconds."""
    since: float
    """The time on the hub's clock at which it began."""
    known: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    """The lives of the agents that were heard, by member and incarnation."""

    def hears(self, join: Join, holder: Holder | None, at: float) -> int | None:
        """Return the life of the agent that posts; None while it cannot be determined.

        Args:
            join: the agent that posts.
            holder: the holder of the member's place, as the rendezvous knows it.
            at: the current time.
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
        """Return the life of an agent, if the agent was heard."""
        return self.known.get(join.member, {}).get(join.incarnation)

    def _of(self, join: Join, holder: Holder | None, known: dict[str, int], at: float) -> int | None:
        if holder is not None and holder.incarnation == join.incarnation:
            return holder.life
        last = max([*known.values(), holder.life if holder is not None else -1])
        if known or holder is None or join.started_at > holder.started_at:
            # An agent that was heard, or is known to hold the place, came before this one.
            return last + 1
        # This hub has heard neither agent: if the holder lives, it posts before a keep-alive is over.
        return last + 1 if at - self.since >= self.keep_alive else None
