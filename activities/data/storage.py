"""The Storage port: what staging needs of a store of objects, and the three ways in which it can fail (row L14)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

OBJECTS_MAXIMUM: Final = 200_000
"""Of one data set: more are better packed, and their list would not fit a worker's memory many times."""
_KEY_MAXIMUM: Final = 255
"""Bytes of one part of a key: what file systems have room for."""


class Away(Exception):
    """The store cannot be used now, and somebody may mend that: no answer, no credentials, no right, no room."""


class BadData(Exception):
    """The data set is not what it must be, and no waiting mends that."""


class Changed(Exception):
    """An object is not what it was when the data set was listed."""


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """One object of a data set."""

    key: str
    """After the data set's prefix: where it lies among the data set's files."""
    size: int
    etag: str


class Storage(Protocol):
    """A store of objects. Each call may raise `Away`."""

    @property
    def name(self) -> str:
        """What people call it: its address."""
        ...

    async def list(self, source: str) -> list[Entry]:
        """Return all objects of a source; none if there are none.

        Raises:
            BadData: if there is no such bucket, or keys that cannot be listed.
        """
        ...

    def fetch(self, source: str, entry: Entry) -> AsyncGenerator[bytes]:
        """Yield what an object holds.

        Raises:
            Changed: if it is not there any more, or not as it was.
        """
        ...

    async def answers(self, source: str) -> None:
        """Return if the store answers for a source, whatever it answers."""
        ...


def digest_of(source: str, entries: Sequence[Entry]) -> str:
    """Return the digest that stands for one version of a data set: of where it lies, and of each object in it."""
    digest = hashlib.sha256(json.dumps(source).encode())
    for one in sorted(entries):
        digest.update(json.dumps([one.key, one.size, one.etag]).encode())
    return digest.hexdigest()


def check_keys(entries: Sequence[Entry]) -> None:
    """Refuse a data set whose keys are no files of one folder.

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
