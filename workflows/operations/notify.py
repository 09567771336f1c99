"""Messages of a workload's workflow to its graph and its queue, beside the one operation under way.

No decisions (rows L9, L31).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar

from temporalio import workflow
from temporalio.exceptions import FailureError

with workflow.unsafe.imports_passed_through():
    from holdfast import names
    from holdfast.model import State, Workload
    from holdfast.model.entities.graph import GraphNews
    from holdfast.model.entities.queue import QueueNews, Standing
    from holdfast.policy.status import blocked, queued
    from holdfast.policy.values import events

_FIRST_PAUSE: Final = timedelta(seconds=15)
_LAST_PAUSE: Final = timedelta(minutes=10)
_News = TypeVar("_News", GraphNews, QueueNews)


class _Side(ABC, Generic[_News]):
    """Sends a workload's news to the graph or queue that lets it begin, one message at a time."""

    def __init__(self) -> None:
        self._telling: tuple[_News, Workload, asyncio.Task[bool]] | None = None
        self._misses = 0
        self._pauses = False

    def woken(self) -> bool:
        """Whether a message was delivered, or could not be."""
        return self._telling is not None and self._telling[-1].done()

    @property
    def busy(self) -> bool:
        """Whether a message is under way."""
        return self._telling is not None

    def silent(self) -> bool:
        """Whether no message is being sent; one that only pauses is begun again by the next run."""
        return self._telling is None or self._pauses or self._telling[-1].done()

    def ended(self) -> list[events.Event]:
        """Return the event of a message that has ended; empty if there is none."""
        if self._telling is None or not self._telling[-1].done():
            return []
        (news, spec, task), self._telling = self._telling, None
        if task.cancelled():
            return []
        missed = task.result()
        self._misses = self._misses + 1 if missed and not self._is_last(news) else 0
        return [self._heard(spec, news, missed=missed)]

    def follow(self, spec: Workload, state: State, uid: str) -> None:
        """Send news that the receiver does not have yet; cancel a pause before news that is out of date."""
        news = self._owed(spec, state, uid)
        if self._telling is not None:
            if self._telling[0] != news and self._pauses:
                self._telling[-1].cancel()
            return
        if news is not None:
            self._telling = (news, spec, asyncio.create_task(self._told(spec, news)))

    async def _told(self, spec: Workload, news: _News) -> bool:
        """Send the news, and return whether there was no workflow to receive it."""
        place, what = self._to(spec)
        if self._misses and not self._is_last(news):
            pause = min(_FIRST_PAUSE * 2 ** (self._misses - 1), _LAST_PAUSE)
            self._pauses = True
            try:
                await workflow.sleep(pause, summary=f"until its {what} is looked for again")
            finally:
                self._pauses = False
        try:
            handle: workflow.ExternalWorkflowHandle[Any] = workflow.get_external_workflow_handle(place)
            await handle.signal(names.SIGNAL_NEWS, news)
        except FailureError:
            return True
        return False

    def hurry(self) -> None:
        """End the pause: the receiver exists again."""
        self._misses = 0
        if self._telling is not None and self._pauses:
            self._telling[-1].cancel()

    @abstractmethod
    def _owed(self, spec: Workload, state: State, uid: str) -> _News | None:
        """Return the news that the receiver does not have yet; None if there is none."""

    @abstractmethod
    def _to(self, spec: Workload) -> tuple[str, str]:
        """Return the id of the receiver's workflow, and the receiver's name in texts."""

    @abstractmethod
    def _heard(self, spec: Workload, news: _News, *, missed: bool) -> events.Event:
        """Return the event of a message that was delivered, or missed its receiver."""

    @abstractmethod
    def _is_last(self, news: _News) -> bool:
        """Whether it is useless to send the news again later, if there was no receiver."""


class GraphSide(_Side[GraphNews]):
    """Sends a workload's news to its graph."""

    def _owed(self, spec: Workload, state: State, uid: str) -> GraphNews | None:
        return blocked.owed(spec, state, uid)

    def _to(self, spec: Workload) -> tuple[str, str]:
        assert spec.graph is not None
        return names.graph_id(spec.cluster, spec.namespace, spec.graph.graph), f"graph {spec.graph.graph}"

    def _heard(self, spec: Workload, news: GraphNews, *, missed: bool) -> events.Event:
        return blocked.after_sending(spec, news, missed=missed)

    def _is_last(self, news: GraphNews) -> bool:
        return news.outcome is not None


class QueueSide(_Side[QueueNews]):
    """Sends a workload's news to its queue."""

    def __init__(self) -> None:
        """Start with no message under way."""
        super().__init__()
        self._asked = False

    def follow(self, spec: Workload, state: State, uid: str) -> None:
        """Send news that the queue does not have yet, without a pause if the queue is back and has asked for it."""
        asked = state.turn is not None and state.turn.again
        if asked and not self._asked:
            self.hurry()
        self._asked = asked
        super().follow(spec, state, uid)

    def _owed(self, spec: Workload, state: State, uid: str) -> QueueNews | None:
        return queued.owed(spec, state, uid)

    def _to(self, spec: Workload) -> tuple[str, str]:
        return names.queue_id(spec.cluster, spec.queue), f"queue {spec.queue}"

    def _heard(self, spec: Workload, news: QueueNews, *, missed: bool) -> events.Event:
        return queued.after_sending(spec, news, missed=missed)

    def _is_last(self, news: QueueNews) -> bool:
        return news.standing is Standing.RELEASED
