"""The table of contract rows: which behaviour must be shown at which level, and what the last test runs showed.

`python -m tests.rows` prints it (`make rows`); tests/plugins/rows.py writes what it reads.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

LEVELS = ("pure", "e2e")
ROWS_FILE = Path("tests/rows.toml")
RESULTS_FOLDER = Path("reports/rows")


@dataclass(frozen=True)
class Row:
    """One row of a contract."""

    id: str
    system: str
    cls: str
    shows: str
    required: tuple[str, ...] = ()


@dataclass(frozen=True)
class TestResult:
    """How one test ended in its latest run, and the rows it shows."""

    __test__ = False

    test: str
    outcome: str
    rows: tuple[tuple[str, str], ...] = ()


def load_rows(path: Path) -> dict[str, Row]:
    """Read the committed rows, by id.

    Raises:
        ValueError: naming the row, the field and what was expected.
    """
    rows: dict[str, Row] = {}
    for system, entries in tomllib.loads(path.read_text(encoding="utf-8")).items():
        for id_, entry in entries.items():
            required = tuple(entry.get("required", ()))
            for level in required:
                if level not in LEVELS:
                    raise ValueError(f"{path}: {id_}.required: {level!r}: expected some of {', '.join(LEVELS)}")
            if id_ in rows:
                raise ValueError(f"{path}: {id_} is given twice: by {rows[id_].system} and by {system}")
            rows[id_] = Row(id=id_, system=system, cls=entry["class"], shows=entry["shows"], required=required)
    return rows


def read_results(folder: Path) -> list[TestResult]:
    """Merge the result files of all sessions since the last fresh start; a test's latest session counts."""
    sessions = [json.loads(path.read_text(encoding="utf-8")) for path in folder.glob("*.json")]
    merged: dict[str, TestResult] = {}
    for session in sorted(sessions, key=lambda session: session["finished"]):
        for test, entry in session["tests"].items():
            shown = tuple((id_, level) for id_, level in entry["rows"])
            merged[test] = TestResult(test=test, outcome=entry["outcome"], rows=shown)
    return list(merged.values())


def verdict(outcomes: Sequence[str]) -> str:
    """Say what several tests of one row and level come to: failed, passed, skipped or missing."""
    if "failed" in outcomes:
        return "failed"
    if "passed" in outcomes:
        return "passed"
    return "skipped" if outcomes else "missing"


def lacking(rows: Iterable[Row], results: Iterable[TestResult]) -> list[str]:
    """Return a sentence for each required level that is not shown, and for each shown row that failed."""
    outcomes = _outcomes(results)
    sentences: list[str] = []
    for row in rows:
        for level in LEVELS:
            word = verdict(outcomes.get((row.id, level), ()))
            if word == "failed" or (level in row.required and word != "passed"):
                sentences.append(f"{row.id} {level}: {'only skipped' if word == 'skipped' else word}")
    return sentences


def render(rows: Iterable[Row], results: Iterable[TestResult], every: bool = False) -> str:
    """Lay out the table: a line per row, a column per level with the verdict and the number of tests.

    A level that is not required and has no test is `-`; rows with neither are left out unless `every` is set.
    """
    outcomes = _outcomes(results)
    lines = [f"{'row':<5}{'class':<7}{'pure':<24}{'e2e':<24}shows"]
    for row in rows:
        if not every and not row.required and not any((row.id, level) in outcomes for level in LEVELS):
            continue
        cells = [_cell(outcomes.get((row.id, level), ()), level in row.required) for level in LEVELS]
        shows = row.shows if len(row.shows) <= 80 else row.shows[:79].rstrip() + "…"
        lines.append(f"{row.id:<5}{row.cls:<7}{cells[0]:<24}{cells[1]:<24}{shows}")
    return "\n".join(lines)


def totals(results: Iterable[TestResult]) -> str:
    """Count the tests, each once: `412 passed, 0 failed, 3 skipped`."""
    count = Counter(result.outcome for result in results)
    return f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped"


def _outcomes(results: Iterable[TestResult]) -> dict[tuple[str, str], list[str]]:
    outcomes: dict[tuple[str, str], list[str]] = {}
    for result in results:
        for key in result.rows:
            outcomes.setdefault(key, []).append(result.outcome)
    return outcomes


def _cell(outcomes: Sequence[str], required: bool) -> str:
    if not outcomes:
        return "MISSING" if required else "-"
    count = Counter(outcomes)
    word = verdict(outcomes)
    if word == "failed" or (word == "skipped" and required):
        word = word.upper()
    more = f", {count['skipped']} skipped" if count["skipped"] and word == "passed" else ""
    return f"{word} ({len(outcomes)}{more})"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 0 if all that is required is shown, 1 if not, 2 if nothing has been run."""
    parser = argparse.ArgumentParser(prog="python -m tests.rows", description=__doc__)
    parser.add_argument("--rows", type=Path, default=ROWS_FILE, help="the rows (default: %(default)s)")
    parser.add_argument("--results", type=Path, default=RESULTS_FOLDER, help="the results (default: %(default)s)")
    parser.add_argument("--all", action="store_true", help="also the rows that are neither required nor tested yet")
    parser.add_argument("--totals", action="store_true", help="print only the number of tests passed and failed")
    arguments = parser.parse_args(argv)
    results = read_results(arguments.results)
    if not results:
        print(f"no results in {arguments.results}: run `make test` (or `make test-pure`) first", file=sys.stderr)
        return 2
    if arguments.totals:
        print(totals(results))
        return 0
    rows = load_rows(arguments.rows).values()
    print(render(rows, results, every=arguments.all))
    problems = lacking(rows, results)
    if problems:
        print(f"\nnot shown, {len(problems)} in all: " + "; ".join(problems))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
