"""Keeps evidence in an object store: one document an attempt, encrypted where payloads are, until it expires (P3)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import Payload

from holdfast.activities.data.storage import BadData
from holdfast.codec.codec import Codec
from holdfast.errors import HoldfastError, Undecodable
from holdfast.model.calls.plan import Target
from holdfast.model.spec.mount import is_under

SIZE_MAXIMUM: Final = 4 * 1024 * 1024
"""Bytes of a document: two logs of each of eight containers in eight pods reach half of it."""
_KEY: Final = r"attempt-\d+"
_PLAIN: Final = b"{"
"""The first byte of a document that is not encrypted."""
_ENCODING: Final = b"json/plain"


class Objects(Protocol):
    """A store of objects. Each call may raise `storage.Away` or `storage.BadData`."""

    async def put_new(self, source: str, key: str, data: bytes) -> bool:
        """Store an object under a source, and return True; False if one of that key is there, which stays."""
        ...

    async def find(self, source: str, key: str, at_most: int) -> bytes | None:
        """Return an object under a source, None if there is none.

        Raises:
            BadData: if it has more than so many bytes.
        """
        ...

    async def remove_older(self, source: str, ends: str, before: datetime) -> int:
        """Remove the objects whose key's last part matches `ends`, and that were stored before a time."""
        ...


@dataclass(frozen=True, slots=True)
class Stored:
    """A document in the store."""

    link: str
    data: bytes
    """As it is stored."""

    @property
    def digest(self) -> str:
        """Its SHA-256, in hexadecimal."""
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True)
class EvidenceStore:
    """Where evidence is kept, and for how long."""

    objects: Objects
    source: str
    """`s3://bucket/prefix`. Below it stand the cluster, the namespace, the workload's name and uid, the attempt."""
    codec: Codec
    lifetime: timedelta

    def key(self, target: Target, attempt: int) -> str:
        """Return the key of an attempt's document: the same for each try, so that it is kept once."""
        return f"{target.cluster}/{target.namespace}/{target.name}/{target.workload_uid}/attempt-{attempt}"

    async def keep(self, target: Target, attempt: int, document: bytes) -> Stored | None:
        """Store an attempt's document, unless it has one, and return the one that is there; None if it was removed.

        Raises:
            Away: if the store cannot be used.
            BadData: if the bucket is missing.
        """
        key = self.key(target, attempt)
        [payload] = await self.codec.encode([Payload(metadata={"encoding": _ENCODING}, data=document)])
        data = document if self.codec.keys is None else payload.SerializeToString()
        if await self.objects.put_new(self.source, key, data):
            return Stored(f"{self.source}/{key}", data)
        return await self.kept(target, attempt)

    async def kept(self, target: Target, attempt: int) -> Stored | None:
        """Return an attempt's document as it is stored, None if there is none.

        Raises:
            Away: if the store cannot be used.
            BadData: if the object is no document of evidence.
        """
        key = self.key(target, attempt)
        data = await self.objects.find(self.source, key, 2 * SIZE_MAXIMUM)
        return Stored(f"{self.source}/{key}", data) if data is not None else None

    async def opened(self, link: str, digest: str) -> bytes | None:
        """Return the document behind a link of the history, decrypted; None if it has expired.

        Raises:
            Away: if the store cannot be used.
            HoldfastError: if it lies elsewhere, was changed, or cannot be decrypted.
        """
        if not is_under(link, self.source):
            raise HoldfastError(f"evidence at {link}: expected it under {self.source} (HOLDFAST_EVIDENCE_STORE)")
        try:
            data = await self.objects.find(self.source, link.removeprefix(f"{self.source}/"), 2 * SIZE_MAXIMUM)
        except BadData as error:
            raise HoldfastError(f"evidence at {link}: {error}") from None
        if data is None:
            return None
        if Stored(link, data).digest != digest:
            raise HoldfastError(f"evidence at {link} was changed: its SHA-256 is not the one of the workload's history")
        try:
            is_plain = data.startswith(_PLAIN)
            payload = Payload(metadata={"encoding": _ENCODING}, data=data) if is_plain else Payload.FromString(data)
            [found] = await self.codec.decode([payload])
        except (DecodeError, Undecodable) as error:
            raise HoldfastError(f"evidence at {link}: {error}") from None
        return found.data

    async def expire(self) -> int:
        """Remove what is older than its lifetime; return how many documents.

        Raises:
            Away: if the store cannot be used.
            BadData: if the bucket is missing.
        """
        return await self.objects.remove_older(self.source, _KEY, datetime.now(UTC) - self.lifetime)
