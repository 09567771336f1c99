"""The workflow of an admission queue: it admits the waiting workloads that its quota has room for (row L9)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from temporalio import workflow
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from holdfast import names
    from holdfast.model.calls.queue import LookQueueInput, QueueHolder, SeenQueue
    from holdfast.model.entities.queue import Queue, QueueNews, QueueState, QueueStatus
    from holdfast.policy.entities import queue as policy
    from holdfast.policy.entities.queue_outbox import carried_over, taken_over
    from holdfast.workflows import patches
    from holdfast.workflows.entity import WORDS_MAXIMUM, Entity, Message, Outbox, read, refuse_memory, start

HEARD_MAXIMUM: Final = WORDS_MAXIMUM
_LOOK_TIMEOUT: Final = timedelta(minutes=5)
_LOOK_HEARTBEAT: Final = timedelta(seconds=30)


@workflow.defn(name=names.QUEUE_WORKFLOW)
class QueueWorkflow(Entity):
    """Runs an admission queue until a person ends it and no workload is left in it."""

    @workflow.init
    def __init__(self, document: Any, carried: QueueState | None = None) -> None:
        """Read the document; `run` reports its errors, because Temporal would retry a constructor that raises."""
        super().__init__()
        self._state: QueueState | None = None
        self._inbox: list[QueueNews] = []
        self._outbox = Outbox[policy.Order](_message)
        self._given: Queue | None = None
        self._closing = ""
        self._look: workflow.ActivityHandle[SeenQueue] | None = None
        self._shown: QueueState | None = None
        self._shows_closing = workflow.memo_value(names.MEMO_CLOSING, False) is True
        self._problem = refuse_memory("carried", carried)
        if self._problem:
            return
        if carried is not None:
            self._state, orders = taken_over(carried)
            self._outbox.put(orders)
            return
        queue, self._problem = read(Queue, document)
        if queue is not None:
            self._state = policy.begun(queue)

    @workflow.run
    async def run(self, document: Any, carried: QueueState | None = None) -> QueueStatus:
        """Admit workloads in order, until the queue is ended.

        Args:
            document: the queue (`Queue`), as one JSON document.
            carried: the state of the previous run, or what a worker found of a lost queue; refused otherwise (row X3).

        Returns:
            Its status at the end.

        Raises:
            ApplicationError: type `InvalidQueue`, before anything begins.
        """
        if self._state is None:
            raise self._refused(names.ERROR_INVALID_QUEUE)
        while True:
            now = self._clock.now()
            # Checked before the inbox is read, so that each run admits and answers some, whatever it begins with.
            leaves = self._leaves()
            state = self._take_in(self._state, now)
            if not leaves:
                state, orders = policy.step(state)
                self._outbox.put(orders)
                self._outbox.begin()
            self._state = state
            self._show(state)
            if not self._outbox.is_sending and (leaves or policy.over(state)):
                await workflow.wait_condition(workflow.all_handlers_finished)
                if self._has_news():
                    continue
                if policy.over(state) and not self._outbox.waiting:
                    return policy.status(state)
                workflow.continue_as_new(args=[document, carried_over(state, self._outbox.waiting)])
            if not leaves:
                self._look_and_wake(state, now)
            try:
                await workflow.wait_condition(self._woken)
            except asyncio.CancelledError:
                self._closing = "cancelled through Temporal"

    def _leaves(self) -> bool:
        """Whether to continue as new: the run begins nothing more, and passes unanswered messages to the next run.

        The run first waits for a look under way, though not for ever. No workload is admitted before the first look
        ends, and a queue under load would otherwise never see that end.
        """
        return self._length.is_most or (self._length.is_enough and self._look is None)

    def _look_and_wake(self, state: QueueState, now: datetime) -> None:
        if policy.looks(state, now) and self._look is None:
            self._look = self._looking(state)
        until, due = policy.wakes(state, now, looking=self._look is not None), self._timer.until
        # A timer that is due earlier wakes early enough, and the next one is set then.
        self._timer.set(min(until, due) if until and due else until, "until who waits is looked at again", now)

    def _woken(self) -> bool:
        return self._has_news() or (self._leaves() and not self._outbox.is_sending)

    def _has_news(self) -> bool:
        return (
            bool(self._inbox)
            or bool(self._closing)
            or self._given is not None
            or (self._look is not None and self._look.done())
            or self._timer.is_due
            or self._outbox.has_ended
        )

    def _take_in(self, state: QueueState, now: datetime) -> QueueState:
        inbox, self._inbox = self._inbox, []
        self._length.count(len(inbox))
        for news in inbox:
            left = policy.replaced(state, news)
            if left is not state and workflow.patched(patches.REPLACED):
                state = left
            state, answer = policy.on_workload_news(state, news, now)
            if answer is not None:
                self._outbox.put([policy.Order(news.workload, answer)])
        for order, lost in self._outbox.ended():
            if lost:
                if order.about is not None and not workflow.patched(patches.ABOUT):
                    order = replace(order, about=None)
                state = policy.gone(state, order)
        self._timer.take()
        given, self._given = self._given, None
        if given is not None:
            state = policy.configured(state, given)
        why, self._closing = self._closing, ""
        if why:
            state = policy.closing(state, why)
        look = self._look
        if look is not None and look.done():
            self._look = None
            try:
                seen = look.result()
            except (ActivityError, asyncio.CancelledError):
                return state  # The cluster is looked at again.
            found = policy.Seen(seen.kueue, seen.workloads, seen.gone, seen.kueue_namespaces, seen.begun)
            state, orders = policy.on_look(state, found, now)
            self._outbox.put(orders)
        return state

    def _looking(self, state: QueueState) -> workflow.ActivityHandle[SeenQueue]:
        queue = state.queue
        holders = tuple(QueueHolder(workload=one.workload, uid=uid) for uid, one in state.items.items() if one.admitted)
        return start(
            names.ACTIVITY_LOOK_QUEUE,
            LookQueueInput(
                cluster=queue.cluster,
                queue=queue.name,
                holders=holders,
                asks_begun=workflow.patched(patches.DOUBTED),
            ),
            SeenQueue,
            queue=names.queue_cluster(queue.cluster),
            within=_LOOK_TIMEOUT,
            heartbeat=_LOOK_HEARTBEAT,
            summary="checking which workloads of the queue still exist",
        )

    def _show(self, state: QueueState) -> None:
        if state == self._shown:
            return
        self._shown = state
        meter, labels = workflow.metric_meter(), {"cluster": state.queue.cluster, "queue": state.queue.name}
        admitted = sum(one.admitted for one in state.items.values())
        counts = ((names.METRIC_QUEUE_ADMITTED, admitted), (names.METRIC_QUEUE_WAITING, len(state.items) - admitted))
        for name, count in counts:
            meter.create_gauge(name, "Workloads of a queue.").set(count, labels)
        # Whoever submits reads it with the queue itself, and asks no worker.
        if bool(state.closing) != self._shows_closing and workflow.patched(patches.CLOSING):
            self._shows_closing = bool(state.closing)
            workflow.upsert_memo({names.MEMO_CLOSING: self._shows_closing or None})

    def current_details(self) -> str:
        """Return what Temporal's UI shows of it (`describing`)."""
        return policy.details(self._state) if self._state is not None else ""

    @workflow.signal(name=names.SIGNAL_NEWS, description="How one of its workloads stands, by that workload")
    def news(self, news: QueueNews) -> None:
        """Take in that a workload asks for admission, holds its quota, or has released it."""
        self._inbox.append(news)

    @workflow.signal(name=names.SIGNAL_CANCEL, description="Let nobody in any more, and end once nobody is left")
    def cancel(self, reason: str = "") -> None:
        """Admit no more workloads; end once none waits and none holds quota."""
        self._closing = reason or "a person asked for it"

    @workflow.update(name=names.UPDATE_CONFIGURE, description="Change its quota or strategy from now on")
    def configure(self, queue: Queue) -> QueueStatus:
        """Change its quota, strategy or stop policy from now on; admitted workloads stay."""
        assert self._state is not None
        self._given = queue
        if self._closing and workflow.patched(patches.REVOKED):
            self._closing = ""  # It arrived before this did, in the same task: what came later counts.
        return policy.status(policy.configured(self._state, queue))

    @configure.validator
    def _check_configuration(self, queue: Queue) -> None:
        self._check_document(queue, names.ERROR_INVALID_QUEUE)

    @workflow.query(name=names.QUERY_STATUS, description="What is taken of its quota, who waits, and why")
    def status(self) -> QueueStatus | None:
        """Return its status; None before it has begun."""
        return None if self._state is None else policy.status(self._state)


def _message(order: policy.Order) -> Message:
    return Message(order.workload, names.SIGNAL_QUEUE, order.given)
