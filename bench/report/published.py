"""The samples that docs/performance.md was made of, kept in the repository: as much of them as tables and plots need.

A run's own samples, in `reports/bench`, are lost with the machine. What was published can be made again from these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from bench.report import plots, targets
from bench.report.layouts import LAYOUTS
from bench.report.samples import Recording, Sample

KEPT = Path(__file__).parents[1] / "published"
"""Where they are kept, one file per measure."""
POINTS = 80
"""Of a series that is only drawn, so many are kept."""

_Case = tuple[str, str, tuple[tuple[str, int], ...]]


def compact(recording: Recording) -> Recording:
    """Return a recording with every value, the series that figures are of, and those that are drawn, thinned."""
    exact = {column.value for layout in LAYOUTS for column in layout.columns if column.tail} | {
        target.value for target in targets.read()
    }
    drawn = plots.SERIES.get(recording.measure, ())

    def kept(sample: Sample) -> Sample:
        series = {name: each for name, each in sample.series.items() if name in exact}
        series |= {name: thinned(sample.series[name]) for name in drawn if name in sample.series and name not in exact}
        return sample.model_copy(update={"series": series})

    return recording.model_copy(update={"samples": [kept(sample) for sample in recording.samples]})


def thinned(series: Sequence[float], most: int = POINTS) -> list[float]:
    """Return at most so many of a series, evenly spaced, the last among them: of one in order its quantiles."""
    count = min(most, len(series))
    return [series[math.ceil((index + 1) * len(series) / count) - 1] for index in range(count)]


def merged(kept: Sequence[Recording], fresh: Sequence[Recording]) -> list[Recording]:
    """Return all recordings, those of each measure in order of time; of a system at a size only the newer samples."""
    ends, before = _ends(fresh), _ends(kept)
    several = [
        *(_only(each, [case for case in before if case not in ends or ends[case] < before[case]]) for each in kept),
        *(_only(each, [case for case in ends if case not in before or before[case] <= ends[case]]) for each in fresh),
    ]
    return sorted(
        (each for each in several if each.samples), key=lambda each: (each.measure, min(it.at for it in each.samples))
    )


def keep(recordings: Sequence[Recording], folder: Path = KEPT) -> None:
    """Have a folder hold these, and no others: a line for each sample, so that a change shows what changed."""
    folder.mkdir(parents=True, exist_ok=True)
    measures = {recording.measure for recording in recordings}
    for path in folder.glob("*.json"):
        if path.stem not in measures:
            path.unlink()
    for measure in measures:
        lines = ",\n".join(_written(recording) for recording in recordings if recording.measure == measure)
        (folder / f"{measure}.json").write_text(f"[\n{lines}\n]\n")


def _written(recording: Recording) -> str:
    head = recording.model_dump_json(exclude={"samples"})
    samples = ",\n".join(sample.model_dump_json(exclude_defaults=True) for sample in recording.samples)
    return f'{head[:-1]},"samples":[\n{samples}\n]}}'


def _case(sample: Sample) -> _Case:
    return sample.measure, sample.system, tuple(sorted(sample.size.items()))


def _ends(recordings: Sequence[Recording]) -> dict[_Case, datetime]:
    """Return when the last sample of each system at each size was taken."""
    found: dict[_Case, datetime] = {}
    for recording in recordings:
        for sample in recording.samples:
            case = _case(sample)
            found[case] = max(sample.at, found.get(case, sample.at))
    return found


def _only(recording: Recording, wanted: Sequence[_Case]) -> Recording:
    return recording.model_copy(update={"samples": [sample for sample in recording.samples if _case(sample) in wanted]})
