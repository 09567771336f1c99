"""Fetches one object into its place, goes on where an earlier fetch stopped, and proves what was written (row X10)."""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.activities.data import record
from holdfast.activities.data.folder import within
from holdfast.activities.data.journal import Journal, Part
from holdfast.activities.data.record import Record, look
from holdfast.activities.data.storage import Away, Changed, Entry, Storage

_TICK: Final = 0.02
"""Seconds by which a file system's clock may be behind."""
_MD5: Final = re.compile(r'"?([0-9a-f]{32})"?')


@dataclass(slots=True)
class Fetched:
    """How much was fetched from the store so far."""

    bytes: int = 0
    files: int = 0
    of: int = 0
    """How many files are to be fetched in all."""


@dataclass(frozen=True, slots=True)
class Filling:
    """One fetch of a data set."""

    storage: Storage
    source: str
    home: Path
    """The data set's folder."""
    fetched: Fetched
    journal: Journal
    not_md5: set[str]
    """Sources whose etags look like MD5 and are not: so is server-side encryption with keys of a service."""

    async def fetch(self, entry: Entry) -> str:
        """Fetch an object into its place, and return the SHA-256 of what the store sent.

        Raises:
            Away: if the store cannot be used now; what came stays for the next fetch.
            Changed: if the object has changed since it was listed.
            OSError: if the file system cannot be used.
        """
        part = await asyncio.to_thread(self.journal.part, entry)
        try:
            resumed = part.bytes > 0
            await self._receive(entry, part)
            if not self._is_as_named(entry, part):
                before = part.sha256.hexdigest()
                part = await self._begin_again(entry, part)
                await self._receive(entry, part)
                if not self._is_as_named(entry, part):
                    # The same content twice, from its beginning, is the object's: its etag is no MD5.
                    if resumed or part.sha256.hexdigest() != before:
                        raise Changed(f"object {entry.key!r} did not come as its etag states")
                    self.not_md5.add(self.source)
            await asyncio.to_thread(_place, part, self.home, entry.key)
        except (Away, asyncio.CancelledError):
            if not part.bytes:
                await self._drop(part)
            raise
        except BaseException:
            await self._drop(part)
            raise
        finally:
            part.file.close()
        self.fetched.files += 1
        return part.sha256.hexdigest()

    async def _receive(self, entry: Entry, part: Part) -> None:
        if part.bytes < entry.size:
            async for piece in self.storage.fetch(self.source, entry, part.bytes):
                await asyncio.to_thread(part.write, piece)
                self.fetched.bytes += len(piece)
                await asyncio.to_thread(self.journal.reached, part)
        if part.bytes != entry.size:
            raise Changed(f"object {entry.key!r} has {part.bytes} bytes, and was listed with {entry.size}")

    def _is_as_named(self, entry: Entry, part: Part) -> bool:
        """Whether the content has the MD5 that its etag states; true if the etag states none."""
        md5 = _MD5.fullmatch(entry.etag)
        return md5 is None or self.source in self.not_md5 or md5.group(1) == part.md5.hexdigest()

    async def _drop(self, part: Part) -> None:
        with suppress(OSError):
            await asyncio.to_thread(part.folder.remove, part.name)
        self.journal.dropped(part)

    async def _begin_again(self, entry: Entry, part: Part) -> Part:
        await self._drop(part)
        part.file.close()
        return await asyncio.to_thread(self.journal.part, entry)

    async def read_back(self, entry: Entry, sha256: str) -> Record:
        """Return a file's record with its stamp, once its content is proven to be what the store sent.

        Raises:
            Changed: if it is not.
            OSError: if the file system cannot be used.
        """
        await asyncio.sleep(record.SETTLED + _TICK)  # Its stamp then proves its content.
        found = await asyncio.to_thread(look, self.home / "data" / entry.key)
        if found is None or found[0] != sha256:
            raise Changed(f"object {entry.key!r} was changed while it was written")
        whole = Record(entry, sha256, found[1])
        await asyncio.to_thread(self.journal.add, whole)
        return whole


def _place(part: Part, home: Path, key: str) -> None:
    part.file.flush()
    os.fchmod(part.file.fileno(), 0o444)  # Pods run as any user.
    os.fsync(part.file.fileno())
    *folders, name = key.split("/")
    target = within(home, "data", *folders, mode=0o755)
    os.replace(part.name, name, src_dir_fd=part.folder.number, dst_dir_fd=target.number)
