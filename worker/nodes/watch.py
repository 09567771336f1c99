"""The activity that watches a cluster's nodes: leases and conditions in, few signals to the node monitor out."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import structlog
from temporalio import activity
from temporalio.client import Client, WorkflowQueryFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.activities.facts.node_annotations import own_marks
from holdfast.activities.facts.nodes import Marks
from holdfast.activities.kube.blindness import SPANS_KEPT, Sight
from holdfast.activities.kube.raw import mapping
from holdfast.model import Interval, NodeSight, NodesSeen, OwnMarks
from holdfast.model.calls.cluster import WatchNodesInput
from holdfast.model.entities.nodes import NodeWord
from holdfast.policy.failures.blindness import lasting, union
from holdfast.policy.nodes.monitor import told_of
from holdfast.worker.nodes.ledger import NodeLedger
from holdfast.worker.runtime.endless import beat, ended, other_cluster, while_all_last, worker_leaves
from holdfast.worker.runtime.kube import WorkerKube
from holdfast.worker.runtime.metrics import Metrics
from holdfast.worker.watch.informer import Informer, Restored, Standing, StreamSight
from holdfast.worker.watch.pulse import DEADLINE, Pulse
from holdfast.workflows.entities.node_monitor import NodeMonitorStatus

TICK: Final = 0.25
STALLED: Final = timedelta(seconds=2)
"""A longer gap between two ticks means that this process stood still, and has not read what came meanwhile."""
SIGNAL_DEADLINE: Final = 5.0
ANSWER_DEADLINE: Final = 10.0
RETRY: Final = 1.0
BLIND_KEPT: Final = timedelta(hours=1)
LEASES_QUIET: Final = 10.0
"""Seconds: kubelets renew their leases every 10 s, and nodes whose leases do not come are taken for silent."""
LEASE: Final = ("coordination.k8s.io/v1", "Lease")
NODE: Final = ("v1", "Node")

Log: Any = structlog.stdlib.get_logger("holdfast.nodes")


@dataclass(frozen=True, slots=True)
class LeaseSeen:
    """The fields kept of a lease."""

    name: str
    renewed: str


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The fields kept of a node."""

    name: str
    uid: str
    fault: str
    message: str
    own: OwnMarks | None
    """This installation's own marks on it."""


def lease_seen(raw: Mapping[str, Any]) -> LeaseSeen | None:
    """Return the fields kept of a raw lease."""
    renewed = mapping(raw.get("spec")).get("renewTime")
    return LeaseSeen(str(mapping(raw.get("metadata")).get("name", "")), renewed) if isinstance(renewed, str) else None


def node_facts(faults: Marks) -> Callable[[Mapping[str, Any]], NodeFacts]:
    """Return a function that reads a raw node by these marks of broken hardware."""

    def decode(raw: Mapping[str, Any]) -> NodeFacts:
        metadata, mark = mapping(raw.get("metadata")), faults.of(raw)
        fault, message = (mark.reason, mark.message) if mark is not None else ("", "")
        own = own_marks(raw, faults.own) if faults.own else None
        return NodeFacts(str(metadata.get("name", "")), str(metadata.get("uid", "")), fault, message, own)

    return decode


class _Leases:
    """Puts renewals into the ledger."""

    def __init__(self, ledger: NodeLedger, metrics: Metrics) -> None:
        self._ledger, self._metrics = ledger, metrics

    def put(self, item: LeaseSeen) -> None:
        """Handle a new or renewed lease."""
        self._metrics.renewals.inc()
        self._ledger.renewed(item.name, item.renewed, datetime.now(UTC))

    def drop(self, item: LeaseSeen, revision: int) -> None:
        """Handle a lease that is gone."""
        self._ledger.unleased(item.name, item.renewed)


class _Nodes:
    """Puts nodes into the ledger."""

    def __init__(self, ledger: NodeLedger, wake: Callable[[], None]) -> None:
        self._ledger, self._wake = ledger, wake
        self._marked: dict[str, NodeWord] = {}

    def put(self, item: NodeFacts) -> None:
        """Handle a new or changed node."""
        self._ledger.node(item.name, item.uid, item.fault, item.message, item.own)
        self._mark(item.name, item.own.word if item.own is not None else NodeWord.NONE)
        if item.fault:
            self._wake()

    def drop(self, item: NodeFacts, revision: int) -> None:
        """Handle a node that is gone."""
        if self._ledger.unnode(item.name, item.uid):
            self._mark(item.name, NodeWord.NONE)

    def marked(self) -> dict[NodeWord, int]:
        """Return how many nodes the monitor has marked with each word."""
        counts = Counter(self._marked.values())
        return {word: counts[word] for word in NodeWord if word is not NodeWord.NONE}

    def _mark(self, name: str, word: NodeWord) -> None:
        self._marked.pop(name, None)
        if word is not NodeWord.NONE:
            self._marked[name] = word


class NodeWatchActivities:
    """The watch of nodes, with the resources of its process."""

    def __init__(
        self,
        client: Client,
        connect: Callable[[Sight, float | None], Awaitable[WorkerKube]],
        *,
        cluster_uid: str,
        metrics: Metrics,
        marks: Marks,
    ) -> None:
        """Prepare to watch; of the marks only those of broken hardware count, and labels do not."""
        self.client = client
        self.connect = connect
        self.metrics = metrics
        self.faults = marks.faults
        self._cluster_uid = cluster_uid

    @activity.defn(name=names.ACTIVITY_WATCH_NODES)
    async def watch_nodes(self, input: WatchNodesInput) -> None:
        """Watch until cancelled, until the lease is lost, or until this worker shuts down.

        Raises:
            ApplicationError: `ClusterMismatch` if this worker has another cluster; retried: another worker may match.
        """
        if input.cluster_uid != self._cluster_uid:
            raise other_cluster(input.cluster, self._cluster_uid, f"{input.cluster_uid} is to be watched")
        await _Watching(self, input).run()


