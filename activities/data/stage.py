"""Staging: completes an attempt's data sets in the cache before it begins, or returns why not (row L14)."""

from __future__ import annotations

from typing import Final

from holdfast.activities.data.cache import Fetched
from holdfast.activities.data.settings import Data
from holdfast.activities.data.storage import Away, BadData, Changed, check_keys, digest_of
from holdfast.activities.site.closed import unserved
from holdfast.activities.site.site import Pulse, Site, as_retryable_errors, refused
from holdfast.model.calls.stage import Staged, StageInput
from holdfast.model.spec.mount import DataSet, Mount
from holdfast.policy.sides.staging import size_of

LISTINGS: Final = 3
"""How often to list a data set that changes while it is fetched, before leaving it to a later try."""


async def stage(site: Site, given: StageInput) -> Staged:
    """Fetch data sets until they are complete in the cache.

    Raises:
        ApplicationError: of type `ClusterMismatch`, or `Refused`.
    """
    site.check(given.target)
    if why := unserved(site, given.target.namespace):
        raise refused(why)
    data = site.data
    if data is None:
        raise refused(
            "this worker stages no data sets: its operator gives it a place for them (setting `data_directory`)"
        )
    for mount in given.mounts:
        data.check(given.target.namespace, mount)
    fetched, sets = Fetched(), list[DataSet]()
    async with as_retryable_errors(), Pulse() as pulse:
        for mount in given.mounts:
            try:
                sets.append(await _one(data, mount, given.versions.get(mount.name, ""), fetched, pulse))
            except Away as error:
                data.seen(False)
                data.missed()
                return Staged(fetched=fetched.bytes, away=f"mount {mount.name} ({mount.source}): {error}")
            except BadData as error:
                data.seen(True)
                return Staged(fetched=fetched.bytes, problem=f"mount {mount.name} ({mount.source}): {error}")
    return Staged(sets=tuple(sets), fetched=fetched.bytes)


async def _one(data: Data, mount: Mount, begun_with: str, fetched: Fetched, pulse: Pulse) -> DataSet:
    wanted = begun_with or mount.version
    pulse.say(f"looking for {mount.name} in the cache")
    held = await data.cache.held(wanted, mount.source) if wanted else None
    if held is not None:
        return DataSet(mount=mount.name, digest=wanted, files=held.files, bytes=held.bytes)
    for _ in range(LISTINGS):
        pulse.say(f"listing {mount.source}")
        entries = await data.storage.list(mount.source)
        check_keys(entries)
        digest, size = digest_of(mount.source, entries), sum(one.size for one in entries)
        if wanted and digest != wanted:
            whose = "began with" if begun_with else "asks for"
            raise BadData(
                f"the workload {whose} version {wanted}, which is not in the cache any more, and version {digest} "
                f"lies there now ({len(entries)} files, {size_of(size)})"
            )
        found = DataSet(mount=mount.name, digest=digest, files=len(entries), bytes=size)
        if await data.cache.held(digest, mount.source) is not None:
            data.seen(True)
            return found
        pulse.watch(lambda: f"fetching {mount.name}: {fetched.files} of {fetched.of} files, {size_of(fetched.bytes)}")
        try:
            await data.cache.fill(data.storage, mount.source, entries, fetched)
        except Changed:
            continue
        finally:
            pulse.watch(None)
        data.seen(True)
        return found
    raise Away(f"{data.storage.name}: what lies there changes while it is fetched")
