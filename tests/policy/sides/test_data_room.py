"""Room for a data set in its namespace's quota: which others go, and why none can (row X10)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.policy.sides.data_room import Room, Stored, room_for

pytestmark = pytest.mark.row("X10", level="pure")
SETS = st.lists(
    st.builds(
        Stored,
        st.sampled_from("abcdefgh"),
        st.integers(0, 50),
        st.floats(0, 9),
        st.frozensets(st.sampled_from(["u", "v", "w"]), max_size=2),
    ),
    unique_by=lambda one: one.digest,
)


def test_X10_the_one_that_was_staged_longest_ago_goes_first_and_no_more_than_needed():
    stored = [Stored("young", 40, 3.0), Stored("old", 40, 1.0), Stored("used", 20, 0.0, frozenset({"v"}))]
    assert room_for(stored, "new", 30, "u", 100).evict == ("old",)
    assert room_for(stored, "new", 70, "u", 100).evict == ("old", "young")
    assert room_for(stored, "new", 70, "u", None) == Room()


def test_X10_what_does_not_fit_says_why_and_whether_waiting_helps():
    stored = [Stored("a", 60, 1.0, frozenset({"v"})), Stored("b", 30, 1.0, frozenset({"u"}))]
    waits = room_for(stored, "new", 20, "u", 100)
    assert waits == Room(problem="it needs 20 B, and 2 workloads use 90 B of the quota, 100 B", waits=True)
    alone = room_for(stored, "new", 101, "w", 100)
    assert alone == Room(problem="it has 101 B: expected at most the quota, 100 B")
    together = room_for(stored, "new", 80, "u", 100)
    assert (
        together.problem
        == "it has 80 B, 110 B with the others that the workload reads: expected at most the quota, 100 B"
    )
    assert not together.waits


@given(SETS, st.sampled_from("abcdefghi"), st.integers(0, 80), st.sampled_from(["u", "v", "x"]), st.integers(1, 120))
def test_X10_what_is_used_never_goes_and_what_is_allowed_fits(
    stored: list[Stored], digest: str, size: int, user: str, quota: int
):
    room = room_for(stored, digest, size, user, quota)
    by_digest = {one.digest: one for one in stored if one.digest != digest}
    assert all(not by_digest[one].users for one in room.evict)
    stays = sum(one.bytes for name, one in by_digest.items() if name not in room.evict)
    unused = sum(one.bytes for one in by_digest.values() if not one.users)
    if room.problem:
        assert room.evict == ()
        assert sum(one.bytes for one in by_digest.values()) - unused + size > quota, "it would have fitted"
    else:
        assert stays + size <= quota
