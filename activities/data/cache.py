"""Data sets on a file system that nodes share: complete or absent, even if a fetch is killed (row L14).

`<root>/<digest>/data/` holds the files. `<root>/<digest>/complete.json` marks them as complete: it is renamed into
place last. Each file is written under a unique name in `<root>/<digest>/part/`, and renamed when it is complete. So two
fetches of the same data set do not disturb each other, and a file that is there is not fetched again. Partial files of
a killed fetch are removed before the next fetch of any data set, and when the disk is full (row D49).
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar
from weakref import WeakValueDictionary

from holdfast.activities.data.storage import Away, Changed, Entry, Storage, digest_of

AT_ONCE: Final = 4
"""Objects of one data set that are fetched at the same time."""
IN_ALL: Final = 16
"""Objects that a worker fetches at the same time: each takes some megabytes of memory."""
_STALE: Final = 3600.0
"""Seconds without a write after which a partial file counts as abandoned."""
_FULL: Final = {errno.ENOSPC, errno.EDQUOT}
_MARK: Final = "complete.json"
T = TypeVar("T")


@dataclass(slots=True)
class Fetched:
    """How much was fetched from the store so far."""

    bytes: int = 0
    files: int = 0
    of: int = 0
    """How many files are to be fetched in all."""


@dataclass(frozen=True, slots=True)
class Held:
    """A data set that is complete in the cache."""

    files: int
    bytes: int


def data_path(digest: str) -> str:
    """Return the path of a data set's files, relative to the cache's root."""
    return f"{digest}/data"


class Cache:
    """The folder that holds all data sets."""

    def __init__(self, root: Path) -> None:
        """Set the folder; it is created with the first data set."""
        self._root = root
        self._turns = asyncio.Semaphore(IN_ALL)
        self._filling: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def unusable(self) -> str:
        """Return why the folder cannot be written; empty if it can."""
        try:
            self._root.mkdir(mode=0o755, parents=True, exist_ok=True)
        except OSError as error:
            return str(_unusable(self._root, error))
        return "" if os.access(self._root, os.W_OK) else f"the data directory {self._root} cannot be written"

    async def held(self, digest: str, source: str) -> Held | None:
        """Return one version of a source, if it is complete in the cache; else None.

        Raises:
            Away: if the file system cannot be read.
        """
        return await asyncio.to_thread(self._held, digest, source)

    def _held(self, digest: str, source: str) -> Held | None:
        home = self._root / digest
        try:
            document: Any = json.loads((home / _MARK).read_text())
            entries = [Entry(str(key), int(size), str(etag)) for key, size, etag in document["objects"]]
            # The digest alone gives no access to a data set: the source that it came from must be the one asked for.
            if document["source"] != source or digest_of(source, entries) != digest:
                return None
            if any(not self._is_whole(home, one) for one in entries):
                return None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(self._root, error) from None
        except (ValueError, KeyError, TypeError):
            return None
        return Held(len(entries), sum(one.size for one in entries))

    @staticmethod
    def _is_whole(home: Path, entry: Entry) -> bool:
        try:
            return (home / "data" / entry.key).stat().st_size == entry.size
        except (FileNotFoundError, NotADirectoryError):
            return False

    async def fill(self, storage: Storage, source: str, entries: Sequence[Entry], fetched: Fetched) -> str:
        """Fetch one version of a source until it is complete in the cache, and return its digest.

        Raises:
            Away: if the store, or the file system, cannot be used now; the files fetched by then stay.
            Changed: if an object has changed since it was listed.
        """
        digest = digest_of(source, entries)
        home = self._root / digest
        lock = self._filling.setdefault(digest, asyncio.Lock())
        try:
            async with lock:  # This worker runs one fetch per data set; the next finds its files.
                await asyncio.to_thread(self._remove_stale)
                missing = await asyncio.to_thread(self._missing, home, entries)
                fetched.of += len(missing)
                await _each(missing, lambda one: self._fetch(storage, source, home, one, fetched))
                await asyncio.to_thread(self._complete, home, source, entries)
        except OSError as error:
            if error.errno in _FULL:
                # This frees the room of abandoned files for the next try.
                await asyncio.to_thread(self._remove_stale)
            raise _unusable(self._root, error) from None
        return digest

    def _remove_stale(self) -> None:
        """Remove the partial files of killed fetches, of all data sets.

        A file that is still being written is younger than `_STALE`: each piece that arrives renews its time.
        """
        for part in self._root.glob("*/part/*"):
            with suppress(OSError):
                if time.time() - part.stat().st_mtime > _STALE:
                    part.unlink()

    def _missing(self, home: Path, entries: Sequence[Entry]) -> list[Entry]:
        for folder in (home, home / "data", home / "part"):
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        return [one for one in entries if not self._is_whole(home, one)]

    async def _fetch(self, storage: Storage, source: str, home: Path, entry: Entry, fetched: Fetched) -> None:
        async with self._turns:
            await self._fetch_now(storage, source, home, entry, fetched)

    async def _fetch_now(self, storage: Storage, source: str, home: Path, entry: Entry, fetched: Fetched) -> None:
        part = home / "part" / uuid.uuid4().hex
        size = 0
        try:
            with await asyncio.to_thread(part.open, "xb") as file:
                async for piece in storage.fetch(source, entry):
                    await asyncio.to_thread(file.write, piece)
                    size += len(piece)
                    fetched.bytes += len(piece)
                await asyncio.to_thread(_settle, file)
            if size != entry.size:
                raise Changed(f"object {entry.key!r} has {size} bytes, and was listed with {entry.size}")
            await asyncio.to_thread(_place, part, home / "data" / entry.key)
            fetched.files += 1
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)

    def _complete(self, home: Path, source: str, entries: Sequence[Entry]) -> None:
        """Mark the data set as complete, by one rename."""
        part = home / "part" / uuid.uuid4().hex
        objects = [[one.key, one.size, one.etag] for one in sorted(entries)]
        try:
            with part.open("xb") as file:
                file.write(json.dumps({"source": source, "objects": objects}).encode())
                _settle(file)
            _place(part, home / _MARK)
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)


def _settle(file: BinaryIO) -> None:
    file.flush()
    os.fchmod(file.fileno(), 0o644)  # Pods run as any user.
    os.fsync(file.fileno())


def _place(part: Path, target: Path) -> None:
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    part.replace(target)


def _unusable(root: Path, error: OSError) -> Away:
    return Away(f"the data directory {root} cannot be used: {error.strerror or error}")


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
