"""The pytest plugin behind `make rows`: checks `row` marks as tests are collected, and writes how each test ended.

One result file for each pytest process (its xdist workers report to it), so that the pure and the end-to-end suites,
run apart, come together in one table.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.times import SERVERS, TIMES
from tests.rows import LEVELS, RESULTS_FOLDER, ROWS_FILE, Row, load_rows

PROPERTY = "row"
E2E_FOLDER = "e2e"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("rows", "contract rows")
    group.addoption("--rows-file", type=Path, help=f"the rows (default: {ROWS_FILE} under the root)")
    group.addoption("--row", action="append", help="run the tests that show this row alone; may be given several times")
    group.addoption("--rows-results", type=Path, help=f"where results go (default: {RESULTS_FOLDER} under the root)")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "row(id, level): the contract row this test shows, at level 'pure' or 'e2e'")
    rows_file = config.getoption("rows_file") or config.rootpath / ROWS_FILE
    folder = config.getoption("rows_results") or config.rootpath / RESULTS_FOLDER
    reports = not hasattr(config, "workerinput") and not config.option.collectonly
    rows = load_rows(rows_file)
    unknown = sorted(set(config.getoption("row") or ()) - set(rows))
    if unknown:
        raise pytest.UsageError(f"--row: {', '.join(unknown)} is in no contract: expected an id of {ROWS_FILE}")
    config.pluginmanager.register(RowsPlugin(rows, folder if reports else None), "rows")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = set(config.getoption("row") or ())
    if wanted:
        kept = [item for item in items if any(mark.args[0] in wanted for mark in item.iter_markers("row"))]
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


class RowsPlugin:
    """Checks marks, and keeps how each test ended, when it began and what it took, until the session ends."""

    def __init__(self, rows: dict[str, Row], folder: Path | None) -> None:
        self._rows = rows
        self._folder = folder
        self._started = datetime.now(UTC)
        self._tests: dict[str, dict[str, Any]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        report = yield
        if report.passed:
            problems = [text for node in report.result if isinstance(node, pytest.Item) for text in self._take(node)]
            if problems:
                report.outcome = "failed"
                report.longrepr = "\n".join(problems)
                report.result = []
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        shown = [str(value).split(":") for name, value in report.user_properties if name == PROPERTY]
        fresh = {"outcome": None, "rows": shown, "began": round(report.start, 2), "seconds": 0.0}
        fresh["process"] = getattr(report, "worker_id", "")
        entry = self._tests.setdefault(report.nodeid, fresh)
        entry["seconds"] = round(entry["seconds"] + report.duration, 2)
        times: Any = dict(report.user_properties).get(TIMES, {})
        entry.update(times)
        if report.failed:
            entry["outcome"] = "failed"
        elif entry["outcome"] != "failed" and (report.skipped or report.when == "call"):
            entry["outcome"] = report.outcome

    def pytest_sessionfinish(self) -> None:
        if self._folder is None or not self._tests:
            return
        for entry in self._tests.values():
            # A test that began and never reported its end did not pass.
            entry["outcome"] = entry["outcome"] or "failed"
        finished = datetime.now(UTC)
        session = {"started": self._started.isoformat(), "finished": finished.isoformat(), "tests": self._tests}
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{self._started:%Y%m%dT%H%M%S}-{os.getpid()}.json"
        path.write_text(json.dumps(session, indent=1), encoding="utf-8")

    def _take(self, item: pytest.Item) -> list[str]:
        """Mark and note one collected test; return what is wrong with its `row` marks."""
        if E2E_FOLDER in item.path.relative_to(item.config.rootpath).parts[:-1]:
            item.add_marker(E2E_FOLDER)
        problems: list[str] = []
        for mark in item.iter_markers("row"):
            problem = self._problem(item, mark)
            if problem:
                problems.append(f"{item.nodeid}: {problem}")
            else:
                item.user_properties.append((PROPERTY, f"{mark.args[0]}:{mark.kwargs['level']}"))
        return problems

    def _problem(self, item: pytest.Item, mark: pytest.Mark) -> str | None:
        if len(mark.args) != 1 or set(mark.kwargs) != {"level"}:
            return 'expected @pytest.mark.row("A3", level="pure"): one id and a level'
        id_, level = mark.args[0], mark.kwargs["level"]
        if id_ not in self._rows:
            return f"row {id_!r} is in no contract: expected an id of {ROWS_FILE}"
        if level not in LEVELS:
            return f"row {id_}: level {level!r}: expected one of {', '.join(LEVELS)}"
        stacks = [name for name in SERVERS if item.get_closest_marker(name)]
        if level == "pure" and stacks:
            return f"row {id_}: level 'pure' on a test that is marked {stacks[0]}: a pure test needs no server"
        if level == "e2e" and not {"e2e", "real_node"}.intersection(stacks):
            return f"row {id_}: level 'e2e' on a test that is not marked e2e: an end-to-end test runs on the real stack"
        return None
