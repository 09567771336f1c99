"""What a workload's workflow says to its graph and to its queue, beside the one operation that is under way.

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
    """What is under way between a workload and one that lets it begin; at most one word at a time."""

    def __init__(self) -> None:
        self._telling: tuple[_News, Workload, asyncio.Task[bool]] | None = None
        self._misses = 0
        self._pauses = False

    def woken(self) -> bool:
        """Whether a word has been said, or could not be."""
        return self._telling is not None and self._telling[-1].done()

    @property
    def busy(self) -> bool:
        """Whether something is still to be heard."""
        return self._telling is not None

    def silent(self) -> bool:
        """Whether nothing is under way that a new run would not begin anew."""
        return self._telling is None or self._pauses or self._telling[-1].done()

    def ended(self) -> list[events.Event]:
        """Return what has come of it."""
        if self._telling is None or not self._telling[-1].done():
            return []
        (news, spec, task), self._telling = self._telling, None
        if task.cancelled():
            return []
        missed = task.result()
        self._misses = self._misses + 1 if missed and not self._is_last(news) else 0
        return [self._heard(spec, news, missed=missed)]

    def follow(self, spec: Workload, state: State, uid: str) -> None:
        """Say what has yet to be heard; what need not be heard any more is not said."""
        news = self._owed(spec, state, uid)
        if self._telling is not None:
            if self._telling[0] != news and self._pauses:
                self._telling[-1].cancel()
            return
        if news is not None:
            self._telling = (news, spec, asyncio.create_task(self._told(spec, news)))

    async def _told(self, spec: Workload, news: _News) -> bool:
        """Tell it, and return whether nobody was there to hear it."""
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
        """Pause no longer: whoever was looked for is there."""
        self._misses = 0
        if self._telling is not None and self._pauses:
            self._telling[-1].cancel()

    @abstractmethod
    def _owed(self, spec: Workload, state: State, uid: str) -> _News | None:
        """Return what has yet to be heard."""

    @abstractmethod
    def _to(self, spec: Workload) -> tuple[str, str]:
        """Return whose workflow is told, by its id, and what it is called."""

    @abstractmethod
    def _heard(self, spec: Workload, news: _News, *, missed: bool) -> events.Event:
        """Return what comes of it."""

    @abstractmethod
    def _is_last(self, news: _News) -> bool:
        """Whether it is of no use to say it again later, where nobody is there."""


class GraphSide(_Side[GraphNews]):
    """What is under way between a workload and its graph."""

    def _owed(self, spec: Workload, state: State, uid: str) -> GraphNews | None:
        return blocked.owed(spec, state, uid)

    def _to(self, spec: Workload) -> tuple[str, str]:
        assert spec.graph is not None
        return names.graph_id(spec.cluster, spec.namespace, spec.graph.graph), f"graph {spec.graph.graph}"

    def _heard(self, spec: Workload, news: GraphNews, *, missed: bool) -> events.Event:
        return blocked.heard(spec, news, missed=missed)

    def _is_last(self, news: GraphNews) -> bool:
        return news.outcome is not None


class QueueSide(_Side[QueueNews]):
    """What is under way between a workload and its queue."""

    def __init__(self) -> None:
        """Begin with nothing."""
        super().__init__()
        self._asked = False

    def follow(self, spec: Workload, state: State, uid: str) -> None:
        """Say what has yet to be heard, at once where its queue, being there again, has just asked for it."""
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
        return queued.heard(spec, news, missed=missed)

    def _is_last(self, news: QueueNews) -> bool:
        return news.standing is Standing.RELEASED
