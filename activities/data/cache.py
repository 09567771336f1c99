"""Data sets on a file system that nodes share: complete or absent, even if a fetch is killed (rows L14, X10).

`<root>/<namespace>/<digest>/data/` holds the files. `complete.json` beside it has a record of each, and is renamed into
place last. Each file is written in `part/`, and renamed when it is complete. So two fetches of the same data set do not
disturb each other, and a file that is there is not fetched again. Parts that no fetch goes on with are removed before
the next fetch of any other data set, and when the disk is full (row D49). `room.py` says who uses a data set, and what
goes.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import stat
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from holdfast.activities.data.fetch import Fetched, Filling
from holdfast.activities.data.folder import Folder, at, within
from holdfast.activities.data.journal import ENDING, Journal
from holdfast.activities.data.record import Record, Seal, as_json, check, from_json
from holdfast.activities.data.room import MARK, NamespaceRoom
from holdfast.activities.data.storage import OBJECTS_MAXIMUM, Away, Entry, Storage, digest_of

AT_ONCE: Final = 4
"""Objects of one data set that are fetched at the same time."""
IN_ALL: Final = 16
"""Objects that a worker fetches at the same time: each takes some megabytes of memory."""
_STALE: Final = 3600.0
"""Seconds without a write after which a partial file counts as abandoned."""
_FRESH: Final = 30.0
"""Seconds for which a look at a data set counts for the creation that follows it."""
_RECORDS: Final = OBJECTS_MAXIMUM * 4096
"""Bytes of records that are read at most."""
FULL: Final = {errno.ENOSPC, errno.EDQUOT}
_OLD_HOME: Final = re.compile(r"[0-9a-f]{64}")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Held:
    """A data set that is complete in the cache."""

    files: int
    bytes: int


def data_path(digest: str) -> str:
    """Return the path of a data set's files, relative to its namespace's folder."""
    return f"{digest}/data"


class Cache:
    """The folder that holds all data sets, each namespace's own in a folder of its name."""

    def __init__(
        self, root: Path, quota_of: Callable[[str], int | None] = lambda _: None, seal: Seal | None = None
    ) -> None:
        """Set the folder; it is created with the first data set.

        Args:
            root: the folder.
            quota_of: bytes that a namespace may keep there; None: no limit.
            seal: seals the records.
        """
        self._root, self._quota_of, self._seal = root, quota_of, seal or Seal()
        self._turns = asyncio.Semaphore(IN_ALL)
        self._filling: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._looked: dict[tuple[str, str], float] = {}
        """When this worker last found a data set whole."""
        self._not_md5: set[str] = set()
        """Sources whose etags look like MD5, and are not, as with server-side encryption by keys of a service."""

    def unusable(self) -> str:
        """Return why the folder cannot be written; empty if it can."""
        try:
            self._root.mkdir(mode=0o755, parents=True, exist_ok=True)
        except OSError as error:
            return str(self.away(error))
        return "" if os.access(self._root, os.W_OK) else f"the data directory {self._root} cannot be written"

    def outdated(self) -> int:
        """Return how many data sets lie there as earlier releases put them: none is read any more."""
        with suppress(OSError):
            return sum(1 for one in self._root.iterdir() if _OLD_HOME.fullmatch(one.name))
        return 0

    def away(self, error: OSError) -> Away:
        """Return what an error of the file system means."""
        return Away(f"the data directory {self._root} cannot be used: {error.strerror or error}")

    def room(self, namespace: str) -> NamespaceRoom:
        """Return the room of a namespace."""
        return NamespaceRoom(self._root, namespace, self._quota_of(namespace), self._seal)

    async def held(self, namespace: str, digest: str, source: str) -> Held | None:
        """Return one version of a source, if it is complete in the cache with the content that was fetched; else None.

        Files whose stamp has changed are read again. What does not belong there is removed.

        Raises:
            Away: if the file system cannot be read.
        """
        held = await asyncio.to_thread(self._held, namespace, digest, source)
        if held is not None:
            self._looked[namespace, digest] = time.monotonic()
        return held

    def is_fresh(self, namespace: str, digest: str) -> bool:
        """Whether this worker has just found a data set whole."""
        now = time.monotonic()
        self._looked = {key: at for key, at in self._looked.items() if now - at < _FRESH}
        return (namespace, digest) in self._looked

    def _held(self, namespace: str, digest: str, source: str) -> Held | None:
        room = self.room(namespace)
        home = room.home(digest)
        try:
            records = self._records(home, source)
            entries = [one.entry for one in records]
            # The digest alone gives no access to a data set: the source that it came from must be the one asked for.
            if not records or digest_of(source, entries) != digest:
                return None
            _clean(within(home, "data"), entries, room)
            now = [check(home / "data" / one.entry.key, one) for one in records]
            whole = [one for one in now if one is not None]
            if len(whole) < len(records):
                return None
            if whole != records:
                self._complete(home, source, whole)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self.away(error) from None
        return Held(len(entries), sum(one.size for one in entries))

    def _records(self, home: Path, source: str) -> list[Record]:
        """Return the records of a complete data set; none if it is not complete, or its seal is not valid."""
        try:
            text = within(home).read(MARK, _RECORDS)
        except FileNotFoundError:
            return []
        document: Any = self._seal.read(_name(home), text) if text is not None else None
        try:
            return [from_json(one) for one in document["objects"]] if document["source"] == source else []
        except (ValueError, KeyError, TypeError):
            return []

    async def fill(
        self, storage: Storage, namespace: str, source: str, entries: Sequence[Entry], fetched: Fetched
    ) -> str:
        """Fetch one version of a source until it is complete in the cache, and return its digest.

        Raises:
            Away: if the store, or the file system, cannot be used now; what was fetched by then stays.
            Changed: if an object has changed since it was listed, or a file while it was written.
        """
        digest = digest_of(source, entries)
        home = self.room(namespace).home(digest)
        lock = self._filling.setdefault((namespace, digest), asyncio.Lock())
        try:
            async with lock:  # This worker runs one fetch per data set; the next finds its files.
                await asyncio.to_thread(self.remove_stale, home)
                journal = Journal(_name(home), self._seal)
                await self._fill(Filling(storage, source, home, fetched, journal, self._not_md5), entries)
        except OSError as error:
            if error.errno in FULL:
                # This frees the room of abandoned files for the next try.
                await asyncio.to_thread(self.remove_stale, home)
            raise self.away(error) from None
        self._looked[namespace, digest] = time.monotonic()
        return digest

    async def _fill(self, filling: Filling, entries: Sequence[Entry]) -> None:
        whole: dict[str, Record] = {}
        checks: list[asyncio.Task[None]] = []
        done = False

        async def check_later(entry: Entry, sha256: str) -> None:
            record = await filling.read_back(entry, sha256)
            whole[entry.key] = record

        async def fetch(entry: Entry) -> None:
            async with self._turns:
                sha256 = await filling.fetch(entry)
            checks.append(asyncio.create_task(check_later(entry, sha256)))

        try:
            whole |= await asyncio.to_thread(self._begin, filling, entries)
            missing = [one for one in entries if one.key not in whole]
            filling.fetched.of += len(missing)
            try:
                await _each(missing, fetch)
            except Exception:
                await asyncio.gather(*checks, return_exceptions=True)  # What is whole is not fetched again.
                raise
            await asyncio.gather(*checks)
            records = [whole[one.key] for one in sorted(entries)]
            await asyncio.to_thread(self._complete, filling.home, filling.source, records)
            done = True
        finally:
            for one in checks:
                one.cancel()
            await asyncio.to_thread(filling.journal.close, done=done)

    def remove_stale(self, home: Path) -> None:
        """Remove the partial files of killed fetches of other data sets; those of this one are gone on with.

        A file that is still being written is younger than `_STALE`: each piece that arrives renews its time.
        """
        with suppress(OSError):
            for namespace, room in _folders(at(self._root)):
                for digest, other in _folders(room):
                    if (namespace, digest) != (home.parent.name, home.name):
                        _remove_old(other, lambda one: one.startswith("."))
                        for inner, folder in _folders(other):
                            if inner == "part":
                                _remove_old(folder, lambda one: not one.endswith(ENDING))
                            elif inner == "uses":
                                _remove_old(folder, lambda one: one.startswith("."))

    def _begin(self, filling: Filling, entries: Sequence[Entry]) -> dict[str, Record]:
        """Return the records of those files that are there with the content that was fetched, by key."""
        home = filling.home
        with suppress(FileExistsError):
            self._root.mkdir(mode=0o755, parents=True)
        _clean(within(home, "data", mode=0o755), entries, self.room(home.parent.name))
        filling.journal.open(within(home, "part", mode=0o700))
        known = {one.entry.key: [one] for one in self._records(home, filling.source)}
        found: dict[str, Record] = {}
        for entry in entries:
            journal = filling.journal
            told = (*reversed(journal.records.get(entry.key, [])), *known.get(entry.key, []), *journal.came(entry))
            for record in told:
                now = check(home / "data" / entry.key, record) if record.entry == entry else None
                if now is not None:
                    found[entry.key] = now
                    break
        return found

    def _complete(self, home: Path, source: str, records: Sequence[Record]) -> None:
        """Mark the data set as complete, by one rename."""
        document = {"source": source, "objects": [as_json(one) for one in records]}
        within(home).write(MARK, self._seal.write(_name(home), document))


