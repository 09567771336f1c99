"""The activity that watches a cluster: informers in, few signals out, and a heartbeat that stores what was told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import structlog
from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from holdfast import names
from holdfast.activities.facts import refused_pods
from holdfast.activities.facts.nodes import Marks
from holdfast.activities.facts.objects import component_facts
from holdfast.activities.facts.workload_key import WorkloadKey
from holdfast.activities.kube.blindness import SPANS_KEPT, Sight
from holdfast.activities.kube.client import Kube, KubeError, NotFound, UnknownKind, Unreachable
from holdfast.activities.site.site import BLIND_TOLD
from holdfast.model import Interval
from holdfast.model.calls.cluster import WatchInput
from holdfast.policy.failures.blindness import union
from holdfast.worker.runtime.endless import beat, ended, other_cluster, while_all_last, worker_leaves
from holdfast.worker.runtime.kube import WorkerKube
from holdfast.worker.runtime.metrics import Metrics
from holdfast.worker.watch.attention import HOT, WARM, Attention, Doubt, Send
from holdfast.worker.watch.blind_kinds import Darkness
from holdfast.worker.watch.cache import Cache
from holdfast.worker.watch.census import Census
from holdfast.worker.watch.feeds import CORE, Feeds
from holdfast.worker.watch.front_door import FrontDoor, Place
from holdfast.worker.watch.informer import Restored
from holdfast.worker.watch.missing import Missing
from holdfast.worker.watch.pulse import Pulse
from holdfast.worker.watch.seen import AttemptSeen
from holdfast.worker.watch.signals import Signals

SIGNALS_AT_ONCE: Final = 20
DOUBTS_AT_ONCE: Final = 10
SIGNAL_DEADLINE: Final = 5.0
TICK: Final = 1.0
REFUSALS_EVERY: Final = 5.0
REFUSALS_AT_ONCE: Final = 20
"""Namespaces whose Events are read in one turn."""
UNWATCHED: Final = timedelta(seconds=3)
"""The shortest pause between two watchers that is reported as blindness."""

Log: Any = structlog.stdlib.get_logger("holdfast.watch")


@dataclass(frozen=True, slots=True)
class Memory:
    """What one try of the activity passes to the next in its heartbeat."""

    digests: str = ""
    at: datetime | None = None
    blind: tuple[Interval, ...] = ()
    version: int = 0
    """The highest cluster version seen: a lower one later means that the cluster was restored."""

    def wire(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "v": 1,
            "digests": self.digests,
            "at": self.at.isoformat() if self.at is not None else None,
            "version": self.version,
            "blind": [[span.begin.isoformat(), span.end.isoformat()] for span in self.blind],
        }

    @classmethod
    def read(cls, details: Sequence[Any]) -> Memory:
        """Read it from a heartbeat's details; unreadable details count as none."""
        try:
            wire: Mapping[str, Any] = details[0]
            return cls(
                digests=str(wire["digests"]),
                at=datetime.fromisoformat(wire["at"]) if wire["at"] else None,
                blind=tuple(
                    Interval(begin=datetime.fromisoformat(begin), end=datetime.fromisoformat(end))
                    for begin, end in wire["blind"]
                ),
                version=int(wire.get("version", 0)),
            )
        except (IndexError, KeyError, TypeError, ValueError):
            return cls()


