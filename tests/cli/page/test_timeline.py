"""A life's phases, deadlines and nodes, from recorded histories (row P7)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from holdfast.cli.page.draw import drawing_of
from holdfast.cli.page.html import report
from holdfast.cli.page.timeline import Timeline, timeline_of
from holdfast.past import Story, story_of
from tests.past.recorded import NAMES, story

pytestmark = pytest.mark.row("P7", level="pure")
LATER = datetime(2027, 1, 1, tzinfo=UTC)


async def life(name: str) -> Timeline:
    return timeline_of(await story(name), LATER)


def phases(found: Timeline) -> list[tuple[int, str]]:
    return [(span.attempt, span.word) for span in found.spans]


@pytest.mark.parametrize("name", NAMES)
async def test_its_phases_fill_its_whole_time_without_gap_or_overlap(name: str):
    found = await life(name)
    assert found.spans[0].begin == found.begin == found.history.begun_at
    assert found.spans[-1].end == found.end
    assert all(before.end == after.begin for before, after in pairwise(found.spans))
    assert all(span.begin < span.end for span in found.spans[:-1])
    assert found.spans[-1].phase == found.history.phase
    assert [span.attempt for span in found.spans] == sorted(span.attempt for span in found.spans)


@pytest.mark.parametrize("name", NAMES)
async def test_each_deadline_was_set_before_it_ended_and_one_stands_at_a_time(name: str):
    found = await life(name)
    assert all(due.begin <= due.end <= found.end for due in found.dues)
    assert all(before.end <= after.begin for before, after in pairwise(found.dues))


async def test_a_reset_is_resumed_as_the_next_attempt():
    found = await life("created-at-once")
    assert phases(found) == [
        (1, "Starting"),
        (1, "Running"),
        (1, "Resetting"),
        (2, "Resuming"),
        (2, "Running"),
        (2, "Succeeded"),
    ]


async def test_without_turns_that_are_known_the_workflows_own_records_are_told():
    found = await life("reset")
    assert not found.history.exact
    assert found.history.notes
    # The workflow records no return to Resuming.
    assert (1, "Resetting") in phases(found)
    assert phases(found)[-2:] == [(2, "Running"), (2, "Succeeded")]


async def test_a_deadline_that_came_is_told_from_one_that_something_else_came_before():
    found = await life("launch-elsewhere")
    told = [(due.what, due.met) for due in found.dues if due.attempt == 1]
    assert told == [
        ("admission grace: no news yet of its 2 pods", False),
        ("forceful deletion, unless all is gone by then", True),
        ("retry pause", True),
    ]


async def test_nodes_are_those_where_failures_decided():
    (node,) = (await life("node-down")).nodes
    assert node.name == "node-7"
    assert [text.partition(":")[0] for text in node.failed] == ["attempt 1", "attempt 2"]


async def test_a_life_that_goes_on_ends_where_it_is_read():
    record = await story("parked")
    now = record.turns[5].at
    record.turns[6:] = []
    record.runs = tuple(replace(run, ended_at=None, tasks=()) for run in record.runs)
    assert timeline_of(record, now + timedelta(hours=1)).end == now + timedelta(hours=1)
    assert timeline_of(record, now - timedelta(hours=1)).end == now, "this machine's clock is behind Temporal's"


async def test_a_deadline_that_still_stands_is_to_come_and_did_not_end_early():
    record = await story("launch-elsewhere")
    now = record.turns[2].at
    record.turns[3:] = []
    record.runs = tuple(replace(run, ended_at=None, tasks=()) for run in record.runs)
    found = timeline_of(record, now + timedelta(seconds=10))
    assert [(due.open, due.met) for due in found.dues] == [(True, False)]
    (row,) = drawing_of(found).rows
    until = "until 2026-11-22 16:45:16 (still to come): admission grace: no news yet of its 2 pods"
    assert [due.title for due in row.dues] == [until]
    assert "<td>still to come</td>" in report(found, LATER)
    passed = timeline_of(record, now + timedelta(hours=1))
    assert [(due.open, due.met) for due in passed.dues] == [(False, True)]


async def test_no_deadline_of_a_life_that_is_over_is_still_to_come():
    assert not [due for name in ("launch-elsewhere", "failed") for due in (await life(name)).dues if due.open]


async def test_a_life_whose_next_run_is_not_here_ends_with_the_last_that_is():
    record = await story("checkpoint-continued-as-new")
    record = story_of(record.runs[:2])
    found = timeline_of(record, LATER)
    assert found.end == record.runs[-1].ended_at
    assert "not known: its life went on after" in report(found, LATER)


async def test_a_life_that_no_worker_has_taken_yet_has_no_phases_and_is_drawn_empty():
    record = await story("happy-path")
    runs = tuple(replace(run, ended_at=None, tasks=()) for run in record.runs)
    begun = Story(record.spec, record.uid, runs)
    found = timeline_of(begun, runs[0].began_at + timedelta(minutes=1))
    assert (found.spans, found.dues, found.nodes) == ((), (), ())
    assert drawing_of(found).rows == ()
    assert "none yet" in report(found, LATER)
