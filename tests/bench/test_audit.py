"""Of which sort a request is."""

from __future__ import annotations

from bench.audit import sorts


def test_each_request_is_of_one_sort():
    counts = {
        "create jobs": 2,
        "patch anchors/status": 3,
        "get attempts": 1,
        "list attempts": 4,
        "watch pods": 1,
        "create selfsubjectaccessreviews": 5,
    }
    assert sorts(counts) == {"writes": 5, "gets": 1, "lists": 4, "watches": 1, "reviews": 5}
    assert sorts(counts).total() == sum(counts.values())
