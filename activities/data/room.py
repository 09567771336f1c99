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
import shutil
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from holdfast import names
from holdfast.activities.data.storage import Away, BadData
from holdfast.model.spec.mount import check_digest
from holdfast.policy.sides.data_room import Room, Stored, oldest_first, room_for

MARK: Final = "complete.json"
_LOCK_SECONDS: Final = 20.0
_AT_ONCE: Final = 8
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

    def __init__(self, root: Path, namespace: str, quota: int | None = None) -> None:
        """Set the folder; it is created with the first data set.

        Raises:
            ValueError: if the namespace is no name of one.
        """
        if not names.DNS_LABEL.match(namespace):
            raise ValueError(f"{namespace!r}: expected the name of a namespace")
        self.namespace, self.folder, self._quota = namespace, root / namespace, quota

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
            if not (self.home(digest) / MARK).is_file():
                return False
            self._mark(digest, use)
            with suppress(FileNotFoundError):
                os.utime(self.home(digest) / "room.json")
            return True

        return await self._locked(mark) if await asyncio.to_thread(self.home(digest).is_dir) else False

    async def reserve(self, digest: str, size: int, use: Use, ended: Ended) -> None:
        """Reserve room for a data set and mark it as used; evict what nobody uses, as far as that is needed.

        Raises:
            NoRoom: if workloads use too much of the quota now.
            BadData: if the quota is too small for what the workload reads.
            Away: if the lock cannot be had.
            OSError: if the folder cannot be used.
        """
        await asyncio.to_thread(self._make, self.folder)
        room = await self._locked(lambda: self._reserve(digest, size, use, {}))
        if room.waits:
            over = await self._over(digest, size, use, ended)
            room = await self._locked(lambda: self._reserve(digest, size, use, over))
        await asyncio.to_thread(self._empty)
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
            path = self._mark_path(digest, use.uid)
            if _read_use(path) == use:
                path.unlink(missing_ok=True)

        if await asyncio.to_thread(self.home(digest).is_dir):
            await self._locked(drop)

    # Under the lock.

    def _reserve(self, digest: str, size: int, use: Use, over: dict[Path, Use]) -> Room:
        for path, gone in over.items():
            if _read_use(path) == gone:
                path.unlink(missing_ok=True)
        room = room_for(self.stored(), digest, size, use.uid, self._quota)
        if room.problem:
            return room
        for one in room.evict:
            # Complete or absent: no moment shows a part of it.
            self._make(self._gone)
            self.home(one).rename(self._gone / f"{one}.{uuid.uuid4().hex}")
        home = self.home(digest)
        self._make(home)
        write(home / "room.json", json.dumps({"bytes": size}).encode())
        self._mark(digest, use)
        return room

    def _mark(self, digest: str, use: Use) -> None:
        path = self._mark_path(digest, use.uid)
        self._make(path.parent, 0o700)
        text = {"uid": use.uid, "workflow_id": use.workflow_id, "cluster": use.cluster, "token": use.token}
        write(path, json.dumps(text).encode())

    # Without it.

    def stored(self) -> list[Stored]:
        """Return the data sets of the namespace."""
        found: list[Stored] = []
        for home in self._homes():
            users = frozenset(use.uid if use is not None else str(path) for path, use in _uses(home))
            found.append(Stored(home.name, *_reserved(home), users))
        return found

    def _homes(self) -> Iterator[Path]:
        if self.folder.is_dir():
            for home in self.folder.iterdir():
                if _DIGEST.fullmatch(home.name) and home.is_dir() and not home.is_symlink():
                    yield home

    async def _over(self, digest: str, size: int, use: Use, ended: Ended) -> dict[Path, Use]:
        """Return marks of workloads that have ended, of as many data sets as must go: the oldest first."""
        over: dict[Path, Use] = {}
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
            marks = await asyncio.to_thread(_uses, self.home(one.digest))
            gone = await asyncio.gather(*(ask(mark) for _, mark in marks))
            over.update((path, mark) for (path, mark), is_gone in zip(marks, gone, strict=True) if mark and is_gone)
            if all(gone):
                excess -= one.bytes
        return over

    def _mark_path(self, digest: str, uid: str) -> Path:
        return self.home(digest) / "uses" / hashlib.sha256(uid.encode()).hexdigest()[:32]

    @property
    def _gone(self) -> Path:
        return self.folder / ".gone"

    def _empty(self) -> None:
        """Free the room of what was evicted, by this worker or by one that was killed."""
        if self._gone.is_dir() and not self._gone.is_symlink():
            for one in self._gone.iterdir():
                shutil.rmtree(one, ignore_errors=True)

    @staticmethod
    def _make(folder: Path, mode: int = 0o755) -> None:
        make_folder(folder, mode)

    async def _locked(self, do: Callable[[], T]) -> T:
        def attempt() -> tuple[T] | None:
            number = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
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


def make_folder(folder: Path, mode: int = 0o755) -> None:
    """Create a folder, if there is none; a link in its place is none.

    Raises:
        OSError: if it cannot be created.
    """
    folder.mkdir(mode=mode, parents=True, exist_ok=True)
    if folder.is_symlink():
        raise OSError(errno.ELOOP, f"{folder} is a symbolic link")


def write(path: Path, text: bytes) -> None:
    """Write a small file as a whole, so that it is there after a crash, or the one before.

    Raises:
        OSError: if it cannot be written; nothing of it is left then.
    """
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with part.open("xb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _uses(home: Path) -> list[tuple[Path, Use | None]]:
    """Return the marks of a data set; one that cannot be read is a use by somebody unknown."""
    folder = home / "uses"
    try:
        # A name with a dot is not yet renamed into place, or was left by a crash.
        return [(path, _read_use(path)) for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    except FileNotFoundError:
        return []


def _read_use(path: Path) -> Use | None:
    try:
        given: Any = json.loads(path.read_bytes())
        return Use(str(given["uid"]), str(given["workflow_id"]), str(given["cluster"]), str(given["token"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _reserved(home: Path) -> tuple[int, float]:
    """Return the bytes reserved for a data set, and when it was last staged; if nothing says so, what is there."""
    path = home / "room.json"
    try:
        return max(0, int(json.loads(path.read_bytes())["bytes"])), path.stat().st_mtime
    except (OSError, ValueError, KeyError, TypeError):
        sizes = [os.lstat(os.path.join(folder, one)).st_size for folder, _, files in os.walk(home) for one in files]
        return sum(sizes), 0.0
