"""Checks that the API server answers, so that no outage is taken for quiet: a light read where nobody else asks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

from holdfast.activities.kube.client import Kube, KubeError, Unreachable

PERIOD: Final = 2.0
"""Seconds without an answer until it asks."""
DEADLINE: Final = 3.0
"""Seconds after which a read counts as unanswered: the deadline of this pulse's own client."""
DARK: Final = timedelta(seconds=10)
"""Without an answer for so long, streams on which nothing came either are broken off: what they missed is not known."""


class Pulse:
    """Polls the API server, and lets callers wait until it answers."""

    def __init__(self, kube: Kube) -> None:
        """Start without an answer; the pulse uses the client's sight."""
        self._kube = kube
        self._back = asyncio.Event()
        self.felt: datetime | None = None
        """When the last request was sent that counts as answered."""
        self.message = ""
        self._doubting: set[Callable[[datetime], None]] = set()

    @property
    def kube(self) -> Kube:
        """The pulse's own client."""
        return self._kube

    @property
    def alive(self) -> bool:
        """Whether the last read was answered."""
        return self.felt is not None and not self._kube.sight.blind

    async def run(self) -> None:
        """Poll for ever; what other clients of this process were answered counts while the last own read was too."""
        while True:
            answered = self._kube.answers.at
            if self.alive and answered is not None and 0.0 <= _age(answered) < PERIOD:
                self.felt, self.message = answered, ""
            else:
                await self.ask()
            rest = PERIOD - _age(self.felt) if self.alive and self.felt is not None else PERIOD / 4
            spread = PERIOD * random.uniform(0.0, 0.1)  # noqa: S311 - the first who asks spares others their read
            await asyncio.sleep(min(max(rest, PERIOD / 4), PERIOD) + spread)  # Bounded: a clock may be set.

    async def ask(self) -> None:
        """Poll once."""
        was = self.alive
        asked = datetime.now(UTC)
        try:
            await self._kube.get("v1", "Namespace", "kube-system")
        except Unreachable as error:
            self.message = error.message
            if self.felt is not None:
                for doubt in tuple(self._doubting):
                    doubt(self.felt)
            return
        except KubeError:
            pass  # An error response is an answer too.
        else:
            self._kube.answers.note(asked)
        self.felt = asked
        self.message = ""
        if not was:
            self._back.set()
            self._back = asyncio.Event()

    @contextmanager
    def doubted(self, doubt: Callable[[datetime], None]) -> Generator[None]:
        """Call this at each read without an answer, with when the last answered one was sent."""
        self._doubting.add(doubt)
        try:
            yield
        finally:
            self._doubting.discard(doubt)

    async def wait(self, seconds: float) -> None:
        """Return after this many seconds, or when the API server answers again, whichever is first."""
        try:
            async with asyncio.timeout(seconds):
                await self._back.wait()
        except TimeoutError:
            return


def _age(at: datetime) -> float:
    return (datetime.now(UTC) - at).total_seconds()
