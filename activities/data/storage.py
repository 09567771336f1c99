"""The Storage port: what staging needs from an object store, and the three ways in which it can fail (row L14)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

OBJECTS_MAXIMUM: Final = 200_000
"""Limit of one data set: more objects are better packed, and a worker's memory could not hold many such lists."""
_KEY_MAXIMUM: Final = 255
"""Bytes of one part of a key: the limit of file systems for a name."""


class Away(Exception):
    """The store cannot be used now, but that can be repaired: no answer, no credentials, no permission, no room."""


class BadData(Exception):
    """The data set is not usable, and waiting does not change that."""


class Changed(Exception):
    """An object has changed since the data set was listed."""


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """One object of a data set."""

    key: str
    """Relative to the data set's prefix: its path among the data set's files."""
    size: int
    etag: str


class Storage(Protocol):
    """A store of objects. Each call may raise `Away`."""

    @property
    def name(self) -> str:
        """Its name in messages: the address."""
        ...

    async def list(self, source: str) -> list[Entry]:
        """Return all objects of a source; none if there are none.

        Raises:
            BadData: if there is no such bucket, or keys that cannot be listed.
        """
        ...

    def fetch(self, source: str, entry: Entry, start: int = 0) -> AsyncGenerator[bytes]:
        """Yield the content of an object, from its byte `start` on.

        Raises:
            Changed: if it is gone, or has changed.
        """
        ...

    async def answers(self, source: str) -> None:
        """Return if the store answers for a source, whatever the answer is."""
        ...


def digest_of(source: str, entries: Sequence[Entry]) -> str:
    """Return the digest of one version of a data set: of its source, and of each object in it."""
    digest = hashlib.sha256(json.dumps(source).encode())
    for one in sorted(entries):
        digest.update(json.dumps([one.key, one.size, one.etag]).encode())
    return digest.hexdigest()


def check_keys(entries: Sequence[Entry]) -> None:
    """Refuse a data set whose keys cannot be files of one folder.

    Raises:
        BadData: naming the key.
    """
    if not entries:
        raise BadData("no object lies there")
    if len(entries) > OBJECTS_MAXIMUM:
        raise BadData(f"{len(entries):,} objects: expected at most {OBJECTS_MAXIMUM:,}")
    keys, folders = set[str](), set[str]()
    for one in entries:
        parts = one.key.split("/")
        if any(part in {"", ".", ".."} or "\0" in part or len(part.encode()) > _KEY_MAXIMUM for part in parts):
            raise BadData(f"object {one.key[:200]!r} is no file of a folder: a part of its key is empty, . or ..")
        keys.add(one.key)
        folders.update("/".join(parts[:end]) for end in range(1, len(parts)))
    both = min(keys & folders, default=None)
    if both is not None or len(keys) < len(entries):
        raise BadData(f"object {both!r} is a folder of others, too" if both else "two objects have the same key")
