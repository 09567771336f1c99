"""What is built and shipped: the wheel, the sdist, their contents, and that nothing but `holdfast` is top-level."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SETUPTOOLS = PROJECT["tool"]["setuptools"]
MAPPED: dict[str, str] = SETUPTOOLS["package-dir"]
IGNORED = shutil.ignore_patterns("__pycache__", "*.egg-info")


@dataclass(frozen=True)
class Built:
    """A wheel made from the sources, and one made from the sdist."""

    wheel: Path
    sdist: Path
    wheel_of_sdist: Path


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    sources = tmp_path_factory.mktemp("sources")
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md"):
        shutil.copy(ROOT / name, sources)
    for name in ("holdfast", *MAPPED.values()):
        shutil.copytree(ROOT / name, sources / name, symlinks=True, ignore=IGNORED)
    out = tmp_path_factory.mktemp("out")
    build(sources, out, "--wheel", "--sdist")
    sdist = next(out.glob("*.tar.gz"))
    unpacked = tmp_path_factory.mktemp("unpacked")
    shutil.unpack_archive(sdist, unpacked, filter="data")
    again = tmp_path_factory.mktemp("again")
    build(next(unpacked.iterdir()), again, "--wheel")
    return Built(wheel=next(out.glob("*.whl")), sdist=sdist, wheel_of_sdist=next(again.glob("*.whl")))


def build(folder: Path, out: Path, *what: str) -> None:
    run(BIN / "python", "-m", "build", "--no-isolation", *what, "--outdir", out, folder)


def run(*command: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def contents(wheel: Path) -> dict[str, bytes]:
    """Files of a wheel by name, without its own list of them."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


def shipped(folder: Path) -> list[Path]:
    """Files under a package folder that a wheel must have: sources and data, not what running leaves behind.

    The chart is helm's: it is packaged, and installed, by that.
    """
    left_out = {"__pycache__", "chart"}
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and not left_out & set(path.parts)]


def test_the_wheel_of_the_sdist_equals_the_wheel(built: Built) -> None:
    first, second = contents(built.wheel), contents(built.wheel_of_sdist)
    assert sorted(first) == sorted(second)
    assert [name for name in first if first[name] != second[name]] == []


def test_the_wheel_has_one_top_level_name(built: Built) -> None:
    tops = {name.split("/")[0] for name in contents(built.wheel)}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"holdfast"}


def test_check_wheel_contents_finds_nothing(built: Built) -> None:
    assert run(BIN / "check-wheel-contents", "--toplevel", "holdfast", built.wheel).strip().endswith("OK")


def test_the_listed_packages_are_those_on_disk() -> None:
    folders = {ROOT / "holdfast": "holdfast", **{ROOT / folder: package for package, folder in MAPPED.items()}}
    on_disk = {
        ".".join([package, *init.parent.relative_to(folder).parts])
        for folder, package in folders.items()
        for init in folder.rglob("__init__.py")
        if not any(parent.is_symlink() for parent in init.parents)
    }
    assert set(SETUPTOOLS["packages"]) == on_disk


def test_each_mapped_folder_is_linked_for_editors() -> None:
    for package, folder in MAPPED.items():
        link = ROOT / "holdfast" / package.removeprefix("holdfast.")
        assert link.is_symlink()
        assert os.readlink(link) == f"../{folder}"


def test_the_tools_take_each_mapped_folder_by_its_own_name_and_not_by_its_link() -> None:
    tools = PROJECT["tool"]
    folders = set(MAPPED.values())
    links = {package.replace(".", "/") for package in MAPPED}
    assert folders <= set(tools["basedpyright"]["include"])
    assert folders <= set(tools["basedpyright"]["strict"])
    assert links <= set(tools["basedpyright"]["exclude"])
    assert links == set(tools["ruff"]["extend-exclude"])
    assert folders - {"deploy"} <= set(tools["coverage"]["run"]["source"])
    banned = set(tools["ruff"]["lint"]["flake8-tidy-imports"]["banned-api"])
    assert folders == {name for name in banned if not name.startswith("temporalio.")}


def test_the_wheel_names_torchruns_backend(built: Built) -> None:
    (text,) = [data for name, data in contents(built.wheel).items() if name.endswith(".dist-info/entry_points.txt")]
    found = configparser.ConfigParser()
    found.read_string(text.decode())
    assert dict(found["torchrun.handlers"]) == {"holdfast": "holdfast.torchrun:handler"}


