"""Reads raw JSON objects without trusting their shape: a value of the wrong type counts as absent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, cast

from holdfast.model.words import plain

_EMPTY: Mapping[str, Any] = {}
_DIGITS_MAXIMUM: Final = 18
"""As many digits fit into 64 bits, and int() accepts them: it raises above some thousand."""

_LATEST: Final = datetime(9000, 1, 1, tzinfo=UTC)
"""Later times count as absent: a duration added to one may lie outside the calendar."""


def mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a JSON object, else an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else _EMPTY


def sequence(value: Any) -> list[Any]:
    """Return the value if it is a JSON list, else an empty one."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def mappings(value: Any) -> list[Mapping[str, Any]]:
    """Return the JSON objects in a JSON list."""
    return [mapping(entry) for entry in sequence(value) if isinstance(entry, dict)]


def time_of(value: Any) -> datetime | None:
    """Return a Kubernetes timestamp as a time in UTC, None where there is none."""
    if not isinstance(value, str) or not value:
        return None
    return _time(value)


@lru_cache(maxsize=1024)
def _time(text: str) -> datetime | None:
    """Parse a timestamp; as it has whole seconds, many objects share the same one, which is kept once."""
    try:
        when = datetime.fromisoformat(text)
        when = when.astimezone(UTC) if when.tzinfo else when.replace(tzinfo=UTC)
        return when if when <= _LATEST else None
    except (ValueError, OverflowError):  # In UTC it may lie outside the calendar.
        return None


def number_in(value: Any) -> int | None:
    """Return the number that a text of at most 18 decimal digits is; None for any other value."""
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) <= _DIGITS_MAXIMUM else None


def annotated(thing: Mapping[str, Any], key: str) -> Mapping[str, Any] | None:
    """Return the JSON object in an annotation: empty if it cannot be parsed, None if there is no annotation."""
    text = mapping(mapping(thing.get("metadata")).get("annotations")).get(key)
    if not isinstance(text, str):
        return None
    try:
        return mapping(json.loads(text))
    except (ValueError, RecursionError):
        return _EMPTY


def version_of(metadata: Mapping[str, Any]) -> int:
    """Return an object's or a list's resource version as a number, 0 where it has none."""
    text = str(metadata.get("resourceVersion", ""))
    return int(text) if text.isdecimal() else 0


def one_line(text: Any, maximum: int) -> str:
    """Return a message as one line of at most so many printable characters."""
    return plain(str(text or ""))[:maximum]
