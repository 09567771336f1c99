"""Prometheus' own programs: those on PATH, or those of Debian's package, unpacked into the cache."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from holdfast.local.system.lock import file_lock
from holdfast.local.system.paths import cache_dir

ROOT: Final = Path(__file__).parents[2]
MONITORING: Final = ROOT / "deploy" / "monitoring"
ALERTS: Final = MONITORING / "alerts.yml"
DASHBOARDS: Final = sorted((MONITORING / "dashboards").glob("*.json"))
_SECONDS: Final = 120


def program(name: str) -> str:
    """Return the path of a program of Prometheus; skip the test where it cannot be had."""
    found = shutil.which(name)
    if found is not None:
        return found
    unpacked = cache_dir() / "prometheus"
    if not unpacked.is_dir():
        pytest.skip("there is no Prometheus on PATH; `python -m tests.e2e.ground.fetched` gets Debian's")
    return str(unpacked / "usr" / "bin" / name)


def fetch() -> None:
    """Get Debian's package where there is no Prometheus on PATH, if it can be had: before any test's time counts."""
    unpacked = cache_dir() / "prometheus"
    with file_lock(cache_dir() / "locks" / "prometheus"):
        if shutil.which("prometheus") is None and not unpacked.is_dir():
            _unpack(unpacked)


def rules() -> list[dict[str, Any]]:
    """Return the alerts."""
    return [one for group in yaml.safe_load(ALERTS.read_text())["groups"] for one in group["rules"]]


def _unpack(target: Path) -> None:
    """Download Debian's package and unpack it: an installed one would start a Prometheus of the machine's own."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        return
    making = target.with_name(f"{target.name}.making")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    if not _does("apt-get", "download", "prometheus", cwd=making):
        _does("apt-get", "update", cwd=making)
        if not _does("apt-get", "download", "prometheus", cwd=making):
            return
    (package,) = making.glob("prometheus_*.deb")
    if _does("dpkg", "-x", package.name, "files", cwd=making):
        (making / "files").rename(target)
    shutil.rmtree(making)


def _does(*argv: str, cwd: Path) -> bool:
    try:
        return subprocess.run(argv, cwd=cwd, capture_output=True, check=False, timeout=_SECONDS).returncode == 0
    except subprocess.TimeoutExpired:
        return False
