"""The local Temporal knows the search attributes that workloads write."""

from __future__ import annotations

from holdfast import names
from holdfast.local.parts import SEARCH_ATTRIBUTES


def test_the_local_temporal_has_each_search_attribute() -> None:
    assert SEARCH_ATTRIBUTES == names.SEARCH_ATTRIBUTES
