"""Who of a gang is heard by its hub, since when, and whose silence counts (record 0030, row T9).

Nobody is silent to a hub before it has listened for a whole keep-alive. Time in which its own process stood still is no
silence, nor is any while half of the gang or more is silent at once: then it is more likely deaf itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

STALL: Final = timedelta(seconds=1)
"""A pause between two ticks that is beyond what a busy process takes: it stood still."""


@dataclass(slots=True)
class Hearing:
    """Hears one gang. `at` is a clock that only goes on, in seconds."""

    keep_alive: timedelta
    since: float
    """Since when it listens without a break."""
    ticked: float
    heard: dict[str, float] = field(default_factory=dict[str, float])
    """When each was heard last, each stretch in which nobody could be heard added."""

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
        return timedelta(seconds=gap)

    def speaks(self, member: str, at: float) -> None:
        """A member has been heard, or is waiting for an answer."""
        self.heard[member] = at

    def silent(self, members: Iterable[str], at: float) -> tuple[str, ...]:
        """Return who of these has been silent for the keep-alive; nobody while it cannot be told."""
        span, given = self.keep_alive.total_seconds(), tuple(members)
        quiet = tuple(one for one in given if at - max(self.heard.get(one, self.since), self.since) >= span)
        return quiet if 2 * len(quiet) < len(given) else ()
