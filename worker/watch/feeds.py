"""The collections that the watch follows: anchors, attempts, pods and nodes at once, others once a plan names them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

import structlog

from holdfast import names
from holdfast.activities.facts.nodes import Marks
from holdfast.activities.facts.objects import ObjectFacts, component_facts
from holdfast.activities.facts.workload_key import WorkloadKey
from holdfast.activities.kube.blindness import SPANS_KEPT, Sight
from holdfast.activities.kube.client import Object
from holdfast.activities.kube.raw import mapping
from holdfast.formats import RESOURCES
from holdfast.model import Interval
from holdfast.policy.failures.blindness import lasting
from holdfast.worker.runtime.kube import WorkerKube
from holdfast.worker.runtime.metrics import Metrics
from holdfast.worker.watch.cache import Cache
from holdfast.worker.watch.informer import Informer, Sink, Standing, StreamSight
from holdfast.worker.watch.pulse import DEADLINE, Pulse
from holdfast.worker.watch.seen import (
    ANCHOR,
    POD,
    AnchorSeen,
    AttemptSeen,
    KindKey,
    NodeSeen,
    Place,
    PodSeen,
    anchor_seen,
    attempt_seen,
    in_shards,
    node_seen,
    pod_seen,
    resource_seen,
)

T = TypeVar("T")
Log: Any = structlog.stdlib.get_logger("holdfast.watch")

ATTEMPT: Final[KindKey] = (names.API_VERSION, names.ATTEMPT_KIND)
NODE: Final[KindKey] = ("v1", "Node")
"""Followed to notice marked nodes; a watch that may not read nodes works without them."""
CORE: Final = frozenset({ANCHOR, ATTEMPT, POD})
"""The kinds that every attempt depends on."""

Touch = Callable[[set[WorkloadKey], bool], None]
"""Takes the workloads that a change touches, and whether it may be urgent."""


@dataclass(frozen=True, slots=True)
class ObjectSeen:
    """The fields kept of a component's object, and its place."""

    place: Place
    facts: ObjectFacts


class _Sink(Generic[T]):
    """Puts changes into the cache, and reports the workloads that they touch."""

    def __init__(
        self,
        put: Callable[[T], set[WorkloadKey]],
        drop: Callable[[T, int], set[WorkloadKey]],
        touch: Touch,
        hot: Callable[[T], bool] = lambda _: True,
    ) -> None:
        self._put, self._drop, self._touch, self._hot = put, drop, touch, hot

    def put(self, item: T) -> None:
        """Handle a new object, or a new version of one."""
        self._touch(self._put(item), self._hot(item))

    def drop(self, item: T, revision: int) -> None:
        """Handle an object that is gone."""
        self._touch(self._drop(item, revision), True)


class _Resources:
    """The sink of a kind that stands for workloads, and may be a component of one of another kind (row F10)."""

    def __init__(self, anchors: _Sink[AnchorSeen], components: _Sink[ObjectSeen]) -> None:
        self._anchors, self._components = anchors, components

    def put(self, item: AnchorSeen | ObjectSeen) -> None:
        """Handle a new object, or a new version of one."""
        if isinstance(item, AnchorSeen):
            self._anchors.put(item)
        else:
            self._components.put(item)

    def drop(self, item: AnchorSeen | ObjectSeen, revision: int) -> None:
        """Handle an object that is gone."""
        if isinstance(item, AnchorSeen):
            self._anchors.drop(item, revision)
        else:
            self._components.drop(item, revision)


