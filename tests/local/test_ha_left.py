"""A restoration of the database that was broken off loses nothing. Pure."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast.local.extras import ha
from holdfast.local.extras.ha import Database, define, prepare, restore_base_backup
from holdfast.local.system.errors import StackError

UNTIL = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    """Return a database with a base backup, whose last segment is not archived yet."""
    monkeypatch.setattr(Database, "folder", property(lambda _: tmp_path / "database"))
    monkeypatch.setattr(ha.os, "geteuid", lambda: 1000)
    place = Database(tmp_path)
    for folder in (place.data / "pg_wal", place.folder / "base-0" / "pg_wal", place.archive):
        folder.mkdir(parents=True)
    (place.data / "PG_VERSION").write_text("17")
    (place.data / "pg_wal" / "last").write_text("not archived")
    (place.folder / "base-0" / "PG_VERSION").write_text("17")
    return place


def layout(place: Database) -> Any:
    return type("Layout", (), {"directory": place.folder.parent, "pki": place.folder.parent})()


def test_one_that_cannot_copy_leaves_the_database_where_it_is(place: Database, monkeypatch: pytest.MonkeyPatch):
    def full(*_: Any, **__: Any) -> None:
        raise StackError("no space left on device")

    monkeypatch.setattr(ha, "_run", full)
    with pytest.raises(StackError):
        restore_base_backup(layout(place), place.folder / "base-0", UNTIL)
    assert (place.data / "pg_wal" / "last").read_text() == "not archived"


def test_one_that_was_killed_half_way_is_done_again_with_what_it_had_moved_aside(place: Database):
    place.data.rename(place.folder / "left")
    with pytest.raises(StackError, match=r"base-0, left"):
        prepare(layout(place))
    assert (place.folder / "left" / "PG_VERSION").exists()
    restore_base_backup(layout(place), place.folder / "base-0", UNTIL)
    assert (place.archive / "last").read_text() == "not archived"
    assert (place.data / "recovery.signal").exists()
    assert "recovery_target_time" in (place.data / "postgresql.auto.conf").read_text()


def test_a_database_that_is_gone_takes_the_word_with_it_that_it_was_made(
    place: Database, monkeypatch: pytest.MonkeyPatch
):
    made: list[str] = []
    monkeypatch.setattr(ha, "_run", lambda *argv, **_: made.append(argv[-1]))
    monkeypatch.setattr(ha, "_password", lambda _: "secret")
    for _ in range(2):
        define(layout(place), "sql-tool", {"postgresql": 1})
    assert len(made) == 3 * len(ha.STORES), "once"
    shutil.rmtree(place.folder)
    place.folder.mkdir()
    define(layout(place), "sql-tool", {"postgresql": 1})
    assert len(made) == 6 * len(ha.STORES)
