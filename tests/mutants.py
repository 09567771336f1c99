"""Mutation testing of `holdfast/policy` (`make mutants`): mutmut makes the mutants, the pure tests try to kill them.

mutmut runs in a copy of what it needs under reports/mutants, since it writes beside the sources and would copy the
links of holdfast/ as folders. Its own runner starts pytest anew for each mutant, which takes longer than the tests do:
here the tests are collected once, and each forked mutant calls them as they are, the quickest first.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "reports" / "mutants"
WORK = FOLDER / "work"
COPIED = ("holdfast", "tests", "examples", "docs")
KILLED = {"killed", "timeout", "segfault", "suspicious"}
SETTINGS = """
[tool.mutmut]
source_paths = ["holdfast"]
only_mutate = ["holdfast/policy/**/*.py"]
also_copy = ["examples", "docs"]
use_git_change_detection = false
timeout_multiplier = 4.0
pytest_add_cli_args = ["-p", "no:cacheprovider"]
pytest_add_cli_args_test_selection = [
    "tests/policy", "tests/simulation/test_decisions.py",
    "--ignore=tests/policy/laws/test_invariants.py", "--ignore=tests/policy/laws/test_planted_faults.py",
    "--ignore=tests/policy/laws/test_crashes.py",
]
"""
"""Left out: the state machines, and the crashes at each request, which take minutes or half of one.

A mutant of the policy is to be killed by a table that names it."""


class Collected:
    """Keeps the tests of a pytest session, so that they can be called after it has ended."""

    def __init__(self) -> None:
        self.items: dict[str, pytest.Function] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = {item.nodeid: item for item in session.items if isinstance(item, pytest.Function)}

    def of(self, tests: Iterable[str]) -> list[pytest.Function]:
        """Return those of some tests that tell a mutant apart: one that is meant to fail does so without it."""
        return [self.items[name] for name in tests if not any(self.items[name].iter_markers("xfail"))]


def call(item: pytest.Function) -> None:
    """Call a test with its parameters; the pure tests take nothing else."""
    callspec = getattr(item, "callspec", None)
    item.obj(**(callspec.params if callspec is not None else {}))


def quick_runner(collected: Collected) -> Any:
    """Return mutmut's runner for pytest, but for how a mutant's tests are run."""
    from mutmut.runners.harness import PytestRunner
    from mutmut.state import state
    from mutmut.utils.file_utils import change_cwd

    class Runner(PytestRunner):
        def run_tests(self, *, mutant_name: str | None, tests: Iterable[str]) -> int:
            if mutant_name is None:
                return super().run_tests(mutant_name=mutant_name, tests=tests)
            gc.disable()  # a forked mutant lives for seconds
            with change_cwd("mutants"):
                for test in collected.of(sorted(tests, key=lambda name: state().duration_by_test[name])):
                    try:
                        call(test)
                    except BaseException:  # the mutant is dead, whatever it died of
                        return 1
            return 0

        def prepare_main_test_run(self) -> None:
            """Collect the tests, and make sure that what they import is the copy that is mutated."""
            with change_cwd("mutants"):
                args = ["-q", "--collect-only", *self._pytest_add_cli_args_test_selection]
                code = self.execute_pytest(args, plugins=[collected])
            from holdfast.policy.verdicts import decide

            found = Path(decide.__file__ or "")
            if code or not found.is_relative_to(WORK / "mutants"):
                raise SystemExit(f"the tests were not collected (pytest said {code}), or import {found}")

    return Runner


def copied(fresh: bool) -> None:
    """Copy what mutmut works on; what it found out before is kept unless a fresh start is wanted."""
    if fresh:
        shutil.rmtree(FOLDER, ignore_errors=True)
    for name in COPIED:
        ignored = shutil.ignore_patterns("__pycache__", "node_modules")
        shutil.copytree(ROOT / name, WORK / name, ignore=ignored, dirs_exist_ok=True)
    (WORK / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text(encoding="utf-8") + SETTINGS)


def make_mutants(jobs: int) -> None:
    """Write all mutants without trying any."""
    from mutmut.mutation.trampoline import set_mutant_under_test

    mutmut: Any = import_module("mutmut.__main__")

    set_mutant_under_test("mutant_generation")
    (WORK / "mutants").mkdir(exist_ok=True)
    with mutmut.CatchOutput(spinner_title="Generating mutants"):
        mutmut.copy_src_dir()
        mutmut.copy_also_copy_files()
        mutmut.setup_source_paths()
        mutmut.create_mutants(jobs)


def metas() -> list[Path]:
    """Return mutmut's notes, one for each file that has mutants."""
    return sorted(WORK.glob("mutants/holdfast/policy/**/*.meta"))


