"""Kubernetes quantities as whole thousandths."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.quantity import format_quantity, parse_quantity

GIBI = 1024**3


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [
        ("0", 0),
        ("2", 2000),
        (2, 2000),
        (0.5, 500),
        ("500m", 500),
        ("1.5", 1500),
        (".5", 500),
        ("1Gi", GIBI * 1000),
        ("0.5Ki", 512_000),
        ("1k", 1_000_000),
        ("1M", 1_000_000_000),
        ("1e3", 1_000_000),
        ("12E-1", 1200),
        ("2E", 2 * 10**21),
        ("+3", 3000),
        ("1n", 1),
        ("100u", 1),
        ("1500u", 2),
        (" 8 ", 8000),
        ("9" * 27, (10**27 - 1) * 1000),
        ("9" * 5000, 10**30),
    ],
)
def test_a_quantity_is_read_as_kubernetes_reads_it_and_rounded_up(text: str | float, thousandths: int) -> None:
    assert parse_quantity(text) == thousandths


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not a quantity: expected for example 500m, 2 or 1Gi"),
        ("many", "is not a quantity"),
        ("1 Gi", "is not a quantity"),
        ("1gi", "is not a quantity"),
        ("1.2.3", "is not a quantity"),
        ("0x10", "is not a quantity"),
        ("-1", "is less than nothing: expected a quantity of at least 0"),
        ("1e99", "is too large a quantity: expected an exponent of at most 18"),
        ("1e-19", "is too large a quantity"),
    ],
)
def test_what_is_no_quantity_is_refused_with_what_is_expected(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("thousandths", "text"),
    [(0, "0"), (500, "500m"), (2000, "2"), (1_024_000, "1Ki"), (3 * GIBI * 1000, "3Gi"), (1_000_000, "1000")],
)
def test_a_quantity_is_written_as_a_person_reads_it(thousandths: int, text: str) -> None:
    assert format_quantity(thousandths) == text


@given(st.integers(0, 10**24))
def test_what_is_written_is_read_as_the_same(thousandths: int) -> None:
    assert parse_quantity(format_quantity(thousandths)) == thousandths
