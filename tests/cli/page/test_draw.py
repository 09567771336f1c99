"""Where the parts of a drawing stand (row P7)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cli.page.draw import ROWS_DRAWN, drawing_of, ledger_bar
from holdfast.cli.page.timeline import Span, Timeline, timeline_of
from holdfast.model import Phase
from tests.past.recorded import NAMES, story

pytestmark = pytest.mark.row("P7", level="pure")
BEGIN = datetime(2026, 11, 22, 16, 0, tzinfo=UTC)


async def recorded(name: str) -> Timeline:
    return timeline_of(await story(name), datetime(2027, 1, 1, tzinfo=UTC))


@pytest.fixture(scope="module")
def life() -> Timeline:
    return asyncio.run(recorded("created-at-once"))


def lasting(life: Timeline, *spans: tuple[Phase, timedelta, int]) -> Timeline:
    """The same life with other phases, one after the other."""
    at, found = BEGIN, list[Span]()
    for phase, length, attempt in spans:
        found.append(Span(at, at + length, attempt, phase, phase.value, ""))
        at += length
    history = life.history.model_copy(update={"attempts": (), "causes": ()})
    return replace(life, history=history, begin=BEGIN, end=at, spans=tuple(found), dues=())


@pytest.mark.parametrize("name", NAMES)
async def test_all_stands_within_the_width_and_each_attempt_has_its_row(name: str):
    found = await recorded(name)
    drawn = drawing_of(found)
    assert {f"attempt {one.number}" for one in found.history.attempts} <= {row.name for row in drawn.rows}
    for row in drawn.rows:
        for bar in (*row.bars, *row.dues):
            assert 0 <= bar.x <= bar.x + bar.width <= 100.01
        assert all(0 <= mark.x <= 100 for mark in row.marks)
    assert sum(bar.width for row in drawn.rows for bar in row.bars) == pytest.approx(100, abs=0.1)


@given(seconds=st.integers(0, 400 * 86400))
def test_its_times_are_few_and_in_order(life: Timeline, seconds: int):
    drawn = drawing_of(lasting(life, (Phase.RUNNING, timedelta(seconds=seconds), 1)))
    assert 0 <= len(drawn.ticks) <= 5
    assert [tick.x for tick in drawn.ticks] == sorted(tick.x for tick in drawn.ticks)


def test_an_outcome_that_is_kept_for_days_leaves_room_for_the_life_before_it(life: Timeline):
    found = lasting(life, (Phase.RUNNING, timedelta(hours=1), 1), (Phase.SUCCEEDED, timedelta(days=7), 1))
    drawn = drawing_of(found)
    running, succeeded = drawn.rows[0].bars
    assert drawn.cut
    assert running.width > 85
    assert succeeded.width > 5


def test_of_many_attempts_the_latest_are_drawn_and_the_rest_counted(life: Timeline):
    spans = [(Phase.RUNNING, timedelta(minutes=1), number) for number in range(1, ROWS_DRAWN + 6)]
    drawn = drawing_of(lasting(life, *spans))
    assert (len(drawn.rows), drawn.left_out) == (ROWS_DRAWN, 5)
    assert drawn.rows[-1].name == f"attempt {ROWS_DRAWN + 5}"


def test_a_ledger_is_one_bar_and_without_buckets_none():
    assert ledger_bar([]) == ()
    assert ledger_bar([("queued", 0.0)]) == ()
    bars = ledger_bar([("queued", 30.0), ("lost", 0.0), ("productive", 90.0)])
    assert [(bar.kind, bar.x, bar.width) for bar in bars] == [("queued", 0.0, 25.0), ("productive", 25.0, 75.0)]
    assert bars[0].title == "queued: 30s, 25.0 %"


async def test_each_completed_save_is_marked_in_the_attempt_that_saved():
    drawn = drawing_of(await recorded("checkpointed"))
    assert [[mark.kind for mark in row.marks].count("saved") for row in drawn.rows] == [2, 0]
    assert drawn.saves
    assert not drawing_of(await recorded("node-down")).saves
