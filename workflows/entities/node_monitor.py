"""The workflow that records the states of cluster nodes: Healthy, Degraded, Down, Returning (L4, L5, L8, L12, L15)."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from holdfast import names
    from holdfast.model import NodeBook, NodeRecord, NodeState, NodeTimings, NodeWish, Payload
    from holdfast.model.calls.cluster import (
        LookedNodes,
        LookNodesInput,
        MarkedNodes,
        MarkNodesInput,
        NodesSeen,
        WatchNodesInput,
    )
    from holdfast.model.entities.provisioner import FenceNews
    from holdfast.model.words import escaped
    from holdfast.policy.nodes import fence as node_fence
    from holdfast.policy.nodes.monitor import Plan, looked, marked, on_node_news, plan, settle
    from holdfast.workflows.entity import Entity, Message, refuse_memory, send, serve, start, stop
    from holdfast.workflows.operations.dispatch import HEARTBEAT

SIGNAL_STOP: Final = "stop"
SIGNAL_TIMINGS: Final = "timings"
MEMO_TIMINGS: Final = "holdfast.nodeTimings"

OPERATION_LENGTH: Final = timedelta(minutes=5)
SHOWN: Final = 20


class NodeMonitorInput(Payload):
    """The cluster whose nodes are monitored, and how long they may be silent."""

    cluster: str
    cluster_uid: str
    timings: NodeTimings = NodeTimings()
    book: NodeBook = NodeBook()
    """The record of the previous run."""


class NodeMonitorStatus(NodeMonitorInput):
    """Answer of the query `status`: the nodes that are not healthy, and how many there are in all."""

    stopping: bool = False


class _Asked(NamedTuple):
    """The nodes of requests sent to the provisioner, and why some could not be sent."""

    asked: tuple[str, ...]
    withdrawn: tuple[str, ...]
    unasked: dict[str, str]


@workflow.defn(name=names.NODE_MONITOR_WORKFLOW)
class NodeMonitor(Entity):
    """Decides which nodes are Down, and marks their objects; it receives changes only, never heartbeats."""

    @workflow.init
    def __init__(self, input: NodeMonitorInput) -> None:
        """Remember the cluster; take over the state of the previous run."""
        super().__init__()
        self._input = input
        self._timings = input.timings
        self._stopping = False
        self._problem = refuse_memory("book", None if input.book == NodeBook() else input.book)
        self._book = NodeBook() if self._problem else input.book
        self._inbox: list[NodesSeen] = []
        self._off: list[FenceNews] = []
        self._operation: asyncio.Task[Any] | None = None
        self._begun: datetime | None = None

    @workflow.run
    async def run(self, input: NodeMonitorInput) -> None:
        """Keep the nodes watched and their states up to date, until the signal `stop`.

        Raises:
            ActivityError: if the watch fails with an error that is not retried; Temporal retries any other for ever.
            ApplicationError: type `InvalidInput`, before anything begins, if it was started with a foreign record.
        """
        if self._problem:
            raise self._refused(names.ERROR_INVALID_INPUT)
        watch = asyncio.create_task(self._watch())
        while True:
            now = self._clock.now()
            self._take_in(now)
            self._book = settle(self._book, input.timings, now)
            wanted = plan(self._book, input.timings, now)
            if self._is_over():
                if self._operation is None or self._length.is_most:
                    break
            elif self._operation is None:
                self._begin(wanted, now)
            self._timer.set(wanted.until, wanted.why, now)
            await workflow.wait_condition(lambda: self._is_woken() or watch.done())
            if watch.done():
                await watch  # The watch ends by itself only if it cannot go on.
        # The next run begins an unfinished look or mark again.
        await stop(watch, self._operation)
        await workflow.wait_condition(workflow.all_handlers_finished)
        if not self._stopping:
            self._take_in(self._clock.now())
            memo = {**workflow.memo(), MEMO_TIMINGS: self._timings.model_dump_json()}
            workflow.continue_as_new(
                NodeMonitorInput(
                    cluster=input.cluster, cluster_uid=input.cluster_uid, timings=self._timings, book=self._book
                ),
                memo=memo,
            )

    def current_details(self) -> str:
        """Return what Temporal's UI shows of it (`describing`)."""
        return _details(self._input.cluster, self._book)

    @workflow.signal(name=names.SIGNAL_NODES, description="News of nodes: silence, a voice again, broken hardware")
    def nodes(self, seen: NodesSeen) -> None:
        """Take in news of nodes."""
        self._inbox.append(seen)

    @workflow.signal(name=names.SIGNAL_FENCED, description="A node's power is off, by proof (by the provisioner)")
    def fenced(self, news: FenceNews) -> None:
        """Take in that a node's power is off."""
        self._off.append(news)

    @workflow.signal(name=SIGNAL_STOP, description="Watch over this cluster's nodes no longer; marks stay as they are.")
    def stop(self) -> None:
        """End the monitor."""
        self._stopping = True

    @workflow.signal(name=SIGNAL_TIMINGS, description="Change how long nodes may be silent.")
    def timings(self, timings: NodeTimings) -> None:
        """Use other timings from now on."""
        self._timings = timings

    @workflow.query(name=names.QUERY_STATUS, description="Nodes that are not healthy, since when and why.")
    def status(self) -> NodeMonitorStatus:
        """Return the state of the nodes."""
        return NodeMonitorStatus(
            cluster=self._input.cluster,
            cluster_uid=self._input.cluster_uid,
            timings=self._input.timings,
            book=self._book,
            stopping=self._stopping,
        )

    def _is_over(self) -> bool:
        changed = self._timings != self._input.timings
        return self._stopping or changed or self._length.is_enough

    def _is_woken(self) -> bool:
        return (
            bool(self._inbox)
            or bool(self._off)
            or (self._operation is not None and self._operation.done())
            or self._timer.is_due
            or (self._is_over() and (self._operation is None or self._length.is_most))
        )

    def _take_in(self, now: datetime) -> None:
        inbox, self._inbox = self._inbox, []
        for seen in inbox:
            self._book = on_node_news(self._book, seen)
        off, self._off = self._off, []
        for news in off:
            self._book = node_fence.fenced(self._book, news)
        self._timer.take()
        operation = self._operation
        if operation is not None and operation.done():
            self._operation = None
            try:
                result = operation.result()
            except (ActivityError, asyncio.CancelledError) as error:
                workflow.logger.warning("an operation failed unexpectedly and is begun again", exc_info=error)
                return
            begun = self._begun or now
            if isinstance(result, LookedNodes):
                self._book = looked(self._book, result.nodes, begun, result.blind)
            elif isinstance(result, MarkedNodes):
                self._book = marked(self._book, result.nodes, now)
            elif isinstance(result, _Asked):
                self._book = node_fence.after_requests(self._book, *result, now)

    def _begin(self, wanted: Plan, now: datetime) -> None:
        """Begin the most urgent operation: decisions are reported before other nodes are looked at."""
        given = {"cluster": self._input.cluster, "cluster_uid": self._input.cluster_uid}
        if wanted.mark:
            mark = MarkNodesInput(**given, nodes=wanted.mark)
            self._start(names.ACTIVITY_MARK_NODES, mark, MarkedNodes, _marking(wanted.mark), now)
        elif wanted.ask:
            self._operation = asyncio.create_task(self._ask(wanted.ask))
        elif wanted.look:
            uids = {one.name: one.uid for one in wanted.look}
            look = LookNodesInput(**given, nodes=tuple(uids), uids=uids)
            self._start(names.ACTIVITY_LOOK_NODES, look, LookedNodes, _looking(wanted.look), now)

    def _start(self, activity: str, argument: Any, result: Any, summary: str, now: datetime) -> None:
        self._begun = now
        queue = names.queue_cluster(self._input.cluster)
        self._operation = start(
            activity, argument, result, queue=queue, within=OPERATION_LENGTH, heartbeat=HEARTBEAT, summary=summary
        )

    async def _ask(self, records: tuple[NodeRecord, ...]) -> _Asked:
        """Ask the provisioner to power off some nodes, or to leave on those that are no longer silent."""
        place = names.provisioner_id(self._input.cluster)
        unasked: dict[str, str] = {}
        for one in records:
            if one.withdraw:
                problem = await send(Message(place, names.SIGNAL_WITHDRAW, one.name, one.uid))
            else:
                problem = await send(Message(place, names.SIGNAL_FENCE, node_fence.ask_of(one)))
            if problem:
                unasked[one.name] = f"the provisioner is not there: {problem}"[:200]
        asked = tuple(one.name for one in records if not one.withdraw)
        return _Asked(asked, tuple(one.name for one in records if one.withdraw), unasked)

    async def _watch(self) -> None:
        given = self._input
        await serve(
            names.ACTIVITY_WATCH_NODES,
            WatchNodesInput(cluster=given.cluster, cluster_uid=given.cluster_uid, timings=given.timings),
            queue=names.queue_watch(given.cluster),
            summary=f"watching the nodes of {given.cluster}: their leases and their hardware",
        )


