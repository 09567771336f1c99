"""The table of operations is whole: what the type checker cannot see of it."""

from __future__ import annotations

from typing import get_args

from holdfast.activities.cluster import ClusterActivities
from holdfast.model import OperationKind
from holdfast.model.calls.operations import OPERATIONS, Result


def test_each_kind_has_its_row() -> None:
    assert set(OPERATIONS) == set(OperationKind)


def test_each_result_can_come_back() -> None:
    results = {part for row in OPERATIONS.values() for part in (get_args(row.result) or (row.result,))}
    assert {one.__name__ for one in get_args(Result)} == {one.__name__ for one in results} - {"Observation", "NoneType"}


def test_each_kind_has_its_activity() -> None:
    named = {kind: getattr(ClusterActivities, kind.value) for kind in OperationKind}
    assert all(getattr(one, "__temporal_activity_definition").name == kind for kind, one in named.items())
