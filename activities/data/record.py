"""Records of files in the cache: what was fetched, by hash, and how to find out that a file has changed (row X10).

A file's stamp is its size, times, inode, mode and owner. No program can set the time of a file's last change of status
(`ctime`), so `write` changes a file's stamp. A write to a mapped page does so only if that page was clean: so a file is
flushed before it is hashed, and its stamp proves nothing while it is younger than `SETTLED`. A file with its recorded
stamp is not read again. A file with another stamp is hashed.

Records are sealed with a key that workers alone have, if there is one: without it, who can write to the cache can write
a record, too.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

from holdfast.activities.data.storage import Entry

SETTLED = 1.0
"""Seconds after its last change from which on a file's stamp is recorded: a later change has another one."""
_LOOKS: Final = 5
PIECE: Final = 8 * 1024 * 1024
Stamp = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """One object as it was fetched."""

    entry: Entry
    sha256: str
    stamp: Stamp


class Seal:
    """Seals records with a key (HMAC-SHA256); without a key, only detects that they are torn."""

    def __init__(self, key: bytes = b"") -> None:
        """Set the key."""
        self._key = key

    def write(self, home: str, document: Any) -> bytes:
        """Return a sealed document as one line.

        Args:
            home: what it belongs to; it is valid nowhere else.
            document: what JSON can express.
        """
        text = json.dumps(document)
        return json.dumps([self._of(home, text), text]).encode() + b"\n"

    def read(self, home: str, line: bytes) -> Any:
        """Return a document; None if it is torn, or its seal is not valid here."""
        try:
            seal, text = json.loads(line)
            return json.loads(text) if hmac.compare_digest(seal, self._of(home, text)) else None
        except (ValueError, TypeError, RecursionError):
            return None

    def _of(self, home: str, text: str) -> str:
        return hmac.new(self._key, f"{home}\n{text}".encode(), hashlib.sha256).hexdigest()


def as_json(record: Record) -> list[Any]:
    """Return a record as JSON has it."""
    entry = record.entry
    return [entry.key, entry.size, entry.etag, record.sha256, list(record.stamp)]


def from_json(given: Any) -> Record:
    """Return a record that `as_json` has written.

    Raises:
        ValueError, TypeError: if it is none.
    """
    key, size, etag, sha256, stamp = given
    return Record(Entry(str(key), int(size), str(etag)), str(sha256), tuple(int(one) for one in stamp))


def stamp_of(found: os.stat_result) -> Stamp:
    """Return a file's stamp."""
    return (found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_mode, found.st_uid)


def opened(path: Path) -> BinaryIO | None:
    """Open a regular file to read; None if there is none. A file system of nodes then asks its server for the stamp."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if isinstance(error, FileNotFoundError | NotADirectoryError) or path.is_symlink() or not path.is_file():
            return None
        raise
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        return None
    return os.fdopen(number, "rb", buffering=0)


def hashed(file: BinaryIO, to: Callable[[bytes], None]) -> None:
    """Read a file to its end, in pieces."""
    while piece := file.read(PIECE):
        to(piece)


def look(path: Path) -> tuple[str, Stamp] | None:
    """Return a file's hash and stamp; None if there is no regular file, or it changes while it is read.

    The stamp is empty if the file has changed so lately that the stamp would not show another change: no file has it.
    """
    for _ in range(_LOOKS):
        begun = time.time()
        file = opened(path)
        if file is None:
            return None
        with file:
            # A page that is written to while it is mapped then has to be made dirty anew, which changes the stamp.
            with suppress(OSError):
                os.fsync(file.fileno())
            before, digest = os.fstat(file.fileno()), hashlib.sha256()
            hashed(file, digest.update)
            if stamp_of(os.fstat(file.fileno())) == stamp_of(before):
                return digest.hexdigest(), stamp_of(before) if _is_settled(before, begun) else ()
        if _is_same(path, before):
            return None
        # Another fetch of the data set has put its own in this place.
    return None


def _is_settled(found: os.stat_result, now: float) -> bool:
    return now - found.st_ctime_ns / 1e9 >= SETTLED


def _is_same(path: Path, before: os.stat_result) -> bool:
    try:
        return os.path.samestat(path.lstat(), before)
    except OSError:
        return False


def check(path: Path, record: Record) -> Record | None:
    """Return the record of a file if its content is that which was fetched, with its stamp of now; else None."""
    file = opened(path)
    if file is None:
        return None
    with file:
        if stamp_of(os.fstat(file.fileno())) == record.stamp:
            return record
        if os.fstat(file.fileno()).st_size != record.entry.size:
            return None
    found = look(path)
    return Record(record.entry, record.sha256, found[1]) if found is not None and found[0] == record.sha256 else None
