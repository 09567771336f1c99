"""The activities of elastic gangs: one starts a rendezvous; the other, endless, serves one gang's agents."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import structlog
from temporalio import activity
from temporalio.client import (
    Client,
    WorkflowHandle,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.activities.kube.blindness import Sight
from holdfast.activities.kube.client import KubeError
from holdfast.activities.site.updates import update
from holdfast.model.calls.gang import Announced, Attach, Attached, GangBegin, HubInput, RendezvousInput
from holdfast.model.gang.orders import Orders
from holdfast.model.gang.state import Absence
from holdfast.policy.rendezvous.hub import GangHub
from holdfast.worker.gangs.nodes import GangNodes
from holdfast.worker.gangs.sessions import Gang, GangName, Gangs, PodSeen, pod_seen
from holdfast.worker.runtime.endless import beat, other_cluster, while_all_last, worker_leaves
from holdfast.worker.runtime.kube import WorkerKube
from holdfast.worker.runtime.metrics import Metrics
from holdfast.worker.watch.informer import Informer, Restored, Standing, StreamSight
from holdfast.worker.watch.pulse import DEADLINE, Pulse

TICK: Final = 0.25
LOOK: Final = 5.0
"""Seconds between two looks at the nodes of silent members."""
TOGETHER: Final = 0.02
"""Seconds to wait after news, so that further news is sent with it."""
UPDATE_DEADLINE: Final = 10.0
QUERY_DEADLINE: Final = 5.0
PAUSE: Final = 0.5
"""Seconds until Temporal is called again."""

Log: Any = structlog.stdlib.get_logger("holdfast.gangs")


class Stale(Exception):
    """Another hub has attached since, or another attempt has begun: this hub's state is no longer valid."""


class GangActivities:
    """The activities of elastic gangs, with the resources of their process."""

    def __init__(
        self,
        client: Client,
        connect: Callable[[Sight, float | None], Awaitable[WorkerKube]],
        *,
        cluster_uid: str,
        metrics: Metrics,
        gangs: Gangs,
    ) -> None:
        """Prepare.

        Args:
            client: sends the rendezvous' updates.
            connect: makes a client of the cluster with a sight, and a deadline in seconds for its requests.
            cluster_uid: the cluster's own identity.
            metrics: the metrics to update.
            gangs: the gangs served here, in which the door looks them up.
        """
        self.client = client
        self.connect = connect
        self.metrics = metrics
        self.gangs = gangs
        self._cluster_uid = cluster_uid

    @activity.defn(name=names.ACTIVITY_BEGIN_GANG)
    async def begin_gang(self, input: GangBegin) -> None:
        """Make sure that a rendezvous runs and knows an attempt; may be repeated, and may come late."""
        self._check(input.cluster, input.cluster_uid)
        await self.client.start_workflow(
            names.RENDEZVOUS_WORKFLOW,
            RendezvousInput(**dict(input)),
            id=names.rendezvous_id(input.cluster, input.namespace, input.workload),
            task_queue=names.QUEUE_WORKFLOWS,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            start_signal=names.SIGNAL_ATTEMPT,
            start_signal_args=[input],
            static_summary=f"the gang of {input.namespace}/{input.workload}",
        )

    @activity.defn(name=names.ACTIVITY_GANG_HUB)
    async def gang_hub(self, input: HubInput) -> None:
        """Serve a gang until cancelled, until the lease is lost, or until this worker shuts down.

        Raises:
            ApplicationError: `ClusterMismatch` if this worker has another cluster; retried: another worker may match.
        """
        self._check(input.cluster, input.cluster_uid)
        await _Serving(self, input).run()

    def _check(self, cluster: str, uid: str) -> None:
        if uid and uid != self._cluster_uid:
            raise other_cluster(cluster, self._cluster_uid, f"the gang is of {uid}")


