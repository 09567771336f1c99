"""What `make audit` makes of pip-audit's answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.advisories import NO_SOURCE, told

CLEAN = {"name": "attrs", "version": "26.1.0", "vulns": []}
BAD = {"name": "jinja2", "version": "2.4.1", "vulns": [{"id": "PYSEC-2019-217", "fix_versions": ["2.10.1"]}]}
SKIPPED = {"name": "rich", "skip_reason": "Dependency not found on PyPI and could not be audited: rich (14.0)"}


@pytest.mark.parametrize(
    ("dependencies", "code", "said"),
    [
        ([CLEAN], 0, "1 dependencies audited, 0 advisories"),
        ([CLEAN, BAD], 1, "jinja2 2.4.1: PYSEC-2019-217, mended in 2.10.1\n2 dependencies audited, 1 advisories"),
        ([CLEAN, SKIPPED], 0, "1 dependencies audited, 0 advisories; not audited: rich"),
        ([SKIPPED], 0, f"{NO_SOURCE}: it knows none of 1 dependencies"),
    ],
)
def test_an_advisory_fails_and_what_was_not_audited_is_named(
    dependencies: list[dict[str, Any]], code: int, said: str
) -> None:
    lines, found = told(json.dumps({"dependencies": dependencies, "fixes": []}), "No known vulnerabilities found")
    assert ("\n".join(lines), found) == (said, code)


@pytest.mark.parametrize("output", ["", "{}", "<html>"])
def test_a_source_that_cannot_be_asked_fails_nothing_and_is_said(output: str) -> None:
    lines, code = told(output, "ERROR:pip_audit._cli:Could not connect to PyPI's vulnerability feed")
    assert code == 0
    assert lines == [f"{NO_SOURCE} (ERROR:pip_audit._cli:Could not connect to PyPI's vulnerability feed)"]
