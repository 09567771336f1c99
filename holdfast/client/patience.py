"""Wait through an outage of Temporal or its workers: the caller keeps waiting, since the workload runs on (D52)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from holdfast.errors import NotAnswering, NotReachable

T = TypeVar("T")

PAUSE: Final = 1.0
"""Seconds between two requests while Temporal does not answer. The SDK itself retries each for about 10 s."""

_log: Final = logging.getLogger("holdfast.client")


class Patience:
    """Repeats a request until it is answered, and logs each outage once."""

    def __init__(self) -> None:
        self._away = ""

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """Return the answer, however long Temporal or the worker is away. `asyncio.timeout` bounds the wait.

        Raises:
            NotReachable: if Temporal answers with a refusal: the namespace or the permissions are missing.
            Exception: any other error that `question` raises.
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
