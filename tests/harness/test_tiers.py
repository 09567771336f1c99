"""The tiers of `make test`, the meter, and the tables of times: pure, and on a small suite of their own."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plugins.spent import CONDITION, WORKER, Meter
from tests.plugins.tiers import SUMMARY
from tests.tiers import DAYS, TIMES_FILE, Candidate, choose, cover, has_servers, is_sampled, load_times, longest_first
from tests.times import read_sessions, render, write

ROOT = Path(__file__).parents[2]
ROWS = st.lists(st.sampled_from(["A1:e2e", "A2:e2e", "J3:e2e", "L4:e2e", "A1:pure"]), max_size=3, unique=True)
CANDIDATES = st.lists(
    st.builds(
        Candidate,
        id=st.integers(0, 200).map(lambda number: f"tests/e2e/test_x.py::test_{number}"),
        rows=ROWS.map(tuple),
        sample=st.booleans(),
        seconds=st.none() | st.floats(0.1, 200),
    ),
    unique_by=lambda test: test.id,
    max_size=40,
)


@given(CANDIDATES, st.integers(0, 10_000))
def test_each_day_shows_every_row_and_a_week_runs_every_test(tests: list[Candidate], day: int):
    week = [choose(tests, day + number) for number in range(DAYS)]
    rows = {row for test in tests for row in test.rows}
    by_id = {test.id: test for test in tests}
    for tier in week:
        assert {row for id_ in tier.chosen for row in by_id[id_].rows} == rows
        assert {test.id for test in tests if test.sample} <= tier.chosen
        assert {test.id for test in tests if test.seconds is None} <= tier.chosen
    assert set(chain.from_iterable(tier.chosen for tier in week)) == set(by_id)
    assert choose(list(reversed(tests)), day) == week[0]


def test_a_row_is_covered_by_its_cheapest_test():
    slow = Candidate("slow", rows=("A1:e2e",), seconds=90)
    both = Candidate("both", rows=("A1:e2e", "A2:e2e"), seconds=10)
    quick = Candidate("quick", rows=("A2:e2e",), seconds=6)
    assert cover([slow, both, quick], set()) == [both]
    assert cover([slow, both, quick], {"A1:e2e"}) == [quick]
    assert cover([slow], {"A1:e2e"}) == []


def test_a_sample_runs_once_in_its_days_and_by_default_each_day():
    tests = [f"test_{number}" for number in range(40)]
    halves = [{test for test in tests if is_sampled(test, 2, day)} for day in (7, 8, 9)]
    assert halves[0] == halves[2] == set(tests) - halves[1]
    assert 10 < len(halves[0]) < 30
    assert all(is_sampled(test, 1, 7) for test in tests)


def test_no_file_of_a_server_test_is_left_out_as_a_tier_is_collected():
    files = {ROOT / test.partition("::")[0] for test in load_times(ROOT / TIMES_FILE)}
    there = [file for file in files if file.exists()]
    assert len(there) > 50
    assert [file for file in there if not has_servers(file.read_text(encoding="utf-8"))] == []
    assert not has_servers("def test_pure(): ...")


def test_what_takes_longest_begins_first_and_what_is_new_before_what_is_quick():
    assert longest_first(["a", "b", "c", "new"], {"a": 1.0, "b": 90.0, "c": 2.0}) == ["b", "new", "c", "a"]


def test_a_second_counts_for_the_most_specific_of_what_is_waited_for():
    now = [0.0]
    meter = Meter(lambda: now[0])
    now[0] = 5
    with meter.spent(WORKER):
        now[0] = 6
        with meter.spent(CONDITION):
            now[0] = 9
    with meter.spent(CONDITION):
        now[0] = 10.5
    assert meter.take() == {WORKER: 4.0, CONDITION: 1.5}
    assert meter.take() == {}


SUITE = """
import pytest

@pytest.mark.parametrize("number", range(14))
@pytest.mark.e2e
def test_x(number): pass

@pytest.mark.e2e
@pytest.mark.row("A1", level="e2e")
def test_row(): pass

@pytest.mark.e2e
@pytest.mark.sample
def test_sample(): pass
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project of sixteen server tests, all timed but one."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\nmarkers =\n  e2e: x")
    folder = pytester.mkdir("tests")
    (folder / "rows.toml").write_text('[x]\nA1 = { class = "a", required = ["e2e"], shows = "y" }\n')
    (folder / "test_server.py").write_text(SUITE)
    known = {f"tests/test_server.py::test_x[{number}]": number + 1 for number in range(13)}
    known |= {"tests/test_server.py::test_row": 1, "tests/test_server.py::test_sample": 40}
    (folder / "times.json").write_text(json.dumps(known))
    return pytester


PLUGINS = ("-p", "tests.plugins.times", "-p", "tests.plugins.rows", "-p", "tests.plugins.tiers")


def ran(suite: pytest.Pytester, day: int, *options: str) -> int:
    """Run a day's tier; return how many tests of its share it had."""
    result = suite.runpytest_subprocess(*PLUGINS, "--tier", f"--day=2026-11-0{day}", *options)
    passed = result.parseoutcomes()["passed"]
    result.stdout.fnmatch_lines(
        [
            "tier: share * of 7 (2026-11-0*",
            f"tier: {passed} tests: 1 for contract rows, 1 samples, 1 never timed, {passed - 3} of the day's*",
        ]
    )
    return passed - 3


def test_a_tier_runs_the_rows_the_samples_the_new_and_the_days_share(suite: pytest.Pytester):
    days = [ran(suite, day) for day in range(1, 8)]
    assert sum(days) == 13, "in a week each of the rest once"
    assert ran(suite, 3, "-n", "2") == days[2], "in two processes the same"


def test_without_a_tier_all_run_the_longest_first(suite: pytest.Pytester):
    result = suite.runpytest_subprocess(*PLUGINS, "-v")
    result.assert_outcomes(passed=16)
    ran = [line.split(" ")[0].partition("::")[2] for line in result.outlines if " PASSED" in line]
    assert ran[:4] == ["test_x[13]", "test_sample", "test_x[12]", "test_x[11]"]
    assert SUMMARY not in suite.parseconfig().stash


def test_the_tables_and_the_seconds_come_from_the_results_of_a_run(suite: pytest.Pytester):
    suite.runpytest_subprocess(*PLUGINS, "-n", "2").assert_outcomes(passed=16)
    sessions = read_sessions(suite.path / "reports/rows")
    assert [len(session.tests) for session in sessions] == [16]
    assert len(sessions[0].busy) == 2
    page, times = suite.path / "testing.md", suite.path / "tests/times.json"
    page.write_text("before\n<!-- times: made by `make times ARGS=--write` -->\nthe last run\n<!-- /times -->\nafter\n")
    write(sessions, page, times)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("<!-- /times -->\nafter\n")
    assert "the last run" not in text
    assert render(sessions, suite.path / "none") in text
    assert "| with servers, 2 processes | 16 |" in text
    assert len(json.loads(times.read_text())) == 16
