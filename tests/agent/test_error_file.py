"""Error files: both of torchelastic's forms, and whatever else a worker may have left there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.agent.error_file import READ_MAXIMUM, Told, read

TRACEBACK = "Traceback (most recent call last):\n  ...\nValueError: no"
EXTRA = {"py_callstack": TRACEBACK, "timestamp": "1700000000"}
RECORDED = {"message": {"message": "ValueError: no", "extraInfo": EXTRA}}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (RECORDED, Told(TRACEBACK, 1_700_000_000.0)),
        ({"message": {"message": "ValueError: no", "extraInfo": {}}}, Told("ValueError: no", None)),
        ({"message": {"message": "ValueError: no"}}, Told("ValueError: no", None)),
        ({"message": "out of memory", "timestamp": 1700000000}, Told("out of memory", 1_700_000_000.0)),
        ({"message": "out of memory", "timestamp": "soon"}, Told("out of memory", None)),
        ({"message": "out of memory", "timestamp": -5}, Told("out of memory", None)),
        ({"message": "out of memory", "timestamp": 10**400}, Told("out of memory", None)),
    ],
)
def test_both_forms_are_read(tmp_path: Path, said: Any, told: Told) -> None:
    path = tmp_path / "error.json"
    path.write_text(json.dumps(said))
    assert read(str(path)) == told


@pytest.mark.parametrize("text", ["not json", "[1, 2]", '{"mess', "7", '{"message": 5}', "[" * 100_000])
def test_what_is_no_error_file_is_told_as_it_stands(tmp_path: Path, text: str) -> None:
    path = tmp_path / "error.json"
    path.write_text(text)
    told = read(str(path))
    assert told
    assert text.endswith(told.error)


def test_a_long_one_is_told_by_its_end(tmp_path: Path) -> None:
    path = tmp_path / "error.json"
    path.write_bytes(b"\xff" * READ_MAXIMUM + b" out of memory")
    told = read(str(path))
    assert told
    assert told.error.endswith("out of memory")
    assert len(told.error) < 5000


def test_nothing_is_read_that_is_no_file(tmp_path: Path) -> None:
    assert read(str(tmp_path / "missing")) is None
    assert read("") is None
    assert read(str(tmp_path)) is None
    os.mkfifo(tmp_path / "pipe")
    assert read(str(tmp_path / "pipe")) is None
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    assert read(str(tmp_path / "link")) is None
    (tmp_path / "empty").touch()
    assert read(str(tmp_path / "empty")) is None
