"""Errors say what was expected, what was found, and what to do, and hold no more of a value than may be shown."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.errors import (
    AlreadyEnded,
    HoldfastError,
    InvalidWorkload,
    ManagedElsewhere,
    NotReachable,
    Problem,
    SpecConflict,
    WorkloadFailed,
    WorkloadNotFound,
    describe,
    field_path,
)
from holdfast.model import Phase, Reason, Status

STATUS = Status(
    name="train-llm",
    namespace="default",
    cluster="dev",
    uid="u",
    phase=Phase.FAILED,
    reason=Reason.RETRY_LIMIT_EXCEEDED,
    message="restart budget is used up (3 of 3): train-0 exited 1",
    since=datetime(2026, 1, 1, tzinfo=UTC),
    attempt=4,
    restarts=3,
)

ERRORS = [
    (
        InvalidWorkload([Problem("spec.a", "is required"), Problem("spec.b", "expected a list", 3)], "AppWrapper x"),
        "AppWrapper x cannot be accepted: 2 problems\n  spec.a: is required\n  spec.b: expected a list (found 3)",
    ),
    (
        SpecConflict("workload/dev/default/x", "aa", "bb"),
        "workload/dev/default/x runs already with another specification (running aa, submitted bb): "
        "cancel it first, or submit this one under another name",
    ),
    (
        NotReachable("Temporal", "127.0.0.1:7233", "start one with `holdfast dev up`", "connection refused"),
        "cannot reach Temporal at 127.0.0.1:7233 (connection refused): start one with `holdfast dev up`",
    ),
    (
        WorkloadNotFound("workload/dev/default/x"),
        "no workload workload/dev/default/x is known: see `holdfast list` for those there are",
    ),
    (
        AlreadyEnded("workload/dev/default/x", "Succeeded"),
        "workload/dev/default/x has ended: Succeeded; to run it anew, submit it with --again (again=True) or retry it",
    ),
    (
        WorkloadFailed(STATUS),
        "train-llm failed: RetryLimitExceeded: restart budget is used up (3 of 3): train-0 exited 1 "
        "(attempt 4, restarts 3)",
    ),
    (
        ManagedElsewhere("AppWrapper x", "example.com/other"),
        "AppWrapper x is ignored: spec.managedBy says it is managed by example.com/other; "
        "to run it with Holdfast, take that field out",
    ),
]


@pytest.mark.parametrize(("error", "text"), ERRORS, ids=lambda each: type(each).__name__)
def test_what_each_error_says(error: HoldfastError, text: str) -> None:
    assert isinstance(error, HoldfastError)
    assert str(error) == text


@pytest.mark.parametrize("error", [error for error, _ in ERRORS], ids=lambda each: type(each).__name__)
def test_errors_pass_between_processes(error: HoldfastError) -> None:
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (0, "0"),
        (1, "1"),
        ("a", "'a'"),
        ({"password": "hunter2"}, "an object with 1 fields"),
        (["hunter2"], "a list of 1"),
        ("x" * 100, "'" + "x" * 78 + "…"),
    ],
)
def test_a_value_is_shown_in_short(value: Any, text: str) -> None:
    assert describe(value) == text


def test_a_problem_is_one_line() -> None:
    assert str(Problem("a.b", "is not one of the allowed values", "z", ("x", "y"))) == (
        "a.b: is not one of the allowed values; allowed: x, y (found 'z')"
    )
    assert str(Problem("", "expected at least one document")) == "expected at least one document"
    assert str(Problem("a", "expected text", None)) == "a: expected text (found null)"


@pytest.mark.parametrize(
    ("loc", "path"),
    [
        (("spec", "components", 0, "podSets", 1), "spec.components[0].podSets[1]"),
        (("metadata", "annotations", "example.com/key"), "metadata.annotations[example.com/key]"),
        ((), ""),
        ((0, "a"), "[0].a"),
    ],
)
def test_a_path_is_written_as_a_person_would(loc: tuple[str | int, ...], path: str) -> None:
    assert field_path(loc) == path
