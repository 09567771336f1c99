"""The pytest plugin that tells of a failure at once, and ends a test that not even its timeout could end.

A timeout raises in the test; what then hangs in its teardown would keep a whole run from ending. After a last limit the
process prints where it stands and exits, so that xdist names the test, counts it as failed and goes on.
"""

from __future__ import annotations

import faulthandler
import sys
from collections.abc import Generator
from typing import Any

import pytest

from tests.plugins.evidence import TITLE as EVIDENCE

OPTION = "last_limit"
TAIL = 6000
FOLDER = "reports/stuck"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(OPTION, "seconds after which the process of a test that does not end exits; 0: never", default="0")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(ProgressPlugin(config), "progress")


class ProgressPlugin:
    """Prints failures as they come, and keeps the last limit."""

    def __init__(self, config: pytest.Config) -> None:
        self._tells = hasattr(config.option, "dist") and config.option.dist != "no" and not _in_worker(config)
        self._limit = float(config.getini(OPTION))
        self._folder = config.rootpath / FOLDER
        self._file: Any = None
        if self._limit > 0 and _in_worker(config):
            # What a process writes to its standard error is captured, and lost with it.
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = (self._folder / f"{config.workerinput['workerid']}.txt").open("w")  # type: ignore[attr-defined]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self._tells and report.failed:
            text = report.longreprtext[-TAIL:]
            text += "".join(f"\n{section}" for title, section in report.sections if title == EVIDENCE)
            if report.when == "???":  # Its process is gone.
                text += "".join(f"\n{one.name}: {one.read_text()}" for one in sorted(self._folder.glob("*.txt")))
            sys.stdout.write(f"\nFAILED {report.nodeid} ({report.when})\n{text}\n")
            sys.stdout.flush()

    @pytest.hookimpl(trylast=True)
    def pytest_exception_interact(self) -> None:
        # pytest's own plugin takes the limit back here, when a test has failed; but its teardown may hang.
        if self._file is not None:
            faulthandler.dump_traceback_later(self._limit, exit=True, file=self._file)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        if self._file is None:
            return (yield)
        faulthandler.dump_traceback_later(self._limit, exit=True, file=self._file)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()


def _in_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")
