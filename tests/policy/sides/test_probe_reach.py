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
