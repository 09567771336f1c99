"""Announces a member's report: repeats it until the rendezvous answers, and then with each heartbeat."""

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
    """Announces the latest report, one exchange at a time, and passes on each answer.

    It posts a new report at once, and repeats it until the rendezvous answers. Then the rendezvous may hold each
    request for a heartbeat, so that a new directive reaches the member at once.
    """

    def __init__(
        self,
        exchange: Exchange,
        join: Callable[[], Mapping[str, Any]],
        tell: Callable[[Event], None],
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Prepare the conversation; `run` starts it.

        Args:
            exchange: Posts one announcement.
            join: Returns the member's identity; called for each announcement.
            tell: Receives an event for each answer.
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
        """Whether the rendezvous has answered the current report."""
        self._pause = 0.0
        """Seconds between the tries while the rendezvous does not answer; 0 while it does."""

    def say(self, report: Report) -> None:
        """Announce this report from now on, in place of the previous one."""
        if report != self._report:
            self._report, self._since = report, self._wall()
            self._heard = False
            self._changed.set()

    async def run(self) -> None:
        """Announce until cancelled, or until the rendezvous refuses this agent for good; report the refusal to `tell`.

        It never ends silently. It logs a failed exchange and tries again after a pause. It logs a fault of its own and
        reports it to `tell`, so that the agent ends (row D55).
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
        """Post one announcement and handle its answer; without an answer, pause."""
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
            await self._changed_within(self._pause * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load
            return
        finally:
            asking.cancel()
        self._found()
        new = directive != self._directive
        self._directive = directive
        self._heard = self._heard or report is self._report
        self._tell(Told(directive, report.state))
        if heard and not new:
            # Whether or not the answer was held back: the next announcement is due one heartbeat after this one.
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
        """Wait for an answer that may be held back, and return whether the report changed before it came."""
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
