"""The Storage port over the S3 protocol, by obstore: the one module that imports it (extra `s3`)."""

from __future__ import annotations

import asyncio
import configparser
import re
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import obstore as client
from obstore.exceptions import AlreadyExistsError, BaseError, InvalidPathError, PreconditionError
from obstore.store import S3Store

from holdfast.activities.data.storage import OBJECTS_MAXIMUM, Away, BadData, Changed, Entry
from holdfast.model.spec.mount import bucket_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from obstore import GetOptions, ListStream, ObjectMeta
    from obstore.store import ClientConfig, RetryConfig, S3Config

_CLIENT: Final[ClientConfig] = {
    "connect_timeout": timedelta(seconds=3),
    # Between two pieces of an answer. A whole object may take longer.
    "read_timeout": timedelta(seconds=15),
    "timeout": timedelta(days=1),
}
_RETRIES: Final[RetryConfig] = {
    "max_retries": 1,  # The workflow decides how long to wait for a store, and shows it.
    "retry_timeout": timedelta(seconds=10),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=1), "base": 2},
}
_ANSWER: Final = 20.0
"""Seconds for one page of a listing."""
_PIECE: Final = 8 * 1024 * 1024
_MESSAGE_MAXIMUM: Final = 200
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_CAUSE: Final = re.compile(r'Os \{[^}]*message: "([^"]+)"')
_STATUS: Final = re.compile(r"\b(\d{3}) (?:[A-Z][A-Za-z]+ ?)+")


@dataclass(frozen=True)
class Address:
    """Where a store is, and the credentials for it."""

    endpoint: str = ""
    """URL; empty: Amazon's own store in the region."""
    region: str = ""
    allow_http: bool = False
    credentials: Path | None = None
    """A file in the format of AWS tools, profile `default`; None: the AWS_* variables."""