def test_every_file_of_the_packages_is_in_the_wheel(built: Built) -> None:
    names = contents(built.wheel)
    missing = [
        str(path.relative_to(ROOT))
        for prefix, folder in [("holdfast", "holdfast"), *((p.replace(".", "/"), f) for p, f in MAPPED.items())]
        for path in shipped(ROOT / folder)
        if f"{prefix}/{path.relative_to(ROOT / folder).as_posix()}" not in names
    ]
    assert missing == [], "name these in [tool.setuptools.package-data]"


def test_an_installed_wheel_finds_its_manifests_and_leaves_no_top_level_name(built: Built, tmp_path: Path) -> None:
    run(BIN / "python", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", tmp_path, built.wheel)
    code = (
        "import importlib.util as u, importlib.resources as r, sys\n"
        "import holdfast.deploy\n"
        f"assert holdfast.deploy.__file__.startswith({str(tmp_path)!r}), holdfast.deploy.__file__\n"
        f"assert not [n for n in {sorted(MAPPED.values())!r} if u.find_spec(n)]\n"
        "print(sum(1 for f in r.files('holdfast.deploy').iterdir() if f.name.endswith('.yaml')))\n"
    )
    # -I leaves out PYTHONPATH and the current folder, -S the editable install; so only the unpacked wheel is there.
    start = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{code}"
    found = int(run(sys.executable, "-I", "-S", "-c", start, cwd=tmp_path))
    assert found == len(list((ROOT / "deploy").glob("*.yaml")))


@pytest.mark.parametrize("name", ["workflows", "activities", "worker", "local", "deploy"])
@pytest.mark.parametrize("form", ["import {name}", "from {name} import contract", "import {name}.contract"])
def test_ruff_bans_top_level_imports_of_the_root_folders(name: str, form: str) -> None:
    source = f'"""Docs."""\n\n{form.format(name=name)}\n'
    done = subprocess.run(
        [BIN / "ruff", "check", "--no-cache", "--select", "TID251", "--stdin-filename", "bench/sample.py", "-"],
        input=source,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"import holdfast.{name}" in done.stdout


def test_the_locks_name_no_index_and_pin_every_hash() -> None:
    for path in sorted((ROOT / "requirements").glob("*.lock")):
        text = path.read_text(encoding="utf-8")
        assert "://" not in text
        pins = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
        assert pins
        for line in pins:
            assert re.fullmatch(r"[a-z0-9.-]+==\S+( ; .+)? \\", line), f"{path.name}: {line}"


def test_what_is_declared_is_locked() -> None:
    locked = (ROOT / "requirements/runtime.lock").read_text(encoding="utf-8").splitlines()
    names = {line.split("==")[0] for line in locked if "==" in line}
    declared = {text.split(">")[0].split("=")[0].strip() for text in PROJECT["project"]["dependencies"]}
    assert declared <= names


_WITHOUT_LOCAL = """
import pkgutil, sys
from importlib import import_module
import holdfast
from holdfast.cli.app import app
for module in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
    needs = ("holdfast.cli.demo", "holdfast.torchrun", "holdfast.agent.__main__", "holdfast.__main__")
    if not module.name.startswith(needs):
        import_module(module.name)
assert not [name for name in sys.modules if name.startswith("holdfast.local")]
app(["--help"])
"""


@pytest.mark.row("X15", level="pure")
def test_the_image_has_no_stack_builder_and_all_else_works_without_it(built: Built, tmp_path: Path) -> None:
    (removed,) = re.findall(
        r"rm -r /opt/holdfast/lib/python3\.11/site-packages/(\S+)", (ROOT / "Dockerfile").read_text()
    )
    run(BIN / "python", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", tmp_path, built.wheel)
    shutil.rmtree(tmp_path / removed)
    left = [
        path for path in tmp_path.rglob("*") if path.suffix in {".go", ".mod", ".sum", ".sh"} or "kubelet" in path.name
    ]
    assert left == []
    libraries = sysconfig.get_path("purelib")
    start = f"import sys; sys.path[:0] = [{str(tmp_path)!r}]; sys.path.append({libraries!r})\n{_WITHOUT_LOCAL}"
    told = run(sys.executable, "-I", "-S", "-c", start, cwd=tmp_path)
    assert "worker" in told
    assert "doctor" in told
    assert "demo" not in told
    assert "A real Temporal" not in told
