"""The row marks, their results and the table, on small test suites of their own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rows import LEVELS, ROWS_FILE, Row, lacking, load_rows, main, read_results, render, totals

ROOT = Path(__file__).parents[2]
TABLE = """
[wrapper]
A1 = { class = "a", required = ["pure", "e2e"], shows = "one thing" }
A2 = { class = "a", shows = "another thing" }
"""
EVERYWHERE = "not (kueue or release or torch)"
CARRIED = """
import sys, pytest
class Rows:
    def pytest_collection_finish(self, session):
        for item in session.items:
            for name, value in item.user_properties:
                print(name, value)
sys.exit(pytest.main(sys.argv[1:], plugins=[Rows()]))
"""
"""Prints the rows and levels of the tests that pytest collects."""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with two rows and the plugin, in a folder of its own."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\nmarkers =\n  e2e: x\n  temporal: x")
    folder = pytester.mkdir("tests")
    (folder / "rows.toml").write_text(TABLE)
    return pytester


def run(suite: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return suite.runpytest_inprocess("-p", "tests.plugins.rows", *arguments)


def table(suite: pytest.Pytester, *arguments: str) -> int:
    return main(["--rows", f"{suite.path}/tests/rows.toml", "--results", f"{suite.path}/reports/rows", *arguments])


def test_each_level_that_is_required_has_a_test_that_make_test_runs() -> None:
    """Else the rows are found to lack it at the end of `make test`, half an hour later."""
    run = [sys.executable, "-c", CARRIED, "--collect-only", "-qq", "-p", "no:cacheprovider", "-m", EVERYWHERE]
    told = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=False)
    carried = {line.removeprefix("row ") for line in told.stdout.splitlines() if line.startswith("row ")}
    assert len(carried) > 100, told.stdout[-2000:] + told.stderr[-2000:]
    required = {f"{row.id}:{level}" for row in load_rows(ROOT / ROWS_FILE).values() for level in row.required}
    assert required - carried == set()


def test_the_committed_rows_are_whole() -> None:
    rows = load_rows(ROOT / ROWS_FILE)
    ids = {letter: [int(id_[1:]) for id_ in rows if id_[0] == letter] for letter in "ASJLTU"}
    assert [(letter, len(numbers)) for letter, numbers in ids.items()] == [
        ("A", 19),
        ("S", 12),
        ("J", 27),
        ("L", 34),
        ("T", 14),
        ("U", 14),
    ]
    for numbers in ids.values():
        assert numbers == sorted(set(numbers))
    for row in rows.values():
        assert row.shows
        assert set(row.cls) <= set("abcdefx/+")
        assert set(row.required) <= set(LEVELS)
        if row.required and row.cls not in {"d", "e", "f", "x"}:
            assert "e2e" in row.required
            assert ("pure" in row.required) == ("a" in row.cls)


def test_a_table_with_an_unknown_level_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.toml"
    path.write_text('[x]\nA1 = { class = "a", required = ["unit"], shows = "y" }\n')
    with pytest.raises(ValueError, match=r"A1\.required: 'unit': expected some of pure, e2e"):
        load_rows(path)


def test_a_row_in_two_systems_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.toml"
    path.write_text('[x]\nA1 = { class = "a", shows = "y" }\n[z]\nA1 = { class = "a", shows = "y" }\n')
    with pytest.raises(ValueError, match="A1 is given twice: by x and by z"):
        load_rows(path)


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        ('@pytest.mark.row("A9", level="pure")', "row 'A9' is in no contract"),
        ('@pytest.mark.row("A1", level="unit")', "level 'unit': expected one of pure, e2e"),
        ('@pytest.mark.row("A1")', "one id and a level"),
        ('@pytest.mark.row("A1", "A2", level="pure")', "one id and a level"),
        ('@pytest.mark.row("A1", level="e2e")', "level 'e2e' on a test that is not marked e2e"),
        ('@pytest.mark.e2e\n@pytest.mark.row("A1", level="pure")', "a pure test needs no server"),
        ('@pytest.mark.temporal\n@pytest.mark.row("A1", level="pure")', "a pure test needs no server"),
    ],
)
def test_a_wrong_mark_is_a_collection_error(suite: pytest.Pytester, marks: str, message: str) -> None:
    suite.makepyfile(test_x=f"import pytest\n{marks}\ndef test_x(): pass\n")
    result = run(suite)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{message}*"])


def test_the_tests_of_one_row_can_be_run_alone(suite: pytest.Pytester) -> None:
    marks = '@pytest.mark.row("A1", level="pure")\n', '@pytest.mark.row("A2", level="pure")\n', ""
    suite.makepyfile(
        test_x="import pytest\n" + "".join(f"{one}def test_{index}(): pass\n" for index, one in enumerate(marks))
    )
    run(suite, "--row", "A2").assert_outcomes(passed=1, deselected=2)
    run(suite, "--row", "A1", "--row", "A2").assert_outcomes(passed=2, deselected=1)
    assert "--row: A9 is in no contract" in "\n".join(run(suite, "--row", "A9").errlines)


def test_the_e2e_folder_marks_its_tests(suite: pytest.Pytester) -> None:
    suite.mkdir("tests/e2e").joinpath("test_x.py").write_text(
        'import pytest\n@pytest.mark.row("A1", level="e2e")\ndef test_x(): pass\n'
    )
    run(suite, "-m", "not e2e").assert_outcomes(deselected=1)
    run(suite, "-m", "e2e").assert_outcomes(passed=1)


SUITE = """
import pytest

