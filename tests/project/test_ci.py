"""The CI entry on a small project: it runs every step, counts the tests, and stops what was started."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

MAKEFILE = """
test:
	@rm -rf reports/rows
	@.ci/steps starts {second}
starts:
	@sleep 300 & echo $$! > leftover
	@mkdir -p "$$XDG_STATE_HOME/holdfast/stacks/one" reports/rows
	@echo a line > "$$XDG_STATE_HOME/holdfast/stacks/one/server.log"
	@echo '{{"finished": "1", "tests": {{"t": {{"outcome": "passed", "rows": []}}}}}}' > reports/rows/1.json
	@test ! -t 0 && test "$$CI" = true
fails:
	@false
passes:
	@true
hangs:
	@sleep 300
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with our CI entry, a `holdfast` that only notes its arguments, and no Makefile yet."""
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    (tmp_path / "tests").mkdir()
    for name in ("__init__.py", "rows.py", "rows.toml"):
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests")
    folder = tmp_path / ".venv/bin"
    folder.mkdir(parents=True)
    (folder / "python").symlink_to(sys.executable)
    (folder / "holdfast").write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/holdfast-calls\n')
    (folder / "holdfast").chmod(0o755)
    return tmp_path


def start(project: Path, second: str) -> subprocess.Popen[str]:
    (project / "Makefile").write_text(MAKEFILE.format(second=second))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    return subprocess.Popen(
        [project / ".ci/run"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def assert_all_stopped(project: Path) -> None:
    pid = int((project / "leftover").read_text())
    state = Path(f"/proc/{pid}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"
    assert (project / "holdfast-calls").read_text() == "dev down --name one\n"
    assert (project / "reports/logs/server.log").read_text() == "a line\n"


@pytest.mark.parametrize(("second", "status"), [("passes", 0), ("fails", 2)])
def test_all_steps_run_and_the_last_line_counts_the_tests(project: Path, second: str, status: int) -> None:
    running = start(project, second)
    out, err = running.communicate(timeout=60)
    assert running.returncode == status, out + err
    assert f"==> {second}" in out
    assert out.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"
    assert_all_stopped(project)


def test_an_interrupted_run_stops_what_it_started(project: Path) -> None:
    running = start(project, "hangs")
    deadline = time.monotonic() + 30
    while "==> hangs" not in (running.stdout.readline() if running.stdout else ""):
        assert time.monotonic() < deadline
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=60)
    assert running.returncode == 143
    assert_all_stopped(project)
