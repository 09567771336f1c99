"""The workflow that boots, wipes and powers off a cluster's nodes, in the order of the requests (row L15)."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Final

from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, RetryState
from temporalio.exceptions import TimeoutError as TimedOut

with workflow.unsafe.imports_passed_through():
    from holdfast import names
    from holdfast.model import Payload
    from holdfast.model.calls.provisioner import (
        CheckProvisionerInput,
        Enlisted,
        EnlistInput,
        Provisioned,
        ProvisionInput,
    )
    from holdfast.model.entities.provisioner import (
        AT_ONCE,
        Checked,
        FenceAsk,
        FenceNews,
        NodeAsk,
        NodeRequest,
        ProvisionerState,
        ProvisionerStatus,
        Result,
    )
    from holdfast.policy.nodes import provisioner as policy
    from holdfast.policy.nodes import provisioner_status as shown
    from holdfast.policy.values.edit import edit
    from holdfast.workflows import patches
    from holdfast.workflows.clock import task_time
    from holdfast.workflows.entity import Entity, Message, refuse_memory, send, start
    from holdfast.workflows.operations.dispatch import HEARTBEAT

SIGNAL_STOP: Final = "stop"
SIGNAL_AT_ONCE: Final = "at_once"
_ENLIST_TIMEOUT: Final = timedelta(seconds=30)
_TRY_TIMEOUT: Final = timedelta(minutes=5)
"""Limit of one try: no try waits longer than a minute, but each of its HTTP requests may hang."""
_CHECK_TIMEOUT: Final = timedelta(seconds=50)
"""Limit of a check with all its tries: less than clients wait for, and a run does not end before its checks."""


class ProvisionerInput(Payload):
    """The cluster whose nodes are provisioned."""

    cluster: str
    cluster_uid: str
    at_once: int = AT_ONCE
    """How many requests are in work at the same time."""
    state: ProvisionerState | None = None
    """The state of the previous run, or what a worker found on the cluster's nodes."""
    stopping: bool = False
    """Whether the previous run was told to end."""


