"""The targets: read from `targets.toml`, held against samples. Pure."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from bench.report.figures import Case, cases, find, grid, number, taken, written
from bench.report.samples import Recording, samples_of

TARGETS = Path(__file__).parents[1] / "targets.toml"
OURS = "Holdfast"


class Target(BaseModel):
    """What one figure has to be at most."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    row: str
    what: str
    measure: str
    value: str
    at_most: float
    size: dict[str, int] = Field(default_factory=dict)
    system: str = OURS
    take: str = "median"
    unit: str = ""
    against: str = ""
    against_value: str = ""
    missed: str = ""


@dataclass(frozen=True)
class Verdict:
    """A target and what was measured."""

    target: Target
    figure: float | None
    shown: str

    @property
    def met(self) -> bool | None:
        """Whether it is met; None if it was not measured."""
        return None if self.figure is None else self.figure <= self.target.at_most


def read(path: Path = TARGETS) -> list[Target]:
    """Read the targets."""
    return TypeAdapter(list[Target]).validate_python(tomllib.loads(path.read_text())["target"])


def held(targets: Sequence[Target], recordings: Sequence[Recording]) -> list[Verdict]:
    """Hold each target against what was measured."""
    return [_held(target, cases(samples_of(recordings, target.measure))) for target in targets]


def table(verdicts: Sequence[Verdict]) -> str:
    """Return the targets as a Markdown table: none is left out."""
    rows: list[tuple[str, ...]] = []
    for verdict in verdicts:
        target = verdict.target
        limit = written(target.at_most, "x" if target.against else target.unit)
        word = {True: "met", False: "**missed**", None: "not measured"}[verdict.met]
        why = target.missed if verdict.met is False else ""
        rows.append((target.row, target.what, verdict.shown, limit, word, why))
    return grid(("", "what", "measured", "at most", "", "why not, and what it would need"), rows)


def _held(target: Target, several: list[Case]) -> Verdict:
    mine = _figure(target, find(several, target.system, target.size), target.value)
    if mine is None:
        return Verdict(target, None, "-")
    if not target.against:
        return Verdict(target, mine, written(mine, target.unit))
    theirs = _figure(target, find(several, target.against, target.size), target.against_value or target.value)
    if not theirs:
        return Verdict(target, None, f"{number(mine)} / -")
    return Verdict(target, mine / theirs, f"{number(mine / theirs)} x ({number(mine)} / {number(theirs)})")


def _figure(target: Target, case: Case | None, value: str) -> float | None:
    if case is None:
        return None
    return taken(case.pooled(value) or case.values(value), target.take)
