"""Where the time of a test run goes: `make times` prints it by step, part, test and file.

`make times ARGS=--write` also puts the tables into docs/testing.md, and each server test's seconds into
tests/times.json, by which the tiers are chosen (tests/tiers.py).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.plugins.spent import PARTS
from tests.rows import RESULTS_FOLDER
from tests.tiers import TIMES_FILE, load_times

STEPS_FILE = Path("reports/steps.tsv")
PAGE = Path("docs/testing.md")
BEGIN, END = "<!-- times: made by `make times ARGS=--write` -->", "<!-- /times -->"
REST = "the test's own steps"
SHOWN_TESTS, SHOWN_FILES = 20, 25


@dataclass(frozen=True)
class Timed:
    """One test's latest run: its seconds, what they were spent on, and the process of the run that it was in."""

    id: str
    seconds: float
    parts: dict[str, float]
    cpu: float
    server: bool
    passed: bool

    @property
    def file(self) -> str:
        """The file that the test is in."""
        return self.id.partition("::")[0]


@dataclass(frozen=True)
class Session:
    """One run of pytest: how long it took, its tests, and how long each of its processes was busy."""

    seconds: float
    tests: tuple[Timed, ...]
    busy: dict[str, float]
    last: dict[str, float]
    """Seconds from the run's begin to the end of the last test, of each process."""


def read_sessions(folder: Path) -> list[Session]:
    """Read every session's results."""
    return [_session(json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*.json"))]


def _session(raw: dict[str, Any]) -> Session:
    begun = datetime.fromisoformat(raw["started"]).timestamp()
    seconds = datetime.fromisoformat(raw["finished"]).timestamp() - begun
    busy: defaultdict[str, float] = defaultdict(float)
    last: dict[str, float] = {}
    tests: list[Timed] = []
    for id_, entry in raw["tests"].items():
        process = entry.get("process", "")
        busy[process] += entry["seconds"]
        last[process] = max(last.get(process, 0.0), entry["began"] - begun + entry["seconds"])
        tests.append(
            Timed(
                id=id_,
                seconds=entry["seconds"],
                parts=entry.get("parts", {}),
                cpu=entry.get("cpu", 0.0),
                server=entry.get("server", False),
                passed=entry["outcome"] == "passed",
            )
        )
    return Session(seconds, tuple(tests), dict(busy), last)


def parts_table(tests: Iterable[Timed]) -> list[str]:
    """Say what the tests' seconds were spent on, summed over all processes of the run."""
    tests = list(tests)
    total = sum(test.seconds for test in tests)
    spent: defaultdict[str, float] = defaultdict(float)
    for test in tests:
        for part, seconds in test.parts.items():
            spent[part] += seconds
    spent[REST] = total - sum(spent.values())
    cpu = sum(test.cpu for test in tests)

    def line(part: str, seconds: float) -> str:
        return f"| {part} | {seconds / 60:.1f} | {100 * seconds / max(total, 0.01):.0f} % |"

    return [
        "| part | minutes | share |",
        "|---|---:|---:|",
        *(line(part, spent[part]) for part in (*PARTS, REST)),
        line("**all, over all processes**", total),
        line("of it, processor time of the tests and their workers", cpu),
    ]


def tests_table(tests: Iterable[Timed]) -> list[str]:
    """List the slowest tests, and what most of each was spent on."""
    lines = ["| seconds | test | most of it |", "|---:|---|---|"]
    for test in sorted(tests, key=lambda test: -test.seconds)[:SHOWN_TESTS]:
        parts = {**test.parts, REST: test.seconds - sum(test.parts.values())}
        most = max(parts, key=lambda part: parts[part])
        lines.append(f"| {test.seconds:.0f} | `{test.id}` | {parts[most]:.0f} s: {most} |")
    return lines


def files_table(tests: Iterable[Timed]) -> list[str]:
    """List the files by their seconds."""
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for test in tests:
        seconds[test.file].append(test.seconds)
    lines = ["| seconds | tests | file |", "|---:|---:|---|"]
    for file in sorted(seconds, key=lambda file: -sum(seconds[file]))[:SHOWN_FILES]:
        lines.append(f"| {sum(seconds[file]):.0f} | {len(seconds[file])} | `{file}` |")
    return lines


def sessions_table(sessions: Iterable[Session]) -> list[str]:
    """Say how long each run of pytest took, and for how much of it its processes had a test."""
    lines = [
        "| run of pytest | tests | minutes | processes busy | first process without a test |",
        "|---|---:|---:|---:|---:|",
    ]
    for session in sessions:
        kind = "with servers" if any(test.server for test in session.tests) else "pure"
        processes = max(1, len(session.busy))
        share = 100 * sum(session.busy.values()) / (processes * session.seconds)
        first = f"{session.seconds - min(session.last.values()):.0f} s before the end"
        name, minutes = f"{kind}, {processes} processes", session.seconds / 60
        lines.append(f"| {name} | {len(session.tests)} | {minutes:.1f} | {share:.0f} % | {first} |")
    return lines


def steps_table(path: Path) -> list[str]:
    """Say how long each step of `make test` took."""
    if not path.exists():
        return []
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    return ["| step | minutes |", "|---|---:|", *(f"| {step} | {int(seconds) / 60:.1f} |" for step, seconds in rows)]


def render(sessions: Sequence[Session], steps: Path = STEPS_FILE) -> str:
    """Lay out all tables as Markdown."""
    servers = [test for session in sessions for test in session.tests if test.server]
    blocks = [
        steps_table(steps),
        sessions_table(sessions),
        ["What the tests with servers spent their time on:", "", *parts_table(servers)],
        ["The slowest tests:", "", *tests_table(servers)],
        ["The files that take longest:", "", *files_table(servers)],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def write(sessions: Sequence[Session], page: Path, times: Path) -> None:
    """Put the tables into the page, and each server test's seconds into the file that the tiers read."""
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(f"{before}{BEGIN}\n\n{render(sessions)}\n\n{END}{after}", encoding="utf-8")
    known = load_times(times)
    known |= {
        test.id: round(test.seconds, 1) for each in sessions for test in each.tests if test.server and test.passed
    }
    times.write_text(json.dumps(dict(sorted(known.items())), indent=0) + "\n", encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; 2 if nothing has been run."""
    parser = argparse.ArgumentParser(prog="python -m tests.times", description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS_FOLDER, help="the results (default: %(default)s)")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE} and {TIMES_FILE}")
    arguments = parser.parse_args(argv)
    sessions = read_sessions(arguments.results)
    if not sessions:
        print(f"no results in {arguments.results}: run `make test` first", file=sys.stderr)
        return 2
    print(render(sessions))
    if arguments.write:
        write(sessions, PAGE, TIMES_FILE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
