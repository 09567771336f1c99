"""What is made of the tests of defect rows on older code."""

from __future__ import annotations

import json
from pathlib import Path

from tests.regressions import defect_rows, files_of, verdict_of
from tests.rows import Row


def results(folder: Path, *outcomes: str, output: str = "") -> Path:
    tests = {str(number): {"outcome": outcome} for number, outcome in enumerate(outcomes)}
    (folder / "1.json").write_text(json.dumps({"tests": tests}))
    (folder / "output.txt").write_text(output)
    return folder


def test_a_row_is_shown_by_a_test_that_ran_and_failed(tmp_path: Path):
    verdict = verdict_of("D7", results(tmp_path, "passed", "failed", output="ERROR collecting tests/x.py"))
    assert verdict.shown
    assert verdict.sentence() == "D7    fails there  1 failed, 1 passed, 1 file(s) not importable"


def test_a_row_whose_tests_pass_or_cannot_be_imported_is_not_shown(tmp_path: Path):
    verdict = verdict_of("D7", results(tmp_path, "passed", output="ERROR collecting tests/x.py"))
    assert not verdict.shown
    assert "NOT SHOWN" in verdict.sentence()


def test_the_rows_are_the_defects_that_are_shown_by_now():
    shown = Row("D1", "defects", "d", "x", required=("pure",))
    assert defect_rows([shown, Row("D2", "defects", "d", "x"), Row("A1", "appwrapper", "a", "x", ("pure",))]) == ["D1"]


def test_a_rows_files_are_found_however_its_marker_is_called(tmp_path: Path):
    texts = {
        "a": 'pytest.mark.row("D1", level="pure")',
        "b": '@ROW("D1", level="e2e")',
        "c": '@ROW("D11", level="e2e")',
    }
    for name, text in texts.items():
        path = tmp_path / "tests" / "deep" / f"test_{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert sorted(files_of(tmp_path, "D1")) == ["tests/deep/test_a.py", "tests/deep/test_b.py"]
