"""A time in a foreign workflow's memo must not break the list of everybody's workloads (row D54)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import TypeAdapter

from holdfast.client.summary import _time
from holdfast.model import Time

pytestmark = pytest.mark.row("D54", level="pure")


@pytest.mark.parametrize(
    "given",
    [
        *(None, "", "soon", 7, [], {}, "2026-01-01", "2026-01-01T00:00:00"),
        *("0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-01:00"),
    ],
)
def test_D54_what_is_no_time_counts_as_absent(given: Any):
    assert _time(given) is None


def test_D54_a_time_is_one_that_a_summary_accepts():
    found = _time("2026-01-01T02:00:00+02:00")
    assert found == datetime(2026, 1, 1, tzinfo=UTC)
    assert TypeAdapter(Time).validate_python(found) == found
