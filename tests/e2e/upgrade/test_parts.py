"""All parts of a release, built from the commit that is checked out: whole, and the same when they are built again."""

from __future__ import annotations

import json
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

import holdfast
from tests.release.make import build, release

pytestmark = [pytest.mark.e2e, pytest.mark.release, pytest.mark.timeout(1200)]
NAME = f"holdfast-{holdfast.__version__}"


@pytest.mark.row("O5", level="e2e")
def test_O5_a_release_is_whole_and_built_again_the_same(tmp_path: Path):
    out = tmp_path / "dist"
    release("HEAD", out)  # It has installed the wheel with its lock, and started it; helm has linted the chart.
    parts = {f"{NAME}-py3-none-any.whl", f"{NAME}.tar.gz", f"{NAME}.tgz", f"{NAME}.cdx.json", f"{NAME}-licences.txt"}
    assert {path.name for path in out.iterdir()} - {f"{NAME}-image.tar"} == {*parts, "SHA256SUMS"}
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=out, check=True)

    with tarfile.open(out / f"{NAME}.tgz") as chart:
        found = chart.extractfile("holdfast/Chart.yaml")
        assert found is not None
        told = yaml.safe_load(found)
    assert (told["version"], told["appVersion"]) == (holdfast.__version__, holdfast.__version__)

    bill = json.loads((out / f"{NAME}.cdx.json").read_text())
    named = {(one["name"], one["version"]) for one in bill["components"]}
    locked = {name for name, _ in named}
    assert {"temporalio", "kubernetes", "pydantic", "obstore"} <= locked
    assert not {"pip", "setuptools"} & locked
    licences = (out / f"{NAME}-licences.txt").read_text()
    assert all(name in licences for name in ("temporalio", "obstore", "Apache"))
    assert "/tmp" not in licences + json.dumps(bill)

    sources = tmp_path / "sources"
    sources.mkdir()
    packed = subprocess.run(["git", "archive", "HEAD"], capture_output=True, check=True).stdout
    subprocess.run(["tar", "--extract", "--directory", str(sources)], input=packed, check=True)
    epoch = int(subprocess.run(["git", "log", "-1", "--format=%ct"], capture_output=True, check=True).stdout)
    again = tmp_path / "again"
    again.mkdir()
    build(sources, again, epoch)
    for one in again.iterdir():
        assert one.read_bytes() == (out / one.name).read_bytes(), one.name