class WatchActivities:
    """The watch activity, with the resources of its process."""

    def __init__(
        self,
        client: Client,
        connect: Callable[[Sight, float | None], Awaitable[WorkerKube]],
        *,
        cluster_uid: str,
        installation: str,
        metrics: Metrics,
        namespaces: Sequence[str] = (),
        signals_per_second: float = 200,
        marks: Marks | None = None,
        managed_by: str = names.MANAGED_BY,
        compatible_with: str = "",
    ) -> None:
        """Prepare to watch.

        Args:
            client: sends the signals and heartbeats.
            connect: makes a client of the cluster with a sight, and a deadline in seconds for its requests.
            cluster_uid: the cluster's own identity.
            installation: the label value that marks our objects.
            metrics: the metrics to update.
            namespaces: the namespaces to watch if watching all at once is forbidden.
            signals_per_second: over all workloads.
            marks: identify a bad node.
            managed_by: the `managedBy` of custom resources that are run here.
            compatible_with: the earliest release that must be able to read what is started here; empty: this one.
        """
        self._compatible_with = compatible_with
        self._managed_by = managed_by
        self._marks = marks or Marks()
        self._client = client
        self._connect = connect
        self._cluster_uid = cluster_uid
        self._installation = installation
        self._metrics = metrics
        self._namespaces = namespaces
        self._rate = signals_per_second
        self.running: dict[tuple[int, int], Feeds] = {}
        """The feeds of each shard range that is watched here now."""

    @activity.defn(name=names.ACTIVITY_WATCH)
    async def watch(self, input: WatchInput) -> None:
        """Watch some shards until cancelled, until the lease is lost, or until this worker shuts down.

        Raises:
            ApplicationError: `ClusterMismatch` if this worker has another cluster; retried: another worker may match.
        """
        if input.cluster_uid and input.cluster_uid != self._cluster_uid:
            raise other_cluster(input.cluster, self._cluster_uid, f"{input.cluster_uid} is to be watched")
        watching = _Watching(self, input, Memory.read(activity.info().heartbeat_details))
        self.running[input.shards] = feeds = watching.feeds
        try:
            await watching.run()
        finally:
            # The next try may run here already.
            if self.running.get(input.shards) is feeds:
                del self.running[input.shards]

    def feeds(self, cache: Cache, given: WatchInput, touch: Callable[[set[WorkloadKey], bool], None]) -> Feeds:
        """Return the feeds of one shard range."""
        return Feeds(
            cache,
            connect=self._connect,
            installation=self._installation,
            shards=given.shards,
            cluster=given.cluster,
            namespaces=self._namespaces,
            metrics=self._metrics,
            touch=touch,
            marks=self._marks,
        )

    def door(self, given: WatchInput, pulse: Pulse) -> FrontDoor:
        """Return the front door of the cluster."""
        place = Place(
            self._client, given.cluster, self._installation, self._managed_by, self._namespaces, self._compatible_with
        )
        return FrontDoor(place, self._connect, pulse, self._metrics)

    def intervals(self, since: datetime) -> tuple[Interval, ...]:
        """Return the spans since a time in which the shards watched here could not be seen."""
        return union((span for feeds in self.running.values() for span in feeds.intervals(since)), SPANS_KEPT)

    @property
    def client(self) -> Client:
        """The client for signals and heartbeats."""
        return self._client

    @property
    def connect(self) -> Callable[[Sight, float | None], Awaitable[WorkerKube]]:
        """Makes a client of the cluster with a sight, and a deadline in seconds for its requests."""
        return self._connect

    @property
    def metrics(self) -> Metrics:
        """The metrics to update."""
        return self._metrics

    @property
    def rate(self) -> float:
        """Signals per second over all workloads."""
        return self._rate