class _Serving:
    """One try of the activity."""

    def __init__(self, owner: GangActivities, given: HubInput) -> None:
        self._owner, self._given = owner, given
        self._handle: WorkflowHandle[Any, Any] = owner.client.get_workflow_handle(given.workflow_id)
        self._generation = 0
        self._roles = set[str]()
        """The roles that metrics tell of."""
        self._asked = False
        self._polled = 0.0
        self._moved: tuple[str, int] | None = None
        """The rendezvous' run, and the length of its history, before its orders were last queried."""
        self._gang: Gang
        self._pods: Informer[PodSeen]
        self._pulse: Pulse

    async def run(self) -> None:
        owner, given = self._owner, self._given
        self._pulse = Pulse(await owner.connect(Sight(), DEADLINE))
        self._gang = Gang(GangName(given.namespace, given.workload, given.workload_uid), self._pulse.kube)
        self._pods = Informer(
            await owner.connect(StreamSight(self._pulse), None),
            "v1",
            "Pod",
            sink=self._gang,
            decode=pod_seen,
            pulse=self._pulse,
            metrics=owner.metrics,
            namespace=given.namespace,
            labels=f"{names.LABEL_WORKLOAD_UID}={given.workload_uid}",
            essential=True,
        )
        works = (
            self._pulse.run(),
            self._pods.run(),
            self._serve(),
            self._tick(),
            self._look_at_nodes(),
            beat(owner.client, self._remember),
            worker_leaves(self._remember),
        )
        owner.gangs.served[self._gang.name.key] = self._gang
        owner.metrics.gangs.inc()
        try:
            await while_all_last(works, self._close)
        except Restored as restored:
            raise ApplicationError(str(restored), next_retry_delay=timedelta(milliseconds=10)) from None

    async def _close(self, tasks: list[asyncio.Task[None]]) -> None:
        served, key = self._owner.gangs.served, self._gang.name.key
        if served.get(key) is self._gang:
            del served[key]
        self._leave()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._pulse.kube.close()
        self._owner.metrics.gangs.dec()
        self._forget()

    async def _serve(self) -> None:
        while True:
            try:
                await self._attach()
                await self._attend()
            except Stale:
                self._leave()
            except (RPCError, TimeoutError) as error:
                if isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND:
                    # Temporal retries it as long as it is wanted: the rendezvous' next run may be about to start.
                    raise ApplicationError("the rendezvous is over", category=ApplicationErrorCategory.BENIGN) from None
                self._owner.metrics.gang_updates.labels("failed").inc()
                Log.warning("the rendezvous was not reached: tried again", why=str(error) or type(error).__name__)
                self._leave()
            await asyncio.sleep(PAUSE)

    async def _attach(self) -> None:
        given = Attach(hub=self._owner.client.identity)
        attached = await update(self._handle, names.UPDATE_ATTACH, given, returns=Attached, seconds=UPDATE_DEADLINE)
        if attached.workload_uid != self._given.workload_uid:
            raise Stale  # It belongs to a later workload: this activity is about to be cancelled.
        self._generation = attached.generation
        hub = GangHub(attached.gang, attached.orders, attached.holders, _clock())
        hub.hearing.reaches(_clock())
        self._gang.hub, self._gang.behind, self._asked, self._polled = hub, False, False, _clock()
        self._moved = None
        Log.info(
            "serves the gang",
            workload=self._given.workload,
            attempt=hub.attempt,
            members=len(hub.holders),
            generation=self._generation,
        )
        self._show(hub)

    def _leave(self) -> None:
        self._gang.hub = None
        self._gang.answer_all()

    async def _attend(self) -> None:
        """Pass news to the rendezvous as long as no other hub serves the gang."""
        hub, verified = self._gang.hub, False
        assert hub is not None
        while True:
            self._gang.wake.clear()
            if not verified and self._pods.standing is Standing.SYNCED:
                verified = await self._verify(hub)
            self._note_losses(hub)
            at = _clock()
            due = hub.due(at, datetime.now(UTC))
            if due is not None and due <= at:
                await self._announce(hub)
            elif self._gang.behind or at >= self._polled + hub.gang.heartbeat.total_seconds():
                if self._gang.behind:
                    self._gang.behind, self._moved = False, None
                await self._poll(hub)
            if hub.news.failing is not None and not self._asked:
                self._gang.answer_all()  # Ask all agents to announce now: related failures are reported together.
            self._asked = hub.news.failing is not None
            await self._woken(hub)

    async def _woken(self, hub: GangHub) -> None:
        at = _clock()
        due = hub.due(at, datetime.now(UTC))
        until = min(self._polled + hub.gang.heartbeat.total_seconds(), due if due is not None else at + 60)
        try:
            async with asyncio.timeout(min(max(until - at, 0.0), 1.0)):
                await self._gang.wake.wait()
        except TimeoutError:
            return
        await asyncio.sleep(TOGETHER)

    async def _announce(self, hub: GangHub) -> None:
        batch, events = hub.batch(_clock(), datetime.now(UTC))
        announced = Announced(generation=self._generation, attempt=hub.attempt, seen=hub.orders.revision, events=events)
        try:
            orders = await update(
                self._handle,
                names.UPDATE_ANNOUNCE,
                announced,
                returns=Orders,
                seconds=UPDATE_DEADLINE,
                update_id=uuid.uuid4().hex,
            )
        except WorkflowUpdateFailedError as error:
            raise Stale from error
        except (RPCError, TimeoutError) as error:
            if isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND:
                raise Stale from error
            # The update may have been processed all the same; it is sent again, and twice has the effect of once.
            hub.news.unsure(batch)
            self._owner.metrics.gang_updates.labels("failed").inc()
            Log.warning("the rendezvous was not told: tried again", why=str(error) or type(error).__name__)
            await asyncio.sleep(PAUSE)
            return
        self._owner.metrics.gang_updates.labels("told").inc()
        hub.done(batch, _clock())
        self._take(hub, orders)
        # An agent that has just become the holder of a place gets the orders for it.
        self._gang.answer(batch.words)

    async def _poll(self, hub: GangHub) -> None:
        """Query the orders if the rendezvous has moved on: deadlines, people and the workload change them too.

        Each query may be billed. A description is not, and tells whether the rendezvous' history has grown.
        """
        self._polled = _clock()
        try:
            async with asyncio.timeout(QUERY_DEADLINE):
                described = (await self._handle.describe()).raw_description.workflow_execution_info
                moved = (described.execution.run_id, described.history_length)
                if moved == self._moved:
                    hub.hearing.reaches(_clock())
                    return
                orders = await self._handle.query(names.QUERY_ORDERS, hub.orders.revision, result_type=Orders)
        except (RPCError, TimeoutError, WorkflowQueryFailedError) as error:
            Log.debug("the rendezvous was not asked: tried again", why=str(error) or type(error).__name__)
            return
        self._moved = moved
        self._take(hub, orders)

    def _take(self, hub: GangHub, orders: Orders) -> None:
        hub.hearing.reaches(_clock())
        if orders.attempt != hub.attempt:
            raise Stale
        if orders.revision < hub.orders.revision:
            return  # An older answer that arrived late.
        self._polled = _clock()
        changed = hub.takes(orders)
        self._gang.answer(changed)
        self._show(hub)

    async def _verify(self, hub: GangHub) -> bool:
        """Read the pods of members that the watch has never seen: they may have gone while nobody watched."""
        for one in list(hub.holders.values()):
            known = one.pod_uid in self._gang.pods or one.pod_uid in self._gang.ended
            if one.absent in {None, Absence.SILENT} and not known:
                try:
                    raw = await self._pulse.kube.find("v1", "Pod", one.member, self._given.namespace)
                except KubeError:
                    return False
                if raw is None or raw["metadata"]["uid"] != one.pod_uid:
                    self._gang.gone(one.pod_uid)
        return True

    def _note_losses(self, hub: GangHub) -> None:
        ended = self._gang.ended
        for one in hub.holders.values():
            if one.pod_uid in ended:
                hub.lost(one.member, one.pod_uid, Absence.GONE, ended[one.pod_uid])

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            hub = self._gang.hub
            if hub is None:
                continue
            stood = hub.tick(_clock())
            if stood:
                Log.warning("this process stood still: nobody is silent for that", seconds=stood.total_seconds())
            if hub.news.losses:
                self._gang.wake.set()

    async def _look_at_nodes(self) -> None:
        """Look in the cluster for evidence that silent members are lost (row D4)."""
        nodes = GangNodes(self._pulse.kube)
        while True:
            hub = self._gang.hub
            suspects = hub.suspects(_clock()) if hub is not None else {}
            seen = [self._gang.pods[uid] for uid in suspects.values() if uid in self._gang.pods]
            silent = await nodes.look([one.node for one in seen if one.node and not one.deleting], _clock())
            if hub is not None:
                hub.doomed = {one.uid: silent[one.node] for one in seen if one.node in silent}
                hub.doomed |= {one.uid: "its pod is being deleted" for one in seen if one.deleting}
            await asyncio.sleep(LOOK)

    def _show(self, hub: GangHub) -> None:
        name, metrics = (self._given.namespace, self._given.workload), self._owner.metrics
        metrics.gang_members.labels(*name).set(len(hub.present()))
        gone, self._roles = self._roles - hub.orders.roles.keys(), set(hub.orders.roles)
        for role, gauge in itertools.product(gone, (metrics.gang_remaining, metrics.gang_flakiness)):
            with suppress(KeyError):
                gauge.remove(*name, role)
        for role, figures in hub.orders.roles.items():
            metrics.gang_remaining.labels(*name, role).set(figures.remaining_restarts)
            metrics.gang_flakiness.labels(*name, role).set(figures.flakiness)

    def _forget(self) -> None:
        name, metrics = (self._given.namespace, self._given.workload), self._owner.metrics
        for gauge in (metrics.gang_members, metrics.gang_remaining, metrics.gang_flakiness):
            gauge.remove_by_labels({"namespace": name[0], "workload": name[1]})

    def _remember(self) -> dict[str, Any]:
        hub = self._gang.hub
        return {"generation": self._generation, "members": len(hub.present()) if hub is not None else 0}


def _clock() -> float:
    return asyncio.get_running_loop().time()
