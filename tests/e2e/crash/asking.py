"""What comes between a worker's death and the start of the next: each workflow is asked, and a timer falls due (D1)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.service import RPCError

from holdfast import names

ANSWER: Final = timedelta(seconds=20)
"""A question waits so long for a worker: the next one is to find it as it starts."""
CHEAP: Final = timedelta(seconds=3)
"""A timer that falls due within that is waited for."""
DONE: Final = timedelta(seconds=0.3)
"""The server needs that long to write down that a timer has fired."""
_OVER: Final = {
    EventType.EVENT_TYPE_TIMER_FIRED: "timer_fired_event_attributes",
    EventType.EVENT_TYPE_TIMER_CANCELED: "timer_canceled_event_attributes",
}


def due(events: Iterable[HistoryEvent]) -> list[datetime]:
    """Return when the timers fall due that are set."""
    timers: dict[str, datetime] = {}
    for event in events:
        if event.event_type == EventType.EVENT_TYPE_TIMER_STARTED:
            started = event.timer_started_event_attributes
            begun = event.event_time.ToDatetime(tzinfo=UTC)
            timers[started.timer_id] = begun + started.start_to_fire_timeout.ToTimedelta()
        elif event.event_type in _OVER:
            timers.pop(getattr(event, _OVER[event.event_type]).timer_id, None)
    return sorted(timers.values())


class Asking:
    """Asks all workflows of a Temporal namespace how they stand, while nobody is there to answer."""

    def __init__(self, client: Client, entities: Iterable[str]) -> None:
        """Take whose workflows; `entities` are those that are asked although the server may not list them yet."""
        self._client = client
        self._entities = tuple(entities)
        self._asked: dict[asyncio.Task[str], str] = {}
        self.due = 0
        """How many deaths were followed by a timer that fell due."""

    @property
    def asked(self) -> int:
        """How many workflows were asked, each after each death."""
        return len(self._asked)

    async def between(self) -> None:
        """Ask all that run, and let the next of their timers fall due, if that is cheap; answers are not waited for."""
        running: list[str] = []
        with contextlib.suppress(RPCError):
            running += [one.id async for one in self._client.list_workflows("ExecutionStatus = 'Running'")]
        ids = dict.fromkeys((*self._entities, *running))
        for one in ids:
            self._asked[asyncio.create_task(self._ask(one))] = one
        begun = datetime.now(UTC)
        soon = [at for one in ids for at in await self._due(one) if begun < at < begun + CHEAP]
        if soon:
            self.due += 1
            await asyncio.sleep((min(soon) + DONE - datetime.now(UTC)).total_seconds())

    async def answered(self) -> None:
        """Wait for the answers.

        Raises:
            AssertionError: if one was refused otherwise than by asking to be asked again; none is as good as any.
        """
        told = [f"{self._asked[task]}: {said}" for task in self._asked if (said := await task)]
        assert not told, "\n".join(told)

    @contextlib.asynccontextmanager
    async def over(self) -> AsyncIterator[None]:
        """Wait for no answer any more after this block."""
        try:
            yield
        finally:
            for task in self._asked:
                task.cancel()
            await asyncio.gather(*self._asked, return_exceptions=True)

    async def _ask(self, workflow_id: str) -> str:
        handle: Any = self._client.get_workflow_handle(workflow_id)
        try:
            await handle.query(names.QUERY_STATUS, rpc_timeout=ANSWER)
        except WorkflowQueryFailedError as error:
            return "" if "ask again" in str(error) else str(error)
        except RPCError:
            return ""  # No worker was there in time, or there is no such workflow yet.
        return ""

    async def _due(self, workflow_id: str) -> list[datetime]:
        with contextlib.suppress(RPCError):
            return due((await self._client.get_workflow_handle(workflow_id).fetch_history()).events)
        return []
