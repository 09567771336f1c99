"""How long a removal may last, whatever the clocks say. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from holdfast.activities.site.deadline import Deadline, Grace
from holdfast.model import Interval

T0 = datetime(2026, 1, 1, tzinfo=UTC)
NOW = 1000.0


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def deadline(until: float, grace: float = 0.0, ahead: float = 0.0) -> Deadline:
    return Deadline(at(until), T0, at(ahead), NOW, grace)


def test_it_is_a_span_from_the_activitys_start():
    one = deadline(60)
    assert one.left(NOW) == 60
    assert one.left(NOW + 70) == -10


def test_a_worker_whose_clock_is_ahead_has_all_of_it():
    assert deadline(60, ahead=3600).left(NOW) == 60


def test_what_is_over_already_is_over():
    assert deadline(-60).left(NOW) == 0


def test_a_deletion_that_begins_late_has_its_grace():
    one = deadline(-60, grace=30)
    assert one.left(NOW) == 0, "nothing has been deleted, so that nothing is given time"
    one.dying(NOW + 5)
    assert one.left(NOW + 5) == 30
    one.dying(NOW + 20)
    assert one.left(NOW + 20) == 15, "the first word counts"


def test_a_deletion_that_an_earlier_try_began_has_what_is_left_of_its_grace():
    one = deadline(-60, grace=30)
    one.dying(NOW, at(-21))
    assert one.left(NOW) == 10
    late = deadline(-60, grace=30)
    late.dying(NOW, at(500))
    assert late.left(NOW) == 30, "an API server whose clock is ahead grants no more"


def test_grace_never_shortens_the_time():
    one = deadline(60, grace=30)
    one.dying(NOW)
    assert one.left(NOW) == 60


def test_darkness_since_the_deletion_is_added_by_the_clock_that_tells_it():
    for ahead in (0, 3600):
        one = deadline(0, grace=30, ahead=ahead)
        one.dying(NOW)
        before = Interval(begin=at(ahead - 50), end=at(ahead - 40))
        across = Interval(begin=at(ahead - 5), end=at(ahead + 7))
        assert one.left(NOW + 10, (before, across)) == 27


def test_without_grace_darkness_adds_nothing():
    """Then whoever asked for the removal adds it."""
    one = deadline(60)
    one.dying(NOW)
    assert one.left(NOW, (Interval(begin=at(1), end=at(20)),)) == 60


def test_a_grace_is_used_up_only_between_two_looks_that_both_saw():
    now = 100.0
    grace = Grace(60, lambda: now)

    def later(seconds: float) -> None:
        nonlocal now
        now += seconds

    later(300)
    grace.see()  # With this it begins: until then their deletion was not asked for.
    later(30)
    grace.see()
    later(10)
    grace.miss()
    later(500)
    grace.miss()
    later(10)
    grace.see()
    assert not grace.is_over
    later(30)
    grace.see()
    assert not grace.is_over
    later(1)
    grace.see()
    assert grace.is_over


def test_pods_of_what_may_be_deleted_only_now_have_all_of_their_grace():
    now = NOW
    grace = Grace(60, lambda: now)
    for kept in ({"a", "b"}, {"a", "b"}, {"a"}):
        grace.see(kept)
        now += 61
    grace.see({"a"})
    assert grace.is_over, "a minute and more since those of b were told to end"
    grace.see()
    assert not grace.is_over, "those of a have only now been told to end"
    now += 61
    grace.see()
    assert grace.is_over