class Feed:
    """One kind: watched over all namespaces, or, if that is forbidden, in each configured namespace."""

    def __init__(self, kind: KindKey, start: Callable[[str], Informer[Any]], namespaces: Sequence[str]) -> None:
        """Start watching all namespaces; `start` makes and runs an informer of one namespace (empty: of all)."""
        self.kind = kind
        self._start = start
        self._namespaces = namespaces
        self._whole = start("")
        self._parts: list[Informer[Any]] = []
        self._whole_seen = False

    @property
    def informers(self) -> Iterable[Informer[Any]]:
        """Its informers."""
        return (self._whole, *self._parts)

    @property
    def settled(self) -> bool:
        """Whether all of it has been listed once, or cannot be listed."""
        return all(one.settled for one in self.informers)

    @property
    def unseen(self) -> bool:
        """Whether none of it can be read."""
        return all(one.unseen for one in self.informers)

    @property
    def unserved(self) -> bool:
        """Whether the cluster does not serve it."""
        return self._whole.standing is Standing.UNSERVED

    @property
    def blind(self) -> bool:
        """Whether a readable part of it cannot be seen now. A kind that cannot be read at all is no blindness."""
        return not self.unseen and any(one.sight.blind for one in self.informers)

    @property
    def message(self) -> str:
        """Why it cannot be read."""
        return self._whole.message

    def version(self, namespace: str) -> int | None:
        """Return the version up to which it is known completely in a namespace; None if it cannot be read there."""
        readable = (one for one in self.informers if one.namespace in {"", namespace} and not one.unseen)
        return max((one.version for one in readable), default=None)

    def standing_changed(self) -> None:
        """Watch the configured namespaces one by one if all at once cannot be read.

        All have one sink: what the whole drops when it can no longer be read, the parts may still read.
        """
        before, self._whole_seen = self._whole_seen, not self._whole.unseen
        if self._whole.unseen and not self._parts:
            self._parts = [self._start(namespace) for namespace in self._namespaces]
        elif before and self._whole.unseen:
            for part in self._parts:
                part.put_again()