def _looking(nodes: tuple[NodeRecord, ...]) -> str:
    return f"looking at {len(nodes)} node(s) before it is decided: {', '.join(one.name for one in nodes[:3])}"


def _marking(nodes: tuple[NodeWish, ...]) -> str:
    said = ", ".join(f"{one.name} {one.word.value or NodeState.HEALTHY.value}" for one in nodes[:3])
    return f"saying on {len(nodes)} node(s) how they stand: {said}"


def _details(cluster: str, book: NodeBook) -> str:
    """Return the record of nodes as the Temporal UI shows it (Markdown)."""
    there = [one for one in book.nodes.values() if one.state is not NodeState.HEALTHY]
    lines = [f"Nodes of **{cluster}**: {book.total} with a lease, {book.silent} silent, {len(there)} not healthy."]
    if book.held_since is not None:
        lines.append(
            f"Since {book.held_since:%H:%M:%S} UTC most leases are not renewed: it may be our sight of them, the API "
            "server or etcd, so no node is found Down by its silence."
        )
    lines += [
        f"- `{one.name}` **{one.state.value}** since {one.since:%m-%d %H:%M:%S} UTC: {escaped(one.why)}"
        + (f"; it could not be marked: {escaped(one.refused)}" if one.refused else "")
        + (f"; {escaped(one.unasked)}" if one.unasked else "")
        for one in sorted(there, key=lambda one: one.since)[:SHOWN]
    ]
    return "\n".join(lines)
