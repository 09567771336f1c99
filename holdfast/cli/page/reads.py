"""What the local pages show, read through the client. Nothing here changes anything."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from holdfast import names
from holdfast.cli.entities.node import provisioner_status
from holdfast.cli.entities.queue import statuses
from holdfast.cli.page.graph import GraphDrawing, graph_of
from holdfast.cli.page.timeline import timeline_of
from holdfast.cli.workloads.listing import Sort, ordered
from holdfast.client import ExplanationView, Holdfast, Run, Summary
from holdfast.client.connection import refusals
from holdfast.errors import HoldfastError, NotReachable, WorkloadNotFound
from holdfast.model import Phase
from holdfast.past import Story

LISTED: Final = 500
"""Workloads in the table of the fleet."""
_STORIES_KEPT: Final = 16
_NO_OUTCOME: Final = " AND ".join(f"{names.SA_PHASE} != '{one}'" for one in Phase if one.ended)
Values = dict[str, Any]
"""What a template is given."""


@dataclass
class Reader:
    """Reads for the pages of one cluster, over one connection, which is made when it is first needed."""

    cluster: str
    connect: Callable[[], AbstractAsyncContextManager[Holdfast]]
    _open: AsyncExitStack = field(default_factory=AsyncExitStack)
    _session: Holdfast | None = None
    _connecting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _stories: OrderedDict[tuple[str, str], tuple[int, Story]] = field(
        default_factory=OrderedDict[tuple[str, str], tuple[int, Story]]
    )
    """The lives that were read last, by workflow and run, each with the length of its history."""
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def close(self) -> None:
        """Close the connection."""
        await self._open.aclose()

    async def fleet(self, phase: Phase | None, namespace: str) -> Values:
        """Return how many workloads are in each phase, and those that match and that Temporal lists first."""
        holdfast, within = await self._connected(), namespace or None

        async def listed() -> list[Summary]:
            terms: dict[str, Any] = {"phase": phase, "running": _running(phase)} if phase else {}
            found = holdfast.list(cluster=self.cluster, namespace=within, limit=LISTED + 1, **terms)
            return [one async for one in found]

        async def count(one: Phase) -> int:
            return await holdfast.count(cluster=self.cluster, namespace=within, phase=one, running=_running(one))

        found, counts, lost = await asyncio.gather(
            listed(),
            asyncio.gather(*map(count, Phase)),
            holdfast.count(cluster=self.cluster, namespace=within, running=False, query=_NO_OUTCOME),
        )
        return {
            "counts": {one: number for one, number in zip(Phase, counts, strict=True) if number},
            "lost": lost,
            "found": ordered(found[:LISTED], Sort.AGE),
            "cut": len(found) > LISTED,
        }

    async def workload(self, namespace: str, name: str) -> Values:
        """Return a workload's explanation and life, and its graph if it is part of one.

        Args:
            namespace: its Kubernetes namespace.
            name: its name; `jobset/train` for a JobSet where a workload of another kind has the same name (row F7).

        Raises:
            WorkloadNotFound: if Temporal does not know it.
        """
        holdfast = await self._connected()
        run = await self._run(holdfast, namespace, name)
        with refusals(holdfast.place):
            description = await run.handle.describe()
        graph = str((await description.memo()).get(names.MEMO_GRAPH, ""))
        story, told, (graph_drawing, graph_problem) = await asyncio.gather(
            self._story(run, (description.id, description.run_id), description.history_length),
            _told(run),
            _graph(holdfast, graph, namespace),
        )
        view, problem = told
        return {
            "life": timeline_of(story, datetime.now(UTC)),
            "view": view,
            "problem": problem,
            "graph": graph,
            "graph_drawing": graph_drawing,
            "graph_problem": graph_problem,
        }

    async def queues(self) -> Values:
        """Return the status of each admission queue, and why others do not answer."""
        told, silent = await statuses(await self._connected())
        return {"queues": told, "silent": silent}

    async def nodes(self) -> Values:
        """Return what the node monitor and the provisioner know; None where the cluster has none."""
        holdfast = await self._connected()
        book, provisioner = await asyncio.gather(
            holdfast.node_book(self.cluster), provisioner_status(holdfast, self.cluster)
        )
        return {"book": book, "provisioner": provisioner}

    async def _run(self, holdfast: Holdfast, namespace: str, name: str) -> Run:
        """Return a workload by what follows the namespace in its id; if none has exactly that, by its name alone."""
        if "/" not in name:
            with suppress(WorkloadNotFound):
                return await holdfast.get(f"appwrapper/{name}", namespace, self.cluster)
        return await holdfast.get(name, namespace, self.cluster)

    async def _connected(self) -> Holdfast:
        async with self._connecting:
            if self._session is None:
                self._session = await self._open.enter_async_context(self.connect())
            return self._session

    async def _story(self, run: Run, key: tuple[str, str], length: int) -> Story:
        """Return a life; it is read again only once its history is longer, and one at a time."""
        async with self._reading:
            known = self._stories.pop(key, None)
            story = known[1] if known is not None and known[0] == length else await run.story()
            self._stories[key] = (length, story)
            while len(self._stories) > _STORIES_KEPT:
                self._stories.popitem(last=False)
            return story


def _running(phase: Phase) -> bool | None:
    """Return whether the workflow of a workload in this phase must run: else it was ended, and the phase is untrue."""
    return None if phase.ended else True


async def _told(run: Run) -> tuple[ExplanationView | None, str]:
    """Return what a workload says of itself, or why it says nothing: its life may still be readable."""
    try:
        return await run.explain(), ""
    except NotReachable:
        raise
    except HoldfastError as error:
        return None, str(error)


async def _graph(holdfast: Holdfast, graph: str, namespace: str) -> tuple[GraphDrawing | None, str]:
    """Return the graph that a workload is part of, drawn; or why its graph does not answer."""
    if not graph:
        return None, ""
    try:
        return graph_of(await holdfast.graph(graph, namespace).status()), ""
    except NotReachable:
        raise
    except HoldfastError as error:
        return None, str(error)
