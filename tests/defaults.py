"""Which contract rows are shown at the published defaults, on virtual time: `python -m tests.defaults` writes the page.

The pure tests of some files (`FILES`) that show a row are run, and each is watched: by which policy its workloads are
decided on, by which times its nodes are judged, by which times its gangs meet. A test counts where all of that is as a
profile publishes it; of one with many cases the first and the last are run. What a row leaves to the submitter (a
walltime, a gang's size) is no default.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast.model import NodeTimings, Policy
from holdfast.model.gang.state import Gang
from holdfast.policy.loop import advance
from holdfast.policy.nodes import monitor
from holdfast.policy.rendezvous import step as rendezvous
from holdfast.profiles import PROFILES
from tests.rows import ROWS_FILE, Row, load_rows

PAGE = Path("docs/defaults.md")
SYSTEMS = ("appwrapper", "streams", "jobset", "lattice", "torchelastic")
FILES = (
    "tests/simulation/test_decisions.py",
    "tests/policy/loop/test_appwrapper_rows.py",
    "tests/policy/loop/test_streams_rows.py",
    "tests/policy/jobset/test_jobset_attempts.py",
    "tests/policy/jobset/test_jobset_rules.py",
    "tests/policy/failures/test_rule_limits.py",
    "tests/policy/attempt/test_park.py",
    "tests/policy/attempt/test_order.py",
    "tests/policy/attempt/test_requeue.py",
    "tests/policy/failures/test_absent_pods.py",
    "tests/policy/verdicts/test_prologue.py",
    "tests/policy/verdicts/test_walltime.py",
    "tests/policy/attempt/test_checkpoint_walltime.py",
    "tests/policy/sides/test_probe.py",
    "tests/policy/nodes/test_node_monitor.py",
    "tests/policy/rendezvous/test_rendezvous.py",
    "tests/policy/sides/test_gang_side.py",
)
"""The tables of cases by row. Property tests and searches draw times and limits of their own."""
NAMED = 2
"""Tests that are named of a row; others are counted."""
HEAD = """# Rows at the published defaults

Each contract row of the five systems, with the tests that show it on virtual time *at the published defaults*: all
times and limits of policies, by which nodes are judged and by which gangs meet, are as a profile has them.

End-to-end tests are not listed: they shorten the times, since they wait for real ones. Nor are property tests.
`none`: the tests of the row set times or limits of their own, or the row has none (an API, a label).

Written by `python -m tests.defaults`; do not edit. `tests/harness/test_defaults.py` holds it against rows and tests.
"""


def is_published(policy: Policy) -> bool:
    """Whether all times and limits of a policy are those that some profile publishes."""
    return any((policy.timings, policy.budgets) == (one.timings, one.budgets) for one in PROFILES.values())


def is_usual(gang: Gang) -> bool:
    """Whether a gang meets by torchelastic's own times and limits, whatever its size."""
    size = {"min", "max"}
    return gang.model_dump(exclude=size) == Gang(min=1, max=1).model_dump(exclude=size)


@dataclass
class Watcher:
    """Watches which tests decide by published defaults alone; a pytest plugin."""

    seen: set[bool] = field(default_factory=set[bool])
    """Of the test that runs: whether what it decided by was as published."""
    rows: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    others: set[str] = field(default_factory=set[str])
    """Tests of which a case decides by something else."""

    @property
    def shown(self) -> dict[str, list[str]]:
        """By row, the tests of which no case decides by anything but published defaults."""
        return {row: [test for test in tests if test not in self.others] for row, tests in self.rows.items()}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the tests that show a row; of one with many cases the first and the last."""
        cases: dict[str, list[pytest.Item]] = {}
        for item in items:
            if any(mark.kwargs["level"] == "pure" for mark in item.iter_markers("row")):
                cases.setdefault(_test_of(item), []).append(item)
        items[:] = [each for found in cases.values() for each in dict.fromkeys((found[0], found[-1]))]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Note the rows of a test that has passed."""
        self.seen.clear()
        result = yield
        test = _test_of(item)
        self.others |= {test} if False in self.seen else set()
        if self.seen == {True}:
            for row in {mark.args[0] for mark in item.iter_markers("row") if mark.kwargs["level"] == "pure"}:
                tests = self.rows.setdefault(row, [])
                if test not in tests:
                    tests.append(test)
        return result

    def watch(self, module: Any, name: str, judge: Callable[..., bool]) -> None:
        """Judge each call of a function, before any other module has imported it."""
        original = getattr(module, name)

        def watched(*given: Any, **named: Any) -> Any:
            self.seen.add(judge(*given))
            return original(*given, **named)

        setattr(module, name, watched)


def table(rows: Iterable[Row], shown: Mapping[str, Sequence[str]]) -> str:
    """Return the page."""
    rows, lines = list(rows), [HEAD]
    for system in SYSTEMS:
        own = [row for row in rows if row.system == system]
        here = [row for row in own if shown.get(row.id)]
        lines += [f"## {system}", "", f"{len(here)} of {len(own)} rows.", ""]
        lines += ["| row | shows | tests |", "|---|---|---|"]
        lines += [f"| {row.id} | {row.shows.replace('|', '/')} | {_tests(shown.get(row.id, ()))} |" for row in own]
        lines.append("")
    return "\n".join(lines)


def _test_of(item: pytest.Item) -> str:
    """Return the test, all its cases together; a script of `tests/simulation` is a test of its own."""
    return item.nodeid if "tests/simulation" in item.nodeid else item.nodeid.partition("[")[0]


def _tests(tests: Sequence[str]) -> str:
    if not tests:
        return "none"
    named = ", ".join(f"`{test}`" for test in sorted(tests)[:NAMED])
    more = len(tests) - NAMED
    return named + (f" and {more} more" if more > 0 else "")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tests, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.defaults", description=__doc__)
    parser.add_argument("--page", type=Path, default=PAGE, help="where to (default: %(default)s)")
    parser.add_argument("files", nargs="*", default=FILES, help="which tests (default: the tables of cases by row)")
    arguments = parser.parse_args(argv)
    watcher = Watcher()
    watcher.watch(advance, "decisions", lambda _, state, *more: is_published(state.policy))
    watcher.watch(monitor, "plan", lambda _, timings, *more: timings == NodeTimings())
    watcher.watch(rendezvous, "begun", lambda gang, *more: is_usual(gang))
    chosen = "not (e2e or temporal or real_node)"
    ended = pytest.main(["-q", "-p", "no:cacheprovider", "-m", chosen, *arguments.files], plugins=[watcher])
    if ended:
        return int(ended)
    arguments.page.write_text(table(load_rows(ROWS_FILE).values(), watcher.shown), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