class S3Storage:
    """A store that speaks S3."""

    def __init__(self, address: Address) -> None:
        """Set the address; this opens no connection."""
        self._address = address
        self._stores: dict[tuple[str, str], S3Store] = {}

    @property
    def name(self) -> str:
        """Its address."""
        return self._address.endpoint or f"s3.{self._address.region or 'us-east-1'}.amazonaws.com"

    async def list(self, source: str) -> list[Entry]:
        """Return all objects of a source (`storage.Storage`)."""
        bucket, prefix = bucket_of(source)
        before = f"{prefix}/" if prefix else ""
        found: list[Entry] = []
        with self._port_errors(bucket):
            pages = aiter(_pages(self._store(bucket), prefix, 1000))
            while True:
                async with asyncio.timeout(_ANSWER):
                    page = await anext(pages, None)
                if page is None:
                    return _files(found)
                found += [
                    Entry(one["path"].removeprefix(before), one["size"], one["e_tag"] or "")
                    for one in page
                    if one["path"].startswith(before)
                ]
                if len(found) > OBJECTS_MAXIMUM:
                    return found  # Already too many; the caller refuses them.

    async def fetch(self, source: str, entry: Entry, start: int = 0) -> AsyncGenerator[bytes]:
        """Yield the content of an object (`storage.Storage`)."""
        if not entry.size:
            return  # Its content is known, and the client reports a wrong key if it stands for a folder.
        bucket, prefix = bucket_of(source)
        path = f"{prefix}/{entry.key}" if prefix else entry.key
        try:
            with self._port_errors(bucket):
                options: GetOptions = {"if_match": entry.etag or None}
                if start:
                    options["range"] = {"offset": start}
                given = await client.get_async(self._store(bucket), path, options=options)
                async for piece in given.stream(min_chunk_size=_PIECE):
                    yield bytes(piece)
        except BadData:
            raise Changed(f"object {entry.key!r} is not there any more") from None

    async def put_new(self, source: str, key: str, data: bytes) -> bool:
        """Store an object under a source, and return True; False if one of that key is there, which stays.

        Raises:
            Away: if the store cannot be used.
            BadData: if there is no such bucket.
        """
        bucket, path = _path(source, key)
        try:
            with self._port_errors(bucket):
                await client.put_async(self._store(bucket), path, data, mode="create", use_multipart=False)
        except Changed:
            return False
        return True

    async def find(self, source: str, key: str, at_most: int) -> bytes | None:
        """Return an object under a source, None if there is none.

        Raises:
            Away: if the store cannot be used.
            BadData: if the object is larger than so many bytes.
        """
        bucket, path = _path(source, key)
        try:
            with self._port_errors(bucket, missing=True):
                found = await client.get_async(self._store(bucket), path)
                if found.meta["size"] > at_most:
                    raise BadData(f"{key} has {found.meta['size']:,} bytes: expected at most {at_most:,}")
                return bytes(await found.bytes_async())
        except Missing:
            return None

    async def answers(self, source: str) -> None:
        """Return if the store answers for a source (`storage.Storage`)."""
        bucket, prefix = bucket_of(source)
        try:
            with self._port_errors(bucket):
                async with asyncio.timeout(_ANSWER):
                    await anext(aiter(_pages(self._store(bucket), prefix, 1)), None)
        except BadData:
            return  # That is an answer.

    def _store(self, bucket: str) -> S3Store:
        """Return a bucket's client; changed credentials in the file take effect from the next call on."""
        given = self._credentials()
        key = (bucket, repr(given))
        if key not in self._stores:
            self._stores = {known: store for known, store in self._stores.items() if known[1] == key[1]}
            config: S3Config = {**given}
            config["region"] = self._address.region or "us-east-1"
            if self._address.endpoint:
                config["endpoint"] = self._address.endpoint
            options: ClientConfig = {**_CLIENT, "allow_http": self._address.allow_http}
            self._stores[key] = S3Store(bucket, config=config, client_options=options, retry_config=_RETRIES)
        return self._stores[key]

    def _credentials(self) -> S3Config:
        path = self._address.credentials
        if path is None:
            return {}
        parser = configparser.RawConfigParser()
        try:
            parser.read_string(path.read_text())
            profile = parser["default"]
            given: S3Config = {
                "access_key_id": profile["aws_access_key_id"],
                "secret_access_key": profile["aws_secret_access_key"],
            }
        except (OSError, UnicodeDecodeError) as error:
            raise Away(f"{self.name}: the credentials cannot be read: {getattr(error, 'strerror', error)}") from None
        except (configparser.Error, KeyError):
            what = "expected [default] with aws_access_key_id and aws_secret_access_key"
            raise Away(f"{self.name}: the file of credentials is not one: {what}") from None
        if token := profile.get("aws_session_token"):
            given["session_token"] = token
        return given

    @contextmanager
    def _port_errors(self, bucket: str, *, missing: bool = False) -> Generator[None]:
        """Turn the client's errors into those of the port; with `missing`, a missing object into `Missing`."""
        try:
            yield
        except FileNotFoundError as error:
            if missing and "<Code>NoSuchBucket</Code>" not in str(error):
                raise Missing from None
            raise BadData(f"{self.name} has no bucket {bucket}") from None
        except InvalidPathError as error:
            raise BadData(f"a key cannot be a file's name: {_line(error)}") from None
        except (AlreadyExistsError, PreconditionError):
            raise Changed("it has changed") from None
        except TimeoutError:
            raise Away(f"{self.name} does not answer: no answer within {_ANSWER:.0f} s") from None
        except (BaseError, OSError, ValueError) as error:
            if "<Code>NoSuchBucket</Code>" in str(error):
                raise BadData(f"{self.name} has no bucket {bucket}") from None
            raise Away(f"{self.name} {_words(error)}") from None


class Missing(Exception):
    """There is no such object."""


def _path(source: str, key: str) -> tuple[str, str]:
    bucket, prefix = bucket_of(source)
    return bucket, f"{prefix}/{key}" if prefix else key


def _files(found: list[Entry]) -> list[Entry]:
    """Leave out empty objects that stand for a folder, as store browsers make them: the client strips their slash."""
    folders = {one.key[:at] for one in found for at, letter in enumerate(one.key) if letter == "/"}
    return [one for one in found if one.size or one.key not in folders]


def _pages(store: S3Store, prefix: str, size: int) -> ListStream[Sequence[ObjectMeta]]:
    # The client's own types refer to a library that is not installed with it.
    return client.list(store, prefix or None, chunk_size=size)  # pyright: ignore[reportUnknownMemberType]


def _words(error: Exception) -> str:
    """Return what is wrong, without the client's text about itself and its requests."""
    text = str(error)
    code, cause, status = _CODE.search(text), _CAUSE.search(text), _STATUS.search(text)
    if code is not None:
        return f"refuses: {code.group(1)}"
    if cause is not None:
        return f"does not answer: {cause.group(1)}"
    if "dns error" in text:
        return "does not answer: its name is not known"
    if "TimedOut" in text or "timed out" in text:
        return "does not answer: it takes too long"
    if status is not None:
        return f"refuses: HTTP {status.group().strip()}"
    return f"cannot be used: {_line(error)}"


def _line(error: Any) -> str:
    text = " ".join(str(error).partition("Debug source")[0].split())
    return text if len(text) <= _MESSAGE_MAXIMUM else f"{text[: _MESSAGE_MAXIMUM - 1]}…"