pytestmark = pytest.mark.row("A1", level="pure")

def test_passes(): pass

@pytest.mark.row("A2", level="pure")
@pytest.mark.parametrize("value", [1, 2])
def test_shows_two_rows(value): pass

@pytest.mark.skip(reason="for the table")
def test_is_skipped(): pass
"""


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_two_suites_come_together_in_one_table(
    suite: pytest.Pytester, workers: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    suite.makepyfile(test_pure=SUITE)
    suite.mkdir("tests/e2e").joinpath("test_whole.py").write_text(
        'import pytest\n@pytest.mark.row("A1", level="e2e")\ndef test_x(): pass\n'
    )
    started = suite.runpytest_subprocess("-p", "tests.plugins.rows", "-m", "not e2e", *workers)
    started.assert_outcomes(passed=3, skipped=1, deselected=None if workers else 1)
    assert table(suite) == 1
    assert "not shown, 1 in all: A1 e2e: missing" in capsys.readouterr().out

    suite.runpytest_subprocess("-p", "tests.plugins.rows", "-m", "e2e", *workers).assert_outcomes(
        passed=1, deselected=None if workers else 4
    )
    assert len(list((suite.path / "reports/rows").glob("*.json"))) == 2
    assert table(suite) == 0
    printed = capsys.readouterr().out
    assert "passed (4, 1 skipped)" in printed
    assert "passed (1)" in printed
    assert table(suite, "--totals") == 0
    assert capsys.readouterr().out == "4 passed, 0 failed, 1 skipped\n"


@pytest.mark.parametrize(
    ("body", "cell", "problem"),
    [
        ("assert False", "FAILED (1)", "A1 pure: failed"),
        ('pytest.skip("not today")', "SKIPPED (1)", "A1 pure: only skipped"),
        ('pytest.xfail("not yet")', "SKIPPED (1)", "A1 pure: only skipped"),
    ],
)
def test_a_required_row_must_pass(
    suite: pytest.Pytester, body: str, cell: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.makepyfile(test_x=f'import pytest\n@pytest.mark.row("A1", level="pure")\ndef test_x():\n    {body}\n')
    run(suite)
    capsys.readouterr()
    assert table(suite) == 1
    printed = capsys.readouterr().out
    assert cell in printed
    assert problem in printed


def test_a_failing_teardown_fails_the_row(suite: pytest.Pytester, capsys: pytest.CaptureFixture[str]) -> None:
    suite.makepyfile(
        test_x="""
        import pytest

        @pytest.fixture
        def leaves():
            yield
            raise RuntimeError("left something behind")

        @pytest.mark.row("A2", level="pure")
        def test_x(leaves): pass
        """
    )
    run(suite)
    capsys.readouterr()
    assert table(suite) == 1
    assert "A2 pure: failed" in capsys.readouterr().out


def test_a_test_that_kills_its_process_does_not_count_as_passed(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_x='import os, pytest\n@pytest.mark.row("A2", level="pure")\ndef test_x(): os._exit(3)\n')
    suite.runpytest_subprocess("-p", "tests.plugins.rows", "-n", "1")
    outcomes = {result.test: result.outcome for result in read_results(suite.path / "reports/rows")}
    assert outcomes["test_x.py::test_x"] == "failed"


def test_the_latest_session_of_a_test_counts(tmp_path: Path) -> None:
    for number, outcome in enumerate(["failed", "passed"]):
        session = {"finished": f"2026-01-0{number + 1}", "tests": {"t": {"outcome": outcome, "rows": [["A1", "pure"]]}}}
        (tmp_path / f"{9 - number}.json").write_text(json.dumps(session))
    assert [result.outcome for result in read_results(tmp_path)] == ["passed"]


def test_collecting_alone_writes_nothing(suite: pytest.Pytester) -> None:
    suite.makepyfile(test_pure=SUITE)
    run(suite, "--collect-only")
    assert not (suite.path / "reports").exists()


def test_nothing_run_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--results", str(tmp_path)]) == 2
    assert "run `make test`" in capsys.readouterr().err


def test_rows_without_requirement_or_test_are_shown_on_request() -> None:
    rows = [Row(id="A1", system="x", cls="a", shows="y" * 200)]
    assert len(render(rows, []).splitlines()) == 1
    assert render(rows, [], every=True).splitlines()[1].endswith("y…")
    assert lacking(rows, []) == []
    assert totals([]) == "0 passed, 0 failed, 0 skipped"


def test_the_deviations_name_rows_and_tests_that_exist() -> None:
    rows = load_rows(ROOT / ROWS_FILE)
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    for line in (ROOT / "docs/decisions/0002-deviations.md").read_text(encoding="utf-8").splitlines():
        named = re.match(r"\| ([ASJLTU]\d+(?:(?:, |-)[ASJLTU]\d+)*) \|", line)
        for id_ in re.findall(r"[ASJLTU]\d+", named[1]) if named else []:
            assert id_ in rows, line
        for test in re.findall(r"`(test_\w+)`", line):
            assert re.search(rf"\bdef {test}\(", sources), f"{test} does not exist"
