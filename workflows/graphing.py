"""What a workload's workflow says to its graph, beside the one operation that is under way. No decisions (row L31)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final

from temporalio import workflow
from temporalio.exceptions import FailureError

with workflow.unsafe.imports_passed_through():
    from holdfast import names
    from holdfast.model import State, Workload
    from holdfast.model.graph import GraphNews
    from holdfast.policy import events
    from holdfast.policy.blocked import owed, waiting

_FIRST_PAUSE: Final = timedelta(seconds=15)
_LAST_PAUSE: Final = timedelta(minutes=10)


class GraphSide:
    """What is under way between a workload and its graph; at most one word at a time."""

    def __init__(self) -> None:
        self._telling: tuple[GraphNews, asyncio.Task[str]] | None = None
        self._misses = 0
        self._pauses = False
        self._waits = ""

    def woken(self) -> bool:
        """Whether a word has been said, or could not be."""
        return self._telling is not None and self._telling[1].done()

    @property
    def busy(self) -> bool:
        """Whether the graph is still to hear something."""
        return self._telling is not None

    def silent(self) -> bool:
        """Whether nothing is under way that a new run would not begin anew."""
        return self._telling is None or self._pauses or self._telling[1].done()

    def ended(self) -> list[events.Event]:
        """Return what has come of it."""
        if self._telling is None or not self._telling[1].done():
            return []
        (news, task), self._telling = self._telling, None
        if task.cancelled():
            return []
        why = task.result()
        if not why or news.outcome is not None:
            # Of one that has ended nobody waits for the word where there is no graph any more.
            self._misses = 0
            return [events.GraphTold(news, self._waits)]
        self._misses += 1
        return [events.GraphMissing(why)]

    def follow(self, spec: Workload, state: State, uid: str) -> None:
        """Say what the graph has yet to hear; what it need not hear any more is not said."""
        news = owed(spec, state, uid)
        if self._telling is not None:
            if self._telling[0] != news and self._pauses:
                self._telling[1].cancel()
            return
        if news is not None and spec.graph is not None:
            place = names.graph_id(spec.cluster, spec.namespace, spec.graph.graph)
            self._waits = waiting(spec)
            self._telling = (news, asyncio.create_task(self._told(place, spec.graph.graph, news)))

    async def _told(self, place: str, graph: str, news: GraphNews) -> str:
        """Tell the graph, and return why that could not be; empty if it was."""
        if self._misses and news.outcome is None:
            pause = min(_FIRST_PAUSE * 2 ** (self._misses - 1), _LAST_PAUSE)
            self._pauses = True
            try:
                await workflow.sleep(pause, summary=f"until its graph {graph} is looked for again")
            finally:
                self._pauses = False
        try:
            handle: workflow.ExternalWorkflowHandle[Any] = workflow.get_external_workflow_handle(place)
            await handle.signal(names.SIGNAL_NEWS, news)
        except FailureError:
            return f"its graph, {graph}, is not there: submit the graph's file; it is looked for again"
        return ""
