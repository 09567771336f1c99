"""Tracks which kinds cannot be seen, since when, and whom to tell once it is over. Pure: callers pass time."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.policy.failures.blindness import SHORTEST
from holdfast.worker.watch.feeds import CORE
from holdfast.worker.watch.seen import KindKey


class Darkness:
    """The kinds that cannot be seen; very short spans are ignored.

    After an outage of the API server the streams come back at different times. An attempt that uses several of them is
    told once, when the last of them is back.
    """

    def __init__(self) -> None:
        """Start with every kind visible."""
        self.since: dict[KindKey, float] = {}
        """When each kind that cannot be seen now was lost."""
        self._back: set[KindKey] = set()
        self._owed: set[KindKey] = set()

    def turn(self, dark: Collection[KindKey], now: float) -> tuple[set[KindKey], dict[KindKey, float]]:
        """Update the kinds that cannot be seen now.

        Returns:
            The newly lost kinds, and the kinds that are back, each with its seconds of blindness.
        """
        if not self.since:
            self._owed.clear()
        new = set(dark) - self.since.keys()
        self.since |= dict.fromkeys(new, now)
        back = {kind: now - self.since.pop(kind) for kind in self.since.keys() - set(dark)}
        self._back = set(back)
        self._owed |= {kind for kind, spent in back.items() if spent >= SHORTEST.total_seconds()}
        return new, back

    @property
    def lifted(self) -> bool:
        """Whether, since the last turn, somebody may have to be told that a blindness is over."""
        return bool(self._back and self._owed)

    def is_over_for(self, kinds: Collection[KindKey]) -> bool:
        """Whether the last turn made visible again everything that an attempt with these kinds depends on."""
        own = CORE | set(kinds)
        return bool(own & self._back and own & self._owed) and not own & self.since.keys()
