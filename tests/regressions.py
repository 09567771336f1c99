"""Takes the tests of defect rows to older code and shows that each row's tests fail there: `make regressions BASE=...`.

    python -m tests.regressions --base 2ef51cc [D1 D7 ...]

The older sources are checked out beside this tree, and today's tests and tools are laid over them. A row is shown if at
least one of its tests ran there and failed. A test that cannot even be imported there is counted apart: it needs what
the mend brought, and so says less.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.plugins.times import SERVERS
from tests.rows import ROWS_FILE, Row, load_rows

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "reports" / "regressions"
TAKEN = ("tests", "examples", "bench")
"""What is taken from today's tree; everything else is the older one's."""


@dataclass(frozen=True)
class Verdict:
    """What became of one row's tests on the older code."""

    row: str
    failed: int
    passed: int
    broken: int
    """Files of its tests that could not be imported there."""

    @property
    def shown(self) -> bool:
        """Whether the older code was seen to have the defect."""
        return self.failed > 0

    def sentence(self) -> str:
        """Say it in a line."""
        word = "fails there" if self.shown else "NOT SHOWN"
        more = f", {self.broken} file(s) not importable" if self.broken else ""
        return f"{self.row:<5} {word:<12} {self.failed} failed, {self.passed} passed{more}"


def defect_rows(rows: Iterable[Row]) -> list[str]:
    """Return the rows whose tests must fail on older code: the defects that are shown by now."""
    return [row.id for row in rows if row.cls == "d" and row.required]


def verdict_of(row: str, results: Path) -> Verdict:
    """Read what one row's run noted."""
    outcomes: list[str] = []
    for path in results.glob("*.json"):
        outcomes += [test["outcome"] for test in json.loads(path.read_text(encoding="utf-8"))["tests"].values()]
    report = results / "output.txt"
    broken = report.read_text(encoding="utf-8").count("ERROR collecting") if report.exists() else 0
    return Verdict(row, outcomes.count("failed"), outcomes.count("passed"), broken)


def check_out(base: str) -> Path:
    """Lay today's tests over the older sources, with an environment that imports those.

    Raises:
        subprocess.CalledProcessError: if `base` is no commit of this repository.
    """
    tree = FOLDER / "tree"
    subprocess.run(["git", "worktree", "prune"], cwd=ROOT, check=True)
    if tree.exists():
        subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), base], cwd=ROOT, check=True)
    for name in TAKEN:
        shutil.rmtree(tree / name)
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tree / "pyproject.toml")
    subprocess.run(["make", "--no-print-directory", "setup"], cwd=tree, check=True)
    return tree


def run(tree: Path, row: str, processes: int, pure: bool) -> Verdict:
    """Run the tests of one row on the older code, and read what became of them."""
    results = FOLDER / row
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    files = sorted(files_of(tree, row))
    options = ["--row", row, "--rows-results", str(results), "-n", str(processes), "--timeout", "300", "--tb=short"]
    options += ["-m", f"not ({' or '.join(SERVERS)})"] if pure else []
    with (results / "output.txt").open("w") as output:
        subprocess.run(
            [str(tree / ".venv/bin/python"), "-m", "pytest", *options, "--continue-on-collection-errors", *files],
            cwd=tree,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            stdout=output,
            stderr=output,
            check=False,
        )
    return verdict_of(row, results)


def files_of(tree: Path, row: str) -> Iterable[str]:
    """Return the test files that name a row."""
    marker = re.compile(rf'\brow\("{row}"', re.IGNORECASE)
    for path in (tree / "tests").rglob("test_*.py"):
        if marker.search(path.read_text(encoding="utf-8")):
            yield str(path.relative_to(tree))


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line for each row; 0 if each fails on the older code."""
    parser = argparse.ArgumentParser(prog="python -m tests.regressions", description=__doc__)
    parser.add_argument("rows", nargs="*", help="these rows alone (default: every defect row that is shown)")
    parser.add_argument("--base", required=True, help="the older commit")
    parser.add_argument("--processes", type=int, default=2, help="how many tests run at once (default: %(default)s)")
    parser.add_argument("--pure", action="store_true", help="leave out the tests that need servers")
    arguments = parser.parse_args(argv)
    rows = arguments.rows or defect_rows(load_rows(ROOT / ROWS_FILE).values())
    tree = check_out(arguments.base)
    verdicts: list[Verdict] = []
    for row in rows:
        verdicts.append(run(tree, row, arguments.processes, arguments.pure))
        print(verdicts[-1].sentence(), flush=True)
    missed = [verdict.row for verdict in verdicts if not verdict.shown]
    print(f"{len(verdicts) - len(missed)} of {len(verdicts)} rows fail on {arguments.base}; output: {FOLDER}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
