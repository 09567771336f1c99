"""What cannot be seen for a time, and who hears of its end: once, when all that concerns them is back."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.worker.watch.blind_kinds import Darkness
from holdfast.worker.watch.feeds import ATTEMPT
from holdfast.worker.watch.seen import POD, KindKey
from tests.fakes.watched import JOB

SERVICE: KindKey = ("v1", "Service")


def told(*turns: tuple[float, Collection[KindKey]]) -> list[tuple[bool, bool]]:
    """Return after which turns somebody with Jobs hears of an end, and somebody with nothing but pods."""
    one, found = Darkness(), list[tuple[bool, bool]]()
    for now, dark in turns:
        one.turn(dark, now)
        found.append((one.is_over_for({JOB}), one.is_over_for(())))
        assert one.lifted or found[-1] == (False, False)
    return found


def test_streams_that_come_back_one_after_the_other_are_told_of_once():
    found = told((0, {ATTEMPT, POD, JOB}), (20, {POD, JOB}), (21, {JOB}), (24, ()), (25, ()))
    assert found == [(False, False), (False, False), (False, True), (True, False), (False, False)]


def test_what_comes_back_for_others_is_no_news():
    assert told((0, {SERVICE, POD}), (20, {SERVICE}), (30, ())) == [(False, False), (True, True), (False, False)]


def test_a_blink_is_let_pass_and_hides_no_longer_darkness():
    assert told((0, {POD}), (0.5, ()))[-1] == (False, False)
    found = told((0, {POD}), (19.8, {POD, JOB}), (20, {JOB}), (20.4, ()))
    assert found[-2:] == [(False, True), (True, False)]


def test_each_darkness_is_told_of_by_itself():
    found = told((0, {JOB}), (9, ()), (20, {POD}), (20.2, ()), (30, {JOB}), (39, ()))
    assert found == [(False, False), (True, False), (False, False), (False, False), (False, False), (True, False)]


def test_since_when_is_what_it_was_first_seen_at():
    one = Darkness()
    assert one.turn({POD}, 3) == ({POD}, {})
    assert one.turn({POD, JOB}, 5) == ({JOB}, {})
    assert one.since == {POD: 3, JOB: 5}
    assert one.turn({JOB}, 8) == (set(), {POD: 5})
