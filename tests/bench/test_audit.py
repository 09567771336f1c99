"""The audit log while the API server writes it, and of which sort a request is."""

from __future__ import annotations

import json
from pathlib import Path

from bench.audit import AuditLog, Mark, sorts, whole


def test_a_line_that_is_still_being_written_is_left_for_the_next_look(tmp_path: Path):
    log = AuditLog(tmp_path / "audit.log")
    assert log.mark() == Mark()
    first, second = (
        json.dumps({"verb": "get", "stage": "ResponseComplete", "auditID": name}) + "\n" for name in ("a", "b")
    )
    log.path.write_text(first + second[:20])
    begun = log.mark()
    assert [each["auditID"] for each in log.since(Mark(begun.inode))] == ["a"]
    assert list(log.since(begun)) == []
    log.path.write_text(first + second)
    assert [each["auditID"] for each in log.since(begun)] == ["b"]


def test_the_rest_of_a_line_is_not_taken_for_a_line():
    """A file that is read on past its end goes on with what was written meanwhile."""
    assert list(whole([b'{"a": 1}\n', b'{"b"', b": 2}\n"])) == [b'{"a": 1}\n']


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
