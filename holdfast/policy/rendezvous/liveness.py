"""Who of a gang is heard by its hub, since when, and whose silence is a loss (records 0030 and 0043, rows T9, D4).

A member's silence for the keep-alive is a loss if there is evidence for it: this hub hears other members meanwhile and
reaches the rendezvous, or the cluster says that the pod or its node is gone. How many are silent does not matter. A hub
that hears nobody may itself be cut off: it declares nobody lost by silence alone. Nobody is silent to a hub before it
has listened for a whole keep-alive. Time in which its own process stood still is no silence.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

STALL: Final = timedelta(seconds=1)
"""A pause between two ticks that is beyond what a busy process takes: it stood still."""


@dataclass(slots=True)
class Hearing:
    """Hears one gang. `at` is a clock that only goes on, in seconds."""

    keep_alive: timedelta
    heartbeat: timedelta
    """How often each member speaks."""
    since: float
    """Since when it listens without a break."""
    ticked: float
    heard: dict[str, float] = field(default_factory=dict[str, float])
    """When each was heard last, each stretch in which nobody could be heard added."""
    reached: float | None = None
    """When the rendezvous answered last; None: that is not followed."""

    def tick(self, at: float) -> timedelta:
        """Let time go on; return for how long this process stood still, if it did.

        To be called several times a second. That time is counted to nobody's silence, and not as listening.
        """
        gap = at - self.ticked
        self.ticked = at
        if gap < STALL.total_seconds():
            return timedelta(0)
        self.heard = {member: when + gap for member, when in self.heard.items()}
        self.since += gap
        if self.reached is not None:
            self.reached += gap
        return timedelta(seconds=gap)

    def speaks(self, member: str, at: float) -> None:
        """A member has been heard, or is waiting for an answer."""
        self.heard[member] = at

    def reaches(self, at: float) -> None:
        """The rendezvous has answered."""
        self.reached = at

    def quiet(self, members: Iterable[str], at: float) -> tuple[str, ...]:
        """Return which of these have not been heard for the keep-alive, whatever the reason."""
        span = self.keep_alive.total_seconds()
        return tuple(one for one in members if at - max(self.heard.get(one, self.since), self.since) >= span)

    def silent(self, members: Iterable[str], at: float, doomed: Collection[str] = ()) -> tuple[str, ...]:
        """Return which of these are lost: silent for the keep-alive, with evidence that it is their silence.

        Args:
            members: who should be heard.
            at: now.
            doomed: of whom the cluster says that the pod or its node is gone, or about to go.
        """
        given = tuple(members)
        away = at - self.reached if self.reached is not None else 0.0
        if away >= self.keep_alive.total_seconds():
            # It was cut off from the rendezvous, and most likely from the agents: it listens anew from now on.
            self.since = max(self.since, at)
        quiet = self.quiet(given, at)
        if quiet and away <= 2 * self.heartbeat.total_seconds() and self._hears(set(given).difference(quiet), at):
            return quiet
        return tuple(one for one in quiet if one in doomed)

    def _hears(self, members: Iterable[str], at: float) -> bool:
        """Whether this hub is not cut off itself: it has heard one of these just now.

        Just now is half a heartbeat, and a keep-alive is two heartbeats at least: a member that is silent for the
        keep-alive had missed its heartbeat before this hub could have been cut off.
        """
        fresh = self.heartbeat.total_seconds() / 2
        return any(at - self.heard.get(one, -math.inf) <= fresh for one in members)
