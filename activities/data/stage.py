"""Staging: completes an attempt's data sets in the cache before it begins, or returns why not (row L14)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from holdfast.activities.data.cache import FULL
from holdfast.activities.data.fetch import Fetched
from holdfast.activities.data.room import Ended, NoRoom, Use, nobody_knows
from holdfast.activities.data.settings import Data
from holdfast.activities.data.storage import Away, BadData, Changed, check_keys, digest_of
from holdfast.activities.site.closed import namespace_closed
from holdfast.activities.site.site import Pulse, Site, as_retryable_errors, refused
from holdfast.model.calls.plan import DataVolume, Target
from holdfast.model.calls.stage import Staged, StageInput
from holdfast.model.life.data import DataSet
from holdfast.model.quantity import format_bytes
from holdfast.model.spec.mount import Mount
from holdfast.model.words import counted

AGAIN: Final = 5.0
"""Seconds between two tries of a store that is away while a creation waits for it."""
LISTINGS: Final = 3
"""How often to list a data set that changes while it is fetched, before leaving it to a later try."""
T = TypeVar("T")


async def stage(site: Site, given: StageInput, ended: Ended = nobody_knows) -> Staged:
    """Fetch data sets until they are complete in the cache.

    Args:
        site: the cluster.
        given: the workload and its data sets.
        ended: whether a workload has ended, for the room of data sets that only such workloads used.

    Raises:
        ApplicationError: of type `ClusterMismatch`, or `Refused`.
    """
    site.check(given.target)
    async with as_retryable_errors():
        closed = await namespace_closed(site, given.target, site.permits)
    if closed is not None:
        if closed.opens and given.waits:
            return Staged(away=closed.why, closed=True)
        raise refused(closed.why)
    data = site.data
    if data is None:
        raise refused(
            "this worker stages no data sets: its operator gives it a place for them (setting `data_directory`)"
        )
    for mount in given.mounts:
        data.check(given.target.namespace, mount)
    target = given.target
    use = Use(target.workload_uid, target.workflow_id, target.cluster)
    staging = _Staging(data, target.namespace, use, ended)
    async with as_retryable_errors(), Pulse() as pulse:
        if not given.versions:
            await staging.find_unfinished()
        try:
            for mount in given.mounts:
                try:
                    staging.sets.append(await staging.one(mount, given.versions.get(mount.name, ""), pulse))
                except Away as error:
                    if not isinstance(error, NoRoom):
                        data.seen(False)
                        data.missed()
                    return Staged(fetched=staging.fetched.bytes, away=f"mount {mount.name} ({mount.source}): {error}")
                except BadData as error:
                    data.seen(True)
                    return Staged(
                        fetched=staging.fetched.bytes, problem=f"mount {mount.name} ({mount.source}): {error}"
                    )
            staging.keep_sets()
        finally:
            # Who has not begun holds no room while it waits: two that wait for each other's would wait for ever.
            if not given.versions:
                await asyncio.shield(staging.release())
    return Staged(sets=tuple(staging.sets), fetched=staging.fetched.bytes)


async def still_whole(
    site: Site, target: Target, volumes: Sequence[DataVolume], pulse: Pulse, ended: Ended = nobody_knows
) -> str:
    """Complete data sets that were staged some time ago, as a workload may have waited in its queue since (row X10).

    Args:
        site: the cluster.
        target: the workload.
        volumes: the data sets that its pods read.
        pulse: the heartbeats.
        ended: whether a workload has ended.

    Returns:
        Why pods can never read them; empty if they can now. A store that is away is waited for.
    """
    data = site.data
    if data is None:
        return ""
    use = Use(target.workload_uid, target.workflow_id, target.cluster)
    staging = _Staging(data, target.namespace, use, ended)
    for volume in volumes:
        if volume.source and not data.cache.is_fresh(target.namespace, volume.digest):
            mount = Mount(name=volume.mount, source=volume.source, path=volume.path)
            if why := await _completed(staging, data, mount, volume.digest, pulse):
                return f"mount {mount.name} ({mount.source}): {why}"
    return ""


async def _completed(staging: _Staging, data: Data, mount: Mount, digest: str, pulse: Pulse) -> str:
    """Complete a data set, however long its store is away; return why it never will be."""
    while True:
        try:
            await staging.one(mount, digest, pulse)
        except Away as error:
            if not isinstance(error, NoRoom):
                data.seen(False)
                data.missed()
            pulse.say(f"waiting for mount {mount.name} ({mount.source}): {error}")
            await asyncio.sleep(AGAIN)
        except BadData as error:
            return str(error)
        else:
            return ""


class _Staging:
    """One staging of a workload's data sets."""

    def __init__(self, data: Data, namespace: str, use: Use, ended: Ended) -> None:
        self._data, self._namespace, self._use, self._ended = data, namespace, use, ended
        self._room = data.cache.room(namespace)
        self.fetched = Fetched()
        self.sets: list[DataSet] = []
        """The data sets that are complete."""
        self._used: dict[str, Use] = {}
        """By digest: the mark to take back, of this staging or of one that was killed."""

    async def find_unfinished(self) -> None:
        """Find the marks of stagings of this workload that were killed, on versions that they did not complete."""
        with suppress(OSError):
            self._used = await self._room.unfinished(self._use.uid)

    def keep_sets(self) -> None:
        """Keep the marks of the data sets that are complete."""
        for one in self.sets:
            self._used.pop(one.digest, None)

    async def release(self) -> None:
        """Take back the marks that are not kept."""
        for digest, use in self._used.items():
            with suppress(Away, OSError):  # Then the mark stays until room is needed.
                await self._room.release(digest, use)

    async def one(self, mount: Mount, begun_with: str, pulse: Pulse) -> DataSet:
        """Complete one data set.

        Raises:
            Away: if the store or the file system cannot be used now, or there is no room.
            BadData: if the data set is not usable, or not the one that is wanted.
        """
        data, wanted = self._data, begun_with or mount.version
        pulse.say(f"looking for {mount.name} in the cache")
        held = await self._held(wanted, mount) if wanted else None
        if held is not None:
            return held
        for _ in range(LISTINGS):
            pulse.say(f"listing {mount.source}")
            entries = await data.storage.list(mount.source)
            check_keys(entries)
            digest, size = digest_of(mount.source, entries), sum(one.size for one in entries)
            if wanted and digest != wanted:
                whose = "began with" if begun_with else "asks for"
                raise BadData(
                    f"the workload {whose} version {wanted}, which is not in the cache any more, and version {digest} "
                    f"lies there now ({counted(len(entries), 'file')}, {format_bytes(size)})"
                )
            held = await self._held(digest, mount)
            if held is not None:
                data.seen(True)
                return held
            pulse.watch(lambda: f"fetching {mount.name}: {self._progress()}")
            try:
                if not begun_with:
                    await self._release_others(digest)
                await self._reserve(digest, size)
                await data.cache.fill(data.storage, self._namespace, mount.source, entries, self.fetched)
            except Changed:
                continue
            finally:
                pulse.watch(None)
            data.seen(True)
            return DataSet(mount=mount.name, digest=digest, files=len(entries), bytes=size)
        raise Away(f"{data.storage.name}: what lies there changes while it is fetched")

    def _progress(self) -> str:
        fetched = self.fetched
        return f"{fetched.files} of {counted(fetched.of, 'file')}, {format_bytes(fetched.bytes)}"

    async def _held(self, digest: str, mount: Mount) -> DataSet | None:
        """Return a data set that is complete in the cache; it is marked as used before it is looked at."""
        if not await self._on_disk(digest, lambda: self._room.use(digest, self._use)):
            return None
        self._used[digest] = self._use
        held = await self._data.cache.held(self._namespace, digest, mount.source)
        return held and DataSet(mount=mount.name, digest=digest, files=held.files, bytes=held.bytes)

    async def _release_others(self, digest: str) -> None:
        """Take back the marks of versions that are not staged any more: their room counts as the workload's own."""
        for other in self._used.keys() - {digest, *(one.digest for one in self.sets)}:
            use = self._used[other]
            await self._on_disk(other, lambda other=other, use=use: self._room.release(other, use))
            del self._used[other]

    async def _reserve(self, digest: str, size: int) -> None:
        await self._on_disk(digest, lambda: self._room.reserve(digest, size, self._use, self._ended))
        self._used[digest] = self._use

    async def _on_disk(self, digest: str, write: Callable[[], Awaitable[T]]) -> T:
        """Write a few bytes; if the disk is full, once more after abandoned files of other data sets are removed (D49).

        Raises:
            Away: if the file system cannot be used now.
        """
        cache, home = self._data.cache, self._room.home(digest)
        try:
            try:
                return await write()
            except OSError as error:
                if error.errno not in FULL:
                    raise
                await asyncio.to_thread(cache.remove_stale, home)
                return await write()
        except OSError as error:
            raise cache.away(error) from None
