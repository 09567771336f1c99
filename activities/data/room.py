"""The room of one namespace in the cache: who uses which data set, what is reserved, what goes (row X10).

`<root>/<namespace>/<digest>/uses/` has a mark for each workload that uses the data set, from before it is staged until
the workload has ended and nothing of it is left in the cluster. `room.json` reserves bytes before any is fetched; its
time is that of the last staging. Both change under a lock that workers on other machines see (`flock`: local file
systems, NFS 4, CephFS, Lustre mounted with `flock`), and which ends with the process that holds it.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import json
import os
import re
import stat
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from holdfast import names
from holdfast.activities.data.folder import Folder, at
from holdfast.activities.data.record import Seal
from holdfast.activities.data.storage import Away, BadData
from holdfast.model.spec.mount import check_digest
from holdfast.policy.sides.data_room import Room, Stored, oldest_first, room_for

MARK: Final = "complete.json"
_LOCK_SECONDS: Final = 20.0
_AT_ONCE: Final = 8
_LOCK: Final = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
Mark = tuple[str, str]
"""The digest of a data set, and the name of a mark in its folder."""
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
T = TypeVar("T")


class NoRoom(Away):
    """The namespace's quota has no room for a data set now."""


@dataclass(frozen=True, slots=True)
class Use:
    """A workload that uses a data set, as its mark says."""

    uid: str
    """The workload's uid."""
    workflow_id: str = ""
    cluster: str = ""
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Of the staging that wrote the mark: another staging does not take it back."""


Ended = Callable[[str, Use], Awaitable[bool]]
"""Whether it is certain that a workload of a namespace has ended, and that nothing of it is left in the cluster."""


async def nobody_knows(namespace: str, use: Use) -> bool:
    """Return that it is not certain that a workload has ended."""
    return False


class NamespaceRoom:
    """The folder of one namespace."""

    def __init__(self, root: Path, namespace: str, quota: int | None = None, seal: Seal | None = None) -> None:
        """Set the folder; it is created with the first data set.

        Raises:
            ValueError: if the namespace is no name of one.
        """
        if not names.DNS_LABEL.match(namespace):
            raise ValueError(f"{namespace!r}: expected the name of a namespace")
        self._root, self.namespace, self.folder, self._quota = root, namespace, root / namespace, quota
        self._seal = seal or Seal()

    def home(self, digest: str) -> Path:
        """Return the folder of a data set.

        Raises:
            ValueError: if it is not a digest.
        """
        return self.folder / check_digest(digest)

    async def use(self, digest: str, use: Use) -> bool:
        """Mark a data set as used by a workload, if it was ever complete; return whether it was.

        Raises:
            Away: if the lock cannot be had.
            OSError: if the folder cannot be used.
        """

        def mark() -> bool:
            try:
                home = self._at(digest)
            except FileNotFoundError:
                return False
            if not _was_complete(home):
                return False
            self._mark(digest, use)
            with suppress(FileNotFoundError):
                os.utime("room.json", dir_fd=home.number, follow_symlinks=False)
            return True

        return await self._locked(mark) if await asyncio.to_thread(self._has, digest) else False

    async def reserve(self, digest: str, size: int, use: Use, ended: Ended) -> None:
        """Reserve room for a data set and mark it as used; evict what nobody uses, as far as that is needed.

        Raises:
            NoRoom: if workloads use too much of the quota now.
            BadData: if the quota is too small for what the workload reads.
            Away: if the lock cannot be had.
            OSError: if the folder cannot be used.
        """
        await asyncio.to_thread(self._begin)
        room = await self._locked(lambda: self._reserve(digest, size, use, {}))
        if room.waits:
            over = await self._over(digest, size, use, ended)
            room = await self._locked(lambda: self._reserve(digest, size, use, over))
        await asyncio.to_thread(self.empty)
        if room.problem:
            why = f"namespace {self.namespace} has no room for it: {room.problem} (setting `data_quotas`)"
            raise NoRoom(why) if room.waits else BadData(why)

    async def release(self, digest: str, use: Use) -> None:
        """Take back the mark of this staging; a later one keeps its own.

        Raises:
            Away: if the lock cannot be had.
            OSError: if the folder cannot be used.
        """

        def drop() -> None:
            self._drop(digest, _mark_name(use.uid), use)

        if await asyncio.to_thread(self._has, digest):
            await self._locked(drop)

    async def unfinished(self, uid: str) -> dict[str, Use]:
        """Return a workload's marks on data sets that were never complete, by digest: no pod reads these.

        Raises:
            OSError: if the folder cannot be used.
        """

        def find() -> dict[str, Use]:
            marks = {
                digest: dict(_uses(home)).get(_mark_name(uid))
                for digest, home in self._homes()
                if not _was_complete(home)
            }
            return {digest: use for digest, use in marks.items() if use is not None}

        return await asyncio.to_thread(find)

    def put_away(self, folder: Folder, name: str) -> None:
        """Move a folder out of the sight of pods; `empty` removes it.

        Raises:
            FileNotFoundError: if it is not there.
            OSError: if it cannot be moved.
        """
        folder.put(name, self._at(".gone", make=True))

    # Under the lock.

    def _reserve(self, digest: str, size: int, use: Use, over: dict[Mark, Use]) -> Room:
        for (marked, name), gone in over.items():
            self._drop(marked, name, gone)
        room = room_for(self.stored(), digest, size, use.uid, self._quota)
        if room.problem:
            return room
        for one in room.evict:
            # Complete or absent: no moment shows a part of it.
            folder, gone = self._at(), self._at(".gone", make=True)
            os.rename(one, f"{one}.{uuid.uuid4().hex}", src_dir_fd=folder.number, dst_dir_fd=gone.number)
        home = self._at(self.home(digest).name, make=True)
        home.write("room.json", self._seal.write(self._room_name(digest), {"bytes": size}))
        self._mark(digest, use)
        return room

    def _mark(self, digest: str, use: Use) -> None:
        text = {"uid": use.uid, "workflow_id": use.workflow_id, "cluster": use.cluster, "token": use.token}
        self._at(digest, make=True)
        self._at(digest, "uses", make=True, mode=0o700).write(_mark_name(use.uid), json.dumps(text).encode())

    def _drop(self, digest: str, name: str, use: Use) -> None:
        with suppress(FileNotFoundError):
            uses = self._at(digest, "uses")
            if _read_use(uses, name) == use:
                uses.remove(name)

    # Without it.

    def stored(self) -> list[Stored]:
        """Return the data sets of the namespace."""
        found: list[Stored] = []
        for digest, home in self._homes():
            users = frozenset(use.uid if use is not None else f"{digest}/{name}" for name, use in _uses(home))
            found.append(Stored(digest, *self._reserved(digest, home), users))
        return found

    def _reserved(self, digest: str, home: Folder) -> tuple[int, float]:
        """Return the bytes reserved for a data set, and when it was last staged; if nothing says so, what is there."""
        try:
            size = max(0, int(self._seal.read(self._room_name(digest), home.read("room.json") or b"")["bytes"]))
            return size, os.stat("room.json", dir_fd=home.number, follow_symlinks=False).st_mtime
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return home.size(), 0.0

    def _room_name(self, digest: str) -> str:
        return f"{self.namespace}/{digest}/room.json"

    def _homes(self) -> Iterator[tuple[str, Folder]]:
        with suppress(FileNotFoundError):
            folder = self._at()
            for one in folder.entries():
                if _DIGEST.fullmatch(one.name) and one.is_dir(follow_symlinks=False):
                    with suppress(FileNotFoundError, NotADirectoryError):
                        yield one.name, folder.inner(one.name)

    def _uses(self, digest: str) -> list[tuple[str, Use | None]]:
        try:
            return _uses(self._at(digest))
        except FileNotFoundError:
            return []

    async def _over(self, digest: str, size: int, use: Use, ended: Ended) -> dict[Mark, Use]:
        """Return marks of workloads that have ended, of as many data sets as must go: the oldest first."""
        over: dict[Mark, Use] = {}
        stored = await asyncio.to_thread(self.stored)
        excess = sum(one.bytes for one in stored if one.digest != digest) + size - (self._quota or 0)
        turns = asyncio.Semaphore(_AT_ONCE)

        async def ask(one: Use | None) -> bool:
            async with turns:
                return one is not None and await ended(self.namespace, one)

        for one in oldest_first(stored):
            if excess <= 0:
                break
            if one.digest == digest or use.uid in one.users:
                continue
            marks = await asyncio.to_thread(self._uses, one.digest)
            gone = await asyncio.gather(*(ask(mark) for _, mark in marks))
            for (name, mark), is_gone in zip(marks, gone, strict=True):
                if mark and is_gone:
                    over[one.digest, name] = mark
            if all(gone):
                excess -= one.bytes
        return over

    def _begin(self) -> None:
        with suppress(FileExistsError):
            self._root.mkdir(mode=0o755, parents=True)
        self._at(make=True)

    def _at(self, *names: str, make: bool = False, mode: int = 0o755) -> Folder:
        return at(self._root, self.namespace, *names, mode=mode if make else None)

    def _has(self, digest: str) -> bool:
        try:
            self._at(self.home(digest).name)
        except FileNotFoundError:
            return False
        return True

    def empty(self) -> None:
        """Free the room of what was evicted or put away, by this worker or by one that was killed."""
        with suppress(FileNotFoundError):
            self._at(".gone").empty()

    async def _locked(self, do: Callable[[], T]) -> T:
        def attempt() -> tuple[T] | None:
            folder = self._at()
            number = os.open(".lock", _LOCK, 0o600, dir_fd=folder.number)
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return (do(),)
            except BlockingIOError:
                return None
            except OSError as error:
                if error.errno in {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}:
                    raise Away(f"the file system of {self.folder} has no locks (flock): {error.strerror}") from None
                raise
            finally:
                os.close(number)

        until = asyncio.get_running_loop().time() + _LOCK_SECONDS
        while (done := await asyncio.to_thread(attempt)) is None:
            if asyncio.get_running_loop().time() > until:
                raise Away(f"another worker keeps {self.folder} locked")
            await asyncio.sleep(0.02)
        return done[0]


def _was_complete(home: Folder) -> bool:
    """Whether a data set was ever complete."""
    try:
        return stat.S_ISREG(os.stat(MARK, dir_fd=home.number, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _mark_name(uid: str) -> str:
    return hashlib.sha256(uid.encode()).hexdigest()[:32]


def _uses(home: Folder) -> list[tuple[str, Use | None]]:
    """Return the marks of a data set; one that cannot be read is a use by somebody unknown."""
    try:
        folder = home.inner("uses")
    except (FileNotFoundError, NotADirectoryError):
        return []
    # A name with a dot is not yet renamed into place, or was left by a crash.
    return [(name, _read_use(folder, name)) for name in sorted(os.listdir(folder.number)) if not name.startswith(".")]


def _read_use(folder: Folder, name: str) -> Use | None:
    try:
        given: Any = json.loads(folder.read(name) or b"")
        return Use(str(given["uid"]), str(given["workflow_id"]), str(given["cluster"]), str(given["token"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