def _name(home: Path) -> str:
    return f"{home.parent.name}/{home.name}"


def _clean(data: Folder, entries: Iterable[Entry], room: NamespaceRoom) -> None:
    """Remove whatever is no file of the data set: pods would read it, too, and links lead elsewhere."""
    keys = {one.key for one in entries}
    folders = {key[:at] for key in keys for at, letter in enumerate(key) if letter == "/"}
    strange = False
    # Each is opened from the top, after the one that it is in: a pod can nest folders without end.
    for path in ("", *sorted(folders)):
        with suppress(FileNotFoundError):
            folder = reduce(Folder.inner, path.split("/") if path else [], data)
            for one in folder.entries():
                key = f"{path}/{one.name}" if path else one.name
                with suppress(FileNotFoundError):
                    if one.is_dir(follow_symlinks=False):
                        if key not in folders:
                            strange = True
                            room.put_away(folder, one.name)
                    elif key not in keys or not one.is_file(follow_symlinks=False):
                        os.unlink(one.name, dir_fd=folder.number)
    if strange:
        room.empty()


def _folders(folder: Folder) -> Iterator[tuple[str, Folder]]:
    """Return the folders in a folder; links are none."""
    for one in folder.entries():
        with suppress(OSError):
            if one.is_dir(follow_symlinks=False):
                yield one.name, folder.inner(one.name)


def _remove_old(folder: Folder, is_part: Callable[[str], bool]) -> None:
    for one in folder.entries():
        with suppress(OSError):
            found = one.stat(follow_symlinks=False)
            if is_part(one.name) and not stat.S_ISDIR(found.st_mode) and time.time() - found.st_mtime > _STALE:
                folder.remove(one.name)


async def _each(items: Iterable[T], do: Callable[[T], Awaitable[None]]) -> None:
    """Do something with each item, a few at a time; the first error ends all."""
    left = iter(items)

    async def work() -> None:
        for item in left:
            await do(item)

    tasks = [asyncio.create_task(work()) for _ in range(AT_ONCE)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
