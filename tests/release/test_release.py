"""A release: one version everywhere, told of in the changelog, and packed so that it can be repeated."""

from __future__ import annotations

import io
import re
import shutil
import tarfile
from pathlib import Path

import pytest

import holdfast
from tests.release.archives import checksums, repack
from tests.release.make import Refused, check
from tests.release.version import PLACES, ROOT, others, version, write

pytestmark = pytest.mark.row("O5", level="pure")


def test_every_place_names_the_one_version():
    assert version() == holdfast.__version__
    assert others() == {place: {holdfast.__version__} for place in PLACES}


def test_a_new_version_is_written_everywhere(tmp_path: Path):
    for place in PLACES:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / place, tmp_path / place)
    write("1.2.3.dev0", tmp_path)
    assert others(tmp_path) == {place: {"1.2.3.dev0"} for place in PLACES}
    with pytest.raises(ValueError, match="expected a version such as"):
        write("v1", tmp_path)


def test_a_tag_of_another_version_or_without_a_changelog_is_refused(tmp_path: Path):
    for place in (*PLACES, "CHANGELOG.md"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / place, tmp_path / place)
    assert check(tmp_path, "HEAD") == version()
    with pytest.raises(Refused, match=r"tag v9\.9\.9: holdfast/__init__\.py says"):
        check(tmp_path, "v9.9.9")
    write("9.9.9", tmp_path)
    with pytest.raises(Refused, match=r"expected a section `## 9\.9\.9 - <date>`"):
        check(tmp_path, "v9.9.9")


def test_unreleased_stays_on_top_of_the_changelog():
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert [one.partition(" ")[0] for one in headings[1:]] == ["0.2.0", "0.1.0"]


def test_the_base_image_is_pinned_by_its_digest():
    bases = re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert len(bases) == 2
    assert len(set(bases)) == 1
    assert re.fullmatch(r"python:[\w.-]+@sha256:[0-9a-f]{64}", bases[0])


def test_the_same_files_give_the_same_archive(tmp_path: Path):
    first, second = tmp_path / "a.tgz", tmp_path / "b.tgz"
    _write(first, [("chart/values.yaml", 7, 0o644), ("chart/Chart.yaml", 8, 0o600)])
    _write(second, [("chart/Chart.yaml", 11, 0o644), ("chart/values.yaml", 12, 0o664)])
    assert first.read_bytes() != second.read_bytes()
    for one in (first, second):
        repack(one, 1_000_000_000)
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as packed:
        assert packed.getnames() == ["chart/Chart.yaml", "chart/values.yaml"]
        assert {one.mtime for one in packed.getmembers()} == {1_000_000_000}
    assert [line.split()[1] for line in checksums(tmp_path).splitlines()] == ["a.tgz", "b.tgz"]


def _write(path: Path, files: list[tuple[str, int, int]]) -> None:
    with tarfile.open(path, "w:gz") as out:
        for name, time, mode in files:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode, member.uname = len(name), time, mode, "somebody"
            out.addfile(member, io.BytesIO(name.encode()))
