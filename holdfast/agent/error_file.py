"""Reads torchelastic's error file of a failed worker, with bounds, because it may contain anything."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from typing import Any, Final, cast

READ_MAXIMUM: Final = 1 << 20
_TAIL: Final = 4096
_EPOCH_MAXIMUM: Final = 253_402_300_799
"""The last second of the year 9999."""


@dataclass(frozen=True, slots=True)
class Told:
    """The content of an error file: the traceback or the message, and its time in seconds since the epoch.

    PyTorch writes whole seconds: the modification time of the file is then more exact, if the two agree (row D43).
    """

    error: str
    at: float | None


def read(path: str) -> Told | None:
    """Read an error file; return None if there is none to read.

    For a file that is longer than `READ_MAXIMUM`, or is not JSON, the error is the end of the text.
    """
    found = _text(path)
    if found is None:
        return None
    text, written = found
    try:
        said: Any = json.loads(text)
        told = _told(said)
        if told.at is not None and told.at.is_integer() and told.at <= written < told.at + 1:
            return Told(told.error, written)
        return told
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Told(text[-_TAIL:].strip(), None) if text.strip() else None


def _text(path: str) -> tuple[str, float] | None:
    """Return the content of the file, and when it was written."""
    try:
        # A worker may have put a pipe or a link there: opening it must neither block nor follow the link.
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    found = os.fstat(number)
    if not stat.S_ISREG(found.st_mode):
        os.close(number)
        return None
    with open(number, "rb") as file:
        if found.st_size > READ_MAXIMUM:
            file.seek(-_TAIL, os.SEEK_END)
        return file.read(READ_MAXIMUM).decode(errors="replace"), found.st_mtime


def _told(said: Any) -> Told:
    """Read both forms: `{message: {message, extraInfo: {py_callstack, timestamp}}}` or `{message: text, timestamp}`."""
    message = said["message"]
    if isinstance(message, str):
        return Told(message, _time(said.get("timestamp")))
    extra = cast("dict[str, Any]", message.get("extraInfo") or {})
    return Told(str(extra.get("py_callstack") or message["message"]).strip(), _time(extra.get("timestamp")))


def _time(value: Any) -> float | None:
    try:
        at = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return at if 0 < at <= _EPOCH_MAXIMUM else None
