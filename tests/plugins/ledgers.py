"""The pytest plugin that says at the end of a run how many ledgers of workloads were judged (tests/e2e/witness)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.witness.goodput import Verdict

VERDICTS: list[Verdict] = []
"""What came of each site and namespace of this process."""
_FIGURES = pytest.StashKey[list[int]]()
_WORDS = ("counted", "beside the audit log", "in time", "unread", "broken")


def pytest_sessionfinish(session: pytest.Session) -> None:
    figures = [[one.counted, one.beside, one.timed, one.unread, len(one.broken)] for one in VERDICTS]
    _add(session.config, [sum(each) for each in zip(*figures, strict=True)])
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["ledgers"] = session.config.stash[_FIGURES]  # type: ignore[attr-defined]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _add(node.config, getattr(node, "workeroutput", {}).get("ledgers", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    figures = config.stash.get(_FIGURES, [])
    if figures:
        terminalreporter.write_line("ledgers: " + ", ".join(map("{} {}".format, figures, _WORDS)))


def _add(config: pytest.Config, figures: list[int]) -> None:
    known = config.stash.get(_FIGURES, []) or [0] * len(figures)
    config.stash[_FIGURES] = [one + more for one, more in zip(known, figures or [0] * len(known), strict=True)]
