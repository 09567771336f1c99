"""The page of published examples tells of every file what becomes of it (row J26)."""

from __future__ import annotations

import pytest

from tests.published import PAGE, REASONS, ROOT, SUITES, page, verdicts

pytestmark = pytest.mark.row("J26", level="pure")


def test_J26_the_page_is_current():
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.published writes it anew"


def test_J26_no_file_is_left_out():
    files = {str(one.relative_to(ROOT)) for one in ROOT.rglob("*") if one.is_file()} - {"README.md"}
    assert files == {f"{suite}/{one.path}" for suite in SUITES for one in verdicts(suite)}
    assert len(files) == 57
    assert set(REASONS) <= files


def test_J26_whatever_brings_a_jobset_or_an_appwrapper_is_accepted_or_refused_as_published():
    refused = {one.path for suite in SUITES for one in verdicts(suite) if one.says.startswith("refused")}
    assert all(path.startswith("in-place-restart/") for path in refused)
    for suite in SUITES:
        for one in verdicts(suite):
            if {"JobSet", "AppWrapper"} & {*one.kinds}:
                assert one.accepted or one.path in refused
