"""Rooms stay small: no folder holds more than 15 source files."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("holdfast", "workflows", "activities", "worker", "local", "bench", "tests")
LIMIT = 15
EXCEPTIONS = 3


def sizes(root: Path) -> Counter[str]:
    """Source files by folder, packages' own files and links left out."""
    found: Counter[str] = Counter()
    for folder in FOLDERS:
        for path in (root / folder).rglob("*.py"):
            if path.name != "__init__.py" and not any(parent.is_symlink() for parent in path.parents):
                found[path.parent.relative_to(root).as_posix()] += 1
    return found


def test_no_folder_holds_more_than_15_source_files() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    named = set(project["tool"].get("holdfast", {}).get("crowded", []))
    crowded = {folder for folder, count in sizes(ROOT).items() if count > LIMIT}
    assert crowded == named, "divide it by subject, or name it in pyproject.toml: [tool.holdfast] crowded"
    assert len(named) <= EXCEPTIONS


def test_a_crowded_folder_is_seen(tmp_path: Path) -> None:
    folder = tmp_path / "worker" / "watch"
    folder.mkdir(parents=True)
    for number in range(LIMIT + 1):
        (folder / f"one{number}.py").touch()
    (folder / "__init__.py").touch()
    (tmp_path / "holdfast").mkdir()
    (tmp_path / "holdfast" / "worker").symlink_to("../worker")
    assert sizes(tmp_path) == {"worker/watch": LIMIT + 1}
