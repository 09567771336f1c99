"""A reset after a crash is judged by when its pod was told to fail, by nothing that the controller says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bench.measures.crash import judged

BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
FAILED = {"w0": BEGUN, "w1": BEGUN + timedelta(seconds=2)}
GRACE = 8


def at(second: float) -> datetime:
    """Return a time so many seconds after the first failure."""
    return BEGUN + timedelta(seconds=second)


@pytest.mark.parametrize(
    ("acts", "early", "missing", "twice"),
    [
        pytest.param([("w0", 8), ("w1", 10)], 0, 0, 0, id="each once, when its own grace is over"),
        pytest.param([("w0", 7), ("w1", 9)], 0, 0, 0, id="Kubernetes' whole seconds are allowed for"),
        pytest.param([("w0", 8), ("w1", 8.5)], 1, 0, 0, id="one before its own grace is over"),
        pytest.param([("w0", 20)], 0, 1, 0, id="one never"),
        pytest.param([("w0", 8), ("w0", 12), ("w1", 12)], 0, 0, 1, id="one twice"),
        pytest.param([], 0, 2, 0, id="none at all"),
    ],
)
def test_what_is_wrong(acts: list[tuple[str, float]], early: int, missing: int, twice: int) -> None:
    """Early, missing and twice are each wrong; a reset before the kill whose grace was over is not."""
    assert judged([(name, at(second)) for name, second in acts], FAILED, GRACE) == {
        "early": early,
        "missing": missing,
        "twice": twice,
        "wrong": early + missing + twice,
    }
