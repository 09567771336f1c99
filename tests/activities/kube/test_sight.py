"""The record of blindness: spans open with a failed request, close with an answered one, and are never forgotten."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.activities.kube.blindness import Sight
from holdfast.model import Interval
from holdfast.policy.failures.blindness import lasting, union

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def span(begin: float, end: float) -> Interval:
    return Interval(begin=at(begin), end=at(end))


def test_a_span_lasts_from_the_first_unanswered_request_to_the_next_answer():
    sight = Sight()
    sight.regained(at(0))
    sight.lost(at(10))
    sight.lost(at(12))
    assert sight.blind
    assert sight.blind_since == at(10)
    sight.regained(at(20))
    assert not sight.blind
    assert sight.intervals(T0, at(30)) == (span(10, 20),)


def test_a_span_still_open_ends_now():
    sight = Sight()
    sight.lost(at(10))
    assert sight.intervals(T0, at(15)) == (span(10, 15),)
    assert sight.intervals(T0, at(10)) == ()


def test_spans_are_cut_at_the_moment_asked_for():
    sight = Sight()
    sight.lost(at(10))
    sight.regained(at(20))
    assert sight.intervals(at(15), at(30)) == (span(15, 20),)
    assert sight.intervals(at(20), at(30)) == ()


def test_a_request_sent_before_another_was_answered_counts_from_that_answer():
    sight = Sight()
    sight.regained(at(10))
    sight.lost(at(5))
    sight.regained(at(12))
    assert sight.intervals(T0, at(30)) == (span(10, 12),)


def test_an_earlier_loss_moves_an_open_span_back():
    sight = Sight()
    sight.lost(at(10))
    sight.lost(at(8))
    assert sight.blind_since == at(8)


def test_the_clock_is_used_where_no_time_is_given():
    now = [at(1)]
    sight = Sight(clock=lambda: now[0])
    sight.lost()
    now[0] = at(4)
    sight.regained()
    assert sight.intervals(T0) == (span(1, 4),)


def test_when_there_are_too_many_the_two_closest_become_one():
    sight = Sight(kept=2)
    for begin, end in ((0, 1), (10, 11), (12, 13)):
        sight.lost(at(begin))
        sight.regained(at(end))
    assert sight.intervals(T0 - timedelta(1), at(20)) == (span(0, 1), span(10, 13))


@pytest.mark.row("U1", level="pure")
def test_U1_a_stream_that_is_cut_again_and_again_makes_no_blindness_and_hides_none():
    sight = Sight(kept=4)
    for number in range(100):
        sight.lost(at(20 * number))
        sight.regained(at(20 * number + (5 if number in {30, 90} else 0.2)))
    spans = sight.intervals(T0 - timedelta(1), at(3000))
    assert lasting(spans, 4) == (span(600, 605), span(1800, 1805))


@pytest.mark.parametrize("parts", [((0, 0.6), (0.5, 1.1)), ((0, 0.5), (0.5, 1.0))])
def test_short_spans_that_touch_are_one(parts: tuple[tuple[float, float], ...]):
    assert lasting([span(*each) for each in parts], 1) == (span(0, parts[-1][1]),)
    assert lasting([span(*parts[0]), span(3, 3.9)], 1) == ()


def test_no_span_can_be_kept_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        Sight(kept=0)


spans = st.lists(
    st.tuples(st.integers(0, 1000), st.integers(1, 50)).map(lambda pair: span(pair[0], pair[0] + pair[1])), max_size=40
)


@given(spans, st.integers(1, 8))
def test_merging_never_loses_a_dark_moment(given_spans: list[Interval], kept: int):
    result = union(given_spans, kept)
    assert len(result) <= kept
    assert all(a.end < b.begin for a, b in itertools.pairwise(result))
    for one in given_spans:
        assert any(whole.begin <= one.begin and one.end <= whole.end for whole in result)
