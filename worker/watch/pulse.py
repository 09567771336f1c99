"""Checks that the API server answers: a light quorum read every two seconds, so that no outage is taken for quiet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final

from holdfast.activities.kube.blindness import Sight
from holdfast.activities.kube.client import Kube, KubeError, Unreachable

PERIOD: Final = 2.0
DEADLINE: Final = 3.0
"""Seconds after which a read counts as unanswered: the deadline of this pulse's own client."""


class Pulse:
    """Polls the API server, and lets callers wait until it answers."""

    def __init__(self, kube: Kube) -> None:
        """Start without an answer; the pulse uses the client's sight."""
        self._kube = kube
        self._back = asyncio.Event()
        self._polling: asyncio.Task[None] | None = None
        self.felt: datetime | None = None
        """When the last answered read was sent."""
        self.message = ""

    @property
    def kube(self) -> Kube:
        """The pulse's own client."""
        return self._kube

    @property
    def alive(self) -> bool:
        """Whether the last read was answered."""
        return self.felt is not None and not self._kube.sight.blind

    async def run(self) -> None:
        """Poll for ever."""
        while True:
            await self.ask()
            await asyncio.sleep(PERIOD if self.alive else PERIOD / 4)

    def start(self) -> None:
        """Start to poll, until `stop`."""
        self._polling = asyncio.create_task(self.run())

    async def lasts(self) -> None:
        """Never return; raise the error that ended the polls, which should not happen."""
        assert self._polling is not None, "it has started"
        await asyncio.shield(self._polling)

    async def stop(self) -> None:
        """Stop to poll, and close the client."""
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)
        await self._kube.close()

    async def ask(self) -> None:
        """Poll once."""
        was = self.alive
        asked = datetime.now(UTC)
        try:
            await self._kube.get("v1", "Namespace", "kube-system")
        except Unreachable as error:
            self.message = error.message
            return
        except KubeError:
            pass  # An error response is an answer too.
        self.felt = asked
        self.message = ""
        if not was:
            self._back.set()
            self._back = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Return after this many seconds, or when the API server answers again, whichever is first."""
        try:
            async with asyncio.timeout(seconds):
                await self._back.wait()
        except TimeoutError:
            return


class Pulses:
    """The one pulse of a process, for all who watch there: a thousand gangs need to ask no more often than one."""

    def __init__(self, connect: Callable[[Sight, float | None], Awaitable[Kube]]) -> None:
        """Start without a pulse; `connect` makes its client, with a sight and a deadline in seconds."""
        self._connect = connect
        self._connecting = asyncio.Lock()
        self._pulse: Pulse | None = None
        self._users = 0

    @asynccontextmanager
    async def shared(self) -> AsyncGenerator[Pulse]:
        """Yield the pulse, which polls until its last user leaves.

        Raises:
            SettingsError: if no client can be made.
        """
        async with self._connecting:
            if self._pulse is None:
                self._pulse = Pulse(await self._connect(Sight(), DEADLINE))
                self._pulse.start()
            pulse = self._pulse
            self._users += 1
        try:
            yield pulse
        finally:
            self._users -= 1
            if not self._users:
                self._pulse = None
                await pulse.stop()
