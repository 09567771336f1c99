"""Waiting through an outage of Temporal or its workers: whoever waits goes on, since what is waited for does (D52)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from holdfast.errors import NotAnswering, NotReachable

T = TypeVar("T")

PAUSE: Final = 1.0
"""Seconds between two questions to a Temporal that does not answer. The SDK has tried each for about 10 s by itself."""

_log: Final = logging.getLogger("holdfast.client")


class Patience:
    """Asks until there is an answer, and says once for each outage that there is none."""

    def __init__(self) -> None:
        self._away = ""

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """Return the answer, however long Temporal or the worker is away. `asyncio.timeout` bounds the wait.

        Raises:
            NotReachable: if Temporal answers, and refuses: the namespace is missing, or the rights are.
            Exception: what `question` raises otherwise.
        """
        while True:
            try:
                answer = await question()
            except NotAnswering as error:
                if not self._away:
                    self._away = "a worker"
                    _log.warning("%s: still waiting", error)
                await asyncio.sleep(PAUSE)
            except NotReachable as error:
                if not error.passing:
                    raise
                if not self._away:
                    self._away = "Temporal"
                    _log.warning(
                        "Temporal at %s does not answer (%s): still waiting; what was submitted runs on",
                        error.address,
                        error.detail,
                    )
                await asyncio.sleep(PAUSE)
            else:
                if self._away:
                    _log.warning("%s answers again", self._away)
                    self._away = ""
                return answer
