"""Which tables samples make: one per measure, a row per size and system, a column per figure. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.report.figures import Case, cases, find, grid, number, spread, tail
from bench.report.samples import Recording, Sample, samples_of

_REQUESTS = "requests "
"""How the names of values begin that count one kind of request: `requests create jobs`."""


@dataclass(frozen=True)
class Column:
    """One figure of a table.

    Attributes:
        value: the value's or the series' name.
        heading: what stands above it.
        unit: of the figures.
        tail: a series of single measurements, shown as median / p99 / most; else one value a run, median and spread.
        ratio: shown as a multiple of the base's too.
    """

    value: str
    heading: str
    unit: str = ""
    tail: bool = False
    ratio: bool = False


@dataclass(frozen=True)
class Layout:
    """One table.

    Attributes:
        measure: whose samples.
        title: its heading.
        about: what is measured, in a sentence or two.
        columns: what is shown.
        base: the system that ratios are of, where there are any.
        smoked: whether the smoke has it; not where a program is built for it that nothing else needs.
    """

    measure: str
    title: str
    about: str
    columns: tuple[Column, ...]
    base: str = ""
    smoked: bool = True


def tables(layouts: Sequence[Layout], recordings: Sequence[Recording]) -> str:
    """Return every table that there are samples for, as Markdown."""
    parts = [_table(layout, samples_of(recordings, layout.measure)) for layout in layouts]
    return "\n\n".join(part for part in parts if part)


def requests(samples: Sequence[Sample]) -> str:
    """Return which API requests a life is made of, at the largest size, a column per system that sends any."""
    several = cases(samples)
    several = [case for case in several if case.size == several[-1].size and any(case.values("requests"))]
    counted = [
        {name: statistics.median(case.values(name)) for sample in case.samples for name in sample.values}
        for case in several
    ]
    kinds = sorted({name for counts in counted for name in counts if name.startswith(_REQUESTS)})
    if not kinds:
        return ""
    size = ", ".join(f"{name} = {value:,}" for name, value in several[-1].size.items())
    rows = [
        [kind.removeprefix(_REQUESTS), *(number(counts[kind]) if kind in counts else "-" for counts in counted)]
        for kind in sorted(kinds, key=lambda name: -max(counts.get(name, 0.0) for counts in counted))
    ]
    title = f"### What the requests of a life are (g), {size}"
    return f"{title}\n{grid(['', *(case.system for case in several)], rows)}"


def _table(layout: Layout, samples: list[Sample]) -> str:
    several = cases(samples)
    if not several:
        return ""
    columns = [column for column in layout.columns if any(_values(case, column) for case in several)]
    sizes = list(dict.fromkeys(name for case in several for name in case.size))
    heads = [*sizes, "system", "runs", *(column.heading for column in columns)]
    rows: list[list[str]] = []
    for case in several:
        base = find(several, layout.base, case.size)
        cells = [f"{case.size[name]:,}" if name in case.size else "" for name in sizes]
        cells += [case.system, str(len(case.samples)), *(_cell(case, column, base) for column in columns)]
        rows.append(cells)
    return f"### {layout.title}\n{layout.about}\n\n{grid(heads, rows)}"


def _values(case: Case, column: Column) -> list[float]:
    return case.pooled(column.value) if column.tail else case.values(column.value)


def _cell(case: Case, column: Column, base: Case | None) -> str:
    values = _values(case, column)
    if column.tail:
        return tail(values, column.unit)
    shown = spread(values, column.unit)
    theirs = _values(base, column) if base is not None and base.system != case.system else []
    if column.ratio and values and theirs and statistics.median(theirs):
        return f"{shown}, {number(statistics.median(values) / statistics.median(theirs))} x"
    return shown
