"""The workflow of an admission queue: it hears who waits, and lets in whom its quota has room for (row L9)."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any, Final

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, FailureError

with workflow.unsafe.imports_passed_through():
    from pydantic import ValidationError

    from holdfast import names
    from holdfast.activities.queue_contract import LookQueueInput, QueueHolder, SeenQueue
    from holdfast.model.queue import Queue, QueueNews, QueueState, QueueStatus
    from holdfast.policy import queue as policy
    from holdfast.workflows.dispatch import RETRY

HEARD_MAXIMUM: Final = 200
"""Words after which a new run begins: a worker that takes a queue over has to live through all it heard."""
TELLING_MAXIMUM: Final = 200
"""Words under way at once: the server takes 2,000 pending signals of a workflow."""
_LOOK_TIMEOUT: Final = timedelta(minutes=5)
_LOOK_HEARTBEAT: Final = timedelta(seconds=30)


@workflow.defn(name=names.QUEUE_WORKFLOW)
class QueueWorkflow:
    """An admission queue's life: until a person ends it, and nobody is left in it."""

    @workflow.init
    def __init__(self, document: Any, carried: QueueState | None = None) -> None:
        """Read the document; what is wrong with it is told by `run`, since a constructor's error would be retried."""
        self._problem = ""
        self._state: QueueState | None = carried
        self._inbox: list[QueueNews] = []
        self._given: Queue | None = None
        self._closing = ""
        self._heard = 0
        self._outbox: list[policy.Order] = []
        self._telling: dict[asyncio.Task[bool], policy.Order] = {}
        self._look: workflow.ActivityHandle[SeenQueue] | None = None
        self._timer: asyncio.Task[None] | None = None
        self._timer_until: datetime | None = None
        self._shown: QueueState | None = None
        if carried is not None:
            return
        try:
            queue = Queue.model_validate(document)
        except ValidationError as error:
            self._problem = "; ".join(
                f"{'.'.join(str(part) for part in each['loc']) or 'queue'}: {each['msg']}" for each in error.errors()
            )
            return
        if workflow.info().workflow_id != queue.workflow_id:
            self._problem = f"workflow id {workflow.info().workflow_id!r}: expected {queue.workflow_id!r}"
            return
        self._state = policy.begun(queue)

    @workflow.run
    async def run(self, document: Any, carried: QueueState | None = None) -> QueueStatus:
        """Let workloads in, in their order, for as long as the queue is wanted.

        Args:
            document: the queue (`Queue`), as one JSON document.
            carried: the memory of the run before, when this one continues it.

        Returns:
            How it stood at its end.

        Raises:
            ApplicationError: type `InvalidQueue`, before anything begins.
        """
        if self._state is None:
            raise ApplicationError(self._problem, type=names.ERROR_INVALID_QUEUE, non_retryable=True)
        while True:
            now = workflow.now()
            state = self._take_in(self._state, now)
            state, orders = policy.step(state)
            self._state = state
            self._outbox += orders
            self._tell()
            self._show(state)
            # A look only reads: it is let fall where it does not come to an end.
            if not self._telling and not self._inbox:
                if policy.over(state):
                    await workflow.wait_condition(workflow.all_handlers_finished)
                    return policy.status(state)
                if self._heard >= HEARD_MAXIMUM or workflow.info().is_continue_as_new_suggested():
                    await workflow.wait_condition(workflow.all_handlers_finished)
                    if not self._inbox and self._given is None:
                        workflow.continue_as_new(args=[document, self._state])
            if policy.looks(state, now) and self._look is None and not self._telling:
                self._look = self._looking(state)
            self._set_timer(policy.wakes(state, now, looking=self._look is not None), now)
            try:
                await workflow.wait_condition(self._woken)
            except asyncio.CancelledError:
                self._closing = "cancelled through Temporal"

    def _woken(self) -> bool:
        return (
            bool(self._inbox)
            or bool(self._closing)
            or self._given is not None
            or (self._look is not None and self._look.done())
            or (self._timer is not None and self._timer.done())
            or any(task.done() for task in self._telling)
        )

    def _take_in(self, state: QueueState, now: datetime) -> QueueState:
        inbox, self._inbox = self._inbox, []
        self._heard += len(inbox)
        for news in inbox:
            state, answer = policy.heard(state, news, now)
            if answer is not None:
                self._outbox.append(policy.Order(news.workload, answer))
        for task in [task for task in self._telling if task.done()]:
            order = self._telling.pop(task)
            if not task.result():
                state = policy.gone(state, order)
        if self._timer is not None and self._timer.done():
            self._timer, self._timer_until = None, None
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
                return state  # It is looked at anew.
            state, orders = policy.seen(state, policy.Seen(seen.kueue, seen.workloads, seen.gone), now)
            self._outbox += orders
        return state

    def _looking(self, state: QueueState) -> workflow.ActivityHandle[SeenQueue]:
        queue = state.queue
        holders = tuple(QueueHolder(workload=one.workload, uid=uid) for uid, one in state.items.items() if one.admitted)
        return workflow.start_activity(
            names.ACTIVITY_LOOK_QUEUE,
            LookQueueInput(cluster=queue.cluster, queue=queue.name, holders=holders),
            task_queue=names.queue_cluster(queue.cluster),
            result_type=SeenQueue,
            start_to_close_timeout=_LOOK_TIMEOUT,
            heartbeat_timeout=_LOOK_HEARTBEAT,
            retry_policy=RETRY,
            summary="who is there of those that it knows, and of those that it does not",
        )

    def _tell(self) -> None:
        """Say what is to be said, in its order; Temporal bears no more than so much that is under way at once."""
        count = max(0, TELLING_MAXIMUM - len(self._telling))
        now, self._outbox = self._outbox[:count], self._outbox[count:]
        for order in now:
            self._telling[asyncio.create_task(self._told(order))] = order

    async def _told(self, order: policy.Order) -> bool:
        """Tell a workload; returns whether it is there to hear it."""
        try:
            handle: workflow.ExternalWorkflowHandle[Any] = workflow.get_external_workflow_handle(order.workload)
            await handle.signal(names.SIGNAL_QUEUE, order.given)
        except FailureError as error:
            workflow.logger.info("%s was not told: %s", order.workload, error)
            return False
        return True

    def _set_timer(self, until: datetime | None, now: datetime) -> None:
        due = self._timer_until
        if until is not None and due is not None and due <= until:
            return  # It wakes early enough, and sees then what is next.
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_until = None, until
        if until is not None:
            self._timer = asyncio.create_task(
                workflow.sleep(max(until - now, timedelta(0)), summary="until who waits is looked at again")
            )

    def _show(self, state: QueueState) -> None:
        if state == self._shown:
            return
        self._shown = state
        workflow.set_current_details(policy.details(state))
        meter, labels = workflow.metric_meter(), {"cluster": state.queue.cluster, "queue": state.queue.name}
        admitted = sum(one.admitted for one in state.items.values())
        counts = ((names.METRIC_QUEUE_ADMITTED, admitted), (names.METRIC_QUEUE_WAITING, len(state.items) - admitted))
        for name, count in counts:
            meter.create_gauge(name, "Workloads of a queue.").set(count, labels)

    @workflow.signal(name=names.SIGNAL_NEWS, description="How one of its workloads stands, by that workload")
    def news(self, news: QueueNews) -> None:
        """Take in that a workload asks to be let in, or holds nothing any more."""
        self._inbox.append(news)

    @workflow.signal(name=names.SIGNAL_CANCEL, description="Let nobody in any more, and end once nobody is left")
    def cancel(self, reason: str = "") -> None:
        """Let nobody in any more; it ends once nobody waits and nobody holds anything."""
        self._closing = reason or "a person asked for it"

    @workflow.update(name=names.UPDATE_CONFIGURE, description="Change its quota or strategy from now on")
    def configure(self, queue: Queue) -> QueueStatus:
        """Change its quota, strategy or stop policy from now on; what was let in stays."""
        assert self._state is not None
        self._given = queue
        return policy.status(policy.configured(self._state, queue))

    @configure.validator
    def _check_configuration(self, queue: Queue) -> None:
        if self._state is None:
            raise ApplicationError(self._problem, type=names.ERROR_INVALID_QUEUE)
        if queue.workflow_id != workflow.info().workflow_id:
            raise ApplicationError(
                f"queue {queue.cluster}/{queue.name}: expected {workflow.info().workflow_id}",
                type=names.ERROR_INVALID_QUEUE,
            )

    @workflow.query(name=names.QUERY_STATUS, description="What is taken of its quota, who waits, and why")
    def status(self) -> QueueStatus | None:
        """Return how it stands; None before it has begun."""
        return None if self._state is None else policy.status(self._state)
