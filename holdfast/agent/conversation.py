"""What is true of a member, said until it is heard, and again as long as it is true: announcements and heartbeat."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from holdfast.agent.hub import Refused, Unreachable
from holdfast.agent.machine import Event, Told
from holdfast.agent.machine import Refused as RefusedEvent
from holdfast.agent.messages import PROTOCOL, Directive, Report, instant

_log = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 0.1
_HELD_MAXIMUM: Final = 30.0
_BEAT_MINIMUM: Final = 0.05
_PAUSE_MAXIMUM: Final = 5.0


class Exchange(Protocol):
    """Posts an announcement and returns the directive: `Hub.exchange`."""

    async def __call__(self, announcement: Mapping[str, Any], held: float = 0.0) -> Directive:
        """As `Hub.exchange`."""
        ...


class Conversation:
    """Says the latest that is true, one exchange at a time, and passes on what is answered.

    What is new is posted at once, and until somebody has answered to it; then the request is one that may be held back
    for a heartbeat, so that a directive reaches the member as soon as there is one.
    """

    def __init__(
        self,
        exchange: Exchange,
        join: Callable[[], Mapping[str, Any]],
        tell: Callable[[Event], None],
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Prepare it; `run` speaks.

        Args:
            exchange: How one announcement is posted.
            join: Who the member is, asked for each time.
            tell: Is told of each answer.
            wall: Seconds since the epoch.
        """
        self._exchange = exchange
        self._join = join
        self._tell = tell
        self._wall = wall
        self._report: Report | None = None
        self._since = 0.0
        self._changed = asyncio.Event()
        self._directive = Directive()
        self._heard = False
        """Whether somebody has answered to what is said now."""
        self._pause = 0.0
        """Seconds between the tries of a rendezvous that does not answer; 0 while it does."""

    def say(self, report: Report) -> None:
        """Say this from now on, instead of what was said so far."""
        if report != self._report:
            self._report, self._since = report, self._wall()
            self._heard = False
            self._changed.set()

    async def run(self) -> None:
        """Speak until cancelled, or until the rendezvous refuses this agent for good, which is told.

        It never ends silently: a fault in an exchange is logged and tried again after a pause; one of the agent's own
        is logged and told, so that the agent ends (row D55).
        """
        try:
            while True:
                await self._speak()
        except Refused as error:
            _log.error("refused by the rendezvous: %s", error)
            self._tell(RefusedEvent(str(error)))
        except Exception as error:
            _log.exception("this agent cannot speak with the rendezvous any more")
            self._tell(RefusedEvent(f"a fault of the agent's own: {type(error).__name__}: {error}"))

    async def _speak(self) -> None:
        """One announcement and its answer, or the pause after one that nobody answered."""
        if self._report is None:
            await self._changed.wait()
        self._changed.clear()
        report, heard = self._report, self._heard
        assert report
        held = min(max(_BEAT_MINIMUM, self._directive.heartbeat), _HELD_MAXIMUM) if heard else 0.0
        began = asyncio.get_running_loop().time()
        asking = asyncio.ensure_future(self._exchange(self._announcement(report, held), held))
        try:
            if heard and await self._changes_before(asking):
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
                return
            directive = await asking
        except Refused:
            raise
        except Exception as error:
            if not isinstance(error, Unreachable):
                _log.exception("an exchange with the rendezvous has failed")
            self._lost(error)
            await self._changed_within(self._pause * random.uniform(0.5, 1.0))
            return
        finally:
            asking.cancel()
        self._found()
        new = directive != self._directive
        self._directive = directive
        self._heard = self._heard or report is self._report
        self._tell(Told(directive, report.state))
        if heard and not new:
            # It was not held back, or it was for a heartbeat: either way the next is due one heartbeat after it.
            await self._changed_within(began + held - asyncio.get_running_loop().time())

    def _announcement(self, report: Report, held: float) -> dict[str, Any]:
        return {
            "protocol": PROTOCOL,
            "join": self._join(),
            "report": report.wire(self._since),
            "sent": instant(self._wall()),
            "seen": self._directive.revision,
            "wait": f"{held:.3f}s",
        }

    async def _changes_before(self, asking: asyncio.Future[Directive]) -> bool:
        """Wait for an answer that may be held back, and return whether there was something to say before it came."""
        changed = asyncio.ensure_future(self._changed.wait())
        try:
            await asyncio.wait({asking, changed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            changed.cancel()
        return not asking.done()

    async def _changed_within(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), max(0.0, seconds))

    def _lost(self, error: Exception) -> None:
        if not self._pause:
            _log.warning("the rendezvous does not answer; workers go on as they are: %s", error)
        longest = min(_PAUSE_MAXIMUM, max(_BEAT_MINIMUM, self._directive.heartbeat))
        self._pause = min(longest, max(_FIRST_PAUSE, self._pause * 2))

    def _found(self) -> None:
        if self._pause:
            _log.warning("the rendezvous answers again")
        self._pause = 0.0
