"""The base of all models: strict, frozen, camelCase on the wire; and the two scalar types of the model."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainSerializer, WithJsonSchema
from pydantic.alias_generators import to_camel

# As Go's time.ParseDuration reads them, either sign for micro included; days are ours.
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|\u00b5s|\u03bcs|ms|d|h|m|s)")
_DURATION_CHARACTERS = 512
"""The longest text that is read as a duration: the pattern looks for a unit after each of its digits."""
_SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "\u00b5s": 1e-6,
    "\u03bcs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
DURATION_MAXIMUM = timedelta(days=106_751)
"""The longest duration Go can hold, 292 years: no later deadline can be reached, and none leaves the calendar."""


def _word(value: str) -> str:
    if not value.isprintable() or value != value.strip():
        raise ValueError(f"{value!r}: expected printable characters, without white space around them")
    return value


Word = Annotated[str, AfterValidator(_word)]
"""A name in Kubernetes or another document: printable, so that a reader sees all of it, and without line ends."""


class Model(BaseModel):
    """A frozen value whose wire form is camelCase and which refuses unknown fields."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        ser_json_timedelta="float",
        use_attribute_docstrings=True,
    )


def parse_duration(text: str) -> timedelta:
    """Read a duration as Go and Kubernetes write it: `90s`, `1m30s`, `1.5h`, `7d`, `0`; to the millisecond.

    Raises:
        ValueError: if the text is not such a duration, is negative, or is too long to be one.
    """
    stripped = text.strip()
    if stripped in {"0", "+0"}:
        return timedelta(0)
    body = stripped.removeprefix("+")
    if not body or len(body) > _DURATION_CHARACTERS or _DURATION_PART.sub("", body):
        raise ValueError(f"{text!r} is not a duration: expected for example 90s, 1m30s, 1h or 7d")
    total = sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(body))
    if total > DURATION_MAXIMUM.total_seconds():
        raise ValueError(f"{text!r} is too long a duration: expected at most {format_duration(DURATION_MAXIMUM)}")
    return timedelta(milliseconds=round(total * 1000))


def format_duration(value: timedelta) -> str:
    """Write a duration as a person reads it: `90 s` is `1m30s`, a week is `7d`."""
    seconds = round(value.total_seconds(), 3)
    if seconds == 0:
        return "0s"
    if seconds < 0:
        return "-" + format_duration(-value)
    parts: list[str] = []
    whole = int(seconds)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        count, whole = divmod(whole, size)
        if count:
            parts.append(f"{count}{unit}")
    rest = round(whole + seconds - int(seconds), 3)
    if rest:
        parts.append(f"{rest:g}s")
    return "".join(parts)


def _read_duration(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError(f"{str(value).lower()} is no duration: expected for example 30s")
    return parse_duration(value) if isinstance(value, str) else value


def _in_range(value: timedelta) -> timedelta:
    if value < timedelta(0):
        raise ValueError(f"a duration cannot be negative: {format_duration(value)}")
    if value > DURATION_MAXIMUM:
        raise ValueError(f"{format_duration(value)} is too long: expected at most {format_duration(DURATION_MAXIMUM)}")
    # Keep only the precision that is written, so that a workload read back from JSON is equal.
    return timedelta(milliseconds=round(value / timedelta(milliseconds=1)))


def _utc(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("a time needs its zone: expected for example 2026-01-31T12:00:00Z")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise ValueError("a time must be within the years 1 to 9999 in UTC") from None


Duration = Annotated[
    timedelta,
    BeforeValidator(_read_duration),
    AfterValidator(_in_range),
    PlainSerializer(format_duration, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "description": "a duration such as 90s, 1m30s, 1h, 7d", "examples": ["1m30s"]}),
]
"""A span of time, `1m30s` on the wire, never negative."""

Time = Annotated[datetime, AfterValidator(_utc)]
"""An instant, always in UTC."""
