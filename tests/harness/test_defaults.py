"""The page of rows at the published defaults names each row once, and tests that there are."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.model import Timings
from holdfast.model.gang.state import Gang
from holdfast.profiles import PROFILES
from tests.defaults import PAGE, SYSTEMS, is_published, is_usual, table
from tests.rows import ROWS_FILE, Row, load_rows

ROOT = Path(__file__).parents[2]


def test_the_page_names_each_row_of_the_five_systems_once() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    rows = [row.id for row in load_rows(ROOT / ROWS_FILE).values() if row.system in SYSTEMS]
    assert re.findall(r"^\| ([A-Z]\d+) \|", text, re.MULTILINE) == rows, "python -m tests.defaults writes it anew"


def test_each_test_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)::([\w:]+)(?:\[[^`]*)?`", (ROOT / PAGE).read_text(encoding="utf-8")))
    assert len(named) > 30
    gone = [f"{file}::{test}" for file, test in named if f"def {test.split('::')[-1]}(" not in _source(file)]
    assert gone == [], "python -m tests.defaults writes it anew"


def _source(file: str) -> str:
    path = ROOT / file
    return path.read_text(encoding="utf-8") if path.exists() else ""


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_a_policy_is_published_until_something_of_it_is_set(profile: str) -> None:
    assert is_published(PROFILES[profile])
    other = PROFILES[profile].model_copy(update={"timings": Timings(failure_grace_period=timedelta(seconds=1))})
    assert not is_published(other)


def test_a_gangs_size_is_no_default_and_its_times_are() -> None:
    assert is_usual(Gang(min=2, max=7))
    assert not is_usual(Gang(min=2, max=7, max_restarts=1))


def test_a_row_without_a_test_is_said_to_have_none() -> None:
    rows = [
        Row("A1", "appwrapper", "a", "one thing"),
        Row("A2", "appwrapper", "a", "another"),
        Row("U1", "users", "a", "x"),
    ]
    page = table(rows, {"A1": ["t.py::c", "t.py::a", "t.py::b"]})
    assert "| A1 | one thing | `t.py::a`, `t.py::b` and 1 more |" in page
    assert "| A2 | another | none |" in page
    assert "1 of 2 rows." in page
    assert "U1" not in page
