"""What Temporal bills for lives and for what never ends: the documented actions, and what they cost a month.

`python -m bench bill` writes the section of docs/performance.md. Tests hold each number against Temporal's own count
or against the code that sends it, and fail once it is exceeded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.report.write import DOCUMENT, parts

BEGIN, END = "<!-- begin: python -m bench bill -->", "<!-- end: bill -->"
PRICE: Final = 50.0
"""Dollars for a million actions, as assumed: see `ASSUMED`."""
ASSUMED: Final = (
    "The price is an assumption: 50 $ for a million actions, the highest step of Temporal Cloud's list in July 2026. "
    "More actions a month cost less each, and a server of your own bills none."
)
HOURS: Final = 24 * 30
"""Of a month."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The actions of something that happens, or goes on."""

    what: str
    actions: int
    """Once; for what goes on, an hour."""
    how: str
    """How that number was counted."""
    before: str = ""
    """What it was before, as it was published each time."""


_METRIC: Final = "`action` of the server's metrics"
_HISTORY: Final = f"its history; {_METRIC}"
_VIRTUAL: Final = "heartbeats on virtual time"
_BOTH: Final = f"{_VIRTUAL}; {_METRIC}"
LIFE: Final = Cost("a life: submitted, Running, Succeeded", 12, _HISTORY)
RESET: Final = Cost("a reset of it", 12, _HISTORY)
SUSPENSION: Final = Cost("a suspension and a resumption", 12, _HISTORY)
HAPPENS: Final = (LIFE, RESET, SUSPENSION)

IDLE: Final = Cost("a workload that runs", 0, _METRIC, "0")
PROBE: Final = Cost("a probed service, every 30 s", 120, _VIRTUAL, "1,200")
STEPS: Final = Cost("a workload whose steps are followed, every 15 s", 252, _VIRTUAL)
GANG: Final = Cost("an elastic gang that runs", 655, _BOTH, "5,520, then 3,720")
WATCH: Final = Cost("the watch of a cluster, per part", 655, _BOTH, "4,800, then 3,000")
NODES: Final = Cost("the watch of its nodes", 655, _BOTH, "4,800, then 3,000")
BROKER: Final = Cost("the checkpoint broker, idle", 120, "its history: a timer and an activity a minute", "120")
GOES_ON: Final = (IDLE, PROBE, STEPS, GANG, WATCH, NODES, BROKER)


def bill(actions: float) -> str:
    """Return what so many actions cost, in dollars."""
    dollars = actions * PRICE / 1e6
    return f"{dollars:,.0f} $" if dollars >= 10 or not dollars else f"{dollars:.2f} $"


def publish(document: Path = DOCUMENT) -> Path:
    """Write the section of the document.

    Raises:
        ValueError: if the document lacks the lines between which it stands.
    """
    before, stale, after = parts(document, BEGIN, END)
    if stale != (fresh := generated()):
        document.write_text(f"{before}{BEGIN}{fresh}{END}{after}")
    return document


def generated() -> str:
    """Return the section of the document as it should stand."""
    return f"\n{markdown()}\n"


def markdown(counts: Iterable[int] = (1_000, 100_000)) -> str:
    """Return the section of the document."""
    sizes = tuple(counts)
    lines = ["| once | actions | counted by |", "|---|---|---|"]
    lines += [f"| {one.what} | {one.actions} | {one.how} |" for one in HAPPENS]
    lines += ["", "| an hour of | actions | before | counted by |", "|---|---|---|---|"]
    lines += [f"| {one.what} | {one.actions:,} | {one.before} | {one.how} |" for one in GOES_ON]
    lines += ["", f"{ASSUMED}", "", f"| a month | {' | '.join(f'{size:,} workloads' for size in sizes)} |"]
    lines += ["|---|" + "---|" * len(sizes)]
    months: tuple[tuple[str, float], ...] = (
        ("each lives once a day, and one life in ten is reset", 30 * (LIFE.actions + RESET.actions / 10)),
        ("each runs all month, and is reset once", LIFE.actions + RESET.actions),
        ("each is a service that is probed every 30 s", LIFE.actions + PROBE.actions * HOURS),
        ("each is an elastic gang", LIFE.actions + GANG.actions * HOURS),
    )
    lines += [f"| {what} | {' | '.join(bill(each * size) for size in sizes)} |" for what, each in months]
    whole = (WATCH.actions + NODES.actions + BROKER.actions) * HOURS
    lines += [f"| and each cluster: its watches, its broker | {' | '.join(bill(whole) for _ in sizes)} |"]
    return "\n".join(lines)
