"""A member of a gang inside torchrun's process: a thread that talks to the rendezvous."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from holdfast.agent.conversation import Conversation
from holdfast.agent.hub import Hub
from holdfast.agent.machine import UNTOLD, Event, Refused, Told
from holdfast.agent.messages import Directive, Failure, Kind, Report, State
from holdfast.agent.settings import Settings

_log = logging.getLogger(__name__)

_BURIAL: Final = 1.0
_LOOK: Final = 0.1
"""Seconds between two checks of running workers."""


class Member:
    """Announces the report on the workers, with heartbeats, and receives directives.

    Other threads than its own call its methods.
    """

    def __init__(self, settings: Settings) -> None:
        """Prepare the member; the first `say` starts it."""
        self.settings = settings
        self._port = 0
        self._changed = threading.Condition()
        self._directive = UNTOLD
        self._refused = ""
        self._report: Report | None = None
        self._heard = False
        self._hub = Hub(settings.url, settings.workload_uid, settings.token_file, settings.ca_file)
        self._conversation = Conversation(self._hub.exchange, self._join, self._tell)
        self._loop = _Loop()
        self._speaking: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        # A daemon, so that it does not keep torchrun's process alive; `handler` announces the final state first.
        self._thread = threading.Thread(target=self._run, name="holdfast-rendezvous", daemon=True)

    @property
    def directive(self) -> Directive:
        """The last directive."""
        with self._changed:
            return self._directive

    @property
    def refused(self) -> str:
        """Why the rendezvous refused this member for good; empty if it did not."""
        with self._changed:
            return self._refused

    @property
    def report(self) -> Report | None:
        """The current report."""
        with self._changed:
            return self._report

    def say(self, report: Report, settings: Settings | None = None, port: int = 0) -> None:
        """Announce this report from now on; also update the settings and the port of the store that it would host."""
        with self._changed:
            self.settings = settings or self.settings
            self._port = port or self._port
            if report != self._report:
                self._report, self._heard = report, False
        if not self._thread.is_alive() and not self._loop.is_closed():
            self._thread.start()
        with contextlib.suppress(RuntimeError):  # the loop has ended already: the report cannot be sent
            self._loop.call_soon_threadsafe(self._conversation.say, report)

    def watch(self, healthy: Report, look: Callable[[], tuple[Failure, ...]]) -> None:
        """Check for failed workers while this is the current report; report a failure at once.

        Args:
            healthy: The report of the running round.
            look: Returns the failures of workers so far.
        """

        async def watching() -> None:
            while self.report is healthy:
                if failed := look():
                    self._replace(healthy, Report(State.FAILED, healthy.round, failed, stopping=True))
                await asyncio.sleep(_LOOK)

        def begin() -> None:
            self._watching = self._loop.create_task(watching())

        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(begin)

    def _replace(self, old: Report, new: Report) -> None:
        """Replace the report, unless it has been replaced already."""
        with self._changed:
            if self._report is not old:
                return
            self._report, self._heard = new, False
            self._conversation.say(new)

    def wait(self, until: Callable[[Directive], bool], limit: float | None = None) -> bool:
        """Wait until a directive satisfies `until`, or the member is refused; return whether that happened in time."""
        with self._changed:
            return bool(self._changed.wait_for(lambda: self._refused or until(self._directive), limit))

    def wait_until_heard(self, limit: float) -> bool:
        """Wait until the current report is answered, or the member is refused; return whether that happened in time."""
        with self._changed:
            return bool(self._changed.wait_for(lambda: self._refused or self._heard, limit))

    def close(self) -> None:
        """Stop announcing, and end the thread."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._silence)
        if self._thread.is_alive():
            self._thread.join(_BURIAL)
        elif self._thread.ident is None:
            self._loop.close()

    def _silence(self) -> None:
        for task in (self._watching, self._speaking):
            if task:
                task.cancel()

    def _run(self) -> None:
        try:
            self._speaking = self._loop.create_task(self._conversation.run())
            self._loop.run_until_complete(self._speaking)
        except asyncio.CancelledError:
            pass
        except Exception as error:
            _log.exception("the thread that speaks with the rendezvous has failed")
            self._tell(Refused(f"a fault of the backend's own: {error}"))
        finally:
            self._hub.close()
            self._loop.close()

    def _join(self) -> Mapping[str, Any]:
        with self._changed:
            return self.settings.join(self._port)

    def _tell(self, event: Event) -> None:
        with self._changed:
            if isinstance(event, Refused):
                self._refused = event.why
            elif isinstance(event, Told):
                if event.directive != self._directive:
                    _announce(event.directive)
                self._directive = event.directive
                self._heard = self._heard or (self._report is not None and event.said is self._report.state)
            self._changed.notify_all()


def _announce(told: Directive) -> None:
    """Log a directive; the end of a round or the gang is a warning, since torchrun shows only warnings by default."""
    level = logging.INFO if told.kind in {Kind.WAIT, Kind.RUN} else logging.WARNING
    _log.log(level, "told to %s%s", told.kind.value.lower(), f": {told.why}" if told.why else "")


def ran(report: Report | None) -> bool:
    """Return whether a member with this report has running workers, or is stopping them after a failure."""
    return report is not None and (report.state is State.HEALTHY or report.stopping)


class _Loop(asyncio.SelectorEventLoop):
    """A loop that looks up names on its own thread: a process that ends cannot start other threads."""

    async def getaddrinfo(
        self,
        host: bytes | str | None,
        port: bytes | str | int | None,
        *,
        family: int = 0,
        type: int = 0,
        proto: int = 0,
        flags: int = 0,
    ) -> Any:
        return socket.getaddrinfo(host, port, family, type, proto, flags)