@workflow.defn(name=names.PROVISIONER_WORKFLOW)
class Provisioner(Entity):
    """Runs as long as a worker of its cluster is configured with a provisioning service."""

    @workflow.init
    def __init__(self, input: ProvisionerInput) -> None:
        """Remember the cluster; take over the state of the previous run."""
        super().__init__()
        self._problem = refuse_memory("state", input.state)
        state = None if self._problem else input.state
        self._state = state or ProvisionerState(cluster=input.cluster, cluster_uid=input.cluster_uid)
        self._state = edit(self._state, at_once=input.at_once)
        self._busy: dict[int, asyncio.Task[None]] = {}
        self._telling: dict[str, asyncio.Task[None]] = {}
        self._stopping = input.stopping
        self._changed = False
        self._services = set(self._state.away)
        """The services that have been asked."""

    @workflow.run
    async def run(self, input: ProvisionerInput) -> None:
        """Carry out requests, and wait for those not possible yet; after `stop`, end once nothing is left.

        Raises:
            ApplicationError: type `InvalidInput`, before anything begins, if it was started with a foreign state.
        """
        if self._problem:
            raise self._refused(names.ERROR_INVALID_INPUT)
        while True:
            now = self._clock.now()
            self._changed = False
            leaves = self._is_over() or self._state.at_once != input.at_once or self._length.is_enough
            wanted = policy.plan(self._state, self._busy.keys(), now)
            if not leaves:
                self._begin(wanted, now)
            self._show()
            if leaves and not self._busy and not self._telling:
                break
            await self._sleep(None if leaves else wanted.until, wanted.why, now)
        await workflow.wait_condition(workflow.all_handlers_finished)
        if not self._is_over():
            given = edit(input, at_once=self._state.at_once, state=self._state, stopping=self._stopping)
            workflow.continue_as_new(given)

    def _is_over(self) -> bool:
        left = self._state.pending or self._state.quarantined or self._state.news
        return self._stopping and not left

    async def _sleep(self, until: datetime | None, why: str, now: datetime) -> None:
        span = max(until - now, timedelta(0)) if until is not None else None
        try:
            await workflow.wait_condition(
                lambda: self._changed or bool(self._broken()), timeout=span, timeout_summary=why[:200]
            )
        except TimeoutError:
            return
        for task in self._broken():
            task.result()  # Raises the task's unexpected error, so that it is seen.

    def _broken(self) -> list[asyncio.Task[None]]:
        """Return the tasks that have ended without removing themselves from their list."""
        return [task for task in (*self._busy.values(), *self._telling.values()) if task.done()]

    # Tasks, and their results.

    def _begin(self, wanted: policy.Plan, now: datetime) -> None:
        for one in wanted.enlist:
            self._busy[one.number] = asyncio.create_task(self._enlist(one))
        for one in wanted.begin:
            self._state = policy.begun(self._state, one.number, now)
            self._busy[one.number] = asyncio.create_task(self._provision(one))
        for news in self._state.news:
            if news.node not in self._telling:
                self._telling[news.node] = asyncio.create_task(self._tell(news))

    async def _enlist(self, request: NodeRequest) -> None:
        given = EnlistInput(cluster=self._state.cluster, cluster_uid=self._state.cluster_uid, request=request)
        try:
            found = await start(
                names.ACTIVITY_ENLIST,
                given,
                Enlisted,
                queue=names.queue_cluster(self._state.cluster),
                within=_ENLIST_TIMEOUT,
                summary=f"finding the provisioning service for {_words(request)}",
            )
            self._state = policy.enlisted(
                self._state, request.number, found.uid, found.service, found.refused, self._clock.now()
            )
        except ActivityError as error:
            self._state = policy.not_enlisted(self._state, request.number, _cause(error), self._clock.now())
        self._end(request)

    async def _provision(self, request: NodeRequest) -> None:
        given = ProvisionInput(cluster=self._state.cluster, cluster_uid=self._state.cluster_uid, request=request)
        try:
            done = await start(
                names.ACTIVITY_PROVISION,
                given,
                Provisioned,
                queue=names.queue_wait(self._state.cluster),
                within=_TRY_TIMEOUT,
                heartbeat=HEARTBEAT,
                summary=f"{_words(request)}{': ' if request.why else ''}{request.why}",
            )
        except ActivityError as error:
            done = Provisioned(result=Result.WAITS, said=_cause(error), progress=request.progress)
        if request.service and (done.reached or done.result is Result.AWAY):
            self._services.add(request.service)
        self._state = policy.on_try_ended(
            self._state,
            request.number,
            done.result,
            done.said,
            done.progress,
            self._clock.now(),
            reached=done.reached,
            off_since=done.off_since,
            renewed=done.renewed,
        )
        self._end(request)

    def _end(self, request: NodeRequest) -> None:
        del self._busy[request.number]
        self._changed = True

    async def _tell(self, news: FenceNews) -> None:
        """Send the news to the node monitor; where there is none, nobody waits for it."""
        await send(Message(names.node_monitor_id(self._state.cluster), names.SIGNAL_FENCED, news))
        self._state = policy.on_news_delivered(self._state, news)
        del self._telling[news.node]
        self._changed = True

    # Requests.

    @workflow.update(name=names.UPDATE_REQUEST, description="Boot, wipe, power off or release a node")
    def request(self, ask: NodeAsk) -> NodeRequest:
        """Accept a request and return it; if the same one is pending already, return that."""
        self._state, request = policy.on_request(self._state, ask, self._clock.now())
        self._changed = True
        return request

    @request.validator
    def _check_request(self, ask: NodeAsk) -> None:
        problem = policy.refusal(self._state, ask, self._busy.keys())
        if problem:
            raise ApplicationError(problem, type=names.ERROR_REFUSED)

    @workflow.update(name=names.UPDATE_CHECK, description="Ask the provisioning service whether it takes requests")
    async def check(self, node: str = "") -> Checked:
        """Ask the service whether it takes requests; with `node`, that node's service."""
        asked = start(
            names.ACTIVITY_CHECK_PROVISIONER,
            CheckProvisionerInput(cluster=self._state.cluster, cluster_uid=self._state.cluster_uid, node=node),
            Checked,
            queue=names.queue_wait(self._state.cluster),
            within=_CHECK_TIMEOUT,
            in_all=_CHECK_TIMEOUT,
            summary=f"whether the provisioning service takes requests{' for ' if node else ''}{node}",
        )
        try:
            return await asked
        except ActivityError as error:
            if not isinstance(error.cause, TimedOut) and error.retry_state is not RetryState.TIMEOUT:
                raise
            whose, why = "the provisioning service", ""
            if isinstance(error.cause, ApplicationError):
                why = f": {error.cause.message}"
            else:
                whose += ", or of a worker with the role wait,"
            found = f"no answer of {whose} within {_CHECK_TIMEOUT.seconds} s{why}"
            return Checked(
                good=False, found=found, remedy="see that workers of this cluster run, and that it answers them"
            )

    @workflow.signal(name=names.SIGNAL_FENCE, description="Power off a silent node (by the monitor of nodes)")
    def fence(self, ask: FenceAsk) -> None:
        """Power off a silent node, before other requests."""
        self._state = policy.fence(self._state, ask, self._clock.now())
        self._changed = True

    @workflow.signal(name=names.SIGNAL_WITHDRAW, description="Leave a node on that is heard again (by the monitor)")
    def withdraw(self, node: str, uid: str) -> None:
        """Leave a node on, unless its power is being cut already."""
        remembers = workflow.patched(patches.HEARD)
        now = self._clock.now()
        self._state = policy.withdrawn(self._state, node, uid, self._busy.keys(), now, remembers=remembers)
        self._changed = True

    @workflow.signal(name=SIGNAL_STOP, description="End, once nothing is pending and no node is in quarantine")
    def stop(self) -> None:
        """End, but only once nothing is left: a worker that has no service may be one of several."""
        self._stopping = self._changed = True

    @workflow.signal(name=SIGNAL_AT_ONCE, description="Stay, and work at so many requests at the same time")
    def at_once(self, at_once: int) -> None:
        """Work at this many requests at the same time from now on, and do not end."""
        self._state = edit(self._state, at_once=max(1, at_once))
        self._stopping, self._changed = False, True

    @workflow.query(name=names.QUERY_STATUS, description="What is pending and why, what is away, what came of the last")
    def status(self) -> ProvisionerStatus:
        """Return its status."""
        return shown.status(self._state, self._busy.keys(), task_time())

    # Current details and metrics.

    def current_details(self) -> str:
        """Return what Temporal's UI shows of it (`describing`)."""
        return shown.details(self._state, self._busy.keys(), task_time())

    def _show(self) -> None:
        meter, labels = workflow.metric_meter(), {"cluster": self._state.cluster}
        counts = shown.pending(self._state)
        for action, count in counts.items():
            meter.create_gauge(names.METRIC_PROVISIONER_PENDING, "Requests that are pending, by action.").set(
                count, {**labels, "action": action}
            )
        for service in sorted(self._services):
            meter.create_gauge(names.METRIC_PROVISIONER_AVAILABLE, "1 while the service answers.").set(
                int(service not in self._state.away), {**labels, "service": service}
            )
        oldest = min((one.at.timestamp() for one in self._state.pending), default=0.0)
        meter.create_gauge(
            names.METRIC_PROVISIONER_OLDEST, "When the oldest pending request was asked; 0 for none."
        ).set(int(oldest), labels)


def _words(request: NodeRequest) -> str:
    return f"request {request.number}, {policy.verb_of(request.action)} {request.node}"


def _cause(error: ActivityError) -> str:
    return str(error.cause or error)[:200]
