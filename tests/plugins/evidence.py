"""The pytest plugin that adds to a failing test what on-call would look at (tests/plugins/scene.py)."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from tests.plugins.scene import GATHERED, OPEN, gather

TITLE = "evidence"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and report.when != "teardown":
        texts = [*GATHERED, *(gather(site) for site in OPEN[-1:])]
        report.sections += [(TITLE, text) for text in texts]
    GATHERED.clear()
    return report
