"""Keeps evidence in an object store: one document an attempt, encrypted where payloads are, until it expires (P3)."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from holdfast.activities.data.storage import BadData
from holdfast.activities.kube.raw import mapping
from holdfast.codec.codec import Codec
from holdfast.model.calls.plan import Target
from holdfast.model.spec.mount import bucket_of

SIZE_MAXIMUM: Final = 16 * 1024 * 1024
"""Bytes of a document. Most have a few KiB; two whole logs of eight containers in eight pods have 2 MiB of text."""
STORED_MAXIMUM: Final = SIZE_MAXIMUM + 4096
"""Bytes of a document as it is stored."""
AT_ONCE: Final = 16
"""Documents that a worker takes at the same time, so that its memory stays bounded when many attempts fail at once."""
_KEY: Final = r"attempt-\d+"
_PLAIN: Final = b"{"
"""The first byte of a document that is not encrypted."""


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
    codec: PayloadCodec
    lifetime: timedelta
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    def key(self, target: Target, attempt: int) -> str:
        """Return the key of an attempt's document: the same for each try, so that it is kept once."""
        return f"{target.cluster}/{target.namespace}/{target.name}/{target.workload_uid}/attempt-{attempt}"

    async def keep(self, target: Target, attempt: int, document: bytes) -> Stored | None:
        """Store an attempt's document, unless it has one, and return the one that is there; None if it was removed.

        Raises:
            Away: if the store cannot be used.
            BadData: if the bucket is missing.
        """
        data = document
        if not (isinstance(self.codec, Codec) and self.codec.keys is None):
            [payload] = await self.codec.encode([_payload(document)])
            data = payload.SerializeToString()
        key = self.key(target, attempt)
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
        data = await self.objects.find(self.source, key, STORED_MAXIMUM)
        return Stored(f"{self.source}/{key}", data) if data is not None else None

    async def expire(self, cluster: str) -> int:
        """Remove a cluster's documents that are older than their lifetime; return how many.

        Raises:
            Away: if the store cannot be used.
            BadData: if the bucket is missing.
        """
        return await self.objects.remove_older(f"{self.source}/{cluster}", _KEY, datetime.now(UTC) - self.lifetime)


async def read_stored(objects: Objects, link: str) -> Stored | None:
    """Return the document behind a link as it is stored, None if it has expired.

    Raises:
        Away: if the store cannot be used.
        BadData: if it is no document of evidence.
    """
    bucket, key = bucket_of(link)
    data = await objects.find(f"s3://{bucket}", key, STORED_MAXIMUM)
    return Stored(link, data) if data is not None else None


async def opened(stored: Stored, codec: PayloadCodec) -> Mapping[str, Any]:
    """Return a document, decrypted.

    Raises:
        BadData: if it is no document of evidence.
        Undecodable: if it cannot be decrypted, or is not encrypted and the codec refuses plaintext.
    """
    try:
        is_plain = stored.data.startswith(_PLAIN)
        [found] = await codec.decode([_payload(stored.data) if is_plain else Payload.FromString(stored.data)])
        return mapping(json.loads(found.data))
    except (DecodeError, ValueError):
        raise BadData(f"{stored.link} is no document of evidence") from None


def _payload(document: bytes) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=document)