class _Watching:
    """One try of the activity."""

    def __init__(self, owner: NodeWatchActivities, given: WatchNodesInput) -> None:
        self._owner = owner
        self._timings = given.timings
        self._handle = owner.client.get_workflow_handle(names.node_monitor_id(given.cluster))
        self._wake = asyncio.Event()
        self._stalls: tuple[Interval, ...] = ()
        self._ledger: NodeLedger
        self._pulse: Pulse
        self._sink: _Nodes
        self._leases: Informer[LeaseSeen]
        self._nodes: Informer[NodeFacts]

    async def run(self) -> None:
        client = self._owner.client
        await while_all_last((self._watch(), beat(client), worker_leaves()), ended)

    async def _watch(self) -> None:
        async with AsyncExitStack() as clients:
            await self._watch_by(clients)

    async def _watch_by(self, clients: AsyncExitStack) -> None:
        """Watch with clients that are closed by their stack, also if the next one cannot be made."""
        owner = self._owner

        async def connected(sight: Sight, deadline: float | None = None) -> WorkerKube:
            return await clients.enter_async_context(await owner.connect(sight, deadline))

        self._ledger = NodeLedger(self._timings, await self._known())
        self._pulse = Pulse(await connected(Sight(), DEADLINE))
        self._leases = Informer(
            await connected(StreamSight(self._pulse)),
            *LEASE,
            sink=_Leases(self._ledger, owner.metrics),
            decode=lease_seen,
            pulse=self._pulse,
            metrics=owner.metrics,
            namespace=names.NODE_LEASES,
            quiet=LEASES_QUIET,
            keeps=True,  # While its lease cannot be read, a node is as silent as it was.
        )
        self._sink = _Nodes(self._ledger, self._wake.set)
        self._nodes = Informer(
            await connected(StreamSight(self._pulse)),
            *NODE,
            sink=self._sink,
            decode=node_facts(owner.faults),
            pulse=self._pulse,
            metrics=owner.metrics,
            keeps=True,
        )
        for informer in (self._leases, self._nodes):
            informer.on_standing(lambda informer=informer: _say(informer))
        works = (self._pulse.run(), self._leases.run(), self._nodes.run(), self._attend())
        try:
            await while_all_last(works, self._close)
        except Restored as restored:
            raise ApplicationError(str(restored), next_retry_delay=timedelta(milliseconds=10)) from None

    async def _known(self) -> tuple[NodeSight, ...]:
        """Query what the monitor knows: only it has the last report of the previous try."""
        try:
            async with asyncio.timeout(ANSWER_DEADLINE):
                status = await self._handle.query(names.QUERY_STATUS, result_type=NodeMonitorStatus)
        except (RPCError, WorkflowQueryFailedError, TimeoutError) as error:
            why = str(error) or f"no answer in {ANSWER_DEADLINE:g} s"
            raise ApplicationError(f"the monitor of nodes does not say what it knows: {why}") from error
        return told_of(status.book)

    async def _close(self, tasks: list[asyncio.Task[None]]) -> None:
        await ended(tasks)
        self._owner.metrics.nodes.set(0)
        self._owner.metrics.node_marks.clear()

    async def _attend(self) -> None:
        before = datetime.now(UTC)
        while True:
            now = datetime.now(UTC)
            if now - before > STALLED:
                self._stalls = union((*self._stalls, Interval(begin=before, end=now)), SPANS_KEPT)
            self._owner.metrics.nodes.set(self._ledger.leases)
            for word, count in self._sink.marked().items():
                self._owner.metrics.node_marks.labels(word.value).set(count)
            listed = all(one.standing is Standing.SYNCED for one in (self._leases, self._nodes))
            seen = self._ledger.news(now, self._blind(now), listed=listed)
            if seen is not None and not await self._tell(seen):
                await asyncio.sleep(RETRY)
            before = datetime.now(UTC)  # While Temporal was told, leases were read.
            self._wake.clear()
            try:
                async with asyncio.timeout(TICK):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _tell(self, seen: NodesSeen) -> bool:
        log = Log.bind(nodes=len(seen.nodes), silent=seen.silent, total=seen.total)
        try:
            async with asyncio.timeout(SIGNAL_DEADLINE):
                await self._handle.signal(names.SIGNAL_NODES, seen)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                log.warning("the monitor of nodes was not reached: tried again", why=error.message)
            return False
        except TimeoutError:
            log.warning("the monitor of nodes was not reached: tried again", why=f"no answer in {SIGNAL_DEADLINE:g} s")
            return False
        self._ledger.told(seen)
        if seen.held_since is not None:
            log.warning("most leases are not renewed: nothing is done about it, since our sight may be what is lost")
        return True

    def _blind(self, now: datetime) -> tuple[Interval, ...]:
        """Return the spans in which leases could not be seen: requests had no answer, or this process stood still."""
        since = now - BLIND_KEPT
        spans = [*self._pulse.kube.sight.intervals(since), *self._leases.sight.intervals(since)]
        return union((*lasting(spans, SPANS_KEPT), *(span for span in self._stalls if span.end > since)), SPANS_KEPT)


def _say(informer: Informer[Any]) -> None:
    kind = f"{informer.kind[1]}.{informer.kind[0]}"
    if informer.unseen:
        Log.warning("cannot be watched: no node is found Down by it", kind=kind, why=informer.message)
    elif informer.settled:
        Log.info("watching", kind=kind)
