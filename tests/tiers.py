"""Which server tests `make test` runs: enough for every contract row, the samples, and a seventh of the rest each day.

`make test-all` runs all of them. Everything here is pure; tests/plugins/tiers.py asks it as tests are collected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from tests.plugins.times import SERVERS

DAYS = 7
"""In so many days the rotating share has been through all the rest."""
TIMES_FILE = Path("tests/times.json")
_SERVED = re.compile(rf"\b({'|'.join(SERVERS)})\b")
LONG = 60.0
"""Seconds that a test counts for which has never been timed."""


@dataclass(frozen=True)
class Candidate:
    """One server test: what it takes, what it shows, and whether it is a sample that always runs."""

    id: str
    rows: tuple[str, ...] = ()
    sample: bool = False
    seconds: float | None = None
    """None: never timed, so it is new."""


@dataclass(frozen=True)
class Tier:
    """The tests of one day's `make test`, by the reason for each."""

    rows: frozenset[str]
    samples: frozenset[str]
    new: frozenset[str]
    share: frozenset[str]

    @property
    def chosen(self) -> frozenset[str]:
        """Every test that runs."""
        return self.rows | self.samples | self.new | self.share

    def sentence(self) -> str:
        """Say how many tests run, and for which reason."""
        return (
            f"tier: {len(self.chosen)} tests: {len(self.rows)} for contract rows, {len(self.samples)} samples, "
            f"{len(self.new)} never timed, {len(self.share)} of the day's share"
        )


def load_times(path: Path) -> dict[str, float]:
    """Read the seconds of each server test, as `make times` wrote them."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def has_servers(text: str) -> bool:
    """Whether a test file may have server tests: it names one of their marks, or imports what they stand on."""
    return _SERVED.search(text) is not None


def choose(candidates: Iterable[Candidate], day: int) -> Tier:
    """Choose a day's tests; the same candidates and day give the same choice in every process."""
    tests = sorted(candidates, key=lambda test: test.id)
    samples = [test for test in tests if test.sample]
    new = [test for test in tests if test.seconds is None and not test.sample]
    rows = cover(tests, shown={row for test in (*samples, *new) for row in test.rows})
    begun = {test.id for test in (*samples, *new, *rows)}
    share = [test for test in tests if test.id not in begun and share_of(test.id) == day % DAYS]
    return Tier(*(frozenset(test.id for test in part) for part in (rows, samples, new, share)))


def cover(tests: Sequence[Candidate], shown: set[str]) -> list[Candidate]:
    """Choose cheap tests that together show every row which is not shown yet (greedy set cover)."""
    missing = {row for test in tests for row in test.rows} - shown
    chosen: list[Candidate] = []
    while missing:
        best = min(
            (test for test in tests if missing.intersection(test.rows)),
            key=lambda test: (_cost(test) / len(missing.intersection(test.rows)), test.id),
        )
        chosen.append(best)
        missing -= set(best.rows)
    return chosen


def share_of(test: str, days: int = DAYS) -> int:
    """Return the day of a rotation on which a test runs: by its name alone, so that no test moves."""
    return crc32(test.encode()) % days


def is_sampled(test: str, days: int, day: int) -> bool:
    """Whether a sample runs on a day; each runs once in so many days."""
    return share_of(test, days) == day % days


def longest_first(tests: Iterable[str], seconds: Mapping[str, float]) -> list[str]:
    """Order tests so that the longest begin first: a long one that begins last keeps the other processes waiting."""
    return sorted(tests, key=lambda test: (-seconds.get(test, LONG), test))


def _cost(test: Candidate) -> float:
    return LONG if test.seconds is None else test.seconds
