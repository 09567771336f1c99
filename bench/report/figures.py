"""Figures out of samples: which belong together, their medians and tails, and how they are written. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bench.report.samples import Sample


@dataclass(frozen=True)
class Case:
    """One system at one size: all samples of it."""

    system: str
    size: Mapping[str, int]
    samples: tuple[Sample, ...]

    def values(self, name: str) -> list[float]:
        """Return a value of each sample that has it."""
        return [sample.values[name] for sample in self.samples if name in sample.values]

    def pooled(self, name: str) -> list[float]:
        """Return the single measurements of a series, of all samples together."""
        return [each for sample in self.samples for each in sample.series.get(name, ())]


def cases(samples: Iterable[Sample]) -> list[Case]:
    """Put samples of the same system and size together, smallest size first, systems as they first come."""
    grouped: dict[tuple[tuple[tuple[str, int], ...], str], list[Sample]] = {}
    order: dict[str, int] = {}
    for sample in samples:
        order.setdefault(sample.system, len(order))
        grouped.setdefault((tuple(sample.size.items()), sample.system), []).append(sample)
    keys = sorted(grouped, key=lambda key: ([value for _, value in key[0]], order[key[1]]))
    return [Case(key[1], dict(key[0]), tuple(grouped[key])) for key in keys]


def find(several: Sequence[Case], system: str, size: Mapping[str, int]) -> Case | None:
    """Return all of a system at a size, of which not every part need be named."""
    found = [
        case
        for case in several
        if case.system == system and all(case.size.get(name) == value for name, value in size.items())
    ]
    if not found:
        return None
    return Case(system, size, tuple(sample for case in found for sample in case.samples))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` percent of them do not exceed, the nearest that was measured."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * share / 100) - 1)]


def taken(values: Sequence[float], how: str) -> float | None:
    """Return one figure for several: their `median`, `max`, `min` or a percentile such as `p99`; None for none."""
    if not values:
        return None
    match how:
        case "median":
            return statistics.median(values)
        case "max":
            return max(values)
        case "min":
            return min(values)
        case _:
            return percentile(values, float(how.removeprefix("p")))


def number(value: float) -> str:
    """Write a figure with about three digits that matter."""
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}" if size >= 0.1 else f"{value:.3f}"


def written(value: float, unit: str) -> str:
    """Write a figure with its unit."""
    return f"{number(value)} {unit}".rstrip()


def grid(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table."""
    return "\n".join(
        ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads), *("| " + " | ".join(row) + " |" for row in rows)]
    )


def spread(values: Sequence[float], unit: str) -> str:
    """Write a median, with the least and the most where there are several."""
    if not values:
        return "-"
    middle = written(statistics.median(values), unit)
    if len(values) == 1 or min(values) == max(values):
        return middle
    return f"{middle} ({number(min(values))}-{number(max(values))})"


def tail(values: Sequence[float], unit: str) -> str:
    """Write median, p99 and the most of many measurements."""
    if not values:
        return "-"
    figures = (statistics.median(values), percentile(values, 99), max(values))
    return " / ".join(number(each) for each in figures) + f" {unit}"
