"""What is counted of a gang (row T14)."""

from __future__ import annotations

import pytest

from holdfast.model.gang.status import RoleFigures
from holdfast.policy.rendezvous.figures import figures
from tests.policy.lives.gang import Meeting

ROW = pytest.mark.row


def of(remaining: int, flakiness: int) -> RoleFigures:
    return RoleFigures(remaining_restarts=remaining, flakiness=flakiness)


@ROW("T14", level="pure")
def test_T14_restarts_left_and_flakiness_by_role() -> None:
    one = Meeting(high=3).join("a", "b", role="trainer").join("c", role="reader").obey()
    assert figures(one.state) == ({"trainer": of(3, 0), "reader": of(3, 0)}, None)
    one.fails("b").obey()
    assert figures(one.state).roles == {"trainer": of(2, 25), "reader": of(3, 0)}


@ROW("T14", level="pure")
@pytest.mark.parametrize(
    ("restarts", "crashes", "word"),
    [
        (3, 0, "run_success_no_retries"),
        (3, 1, "run_success_with_retries"),
        (0, 1, "run_failed_no_retries"),
        (1, 2, "run_failed_with_retries"),
    ],
)
def test_T14_how_a_run_ended(restarts: int, crashes: int, word: str) -> None:
    one = Meeting(high=2, max_restarts=restarts).start("a", "b")
    for _ in range(crashes):
        one.fails("a").obey()
    one.succeeds("a", "b")
    assert figures(one.state).ended == word
    assert figures(one.state).roles["default"].flakiness == (100 if "failed" in word else 25 * crashes)


@ROW("T14", level="pure")
def test_T14_a_gang_that_was_ended_has_neither_failed_nor_succeeded() -> None:
    assert figures(Meeting().start("a", "b").ends().state).ended is None
