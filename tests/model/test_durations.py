"""Durations: read as Go and Kubernetes write them, written as a person reads them, the same there and back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from holdfast.model import Timings, format_duration, parse_duration
from holdfast.model.base import DURATION_MAXIMUM

_MILLISECONDS = st.integers(0, DURATION_MAXIMUM // timedelta(milliseconds=1))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("+0", 0),
        ("0s", 0),
        ("90s", 90),
        ("+90s", 90),
        (" 90s ", 90),
        ("1m30s", 90),
        ("1h1m1s", 3661),
        ("1.5h", 5400),
        (".5m", 30),
        ("1.s", 1),
        ("7d", 604_800),
        ("1d12h", 129_600),
        ("250ms", 0.25),
        ("1500us", 0.002),
        ("1500µs", 0.002),
        ("1500\u03bcs", 0.002),
        ("1ns", 0),
        ("1s1s", 2),
    ],
)
def test_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "s",
        "5",
        "1",
        "-1s",
        "1h 30m",
        "1 s",
        "1h30",
        "1e3s",
        "inf",
        "nan",
        "1w",
        "1H",
        "\u0661s",
        "1..5s",
        "1" * 200_000,
    ],
)
def test_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected for example 90s, 1m30s, 1h or 7d"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["106752d", "9999999h", "9" * 400 + "h"])
def test_longer_than_can_come_to_an_end(text: str) -> None:
    with pytest.raises(ValueError, match="too long a duration: expected at most 106751d"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (timedelta(0), "0s"),
        (timedelta(seconds=90), "1m30s"),
        (timedelta(days=7), "7d"),
        (timedelta(hours=25), "1d1h"),
        (timedelta(seconds=59, milliseconds=999), "59.999s"),
        (timedelta(seconds=59, microseconds=999_900), "1m"),
        (timedelta(milliseconds=1), "0.001s"),
        (timedelta(seconds=-90), "-1m30s"),
    ],
)
def test_written(value: timedelta, text: str) -> None:
    assert format_duration(value) == text


@given(_MILLISECONDS)
def test_what_is_written_is_read_as_it_was(milliseconds: int) -> None:
    value = timedelta(milliseconds=milliseconds)
    assert parse_duration(format_duration(value)) == value


_PARTS = st.lists(
    st.tuples(st.decimals(0, 10_000, places=3).map(lambda n: f"{n:f}"), st.sampled_from(["ms", "s", "m", "h", "d"])),
    min_size=1,
    max_size=4,
)


@given(_PARTS)
def test_a_sum_of_parts_is_read_as_the_sum_of_what_each_is(parts: list[tuple[str, str]]) -> None:
    whole = parse_duration("".join(number + unit for number, unit in parts))
    apart = sum((parse_duration(number + unit) for number, unit in parts), timedelta(0))
    assert abs(whole - apart) <= timedelta(milliseconds=len(parts))
    assert timedelta(0) <= whole <= DURATION_MAXIMUM


@given(st.text("0123456789.+-dhmsnuµ ", max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        value = parse_duration(text)
    except ValueError:
        return
    assert timedelta(0) <= value <= DURATION_MAXIMUM


@pytest.mark.parametrize("value", ["-1s", timedelta(seconds=-1), timedelta.max, "107000d", "soon", None])
def test_a_field_refuses_what_is_no_duration(value: Any) -> None:
    with pytest.raises(ValidationError):
        Timings(failure_grace_period=value)


def test_a_field_is_kept_as_it_is_written() -> None:
    timings = Timings(failure_grace_period=timedelta(seconds=1, microseconds=234_567))
    assert timings.model_dump(mode="json")["failureGracePeriod"] == "1.235s"
    assert Timings.model_validate_json(timings.model_dump_json()) == timings
