"""A stack's clean-up removes nothing below what is still mounted (row D58)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from holdfast.local.node import sweep as sweeping
from holdfast.local.node.real_node import RealNode
from holdfast.local.system.errors import StackError

ROW = pytest.mark.row


class Folders(RealNode):
    """A node whose folders are a test's own."""

    @property
    def run(self) -> Path:
        return self.stack / "run"

    @property
    def data(self) -> Path:
        return self.stack / "data"


class Mounts:
    """What is mounted, as mountinfo would have it; some mounts cannot be undone."""

    def __init__(self, *points: Path, stuck: bool = False) -> None:
        self.points, self.stuck = [str(one) for one in points], stuck

    def below(self, folder: Path) -> list[str]:
        return sorted((one for one in self.points if one.startswith(f"{folder}/")), reverse=True)

    def command(self, argv: list[str], **_: Any) -> subprocess.CompletedProcess[bytes]:
        assert argv[0] in {"umount", "ip"}
        if argv[0] == "umount" and not self.stuck:
            self.points.remove(argv[-1])
        return subprocess.CompletedProcess(argv, 32 if self.stuck else 0, b"", b"umount: target is busy")


@pytest.fixture
def node(tmp_path: Path) -> Folders:
    node = Folders(tmp_path)
    for folder in (node.run, node.data):
        (folder / "pods" / "volume").mkdir(parents=True)
        (folder / "pods" / "volume" / "precious").write_text("somebody's")
    return node


def use(monkeypatch: pytest.MonkeyPatch, mounts: Mounts) -> None:
    monkeypatch.setattr(sweeping, "_mounts_below", mounts.below)
    monkeypatch.setattr(subprocess, "run", mounts.command)


@ROW("D58", level="pure")
def test_D58_what_cannot_be_unmounted_is_named_and_nothing_below_is_removed(
    node: Folders, monkeypatch: pytest.MonkeyPatch
):
    point = node.data / "pods" / "volume"
    use(monkeypatch, Mounts(point, stuck=True))
    said = ""
    try:
        sweeping.sweep(node)
    except StackError as error:
        said = str(error)
    assert (point / "precious").read_text() == "somebody's"
    assert str(point) in said
    assert "umount" in said
    assert not node.run.exists(), "the other folder is free of mounts"


@ROW("D58", level="pure")
def test_D58_what_is_unmounted_is_removed(node: Folders, monkeypatch: pytest.MonkeyPatch):
    mounts = Mounts(node.data / "pods" / "volume", node.run / "pods" / "volume")
    use(monkeypatch, mounts)
    sweeping.sweep(node)
    assert mounts.points == []
    assert not node.data.exists()
    assert not node.run.exists()


def test_D58_a_stacks_own_folder_is_not_removed_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume" / "precious").write_text("somebody's")
    monkeypatch.setattr(sweeping, "_mounts_below", lambda folder: [f"{folder}/volume"])
    with pytest.raises(StackError, match="still mounted"):
        sweeping.remove_tree(tmp_path)
    assert (tmp_path / "volume" / "precious").exists()
    monkeypatch.undo()
    sweeping.remove_tree(tmp_path)
    assert not tmp_path.exists()


def test_D58_mountinfo_names_what_is_mounted_in_a_folder_and_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    table(tmp_path, monkeypatch, "/a", r"/a/b\040c", "/a/b/d", "/ab", "/")
    assert sweeping._mounts_below(Path("/a")) == ["/a/b/d", "/a/b c", "/a"]


def table(folder: Path, monkeypatch: pytest.MonkeyPatch, *points: str | Path) -> None:
    """Have mountinfo name these mount points, as the kernel writes them."""
    lines = [f"36 35 98:0 / {point} rw - ext4 /dev/x rw\n" for point in points]
    (folder / "mountinfo").write_bytes(os.fsencode("".join(lines)))
    monkeypatch.setattr(sweeping, "_MOUNTINFO", folder / "mountinfo")


@ROW("D58", level="pure")
@pytest.mark.parametrize("name", ["Übung", "a\u00a0b", "a\u2028b", "a\x85b", "a\\x41", "a\udcffb"])
def test_D58_a_mount_is_found_below_a_path_of_any_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    folder = tmp_path / name
    point = str(folder / "volume")
    table(tmp_path, monkeypatch, "/", point.replace("\\", r"\134"), tmp_path / "other")
    assert sweeping._mounts_below(folder) == [point]


@ROW("D58", level="pure")
def test_D58_a_mount_is_found_below_a_folder_behind_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    real, link = tmp_path / "real", tmp_path / "link"
    (real / "stack" / "volume").mkdir(parents=True)
    link.symlink_to(real)
    table(tmp_path, monkeypatch, real / "stack" / "volume")
    with pytest.raises(StackError, match="still mounted"):
        sweeping.remove_tree(link / "stack")
    assert (real / "stack" / "volume").exists()