def results(meta: Path) -> dict[str, int | None]:
    """Return the exit code of each mutant of a file; None for one that was not tried yet."""
    return json.loads(meta.read_text(encoding="utf-8"))["exit_code_by_key"]


def forget_survivors() -> None:
    """Have what survived, or was reached by no test, tried again by all that reaches it now."""
    from mutmut.stats import status_by_exit_code

    (WORK / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)
    for path in metas():
        notes = json.loads(path.read_text(encoding="utf-8"))
        tried: dict[str, int | None] = notes["exit_code_by_key"]
        notes["exit_code_by_key"] = {
            name: code if status_by_exit_code[code] in KILLED else None for name, code in tried.items()
        }
        path.write_text(json.dumps(notes), encoding="utf-8")


def summary(names: set[str], seconds: float) -> str:
    """Return the table of how the mutants of each file ended, and write the names of those that live."""
    from mutmut.stats import status_by_exit_code

    rows, left = dict[str, Counter[str]](), list[str]()
    for path in metas():
        ends = {name: status_by_exit_code[code] for name, code in results(path).items() if name in names}
        if ends:
            rows[path.name.removesuffix(".meta")] = Counter(ends.values())
        left += [f"{status:10} {name}" for name, status in ends.items() if status not in KILLED]
    (FOLDER / "survivors.txt").write_text("\n".join(left) + "\n", encoding="utf-8")
    total = sum(rows.values(), Counter[str]())
    lines = [f"{'file':16} {'mutants':>8} {'killed':>7} {'timeout':>8} {'alive':>6} {'untested':>9} {'killed %':>9}"]
    for name, row in [*rows.items(), ("all", total)]:
        timeouts = sum(row[word] for word in KILLED - {"killed"})
        percent = 100 * (row["killed"] + timeouts) / max(1, row.total())
        untested = row.total() - row["killed"] - timeouts - row["survived"]
        numbers = f"{row.total():8} {row['killed']:7} {timeouts:8} {row['survived']:6} {untested:9}"
        lines.append(f"{name:16} {numbers} {percent:8.1f}%")
    return "\n".join([*lines, f"{total.total()} mutants, tried in {seconds:.0f} s"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="try every nth mutant only")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--keep", action="store_true", help="go on where the last run ended")
    parser.add_argument("--survivors", action="store_true", help="as --keep, and try again what survived")
    given = parser.parse_args()
    copied(fresh=not (given.keep or given.survivors))
    os.chdir(WORK)
    mutmut: Any = import_module("mutmut.__main__")
    isolation: Any = import_module("mutmut.workers.isolation")
    isolation.PytestRunner = quick_runner(Collected())
    begun = time.monotonic()
    make_mutants(given.jobs)
    if given.survivors:
        forget_survivors()
    names = [name for path in metas() for name in results(path) if crc32(name.encode()) % given.every == 0]
    mutmut._run(names if given.every > 1 else (), given.jobs)
    text = summary(set(names), time.monotonic() - begun)
    (FOLDER / "summary.txt").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    sys.exit(main())