class _Watching:
    """One try of the activity: its tasks, and the loop that connects them."""

    def __init__(self, owner: WatchActivities, given: WatchInput, memory: Memory) -> None:
        self._owner, self._given = owner, given
        self._client, self._metrics = owner.client, owner.metrics
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._planned = 0.0
        self._flying: set[asyncio.Task[None]] = set()
        self._settling: set[asyncio.Task[None]] = set()
        self._cache = Cache()
        self.feeds = owner.feeds(self._cache, given, self._touched)
        self._signals = Signals(owner.rate)
        self._attention = Attention(
            self._cache,
            self._signals,
            blind=self.feeds.intervals,
            unseen=self.feeds.unseen,
            unserved=self.feeds.unserved,
            settled=self.feeds.settled_for,
            listed=lambda: self.feeds.settled,
            version=self.feeds.version,
        )
        self._memory = memory
        self._opened = False
        self._attention.recall(memory.digests)
        self._compared = False
        self._version = memory.version
        self._missing = Missing(owner.client, given.cluster, given.shards, self._cache, self._retell)
        self._darkness = Darkness()
        self._aside: Kube | None = None
        """The client of single questions; their slow answers must not make the cluster count as unseen."""
        self._sampled = self._loop.time()
        self._counted: dict[str, int] = {}

    async def run(self) -> None:
        self._recall()
        alive = (beat(self._client, self._remember), worker_leaves(self._remember))
        await while_all_last((self._watch(), *alive), ended)

    async def _watch(self) -> None:
        """Watch beside the heartbeats: to make the clients may take longer than the time between two of them."""
        await self.feeds.begin()
        works = (
            self._open(),
            self._attend(),
            self._hear_refusals(),
            self._unbroken(),
            self._open_door(),
            self._count(),
        )
        await while_all_last(works, self._close)

    async def _open(self) -> None:
        await self.feeds.open()
        self._recall()
        self._opened = True
        await asyncio.Event().wait()

    def _recall(self) -> None:
        """Count the time since the previous watcher as blindness."""
        now, earlier = datetime.now(UTC), self._memory.blind
        if self._memory.at is not None and now - self._memory.at > UNWATCHED:
            earlier = (*earlier, Interval(begin=self._memory.at, end=now))
        self.feeds.recall(earlier)

    async def _close(self, tasks: list[asyncio.Task[None]]) -> None:
        self._memory, self._opened = Memory.read((self._remember(),)), False  # Heartbeats go on, and nobody watches.
        flying = [*self._flying, *self._settling]
        for task in flying:
            task.cancel()
        await asyncio.gather(*tasks, *flying, return_exceptions=True)
        await self.feeds.close()
        self._metrics.pods.set(0)
        self._metrics.attempts.set(0)

    async def _open_door(self) -> None:
        """Run the front door of the cluster if this is the first shard range, whose watch does that."""
        if self._given.shards[0] == 0:
            await self._unrestored(self._owner.door(self._given, self.feeds.pulse).run())
        await asyncio.Event().wait()

    async def _count(self) -> None:
        """Count the cluster's workloads if this is the first shard range."""
        if self._given.shards[0] == 0:
            await Census(self._client, self._given.cluster, self._metrics).run()
        await asyncio.Event().wait()

    async def _unbroken(self) -> None:
        """Never return.

        Raises:
            ApplicationError: if the cluster was restored; retried, and the next try starts from the current state.
        """
        await self._unrestored(self.feeds.broken())

    async def _unrestored(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Restored as restored:
            raise ApplicationError(str(restored), next_retry_delay=timedelta(milliseconds=10)) from None

    def _compare(self, now: float) -> None:
        """Once all is listed, check whether the cluster is at an earlier version than the previous watcher has seen."""
        if not self.feeds.settled:
            self._compared = False  # Objects deleted while unreadable left no trace: compare again.
            return
        if self._compared:
            return
        self._compared = True
        if self.feeds.highest < self._memory.version:
            Log.warning("the cluster was restored", version=self.feeds.highest, seen_before=self._memory.version)
            self._attention.forget(now)
            self._version = 0
        self._fly(self._missing.tell(lambda: self.feeds.highest), self._settling)

    # Changes in, signals out.

    def _retell(self, workload: WorkloadKey) -> None:
        self._attention.retell(workload, self._loop.time())

    def _touched(self, workloads: set[WorkloadKey], hot: bool) -> None:
        now = self._loop.time()
        self._attention.changed(workloads, now, hot)
        due = now + (HOT if hot else WARM)
        if due < self._planned:
            self._planned = due
            self._wake.set()

    async def _attend(self) -> None:
        while True:
            now, at = self._loop.time(), datetime.now(UTC)
            self._sample(now)
            self._compare(now)
            self._attention.look(now, at)
            for doubt in self._attention.doubts(now, DOUBTS_AT_ONCE - len(self._settling)):
                self._fly(self._settle(doubt), self._settling)
            for send in self._attention.take(now, at, SIGNALS_AT_ONCE - len(self._flying)):
                self._fly(self._tell(send), self._flying)
            await asyncio.sleep(0)
            now = self._loop.time()
            due = self._attention.next_due(now, asking=len(self._settling) < DOUBTS_AT_ONCE)
            # If every slot is taken, the next task that ends wakes this loop.
            full = len(self._flying) >= SIGNALS_AT_ONCE
            self._planned = now + TICK if due is None or full else min(now + TICK, due)
            self._wake.clear()
            try:
                async with asyncio.timeout(max(0.0, self._planned - now)):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _fly(self, work: Any, among: set[asyncio.Task[None]]) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        among.add(task)
        task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._flying.discard(task)
        self._settling.discard(task)
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            Log.error("a signal could not be prepared", error=repr(error))

    async def _tell(self, send: Send) -> None:
        handle = self._client.get_workflow_handle(send.workflow_id)
        log = Log.bind(workflow_id=send.workflow_id, attempt=send.observation.attempt)
        try:
            async with asyncio.timeout(SIGNAL_DEADLINE):
                await handle.signal(names.SIGNAL_OBSERVE, send.observation)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND and not self._attention.is_beginning(send):
                self._metrics.signals.labels("closed").inc()
                self._attention.closed(send)
                log.info("its workflow has ended: no more signals are sent for this attempt")
                return
            self._lost(send, log, f"{error.status.name}: {error.message}")
            return
        except TimeoutError:
            self._lost(send, log, f"no answer in {SIGNAL_DEADLINE:g} s")
            return
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._lost(send, log, repr(error))
            return
        now = self._loop.time()
        self._metrics.signals.labels("sent").inc()
        self._metrics.lag.labels(send.wanted.urgency.name.lower()).observe(now - send.wanted.since)
        self._attention.arrived(send, now)
        log.debug("told", urgency=send.wanted.urgency.name.lower(), failures=send.observation.failures_total)

    def _lost(self, send: Send, log: Any, why: str) -> None:
        self._metrics.signals.labels("failed").inc()
        self._attention.lost(send, self._loop.time())
        log.warning("a signal did not arrive: it is tried again", why=why)

    async def _settle(self, doubt: Doubt) -> None:
        """Get what is in doubt by name: a component, whose stream may be late, or an anchor that is being deleted."""
        api_version, kind, namespace, name = doubt.place
        kube = self._aside
        if kube is None:
            return  # Asked again later.
        try:
            found = component_facts(api_version, kind)(await kube.get(api_version, kind, name, namespace))
        except UnknownKind:
            return  # Its kind is not served; its feed reports that in a moment.
        except NotFound:
            found = None
        except Unreachable:
            return  # Asked again later.
        except KubeError as error:
            Log.warning("an object cannot be asked for", kind=kind, namespace=namespace, name=name, why=error.message)
            return
        self._touched(self._attention.answered(doubt, found), True)

    async def _hear_refusals(self) -> None:
        """Read why pods are not created, namespace by namespace, as long as some are absent (row D34).

        This costs one list for each such namespace in `REFUSALS_EVERY` seconds, whatever its number of pods.
        """
        kube = await self._owner.connect(Sight(), None)
        self._aside = kube
        try:
            await self._hear_refusals_by(kube)
        finally:
            self._aside = None
            await kube.close()

    async def _hear_refusals_by(self, kube: Kube) -> None:
        turn = 0
        while True:
            await asyncio.sleep(REFUSALS_EVERY)
            waiting: dict[str, list[AttemptSeen]] = {}
            for attempt in self._attention.unadmitted(self._loop.time()):
                waiting.setdefault(attempt.namespace, []).append(attempt)
            places = sorted(waiting)
            turn = turn % len(places) if places else 0
            chosen = (places[turn:] + places[:turn])[:REFUSALS_AT_ONCE]
            turn += len(chosen)
            for namespace in chosen:
                try:
                    events = await refused_pods.events_of(kube, namespace)
                except KubeError:
                    continue  # Asked again later.
                touched = set[WorkloadKey]()
                for attempt in waiting[namespace]:
                    since = attempt.facts.created or datetime.now(UTC)
                    words = refused_pods.words(events, attempt.plan, since)
                    touched |= self._cache.put_refused(attempt.key, words)
                if touched:
                    self._touched(touched, False)

    def _sample(self, now: float) -> None:
        """Count blindness, and report it once it has ended."""
        if self._darkness.since.keys() & CORE:
            self._metrics.blind.inc(now - self._sampled)
        self._sampled = now
        new, back = self._darkness.turn(self.feeds.dark(), now)
        if new:
            why = self.feeds.pulse.message or "a stream broke and cannot be opened again"
            Log.warning("cannot see", kinds=sorted(kind for _, kind in new), why=why)
        if back:
            Log.info("can see again", kinds=sorted(kind for _, kind in back), seconds=round(max(back.values()), 1))
        if self._darkness.lifted:
            self._attention.sight_regained(now, lambda attempt: self._darkness.is_over_for(attempt.kinds))
        self._metrics.pods.set(self._cache.pod_count)
        self._metrics.attempts.set(self._cache.attempt_count)
        counts = self._attention.counts
        for counter, name, value in (
            (self._metrics.suppressed.labels("same"), "same", counts.same),
            (self._metrics.suppressed.labels("own-deletion"), "own", counts.own_deletion),
            (self._metrics.suppressed.labels("not-submitted"), "early", counts.not_submitted),
            (self._metrics.coalesced, "coalesced", counts.coalesced),
        ):
            counter.inc(value - self._counted.get(name, 0))
            self._counted[name] = value

    # Staying alive.

    def _remember(self) -> dict[str, Any]:
        if not self._opened:
            return self._memory.wire()  # Nobody watches yet.
        now = datetime.now(UTC)
        blind = self.feeds.intervals(now - BLIND_TOLD)
        self._version = max(self._version, self.feeds.highest)
        return Memory(digests=self._attention.digests(), at=now, blind=blind, version=self._version).wire()
