"""Which members of a gang the hub hears, since when, and whose silence is a loss (records 0030 and 0043, rows T9, D4).

A member's silence for the keep-alive is a loss if there is evidence for it: this hub hears other members meanwhile and
reaches the rendezvous, or the cluster says that the pod or its node is gone. The number of silent members does not
matter. A hub that hears no member may itself be cut off: it declares none lost by silence alone. No member counts as
silent before the hub has listened for a whole keep-alive. Time in which its own process stood still is no silence.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

STALL: Final = timedelta(seconds=1)
"""A pause between two ticks that is too long for a busy process: the process stood still."""


@dataclass(slots=True)
class Hearing:
    """Tracks when the members of one gang are heard. `at` is a monotonic clock in seconds."""

    keep_alive: timedelta
    heartbeat: timedelta
    """How often each member posts."""
    since: float
    """The time since which it has listened without a break."""
    ticked: float
    heard: dict[str, float] = field(default_factory=dict[str, float])
    """When each member was last heard, plus each pause since in which none could be heard."""
    reached: float | None = None
    """When the rendezvous last answered; None: this is not tracked."""

    def tick(self, at: float) -> timedelta:
        """Advance the clock; return how long this process stood still, if it did.

        Call it several times a second. That time counts neither as a member's silence nor as listening.
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
        """Note that a member has been heard, or is waiting for an answer."""
        self.heard[member] = at

    def reaches(self, at: float) -> None:
        """Note that the rendezvous has answered."""
        self.reached = at

    def quiet(self, members: Iterable[str], at: float) -> tuple[str, ...]:
        """Return the members that have not been heard for the keep-alive, whatever the reason."""
        span = self.keep_alive.total_seconds()
        return tuple(one for one in members if at - max(self.heard.get(one, self.since), self.since) >= span)

    def silent(self, members: Iterable[str], at: float, doomed: Collection[str] = ()) -> tuple[str, ...]:
        """Return the lost members: silent for the keep-alive, with evidence that the fault is theirs and not the hub's.

        Args:
            members: the members that should be heard.
            at: the current time.
            doomed: the members whose pod or node is gone or about to go, according to the cluster.
        """
        given = tuple(members)
        away = at - self.reached if self.reached is not None else 0.0
        if away >= self.keep_alive.total_seconds():
            # It was cut off from the rendezvous, and most likely from the agents: its listening starts again now.
            self.since = max(self.since, at)
        quiet = self.quiet(given, at)
        if quiet and away <= 2 * self.heartbeat.total_seconds() and self._hears(set(given).difference(quiet), at):
            return quiet
        return tuple(one for one in quiet if one in doomed)

    def _hears(self, members: Iterable[str], at: float) -> bool:
        """Whether this hub is not cut off itself: it has heard one of these members just now.

        "Just now" is half a heartbeat, and a keep-alive is at least two heartbeats: a member that is silent for the
        keep-alive had missed its heartbeat before this hub could have been cut off.
        """
        fresh = self.heartbeat.total_seconds() / 2
        return any(at - self.heard.get(one, -math.inf) <= fresh for one in members)