class Feeds:
    """All feeds of one watch activity, with the tasks that run them."""

    def __init__(
        self,
        cache: Cache,
        *,
        connect: Callable[[Sight, float | None], Awaitable[WorkerKube]],
        installation: str,
        cluster: str,
        shards: tuple[int, int],
        namespaces: Sequence[str],
        metrics: Metrics,
        touch: Touch,
        marks: Marks,
    ) -> None:
        """Start with no feed; `connect` makes a client with a sight, and a deadline in seconds for its requests."""
        self._marks = marks
        self._cluster = cluster
        self._cache = cache
        self._connect = connect
        self._labels = f"{names.LABEL_INSTALLATION}={installation}"
        self._ours = in_shards(shards)
        self._namespaces = namespaces
        self._metrics = metrics
        self._touch = touch
        self._feeds: dict[KindKey, Feed] = {}
        self._followed: set[KindKey] = set()
        """The kinds that have a feed, or whose clients are being made."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._spare: list[list[WorkerKube]] = []
        """For each kind, the clients that no informer has taken yet."""
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pulse: Pulse | None = None
        self._earlier: tuple[Interval, ...] = ()

    @property
    def pulse(self) -> Pulse:
        """Knows whether the API server answers; there from `begin` on."""
        assert self._pulse is not None, "it has begun"
        return self._pulse

    @property
    def settled(self) -> bool:
        """Whether anchors, attempts and pods have all been listed once: the watch can report nothing without them."""
        feeds = [self._feeds.get(kind) for kind in CORE]
        if not all(feed is not None and feed.settled and not feed.unseen for feed in feeds):
            return False
        return all(self._feeds[kind].settled for kind in RESOURCES if kind in self._feeds)

    def settled_for(self, attempt: AttemptSeen) -> bool:
        """Whether all kinds that an attempt depends on have been listed once, or cannot be listed."""
        kinds = {*attempt.kinds, NODE}
        return self.settled and all(kind in self._feeds and self._feeds[kind].settled for kind in kinds)

    def unseen(self) -> frozenset[KindKey]:
        """Return the kinds that cannot be read."""
        return frozenset(kind for kind, feed in self._feeds.items() if feed.unseen)

    def unserved(self) -> frozenset[KindKey]:
        """Return the kinds that the cluster does not serve."""
        return frozenset(kind for kind, feed in self._feeds.items() if feed.unserved)

    def version(self, namespace: str, kinds: Collection[KindKey] = ()) -> int:
        """Return the version up to which these kinds, and those of `CORE`, are known completely in a namespace."""
        feeds = (self._feeds.get(kind) for kind in CORE | set(kinds))
        versions = (feed.version(namespace) for feed in feeds if feed is not None)
        return min((version for version in versions if version is not None), default=0)

    @property
    def highest(self) -> int:
        """The highest version of any informer."""
        return max((one.version for feed in self._feeds.values() for one in feed.informers), default=0)

    @property
    def blind(self) -> bool:
        """Whether anchors, attempts or pods cannot be seen now."""
        return bool(self.dark() & CORE)

    def dark(self) -> frozenset[KindKey]:
        """Return the readable kinds that cannot be seen now; all kinds while the API server does not answer."""
        if self.pulse.kube.sight.blind:
            return frozenset(self._feeds)
        return frozenset(kind for kind, feed in self._feeds.items() if feed.blind)

    def intervals(self, since: datetime, kinds: Collection[KindKey] = ()) -> tuple[Interval, ...]:
        """Return the spans since a time in which these kinds, or those of `CORE`, could not be seen.

        A kind that cannot be seen stops the clocks of the attempts that use it, and no others. Short spans are ignored.
        """
        sights = [self._pulse.kube.sight] if self._pulse is not None else []  # Activities of this process ask, too.
        for kind in CORE | set(kinds):
            feed = self._feeds.get(kind)
            if feed is not None and not feed.unseen:
                sights += [informer.sight for informer in feed.informers if not informer.unseen]
        spans = [span for sight in sights for span in sight.intervals(since)]
        spans += [span for span in self._earlier if span.end > since]
        return lasting(spans, SPANS_KEPT)

    def recall(self, earlier: tuple[Interval, ...]) -> None:
        """Store the blindness of the previous watcher."""
        self._earlier = earlier

    async def begin(self) -> None:
        """Start to ask whether the API server answers; `close` from now on."""
        self._pulse = Pulse(await self._connect(Sight(), DEADLINE))
        self._run(self.pulse.run())

    async def open(self) -> None:
        """Start to watch, one client after another: each may run a credential program, which takes its time."""
        cache = self._cache
        anchors: _Sink[AnchorSeen] = _Sink(cache.put_anchor, cache.drop_anchor, self._touch)
        attempts: _Sink[AttemptSeen] = _Sink(self._put_attempt, cache.drop_attempt, self._touch)
        pods: _Sink[PodSeen] = _Sink(cache.put_pod, cache.drop_pod, self._touch, _hot_pod)
        await self._follow(ANCHOR, anchors, anchor_seen(self._cluster))
        for kind in RESOURCES:
            await self._follow(kind, _Resources(anchors, self._objects()), _resource_or_component(kind, self._cluster))
        await self._follow(ATTEMPT, attempts, attempt_seen(self._cluster))
        await self._follow(POD, pods, pod_seen)
        nodes: _Sink[NodeSeen] = _Sink(cache.put_node, cache.drop_node, self._touch)
        await self._follow(NODE, nodes, node_seen(self._marks), everybody=True)

    async def close(self) -> None:
        """Stop all informers and close their clients."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(kube.close() for kubes in self._spare for kube in kubes))
        await self.pulse.kube.close()

    async def broken(self) -> None:
        """Never return; raise the error that ended an informer, which should not happen."""
        await self._over

    def _put_attempt(self, seen: AttemptSeen) -> set[WorkloadKey]:
        # `open` follows the others, each in its own way.
        for kind in seen.kinds - self._followed - CORE - RESOURCES.keys():
            self._run(self._follow(kind, self._objects(), _object_seen(kind)))
        return self._cache.put_attempt(seen)

    def _objects(self) -> _Sink[ObjectSeen]:
        return _Sink(
            lambda seen: self._cache.put_object(seen.place, seen.facts),
            lambda seen, revision: self._cache.drop_object(seen.place, seen.facts, revision),
            self._touch,
        )

    async def _follow(
        self,
        kind: KindKey,
        sink: Sink[T],
        decode: Callable[[Mapping[str, Any]], T | None],
        *,
        everybody: bool = False,
    ) -> None:
        """Follow a kind: the objects with our label; with `everybody`, all objects of a cluster-scoped kind."""
        if kind in self._followed:
            return
        self._followed.add(kind)  # Before clients are made: a credential program takes its time.
        namespaces = () if everybody else self._namespaces
        kubes = await self._connected(1 + len(namespaces))
        self._spare.append(kubes)

        def ours(raw: Object) -> T | None:
            return decode(raw) if self._ours(raw) else None

        def start(namespace: str) -> Informer[T]:
            informer = Informer(
                kubes.pop(),
                *kind,
                sink=sink,
                decode=ours,
                pulse=self.pulse,
                metrics=self._metrics,
                namespace=namespace,
                labels="" if everybody else self._labels,
                essential=kind in CORE,
            )
            informer.on_standing(lambda: self._standing_changed(kind))
            self._run(informer.run())
            return informer

        self._feeds[kind] = Feed(kind, start, namespaces)

    async def _connected(self, count: int) -> list[WorkerKube]:
        """Make a client for each informer, so that the client's sight is the informer's own."""
        kubes: list[WorkerKube] = []
        try:
            while len(kubes) < count:
                kubes.append(await self._connect(StreamSight(self.pulse), None))
        except BaseException:
            await asyncio.gather(*(kube.close() for kube in kubes))
            raise
        return kubes

    def _standing_changed(self, kind: KindKey) -> None:
        feed = self._feeds[kind]
        feed.standing_changed()
        resource = f"{kind[1]}.{kind[0]}"
        self._metrics.unwatchable.labels(resource).set(1 if feed.unseen else 0)
        if feed.unserved and kind in RESOURCES:
            self._metrics.unwatchable.labels(resource).set(0)  # A cluster need not have it.
        elif feed.unseen and kind in RESOURCES:
            Log.warning(
                "custom resources cannot be watched: their requests are not processed",
                kind=resource,
                why=feed.message,
            )
        elif feed.unseen and kind == NODE:
            Log.warning("nodes cannot be watched: marked ones are not noticed", why=feed.message)
        elif feed.unseen:
            Log.warning("a kind cannot be watched: such components count as found", kind=resource, why=feed.message)
        elif feed.settled:
            Log.info("watching", kind=resource)
        self._touch(self._cache.workloads, False)

    def _run(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._over.done():
            self._over.set_exception(error)


def _object_seen(kind: KindKey) -> Callable[[Mapping[str, Any]], ObjectSeen | None]:
    facts = component_facts(*kind)

    def decode(raw: Mapping[str, Any]) -> ObjectSeen | None:
        metadata = mapping(raw.get("metadata"))
        return ObjectSeen((*kind, str(metadata.get("namespace", "")), str(metadata.get("name", ""))), facts(raw))

    return decode


def _resource_or_component(
    kind: KindKey, cluster: str
) -> Callable[[Mapping[str, Any]], AnchorSeen | ObjectSeen | None]:
    resource, component = resource_seen(kind, cluster), _object_seen(kind)

    def decode(raw: Mapping[str, Any]) -> AnchorSeen | ObjectSeen | None:
        labelled = names.LABEL_COMPONENT in mapping(mapping(raw.get("metadata")).get("labels"))
        return resource(raw) or (component(raw) if labelled else None)

    return decode


def _hot_pod(seen: PodSeen) -> bool:
    return seen.facts.restarted or seen.facts.state.name in {"FAILED", "SUCCEEDED", "TERMINATING"}
