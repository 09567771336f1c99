"""Remembers what a fetch has done, so that the next one goes on where it stopped, whatever killed it (row X10).

Each fetch appends sealed lines to a file of its own, `<digest>/part/<id>.jsonl`: a record of each file that is whole,
and how far each part has come, with the hash up to there. A line that is torn is ignored, and what it tells is fetched
again. A fetch holds a lock on its journal and on its parts, so the next one takes over only what nobody writes.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
import threading
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Final

from holdfast.activities.data.folder import SMALL, Folder
from holdfast.activities.data.record import PIECE, Record, Seal, as_json, from_json
from holdfast.activities.data.storage import Entry

ENDING: Final = ".jsonl"
_MOST: Final = 1024 * 1024 * 1024
"""Bytes of a journal that are read at most."""


@dataclass(eq=False)
class Part:
    """A file that is being fetched: its bytes and their hashes so far."""

    folder: Folder
    name: str
    file: BinaryIO
    bytes: int = 0
    sha256: Any = field(default_factory=hashlib.sha256)
    md5: Any = field(default_factory=lambda: hashlib.md5(usedforsecurity=False))

    def write(self, piece: bytes) -> None:
        """Append a piece."""
        self.file.write(piece)
        self.file.flush()
        self._add(piece)

    def go_on(self, known: dict[int, str]) -> None:
        """Take over what an earlier fetch wrote, as far as its hash proves it; the rest is dropped.

        Args:
            known: by number of bytes: the hash up to there.
        """
        self.file.seek(0)
        kept, ahead = Part(self.folder, self.name, self.file), Part(self.folder, self.name, self.file)
        for end in sorted(known):
            while ahead.bytes < end and (piece := self.file.read(min(PIECE, end - ahead.bytes))):
                ahead._add(piece)
            if ahead.bytes != end or ahead.sha256.hexdigest() != known[end]:
                break
            kept.bytes, kept.sha256, kept.md5 = end, ahead.sha256.copy(), ahead.md5.copy()
        self.bytes, self.sha256, self.md5 = kept.bytes, kept.sha256, kept.md5
        self.file.seek(self.bytes)
        self.file.truncate()

    def _add(self, piece: bytes) -> None:
        self.bytes += len(piece)
        self.sha256.update(piece)
        self.md5.update(piece)


class Journal:
    """What the fetches of one data set have done."""

    def __init__(self, name: str, seal: Seal) -> None:
        """Set the data set's name in seals."""
        self._name, self._seal = name, seal
        self._folder: Folder | None = None
        self._file = f"{uuid.uuid4().hex}{ENDING}"
        self._number = -1
        self._writing = threading.Lock()
        self._told: set[str] = set()
        """Parts of which it tells; an empty name stands for files."""
        self.records: dict[str, list[Record]] = {}
        """By key: what was fetched, the latest last."""
        self._parts: dict[str, dict[int, str]] = {}

    def open(self, folder: Folder) -> None:
        """Read the journals that are there, and take over those that nobody writes.

        Args:
            folder: where the parts of the data set are.

        Raises:
            OSError: if the folder cannot be used.
        """
        self._folder, flags = folder, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._number = os.open(self._file, flags, 0o600, dir_fd=folder.number)
        fcntl.flock(self._number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for name in sorted(one.name for one in folder.entries()):
            if name.endswith(ENDING) and name != self._file:
                self._take(folder, name)

    def _take(self, folder: Folder, name: str) -> None:
        number = folder.file(name)
        if number is None:
            return
        with os.fdopen(number, "rb") as file:
            is_left = _locks(file)
            while file.tell() < _MOST and (line := file.readline(SMALL)):
                document = self._seal.read(self._name, line) if line.strip() else None
                if document is not None and self._heard(document) and is_left:
                    self._append(document, document.get("part", ""))
            if is_left:
                folder.remove(name)

    def _heard(self, document: Any) -> bool:
        try:
            if "file" in document:
                record = from_json(document["file"])
                self.records.setdefault(record.entry.key, []).append(record)
            else:
                self._parts.setdefault(str(document["part"]), {})[int(document["bytes"])] = str(document["sha256"])
        except (KeyError, ValueError, TypeError):
            return False
        return True

    def add(self, record: Record) -> None:
        """Remember a file that is whole."""
        self._append({"file": as_json(record)})

    def reached(self, part: Part) -> None:
        """Remember how far a part has come."""
        name = part.name
        self._append({"part": name, "bytes": part.bytes, "sha256": part.sha256.hexdigest()}, name)

    def dropped(self, part: Part) -> None:
        """Forget a part that was removed."""
        self._told.discard(part.name)

    def came(self, entry: Entry) -> list[Record]:
        """Return a record for each time that an object came whole: its file may be in place, with an unknown stamp."""
        start = _start(entry)
        known = [known for name, known in self._parts.items() if name.startswith(start)]
        return [Record(entry, one[entry.size], ()) for one in known if entry.size in one]

    def _append(self, document: Any, part: str = "") -> None:
        # A torn line before it stays alone.
        line = b"\n" + self._seal.write(self._name, document)
        with self._writing:  # A thread may outlive the fetch that was cancelled.
            if self._number >= 0:
                os.write(self._number, line)
                self._told.add(part)

    def part(self, entry: Entry) -> Part:
        """Return the file in which to fetch an object: the one that an earlier fetch left, if there is one.

        Raises:
            OSError: if the folder cannot be used.
        """
        folder, start = self._folder, _start(entry)
        if folder is None:
            raise RuntimeError("the journal is not open")
        for name, known in self._parts.items():
            if name.startswith(start) and "/" not in name and entry.etag:
                with suppress(FileNotFoundError):
                    part = _opened(folder, name, os.O_RDWR)
                    if part is not None:
                        part.go_on({end: sha256 for end, sha256 in known.items() if end <= entry.size})
                        return part
        part = None
        while part is None:  # Another fetch that has just completed the data set may remove it before it is locked.
            part = _opened(folder, f"{start}{uuid.uuid4().hex}", os.O_RDWR | os.O_CREAT | os.O_EXCL)
        return part

    def close(self, *, done: bool) -> None:
        """End it; the file stays if the next fetch can go on from it. Once all is done, parts that nobody writes go."""
        with self._writing, suppress(OSError):
            if self._number >= 0:
                number, self._number = self._number, -1
                os.close(number)
            if self._folder is not None and (done or not self._told):
                self._folder.remove(self._file)
        if self._folder is not None and done:
            for one in self._folder.entries():
                with suppress(OSError):
                    left = _opened(self._folder, one.name, os.O_RDWR) if not one.name.endswith(ENDING) else None
                    if left is not None:
                        self._folder.remove(one.name)
                        left.file.close()


def _start(entry: Entry) -> str:
    """Return how the names of an object's parts start."""
    return f"{hashlib.sha256(json.dumps([entry.key, entry.size, entry.etag]).encode()).hexdigest()[:32]}."


def _opened(folder: Folder, name: str, flags: int) -> Part | None:
    """Open and lock a part; None if another fetch writes it, or has just renamed it into place."""
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    number = os.open(name, flags, 0o600, dir_fd=folder.number)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        return None
    file = os.fdopen(number, "r+b")
    with suppress(FileNotFoundError):
        if _locks(file):
            there = os.stat(name, dir_fd=folder.number, follow_symlinks=False)
            if os.path.samestat(there, os.fstat(number)):
                return Part(folder, name, file)
    file.close()
    return None


def _locks(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
