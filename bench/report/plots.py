"""The plots: time and memory, drawn from samples alone. The one module that needs matplotlib."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl

mpl.use("agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from bench.report.figures import Case, cases
from bench.report.samples import Recording, samples_of

COLOURS = {"plain": "#7f7f7f", "AppWrapper": "#d95f02", "JobSet": "#e6ab02", "Holdfast": "#1b6ca8"}

SERIES = {"start": ("running_at_s", "at_s", "memory_mib"), "latency": ("decided_s",)}
"""Which series are drawn, by measure; what is drawn of one must look the same when the series is thinned."""

_PLAIN = FuncFormatter(lambda value, _: f"{value:,g}")


def draw(recordings: Sequence[Recording], folder: Path) -> list[Path]:
    """Draw every plot that there are samples for, and return the files, in order."""
    found: list[Path] = []
    for name, plot in PLOTS.items():
        figure = plot(recordings)
        if figure is not None:
            path = folder / f"{name}.png"
            # Nothing of when or with what it was drawn: the same samples give the same file.
            figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
            plt.close(figure)
            found.append(path)
    return found


def times(recordings: Sequence[Recording]) -> Figure | None:
    """Draw how long N workloads take to run and to be recorded as ended, against N."""
    several = cases(samples_of(recordings, "start"))
    if not several:
        return None
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    for axis, value, title in zip(
        axes, ("running_s", "ended_s"), ("until all run", "told to end, until all are recorded"), strict=True
    ):
        for system, mine in _by_system(several).items():
            ns = [case.size["n"] for case in mine]
            values = [case.values(value) for case in mine]
            middle = [statistics.median(each) for each in values]
            low = [m - min(each) for m, each in zip(middle, values, strict=True)]
            high = [max(each) - m for m, each in zip(middle, values, strict=True)]
            axis.errorbar(ns, middle, yerr=[low, high], marker="o", capsize=3, label=system, color=COLOURS.get(system))
        _dress(axis, title, "two-pod workloads", "seconds" if axis is axes[0] else "")
        _logarithmic(axis, "x", "y")
        _measured(axis, several)
    axes[0].legend()
    return figure


def running(recordings: Sequence[Recording]) -> Figure | None:
    """Draw which share of the pods has run after how long, at the largest N."""
    several = _largest(cases(samples_of(recordings, "start")))
    if not several:
        return None
    figure, axis = plt.subplots(figsize=(7, 4))
    for case in several:
        for index, sample in enumerate(case.samples):
            seconds = sample.series.get("running_at_s", [])
            label = case.system if index == 0 else None
            colour = COLOURS.get(case.system)
            _shares(axis, seconds, color=colour, label=label, alpha=0.8)
    title = f"{several[0].size['n']:,} two-pod workloads, until all run"
    _dress(axis, title, "seconds since the first request", "percent of pods that have run")
    _logarithmic(axis, "x")
    axis.legend()
    return figure


def memory(recordings: Sequence[Recording]) -> Figure | None:
    """Draw the resident memory of controller or worker over time, at the largest N."""
    several = [case for case in _largest(cases(samples_of(recordings, "start"))) if case.pooled("memory_mib")]
    if not several:
        return None
    figure, axis = plt.subplots(figsize=(7, 4))
    for case in several:
        for index, sample in enumerate(case.samples):
            label = case.system if index == 0 else None
            axis.plot(
                sample.series["at_s"],
                sample.series["memory_mib"],
                color=COLOURS.get(case.system),
                label=label,
                alpha=0.8,
            )
    title = f"{several[0].size['n']:,} two-pod workloads, until all are recorded as ended"
    _dress(axis, title, "seconds since the first request", "resident, MiB")
    axis.set_xlim(left=0)
    _from_zero(axis)
    axis.legend()
    return figure


def decisions(recordings: Sequence[Recording]) -> Figure | None:
    """Draw which share of failures had been decided after how long, at the most active workloads."""
    several = _largest(cases(samples_of(recordings, "latency")), "active")
    if not several:
        return None
    figure, axis = plt.subplots(figsize=(7, 4))
    for case in several:
        seconds = sorted(case.pooled("decided_s"))
        _shares(axis, seconds, color=COLOURS.get(case.system), label=case.system)
    title = f"failure to decision, {several[0].size['active']:,} active, zero grace"
    _dress(axis, title, "seconds since the pod failed", "percent decided")
    _logarithmic(axis, "x")
    axis.legend()
    return figure


def crowd(recordings: Sequence[Recording]) -> Figure | None:
    """Draw the worker's memory against the number of idle workloads."""
    several = cases(samples_of(recordings, "crowd"))
    if not several:
        return None
    figure, axis = plt.subplots(figsize=(7, 4))
    held = [statistics.median(case.values("memory_mib")) for case in several]
    axis.plot([case.size["n"] for case in several], held, marker="o", color=COLOURS["Holdfast"])
    _dress(axis, "one worker process, idle workloads of a pod each", "idle workloads", "resident, MiB")
    axis.set_xlim(left=0)
    _measured(axis, several)
    _from_zero(axis)
    return figure


def _shares(axis: Axes, series: Sequence[float], **style: Any) -> None:
    """Draw which percentage of a series each of it and those before it are, from none of them on."""
    shares = [index / len(series) * 100 for index in range(len(series) + 1)]
    axis.step([*series[:1], *series], shares, where="post", **style)
    axis.set_ylim(0, 103)


def _logarithmic(axis: Axes, *names: Literal["x", "y"]) -> None:
    """Have axes logarithmic, with numbers as one writes them."""
    for name in names:
        axis.set(**{f"{name}scale": "log"})
        scale = axis.xaxis if name == "x" else axis.yaxis
        scale.set_major_locator(LogLocator(subs=(1, 2, 5)))
        scale.set_major_formatter(_PLAIN)
        scale.set_minor_formatter(NullFormatter())


def _measured(axis: Axes, several: Sequence[Case]) -> None:
    """Have the level axis name the sizes that were measured, and none between them."""
    axis.xaxis.set_major_locator(FixedLocator(sorted({case.size["n"] for case in several})))
    axis.xaxis.set_major_formatter(_PLAIN)
    axis.xaxis.set_minor_locator(NullLocator())


def _from_zero(axis: Axes) -> None:
    """Have the upright axis begin at nothing, with room above what is drawn."""
    axis.set_ylim(0, axis.dataLim.y1 * 1.15)


def _dress(axis: Axes, title: str, across: str, up: str) -> None:
    axis.set_title(title)
    axis.set_xlabel(across)
    axis.set_ylabel(up)
    axis.grid(visible=True, alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)


def _by_system(several: Sequence[Case]) -> dict[str, list[Case]]:
    found: dict[str, list[Case]] = {}
    for case in several:
        found.setdefault(case.system, []).append(case)
    return found


def _largest(several: Sequence[Case], by: str = "n") -> list[Case]:
    most = max((case.size[by] for case in several), default=0)
    return [case for case in several if case.size[by] == most]


PLOTS: dict[str, Callable[[Sequence[Recording]], Figure | None]] = {
    "times": times,
    "running": running,
    "memory": memory,
    "decisions": decisions,
    "crowd": crowd,
}
