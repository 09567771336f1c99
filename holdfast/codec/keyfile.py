"""Reads and writes a key file: 256-bit keys with their ids, and the id of the key that encrypts (row X6)."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast

from holdfast.errors import HoldfastError

KEY_BYTES: Final = 32
ID_EXPECTED: Final = "expected at most 63 characters of [A-Za-z0-9._-], the first a letter or a digit"
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_SIZE_MAXIMUM: Final = 64 * 1024
_FIELDS: Final = {"use", "keys"}
_FORMAT: Final = 'expected {"use": "ID", "keys": {"ID": "32 bytes in base64"}}'


class KeyFileError(HoldfastError):
    """A key file cannot be used; the message names the file and the field, and never a key."""


@dataclass(frozen=True)
class KeySet:
    """The contents of a key file."""

    use: str
    """The id of the key that encrypts."""
    keys: Mapping[str, bytes] = field(repr=False)
    """All keys by id; each decrypts what it encrypted."""


def is_id(value: str) -> bool:
    """Whether a text may be the id of a key."""
    return _ID.fullmatch(value) is not None


def read(path: Path) -> KeySet:
    """Read a key file.

    Raises:
        KeyFileError: if it cannot be read, if other users may read or write it, or if it has another format.
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            content = file.read(_SIZE_MAXIMUM + 1)
    except OSError as error:
        raise KeyFileError(f"key file {path}: {error.strerror or error}") from None
    if status.st_mode & stat.S_IRWXO:
        mode = stat.S_IMODE(status.st_mode)
        raise KeyFileError(
            f"key file {path}: mode {mode:04o} lets every user at it: expected 0600 or 0640 (chmod o= FILE)"
        )
    return parsed(content, str(path))


def parsed(content: bytes, source: str) -> KeySet:
    """Return the keys of a key file's content.

    Raises:
        KeyFileError: naming the source and the field.
    """
    if len(content) > _SIZE_MAXIMUM:
        raise KeyFileError(f"key file {source}: expected at most {_SIZE_MAXIMUM} bytes")
    try:
        document = json.loads(content, object_pairs_hook=_without_duplicates)
    except _Duplicate as error:
        raise KeyFileError(f"key file {source}: {error} stands there twice") from None
    except (ValueError, RecursionError):
        # The decoder's own message may quote the content.
        raise KeyFileError(f"key file {source}: is no JSON: {_FORMAT}") from None
    fields = cast("dict[str, Any]", document) if isinstance(document, dict) else {}
    if set(fields) != _FIELDS or not isinstance(fields["keys"], dict):
        raise KeyFileError(f"key file {source}: {_FORMAT}")
    listed = cast("dict[str, Any]", fields["keys"])
    found = {one: _key(one, value, source) for one, value in listed.items()}
    use: Any = fields["use"]
    if not isinstance(use, str) or use not in found:
        known = ", ".join(sorted(found)) or "none is there"
        raise KeyFileError(f"key file {source}: use: expected the id of one of its keys ({known})")
    return KeySet(use, found)


def _key(name: str, value: Any, source: str) -> bytes:
    if not is_id(name):
        raise KeyFileError(f"key file {source}: keys: {name[:80]!r} is no id: {ID_EXPECTED}")
    try:
        key = base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise KeyFileError(f"key file {source}: keys.{name}: expected {KEY_BYTES} bytes in base64")
    return key


class _Duplicate(Exception):
    """A name stands twice in one JSON object."""


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _Duplicate(repr(name[:80]))
        found[name] = value
    return found


# Writing.


def add(path: Path, name: str = "") -> tuple[str, KeySet]:
    """Make a new random key; return its id, and the keys as they are now.

    A file that is not there is made, and uses the key. In a file that is there, `use` stays as it is: all workers and
    clients need the new key before one of them encrypts with it.

    Args:
        path: the key file.
        name: the id; empty: made of the date and a random part.

    Raises:
        KeyFileError: if the file cannot be read or written, or has a key of that id.
    """
    chosen = name or f"{datetime.now(UTC):%Y-%m-%d}-{os.urandom(2).hex()}"
    if not is_id(chosen):
        raise KeyFileError(f"{chosen[:80]!r} is no id of a key: {ID_EXPECTED}")

    def with_new(before: KeySet | None) -> KeySet:
        key = os.urandom(KEY_BYTES)
        if before is None:
            return KeySet(chosen, {chosen: key})
        if chosen in before.keys:
            raise KeyFileError(f"key file {path}: keys.{chosen}: is there already")
        return KeySet(before.use, {**before.keys, chosen: key})

    return chosen, _changed(path, with_new)


def use(path: Path, name: str) -> KeySet:
    """Make one of a file's keys the one that encrypts; return the keys as they are now.

    Raises:
        KeyFileError: if the file cannot be read or written, or has no key of that id.
    """

    def with_use(before: KeySet | None) -> KeySet:
        if before is None:
            raise KeyFileError(f"key file {path}: is not there: `holdfast keys new` makes it")
        if name not in before.keys:
            raise KeyFileError(
                f"key file {path}: keys.{name[:80]}: is not there: expected {', '.join(sorted(before.keys))}"
            )
        return KeySet(name, before.keys)

    return _changed(path, with_use)


def _changed(path: Path, change: Callable[[KeySet | None], KeySet]) -> KeySet:
    """Replace a key file at once, with its mode and owner; a second command at the same time is refused."""
    target = path.resolve()
    beside = target.with_name(f".{target.name}.new")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise KeyFileError(
            f"{beside}: another command changes the key file, or was interrupted: remove it if none runs"
        ) from None
    except OSError as error:
        raise KeyFileError(f"key file {path}: {error.strerror or error}") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            before = read(target) if target.exists() else None
            keys = change(before)
            written = {one: base64.b64encode(key).decode() for one, key in keys.keys.items()}
            if before is not None:
                status = target.stat()
                os.fchown(file.fileno(), status.st_uid, status.st_gid)
                os.fchmod(file.fileno(), stat.S_IMODE(status.st_mode))
            file.write(json.dumps({"use": keys.use, "keys": written}, indent=2).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        # From here on the name beside it is free for another command, and is not ours to remove.
        beside.replace(target)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise KeyFileError(f"key file {path}: {error.strerror or error}") from None
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    return keys
