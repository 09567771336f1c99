"""Follows one resource: lists it page by page, then watches it, and lists it again only if nothing else works."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, Generic, Protocol, TypeVar

import structlog

from holdfast.activities.kube.blindness import Sight
from holdfast.activities.kube.client import PAGE, Forbidden, Gone, KubeError, Object, UnknownKind, Unreachable
from holdfast.activities.kube.http import LASTING
from holdfast.worker.runtime.kube import WorkerKube
from holdfast.worker.runtime.metrics import Metrics
from holdfast.worker.watch.pulse import DARK, Pulse
from holdfast.worker.watch.seen import revision_of

Log: Any = structlog.stdlib.get_logger("holdfast.watch")

T = TypeVar("T")
S = TypeVar("S", contravariant=True)

WATCH_SECONDS: Final = 300
QUIET_SECONDS: Final = 75.0
"""A stream silent for this long is reopened: the server sends a bookmark about once a minute.

A connection whose other end is gone breaks sooner (`http.py`).
"""
SHORTEST: Final = 0.2
"""Seconds that a stream must have lasted for its end to be no failure, and within which the next one is opened."""
BACKOFF_FIRST: Final = 0.2
BACKOFF_LAST: Final = 2.0
BACKOFF_UNWATCHABLE: Final = 30.0
BACKOFF_ESSENTIAL: Final = 5.0
FAILURES_BORNE: Final = 8
"""Failed first lists, while the API server answers other requests, until a kind counts as unreadable."""


class Standing(StrEnum):
    """The state of an informer."""

    STARTING = "starting"
    SYNCED = "synced"
    FORBIDDEN = "forbidden"
    UNSERVED = "unserved"
    FAILING = "failing"


class Sink(Protocol[S]):
    """Receives the changes."""

    def put(self, item: S) -> None:
        """Handle a new object, or a new version of one."""
        ...

    def drop(self, item: S, revision: int) -> None:
        """Handle an object that is gone as of this version; 0 if it only cannot be read any more."""
        ...


class Restored(Exception):
    """The cluster is at an earlier version than before: it was restored, and what is remembered is doubtful."""


class StreamSight(Sight):
    """An informer's sight: silence of a stream while the API server answers other requests is no blindness.

    A list, or the opening of a stream, that is not answered is: nothing comes of this kind.
    """

    def __init__(self, pulse: Pulse) -> None:
        """Start with nothing seen."""
        super().__init__()
        self._pulse = pulse

    def lost(self, at: datetime | None = None, *, opened: bool = False) -> None:
        """Record that nothing came since `at`; of a stream that was `opened`, unless the pulse had an answer."""
        when = at or datetime.now(UTC)
        felt = self._pulse.felt
        if not opened or felt is None or when >= felt:
            super().lost(when)


class Informer(Generic[T]):
    """Follows one collection, and passes each change to a sink in order."""

    def __init__(
        self,
        kube: WorkerKube,
        api_version: str,
        kind: str,
        *,
        sink: Sink[T],
        decode: Callable[[Object], T | None],
        pulse: Pulse,
        metrics: Metrics,
        namespace: str = "",
        labels: str = "",
        quiet: float = QUIET_SECONDS,
        essential: bool = False,
        keeps: bool = False,
    ) -> None:
        """Start with nothing.

        Args:
            kube: this informer's own client, whose sight is this informer's sight.
            api_version: of the kind.
            kind: the kind to watch.
            sink: receives each change.
            decode: returns the fields to keep of an object; None skips it. If it raises, the version is skipped.
            pulse: knows whether the API server answers at all.
            metrics: counts relists.
            namespace: empty for all.
            labels: label selector.
            quiet: seconds of silence after which the stream is reopened.
            essential: the watch can report nothing without it, so it is retried more often and never given up.
            keeps: what cannot be read any more stays as it was, until a list shows that it is gone.
        """
        self.kind = (api_version, kind)
        self.namespace = namespace
        self.standing = Standing.STARTING
        self.message = ""
        self._kube = kube
        self._sink = sink
        self._decode = decode
        self._pulse = pulse
        self._metrics = metrics
        self._labels = labels
        self._quiet = quiet
        self._essential = essential
        self._keeps = keeps
        self._version = ""
        self._known = 0
        self._highest = 0  # Kept across relists.
        self._items: dict[str, T] = {}
        self._unread: set[str] = set()
        """The uids of objects whose latest version could not be decoded."""
        self._failures = 0
        self._begun = 0.0
        self._changed: Callable[[], None] = lambda: None

    @property
    def sight(self) -> Sight:
        """Knows when this collection could not be seen."""
        return self._kube.sight

    @property
    def version(self) -> int:
        """The version up to which this collection is known completely, deletions and absences included."""
        return self._known

    @property
    def settled(self) -> bool:
        """Whether it has been listed once, or cannot be listed."""
        return self.standing is not Standing.STARTING

    @property
    def unseen(self) -> bool:
        """Whether it cannot be read."""
        return self.standing in {Standing.FORBIDDEN, Standing.UNSERVED, Standing.FAILING}

    def on_standing(self, changed: Callable[[], None]) -> None:
        """Set the function to call whenever `standing` changes."""
        self._changed = changed

    def put_again(self) -> None:
        """Put all that it knows: another informer with the same sink has dropped it as unreadable."""
        for item in tuple(self._items.values()):
            self._sink.put(item)

    async def run(self) -> None:
        """List and watch for ever.

        Raises:
            Restored: if the cluster was restored to an earlier version.
        """
        reason = "start"
        try:
            while True:
                try:
                    if not self._version:
                        await self._list(reason)
                    reason = "error"
                    await self._watch()
                    await self._pause()
                except Gone:
                    self._version, reason = "", "expired"
                    await self._pause()
                except UnknownKind as error:
                    await self._cannot(Standing.UNSERVED, error)
                except Forbidden as error:
                    await self._cannot(Standing.FORBIDDEN, error)
                except Unreachable as error:
                    self._bear(error)
                    await self._pause()
                except KubeError as error:
                    self._version, reason = "", "error"
                    self._bear(error)
                    await self._pause()
        finally:
            await self._kube.close()

    async def _list(self, reason: str) -> None:
        resource = await self._kube.resource(*self.kind)
        self._metrics.relists.labels(resource.plural, reason).inc()
        path = resource.path(self.namespace)
        query = {"limit": str(PAGE)} | ({"labelSelector": self._labels} if self._labels else {})
        seen: set[str] = set()
        # Without a resourceVersion a list is a quorum read: it never shows an older state than was seen before.
        page = await self._kube.page(path, query)
        version = revision_of(page)
        self._confirm(version)
        while True:
            token = page["metadata"].get("continue")
            # Release one page before reading the next.
            seen.update(map(self._put, page.pop("items", None) or ()))
            if not token:
                break
            await asyncio.sleep(0)
            page = await self._kube.page(path, {**query, "continue": token})
            version = revision_of(page) or version
        for uid in self._items.keys() - seen:
            self._sink.drop(self._items.pop(uid), version)
        self._unread &= seen
        self._version = str(version)
        self._known = max(self._known, version)
        self._failures = 0
        self._stand(Standing.SYNCED, "")

    async def _confirm_order(self) -> None:
        """Check the cluster's own version: a stream from a future version would open, and stay silent."""
        resource = await self._kube.resource(*self.kind)
        query = {"limit": "1"} | ({"labelSelector": self._labels} if self._labels else {})
        self._confirm(revision_of(await self._kube.page(resource.path(self.namespace), query)))

    def _confirm(self, version: int) -> None:
        """Raise `Restored` if a quorum read has an earlier version than a previous one."""
        if version < self._highest:
            raise Restored(f"the cluster was at version {self._highest}, and is at {version}: it was restored")
        self._highest = version

    async def _watch(self) -> None:
        if self._begun:
            await self._confirm_order()
        self._begun = asyncio.get_running_loop().time()
        events = self._kube.watch(
            *self.kind,
            self.namespace,
            resource_version=self._version,
            labels=self._labels,
            timeout_seconds=WATCH_SECONDS,
            quiet_seconds=self._quiet * random.uniform(1.0, 1.2),  # noqa: S311 - spreads load
        )
        heard = datetime.now(UTC)
        dark_since: datetime | None = None

        def doubt(felt: datetime) -> None:
            nonlocal dark_since
            last = max(heard, felt)
            if datetime.now(UTC) - last >= DARK and not patience.expired():
                dark_since = last
                patience.reschedule(0)

        try:
            async with asyncio.timeout(None) as patience:
                with self._pulse.doubted(doubt):
                    async for event in events:
                        heard = datetime.now(UTC)
                        self._take(event)
        except TimeoutError:
            self.sight.lost(dark_since, opened=True)
            raise Unreachable(0, "Unreachable", self._pulse.message) from None
        finally:
            if asyncio.get_running_loop().time() - self._begun >= LASTING.total_seconds():
                self._failures = 0

    def _take(self, event: Object) -> None:
        self._failures = 0
        raw: Object = event["object"]
        match event["type"]:
            case "ADDED" | "MODIFIED":
                self._put(raw)
            case "DELETED":
                self._unread.discard(raw["metadata"]["uid"])
                item = self._items.pop(raw["metadata"]["uid"], None)
                if item is not None:
                    self._sink.drop(item, revision_of(raw))
            case _:
                pass
        self._version = str(raw["metadata"]["resourceVersion"])
        self._highest = max(self._highest, revision_of(raw))
        self._known = max(self._known, revision_of(raw))  # Bookmarks too: nothing else happened up to there.

    def _put(self, raw: Object) -> str:
        uid: str = raw["metadata"]["uid"]
        try:
            item = self._decode(raw)
        except Exception as error:  # Anyone may write an object: one of them must not end the watch of all.
            self._skip(raw, uid, error)
            return uid
        self._unread.discard(uid)
        if item is not None and self._items.get(uid) != item:
            self._items[uid] = item
            self._sink.put(item)
        return uid

    def _skip(self, raw: Object, uid: str, error: Exception) -> None:
        """Keep an object as it was before: a version that cannot be decoded proves neither a failure nor an absence."""
        resource, metadata = f"{self.kind[1]}.{self.kind[0]}", raw["metadata"]
        self._metrics.skipped.labels(resource).inc()
        if uid not in self._unread:
            self._unread.add(uid)
            Log.warning(
                "an object cannot be decoded: what was known of it before counts",
                kind=resource,
                namespace=metadata.get("namespace", ""),
                name=metadata.get("name", ""),
                why=f"{type(error).__name__}: {error}",
            )

    def _stand(self, standing: Standing, message: str) -> None:
        self.message = message
        if standing is not self.standing:
            self.standing = standing
            self._changed()

    def _bear(self, error: KubeError) -> None:
        """Give up on a first list that keeps failing although the API server is healthy."""
        starting = self.standing is Standing.STARTING and not self._essential
        if starting and self._failures >= FAILURES_BORNE and self._pulse.alive:
            self._stand(Standing.FAILING, error.message)

    async def _cannot(self, standing: Standing, error: KubeError) -> None:
        if not self._keeps:
            for item in self._items.values():
                self._sink.drop(item, 0)
            self._items.clear()
            self._unread.clear()
        self._version, self._known = "", 0
        self._stand(standing, error.message)
        pause = BACKOFF_ESSENTIAL if self._essential else BACKOFF_UNWATCHABLE
        await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 - spreads load

    async def _pause(self) -> None:
        """Wait a little, longer each time, but at most until the API server answers again.

        A stream that lasted is reopened within 0.2 s. A server that ends each stream at once is not retried in a tight
        loop.
        """
        lasted = asyncio.get_running_loop().time() - self._begun >= SHORTEST
        if self._version and lasted and not self.sight.blind:
            self._failures = 0
            # A stream ended or fell silent while the server is healthy. A proxy may have ended those of all workers.
            await asyncio.sleep(SHORTEST * random.uniform(0, 1))  # noqa: S311 - spreads load
            return
        self._failures += 1
        longest = min(BACKOFF_LAST, BACKOFF_FIRST * 2 ** (self._failures - 1))
        pause = longest * random.uniform(0.5, 1)  # noqa: S311 - spreads load
        await self._pulse.wait(pause)
