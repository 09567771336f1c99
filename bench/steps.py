"""How often a stall is seen where there is none, and how soon one is seen: by shape of step times (row P2).

Pure and seeded: the steps are drawn, the worker's readings of them are virtual. Each run has declared phases (a save
every 200 steps, of 5 to 40 medians). A run with outages also has a worker that dies (every 5,000 steps) and an API
server that is away (every 20,000 steps, for a few hundred steps).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from statistics import median
from typing import Final

from bench.report.write import DOCUMENT, parts
from holdfast.model import Progress
from holdfast.model.life.progress import PodStep, Step, StepRecord
from holdfast.policy.values.edit import edit
from holdfast.policy.verdicts.progress import bound_of, read, stalled

BEGIN: Final = "<!-- begin: python -m bench progress -->"
END: Final = "<!-- end: progress -->"
USUAL: Final = 30.0
"""The median step, in seconds: two readings a step, and 12 of them are more than the least bound."""
STEPS: Final = 400_000
"""Enough that none wrong among them is at most one in 100,000, by 95 %."""
STALLS: Final = 200
SEED: Final = 20_26
FIRST: Final = 6_000
"""The steps of a young program, while little is known of it."""
YOUNG: Final = 50
"""How many young programs are followed, each with a seed of its own."""
FALSE_AT_MOST: Final = 1e-5
"""False positives by step."""
_START: Final = datetime(2026, 1, 1, tzinfo=UTC)

Draw = Callable[[Random, int], float]
"""Returns the seconds of step n."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One distribution of step times."""

    name: str
    what: str
    draw: Draw
    detected: int
    """The stall must be seen within this many medians."""


SHAPES: Final = (
    Shape("constant", "each step alike", lambda _, __: USUAL, 15),
    Shape("lognormal", "sigma 0.5", lambda random, _: USUAL * random.lognormvariate(0, 0.5), 50),
    Shape(
        "bimodal",
        "every 20th step evaluates too, undeclared, for 8 medians",
        lambda random, n: USUAL * random.uniform(0.9, 1.1) * (8 if n % 20 == 0 else 1),
        40,
    ),
    Shape(
        "heavy tail",
        "Pareto, alpha 3",
        lambda random, _: USUAL * random.paretovariate(3) / 2 ** (1 / 3),
        105,
    ),
    Shape(
        "drifting",
        "from half to four times the median and back, over 100,000 steps",
        lambda random, n: USUAL * random.uniform(0.9, 1.1) * 2 ** (0.5 - 1.5 * math.cos(n / 100_000 * math.tau)),
        90,
    ),
)


@dataclass(slots=True)
class Run:
    """A program that steps, and a worker that reads it."""

    shape: Shape
    random: Random
    rules: Progress
    outages: bool
    record: StepRecord | None = None
    now: float = 0.0
    """The time of the last reading, in seconds."""
    step: int = 0
    done_at: float = 0.0
    """When the last step was done."""
    false: int = 0

    def steps(self, count: int) -> None:
        """Make steps, each of them read, unless nobody sees it."""
        for _ in range(count):
            self.step += 1
            if self.step % 200 == 0:
                self._read_until(self.done_at, "")
                self.done_at += USUAL * self.random.uniform(5, 40)
                self._read_until(self.done_at, "saving")
            end = self.done_at + self.shape.draw(self.random, self.step)
            if self.outages and self.step % 20_000 < 300 and self.step > 20_000:
                self.now = max(self.now, end)  # The API server is away.
            elif self.outages and self.step % 5_000 == 0:
                self.now += min(end - self.now, 90.0)  # The worker died, and another one takes over.
            self._read_until(end, "")
            self.done_at = end

    def stall(self) -> float:
        """Let the program stand still; return how many seconds it takes until that is seen."""
        begun = self.done_at
        while self.record is None or stalled(self.record, self.rules) is None:
            self._read(self.step, "")
        seen = self.now - begun
        self.record = edit(self.record, quiet=0.0, unseen=True)
        self.done_at = self.now
        return seen

    def _read_until(self, end: float, phase: str) -> None:
        """Read up to a time, before which the step or the phase is not done."""
        period = self.rules.period.total_seconds()
        while self.now + period < end:
            self._read(self.step - 1, phase)

    def _read(self, step: int, phase: str) -> None:
        self.now += self.rules.period.total_seconds() * self.random.uniform(0.98, 1.04)
        told = Step(step=step, phase=phase, bound=60 * USUAL if phase else None)
        pod = PodStep(uid="a", name="train-0", told=told)
        self.record = read(self.record, 1, [pod], self.rules, _START + timedelta(seconds=self.now))
        if step != self.step and stalled(self.record, self.rules) is not None:
            self.false += 1
            self.record = edit(self.record, quiet=0.0, unseen=True)


@dataclass(frozen=True, slots=True)
class Figures:
    """What one shape came to."""

    shape: Shape
    outages: bool
    steps: int
    false: int
    bound: float
    """The median of the bounds in force at the stalls, in medians of the latest steps."""
    median: float
    """The median time until a stall is seen, in medians of the latest steps."""
    worst: float


def measure(
    shape: Shape, steps: int = STEPS, stalls: int = STALLS, seed: int = SEED, *, outages: bool = True
) -> Figures:
    """Return the figures of a shape: false positives over all steps, and detection of so many stalls among them."""
    rules = Progress(minimum=timedelta(minutes=1))
    run = Run(shape, Random(seed), rules, outages)
    seen: list[float] = []
    bounds: list[float] = []
    for _ in range(stalls):
        run.steps(steps // stalls)
        assert run.record is not None
        usual = median(run.record.samples)
        bounds.append(bound_of(run.record, rules).span.total_seconds() / usual)
        seen.append(run.stall() / usual)
    return Figures(shape, outages, run.step, run.false, median(bounds), median(seen), max(seen))


def young(shape: Shape, *, outages: bool) -> int:
    """Return the false positives among the first steps of so many programs of a shape."""
    return sum(measure(shape, FIRST, 1, seed, outages=outages).false for seed in range(YOUNG))


def publish(steps: int = STEPS, document: Path = DOCUMENT) -> Path:
    """Measure all shapes, and write the section of the document.

    Raises:
        ValueError: if the document lacks the lines between which it stands.
    """
    before, _, after = parts(document, BEGIN, END)
    found = [
        (measure(shape, steps, outages=outages), young(shape, outages=outages))
        for shape in SHAPES
        for outages in (False, True)
    ]
    document.write_text(f"{before}{BEGIN}\n{markdown(found)}\n{END}{after}")
    return document


def markdown(found: list[tuple[Figures, int]]) -> str:
    """Return the table."""
    lines = [
        f"| step times | outages | steps | false positives | false positives in {YOUNG} runs of {FIRST:,} steps "
        "| bound | stall seen after, median | worst |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {one.shape.name}: {one.shape.what} | {'yes' if one.outages else 'no'} | {one.steps:,} | {one.false} | "
        f"{first} | {one.bound:.0f} × | {one.median:.0f} × | {one.worst:.0f} × |"
        for one, first in found
    ]
    return "\n".join(lines)
