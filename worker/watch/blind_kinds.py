"""Which kinds cannot be seen, since when, and who is to hear of it once it is over. Pure: time is given to it."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.worker.watch.cache import KindKey
from holdfast.worker.watch.feeds import CORE, SHORTEST_BLINDNESS


class Darkness:
    """The kinds that cannot be seen; a blink is let pass.

    After an outage of the API server the streams come back at different times. Whoever rests on several of them hears
    of it once, when the last of these is back.
    """

    def __init__(self) -> None:
        """Begin with all to be seen."""
        self.since: dict[KindKey, float] = {}
        """When each of the kinds was lost sight of that cannot be seen now."""
        self._back: set[KindKey] = set()
        self._owed: set[KindKey] = set()

    def turn(self, dark: Collection[KindKey], now: float) -> tuple[set[KindKey], dict[KindKey, float]]:
        """Take in which kinds cannot be seen now.

        Returns:
            Which of them could be seen before, and for how many seconds those could not that can be seen again.
        """
        if not self.since:
            self._owed.clear()
        new = set(dark) - self.since.keys()
        self.since |= dict.fromkeys(new, now)
        back = {kind: now - self.since.pop(kind) for kind in self.since.keys() - set(dark)}
        self._back = set(back)
        self._owed |= {kind for kind, spent in back.items() if spent >= SHORTEST_BLINDNESS}
        return new, back

    @property
    def lifted(self) -> bool:
        """Whether somebody may have to hear, since the last turn, that it is over."""
        return bool(self._back and self._owed)

    def is_over_for(self, kinds: Collection[KindKey]) -> bool:
        """Whether, with the last turn, all can be seen again that somebody with these kinds rests on."""
        own = CORE | set(kinds)
        return bool(own & self._back and own & self._owed) and not own & self.since.keys()
