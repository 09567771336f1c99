"""The workflow of a graph: it receives how workloads end, and tells those that depend on them to begin (row L31)."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributeUpdate
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from holdfast import names
    from holdfast.model import Phase
    from holdfast.model.entities.graph import Graph, GraphNews, GraphOrder, GraphState, GraphStatus
    from holdfast.model.packed import packed
    from holdfast.policy.entities import graph as policy
    from holdfast.policy.entities.graph_outbox import carried_over, taken_over
    from holdfast.workflows.entity import Entity, Message, Outbox, read, refuse_memory

_PHASE = SearchAttributeKey.for_keyword(names.SA_PHASE)


@workflow.defn(name=names.GRAPH_WORKFLOW)
class GraphWorkflow(Entity):
    """Runs a graph, from its submission until all its workloads have ended and hold nothing in the cluster."""

    @workflow.init
    def __init__(self, document: Any, carried: GraphState | None = None) -> None:
        """Read the document; `run` reports its errors, because Temporal would retry a constructor that raises."""
        super().__init__()
        self._state: GraphState | None = None
        self._inbox: list[GraphNews] = []
        self._cancelled = ""
        self._shown: GraphState | None = None
        self._column: Phase | None = None
        self._graph: Graph | None = None
        self._outbox = Outbox[policy.Order](self._message)
        self._misplaced = self._problem = refuse_memory("carried", carried)
        if self._misplaced:
            return
        self._graph, self._problem = read(Graph, document)
        if self._graph is not None and carried is not None:
            self._state, orders = taken_over(carried)
            self._outbox.put(orders)
        elif self._graph is not None:
            self._state = policy.begun(self._graph)

    @workflow.run
    async def run(self, document: Any, carried: GraphState | None = None) -> GraphStatus:
        """Run the graph to its end.

        Args:
            document: the graph, as one JSON document; its workloads are submitted apart, each with its place in it.
            carried: the state of the previous run, or what a worker found of a lost graph; refused otherwise (row X3).

        Returns:
            The status of a graph that succeeded or was cancelled.

        Raises:
            ApplicationError: type `InvalidGraph` before anything begins, `GraphFailed` at the end of a failed one, with
                its status as detail.
        """
        if self._graph is None or self._state is None:
            if carried is not None and not self._misplaced:
                raise RuntimeError(f"this release cannot read a graph that is under way: {self._problem}")
            raise self._refused(names.ERROR_INVALID_GRAPH)
        graph = self._graph
        while True:
            self._clock.now()  # No decision uses the time; this raises outside of a task, where none may be made.
            # Checked before the inbox is read, so that each run decides and sends something, whatever it begins with.
            leaves = self._length.is_enough
            state = self._take_in(graph, self._state)
            if not leaves:
                state, orders = policy.step(graph, state)
                self._outbox.put(orders)
                self._outbox.begin()
            self._state = state
            phase = policy.over(graph, state)
            self._show(graph, state)
            if not self._outbox.is_sending:
                if phase is not None and not self._outbox.waiting:
                    return self._end(policy.status(graph, state))
                if leaves:
                    workflow.continue_as_new(args=[packed(document), carried_over(state, self._outbox.waiting)])
            try:
                await workflow.wait_condition(self._woken)
            except asyncio.CancelledError:
                self._cancelled = "cancelled through Temporal"

    def _woken(self) -> bool:
        cancels = bool(self._cancelled) and self._state is not None and not self._state.cancelled
        leaves = self._length.is_enough and not self._outbox.is_sending
        return bool(self._inbox) or cancels or self._outbox.has_ended or leaves

    def _take_in(self, graph: Graph, state: GraphState) -> GraphState:
        inbox, self._inbox = self._inbox, []
        self._length.count(len(inbox))
        for news in inbox:
            answer = policy.stranger(state, news)
            if answer is not None:
                self._outbox.put([answer])
            state = policy.on_workload_news(graph, state, news)
        for order, lost in self._outbox.ended():
            if lost:
                state = policy.gone(state, order)
        return policy.cancelled(state, self._cancelled) if self._cancelled else state

    def _message(self, order: policy.Order) -> Message:
        graph = self._graph
        assert graph is not None
        place = names.workflow_id(graph.cluster, graph.namespace, graph.workload(order.item))
        given = GraphOrder(workload_uid=order.uid, admit=order.admit, reason=order.reason, why=order.why)
        return Message(place, names.SIGNAL_GRAPH, given)

    def _show(self, graph: Graph, state: GraphState) -> None:
        if state == self._shown:
            return
        self._shown, phase = state, policy.phase_of(graph, state)
        if phase is not self._column:
            self._column = phase
            shown: list[SearchAttributeUpdate[Any]] = [_PHASE.value_set(phase.value)]
            workflow.upsert_search_attributes(shown)  # pyright: ignore[reportUnknownMemberType] - the SDK's own generics

    @staticmethod
    def _end(status: GraphStatus) -> GraphStatus:
        if status.phase is Phase.FAILED:
            raise ApplicationError(
                f"{status.name} failed: {status.message}", status, type=names.ERROR_GRAPH_FAILED, non_retryable=True
            )
        return status

    def current_details(self) -> str:
        """Return what Temporal's UI shows of it (`describing`)."""
        if self._graph is None or self._state is None:
            return ""
        return policy.details(self._graph, self._state)

    @workflow.signal(name=names.SIGNAL_NEWS, description="How one of its workloads stands, by that workload")
    def news(self, news: GraphNews) -> None:
        """Take in that a workload exists, how it ended, or that it holds nothing in the cluster any more."""
        self._inbox.append(news)

    @workflow.signal(name=names.SIGNAL_CANCEL, description="End all of its workloads that have not ended")
    def cancel(self, reason: str = "", uid: str = "") -> None:
        """End all workloads that have not ended: waiting ones never begin, running ones are removed.

        Args:
            reason: why, for its history.
            uid: the submission that is meant; another one ignores the signal. Empty: any submission of the name.
        """
        if uid and self._graph is not None and uid != self._graph.uid:
            return
        self._cancelled = self._cancelled or reason or "the graph was cancelled"

    @workflow.query(name=names.QUERY_STATUS, description="Which workloads have ended, which wait and for what")
    def status(self) -> GraphStatus | None:
        """Return its status; None before it has begun."""
        if self._graph is None or self._state is None:
            return None
        return policy.status(self._graph, self._state)
