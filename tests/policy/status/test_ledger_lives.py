"""The ledger of random lives: nothing is counted twice, nothing is left out, and a new run changes nothing."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model import OperationKind, Phase, State, Workload
from holdfast.model.life.ledger import Bucket, Span, milliseconds, totals
from holdfast.policy.status.ledger import Moment, bucket_of, spans_of
from holdfast.policy.values.events import Cancelled, Suspended
from tests.policy.lives.life import START, Life
from tests.policy.lives.play import Play
from tests.policy.lives.script import step, walk
from tests.policy.lives.submitted import ORDERED, PARKED, READING, SAVING, SAVING_PARKED, SPEC, STREAMS

DOCUMENTS = (SPEC, STREAMS, ORDERED, PARKED, READING, SAVING, SAVING_PARKED)
SPECS = st.sampled_from(DOCUMENTS)
SEEDS = st.integers(0, 2**32)
MOVES = 60
LONGEST = 400
STEPS = int(os.environ.get("HOLDFAST_LEDGER_STEPS", "1000"))
BEGUN = int(os.environ.get("HOLDFAST_LEDGER_SEED", "20261128"))
RAN = {Bucket.STARTING, Bucket.PRODUCTIVE, Bucket.LOST, Bucket.DETECTING}
"""The buckets between which time may be moved once more is known."""


def lived(spec: Workload, seed: int) -> Play:
    play = Play(spec)
    walk(play, Random(seed), MOVES)
    return play


def counted(play: Play) -> tuple[Span, ...]:
    return spans_of(START, play.flow.moments, play.cluster.now)


def assert_adds_up(play: Play) -> None:
    """Each millisecond of the life is in one bucket, and its spans meet."""
    spans = counted(play)
    assert spans[0].begin == START
    assert all(one.end == other.begin for one, other in pairwise(spans))
    assert all(one.begin < one.end and one.milliseconds > 0 for one in spans)
    assert sum(totals(spans).values()) == milliseconds(START, spans[-1].end)
    if play.flow.state.outcome is None:
        assert milliseconds(spans[-1].end, play.cluster.now) == 0


@pytest.mark.row("P5", level="pure")
@given(spec=SPECS, seed=SEEDS)
def test_P5_the_buckets_of_any_life_add_up_to_its_age(spec: Workload, seed: int):
    assert_adds_up(lived(spec, seed))


@pytest.mark.row("P5", level="pure")
def test_P5_the_buckets_add_up_over_so_many_random_steps():
    """`make test-ledger` takes a million of them, in lives of up to 400; a seed says which."""
    random, taken, lives = Random(BEGUN), 0, 0
    while taken < STEPS:
        play = Play(random.choice(DOCUMENTS))
        for _ in range(random.randint(1, LONGEST)):
            if play.flow.ended is not None:
                break
            step(play, random)
            taken += 1
        assert_adds_up(play)
        assert_moves_only_time_with_pods(play)
        lives += 1
    print(f"the ledgers of {lives:,} lives add up, over {taken:,} random steps from seed {BEGUN} on")


@pytest.mark.row("P5", level="pure")
def test_P5_a_suspended_life_ends_when_it_is_cancelled_however_long_its_workflow_stays_open():
    life = Life(hold={OperationKind.REPORT}).runs()
    moments = [Moment(life.now, life.spec, life.state)]
    for wish in (Suspended(), Cancelled()):
        life.tell(wish)
        moments.append(Moment(life.now, life.spec, life.state))
        life.after(hours=1)
        moments.append(Moment(life.now, life.spec, life.state))
    assert life.state.outcome is Phase.CANCELLED
    at_once = spans_of(START, moments[:-1], moments[-2].at)
    assert (at_once[-1].bucket, at_once[-1].end - at_once[-1].begin) == (Bucket.SUSPENDED, timedelta(hours=1))
    assert spans_of(START, moments, life.now + timedelta(hours=5)) == at_once


def resets_of(play: Play) -> list[tuple[datetime, datetime]]:
    """Return from when to when resets removed their attempts, which their workflow knew at their ends."""
    found: list[tuple[datetime, datetime]] = []
    for before, after in pairwise(play.flow.moments):
        operation = before.state.operation
        if operation is not None and operation.restart is not None and after.state.restarts > before.state.restarts:
            found.append((operation.restart.at, after.at))
    return found


def assert_moves_only_time_with_pods(play: Play) -> None:
    """A second, naive count: each state's own bucket, over the time in which it held."""
    spans = counted(play)
    naive = dict.fromkeys(Bucket, timedelta())
    at, bucket, resets = START, Bucket.QUEUED, resets_of(play)
    for moment in (*play.flow.moments, None):
        until = min(moment.at if moment is not None else play.cluster.now, spans[-1].end)
        removing = bucket is Bucket.DETECTING and any(begin <= at and until <= end for begin, end in resets)
        naive[Bucket.REMOVING if removing else bucket] += max(until - at, timedelta())
        at = max(until, at)
        if moment is not None:
            bucket = bucket_of(moment.spec, moment.state) or Bucket.SUSPENDED
    total = totals(spans)
    for one in set(Bucket) - RAN:
        assert total[one] == pytest.approx(naive[one] / timedelta(milliseconds=1), abs=len(spans)), one


@pytest.mark.row("P5", level="pure")
@given(spec=SPECS, seed=SEEDS)
def test_P5_only_time_with_pods_is_moved_between_buckets(spec: Workload, seed: int):
    assert_moves_only_time_with_pods(lived(spec, seed))


@pytest.mark.row("P5", level="pure")
@given(spec=SPECS, seed=SEEDS, cuts=st.lists(st.floats(0, 1), max_size=4))
def test_P5_a_new_run_of_the_workflow_changes_nothing(spec: Workload, seed: int, cuts: list[float]):
    """A run begins with the memory of the one before, as JSON has it, between any two moments."""
    play = lived(spec, seed)
    moments = list(play.flow.moments)
    for cut in cuts:
        index = int(cut * (len(moments) - 1))
        before = moments[index]
        after = moments[index + 1].at if index + 1 < len(moments) else play.cluster.now
        carried = State.model_validate_json(before.state.model_dump_json(by_alias=True))
        moments.insert(index + 1, Moment(before.at + (after - before.at) * cut, before.spec, carried))
    assert spans_of(START, moments, play.cluster.now) == counted(play)


@given(spec=SPECS, seed=SEEDS)
def test_a_life_that_is_counted_later_has_the_same_past(spec: Workload, seed: int):
    """What has been decided stays in its bucket: an hour later only the last bucket is longer."""
    play = lived(spec, seed)
    now, later = counted(play), spans_of(START, play.flow.moments, play.cluster.now + timedelta(hours=1))
    assert [one.bucket for one in later[: len(now) - 1]] == [one.bucket for one in now[:-1]]
    assert [one.begin for one in later[: len(now)]] == [one.begin for one in now]
