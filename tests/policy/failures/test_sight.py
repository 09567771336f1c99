"""Spans in which nobody could see: joined, bounded, never forgotten, and never part of a grace (rows U1, L4)."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from holdfast.model import Interval
from holdfast.policy.failures.blindness import due, union
from tests.policy.lives.life import START

Spans = list[tuple[int, int]]


def at(second: int) -> datetime:
    return START + timedelta(seconds=second)


def spans(*pairs: tuple[int, int]) -> list[Interval]:
    return [Interval(begin=at(begin), end=at(end)) for begin, end in pairs]


@pytest.mark.parametrize(
    ("given", "joined"),
    [
        ([], []),
        ([(1, 2)], [(1, 2)]),
        ([(5, 6), (1, 2)], [(1, 2), (5, 6)]),
        ([(1, 5), (3, 8)], [(1, 8)]),
        ([(1, 9), (3, 5)], [(1, 9)]),
        ([(1, 9), (3, 5), (8, 10)], [(1, 10)]),
        ([(1, 3), (3, 5)], [(1, 5)]),
        ([(0, 1), (3, 5), (4, 8)], [(0, 1), (3, 8)]),
        ([(4, 4), (2, 1), (6, 7)], [(6, 7)]),
    ],
)
def test_spans_that_touch_are_one_and_empty_ones_are_none(given: Spans, joined: Spans):
    assert union(spans(*given), 10) == tuple(spans(*joined))


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        (4, [(0, 1), (10, 11), (13, 14), (20, 21)]),
        (3, [(0, 1), (10, 14), (20, 21)]),
        (2, [(0, 1), (10, 21)]),
        (1, [(0, 21)]),
    ],
)
def test_above_the_number_that_is_kept_the_closest_are_joined_so_that_none_is_forgotten(keep: int, kept: Spans):
    assert union(spans((0, 1), (10, 11), (13, 14), (20, 21)), keep) == tuple(spans(*kept))


@pytest.mark.parametrize(
    ("blind", "seconds"),
    [
        ([], 60),
        ([(-20, -10)], 60),
        ([(-20, 0)], 60),
        ([(-20, 5)], 65),
        ([(-20, -10), (10, 20)], 70),
        ([(10, 20)], 70),
        ([(10, 20), (30, 35)], 75),
        ([(60, 65)], 65),
        ([(61, 65)], 60),
        ([(10, 20), (65, 70)], 75),
        ([(10, 20), (71, 80)], 70),
        ([(61, 62), (63, 64)], 60),
    ],
)
def test_a_grace_lasts_until_that_much_of_it_has_been_seen(blind: Spans, seconds: int):
    assert due(at(0), timedelta(seconds=60), spans(*blind)) == at(seconds)
