"""When a worker that asks pods is cut off from them, and when pods are down themselves (row D47)."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from holdfast.policy.sides.probe_reach import Reach
from tests.activities.shapes import time

ROW = pytest.mark.row


@ROW("D47", level="pure")
def test_D47_a_worker_is_cut_off_from_when_several_are_silent_until_one_is_reached():
    reach, minute = Reach(), timedelta(minutes=1)

    def at(second: int) -> datetime:
        return time(0) + timedelta(seconds=second)

    reach.notes("slow", at(0), 60 * minute, reached=True)
    reach.notes("a", at(60), minute, reached=False)
    assert not reach.is_cut_off(at(60)), "it may be down itself"
    reach.notes("b", at(70), minute, reached=False)
    assert reach.is_cut_off(at(70)), "what was reached before says nothing of now"
    reach.notes("slow", at(75), 60 * minute, reached=True)
    assert not reach.is_cut_off(at(75))
    reach.notes("slow", at(80), 60 * minute, reached=False)
    assert reach.is_cut_off(at(80))
    assert not reach.is_cut_off(at(80 + 120)), "a and b were last asked too long ago"
    reach.forgets("slow")
    reach.forgets("a")
    assert not reach.is_cut_off(at(81))


@ROW("D47", level="pure")
@pytest.mark.parametrize("down", [0, 1])
def test_D47_what_was_down_before_does_not_hide_that_the_worker_is_cut_off(down: int):
    """One is down for good, one is asked each minute; from second 0 nothing is reached: two are asked each 5 s."""
    reach, minute = Reach(), timedelta(minutes=1)

    def at(second: int) -> datetime:
        return time(30) + timedelta(seconds=second)

    if down:
        for second in range(-20, 12, 5):
            reach.notes("down", at(second), minute, reached=False)
    reach.notes("slow", at(-1), 2 * minute, reached=True)
    for second in (1, 6, 11):
        for name in ("a", "b"):
            reach.notes(name, at(second), minute, reached=False)
        assert reach.is_cut_off(at(second))


@ROW("D47", level="pure")
def test_D47_one_that_falls_silent_beside_one_that_is_down_is_judged_once_another_is_reached():
    reach, minute = Reach(), timedelta(minutes=1)

    def at(second: int) -> datetime:
        return time(30) + timedelta(seconds=second)

    reach.notes("down", at(-20), 10 * minute, reached=False)
    reach.notes("slow", at(-1), 2 * minute, reached=True)
    reach.notes("a", at(1), minute, reached=False)
    assert reach.is_cut_off(at(6)), "nothing has been reached since"
    reach.notes("a", at(11), minute, reached=False)
    reach.notes("slow", at(59), 2 * minute, reached=True)
    assert not reach.is_cut_off(at(60))
    reach.notes("a", at(61), minute, reached=False)
    assert not reach.is_cut_off(at(61)), "its silence began before the other was reached"
