"""What so many workloads need: arithmetic on figures that the bench has published.

`python -m bench capacity` writes the table of docs/how-to/capacity.md; nothing is run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.report.figures import Case, cases, find, taken
from bench.report.published import KEPT
from bench.report.samples import load
from bench.report.write import parts

DOCUMENT: Final = Path("docs/how-to/capacity.md")
BEGIN, END = "<!-- begin: python -m bench capacity -->", "<!-- end: capacity -->"
SYSTEM: Final = "Holdfast"
PEAK: Final = 10
"""Assumed: in its busiest minutes a site starts so many times its mean of a day."""
BUSY: Final = 0.5
"""Assumed: the share of one core that a worker process is planned to use. It decides on one core."""
SPARE: Final = 2
"""Replicas at least, so that one may go."""
RETENTION_DAYS: Final = 7
_COLUMNS: Final = (
    "workloads",
    "starts a second, mean",
    "replicas",
    "cores of the workers",
    "memory of a replica",
    "cores of Temporal",
    "history",
)
_DAY: Final = 24 * 3600
_MIB: Final = 1024 * 1024


@dataclass(frozen=True)
class Figures:
    """What was measured of one workload, or of many that idle.

    Attributes:
        worker_cpu: CPU seconds of the worker for a life of two pods, from its start to its end.
        temporal_cpu: The same of Temporal's server, with SQLite.
        apiserver_cpu: The same of the API server and etcd.
        started_per_s: Workloads that one worker process started in a second, on two cores that all parts share.
        base_mib: Memory of a worker that has 1,000 idle workloads, which fill its cache.
        more_mib: What each 1,000 further ones add.
        measured: The most workloads that were measured on one worker.
        idle_cpu: Cores that the worker keeps busy while so many idle.
        idle_temporal_cpu: The same of Temporal's server.
        life_bytes: History of a life with one reset.
    """

    worker_cpu: float
    temporal_cpu: float
    apiserver_cpu: float
    started_per_s: float
    base_mib: float
    more_mib: float
    measured: int
    idle_cpu: float
    idle_temporal_cpu: float
    life_bytes: float


@dataclass(frozen=True)
class Need:
    """What so many workloads need, each of which is replaced by another once a day."""

    workloads: int
    starts_per_s: float
    """On the mean of a day."""
    replicas: int
    """Of each of the chart's two Deployments."""
    worker_cores: float
    """Of all replicas together, in the peak."""
    memory_mib: float
    """Of one replica, where it is the only one left."""
    temporal_cores: float
    history_mib: float
    """Histories of living workloads, and of those that ended within the retention."""
    measured: bool
    """Whether so many were measured on one worker; else memory is drawn on from there."""


def figures(kept: Path = KEPT) -> Figures:
    """Read the published figures; of a burst the largest, where a life costs most."""
    recordings = load(kept)

    def of(measure: str, **size: int) -> Case:
        samples = [sample for each in recordings if each.measure == measure for sample in each.samples]
        found = find(cases(samples), SYSTEM, size)
        assert found is not None, (measure, size)
        return found

    burst, few, many = of("start", n=1000), of("crowd", n=1000), of("crowd", n=10_000)
    return Figures(
        worker_cpu=_value(burst, "cpu_worker_s") / 1000,
        temporal_cpu=_value(burst, "cpu_temporal_s") / 1000,
        apiserver_cpu=(_value(burst, "cpu_kube-apiserver_s") + _value(burst, "cpu_etcd_s")) / 1000,
        started_per_s=_value(of("workers", workers=1), "started_per_s"),
        base_mib=_value(few, "memory_mib"),
        more_mib=(_value(many, "memory_mib") - _value(few, "memory_mib")) / 9,
        measured=10_000,
        idle_cpu=_value(many, "cpu_share"),
        idle_temporal_cpu=_value(many, "cpu_temporal_share"),
        life_bytes=_value(of("history", pods=2), "bytes_of_life"),
    )


def need(figures: Figures, workloads: int) -> Need:
    """Return what so many workloads need."""
    starts = workloads / _DAY
    peak, idle = starts * PEAK, workloads / figures.measured
    cores = peak * figures.worker_cpu + idle * figures.idle_cpu
    return Need(
        workloads=workloads,
        starts_per_s=starts,
        replicas=max(SPARE, math.ceil(cores / BUSY)),
        worker_cores=cores,
        memory_mib=figures.base_mib + max(0, workloads - 1000) / 1000 * figures.more_mib,
        temporal_cores=peak * figures.temporal_cpu + idle * figures.idle_temporal_cpu,
        history_mib=workloads * (1 + RETENTION_DAYS) * figures.life_bytes / _MIB,
        measured=workloads <= figures.measured,
    )


def generated(kept: Path = KEPT) -> str:
    """Return the section of the document as it should stand."""
    return f"\n{markdown(figures(kept))}\n"


def publish(document: Path = DOCUMENT) -> Path:
    """Write the section of the document.

    Raises:
        ValueError: if the document lacks the lines between which it stands.
    """
    before, _, after = parts(document, BEGIN, END)
    document.write_text(f"{before}{BEGIN}{generated()}{END}{after}")
    return document


def markdown(found: Figures, sizes: tuple[int, ...] = (1_000, 10_000, 50_000, 100_000)) -> str:
    """Return the measured figures and the table."""
    rows = [
        ("a life of two pods: CPU of the worker", f"{found.worker_cpu:.2f} s", "start, 1,000 at once"),
        ("the same: Temporal's server with SQLite", f"{found.temporal_cpu:.2f} s", "start, 1,000 at once"),
        ("the same: API server and etcd", f"{found.apiserver_cpu:.2f} s", "start, 1,000 at once"),
        (
            "started by one worker, all parts on two cores",
            f"{found.started_per_s:.1f} a second",
            "workers, 300 at once",
        ),
        ("memory of a worker with 1,000 idle workloads", f"{found.base_mib:.0f} MiB", "crowd"),
        ("memory of each 1,000 more, up to 10,000", f"{found.more_mib:.0f} MiB", "crowd"),
        ("10,000 idle workloads: cores of the worker", f"{found.idle_cpu:.3f}", "crowd"),
        ("10,000 idle workloads: cores of Temporal", f"{found.idle_temporal_cpu:.3f}", "crowd"),
        ("history of a life with one reset", f"{found.life_bytes / 1024:.0f} KiB", "history"),
    ]
    lines = ["| measured | figure | by |", "|---|---|---|", *(f"| {' | '.join(row)} |" for row in rows), ""]
    lines += [f"| {' | '.join(_COLUMNS)} |", "|---" * len(_COLUMNS) + "|"]
    for each in (need(found, size) for size in sizes):
        about = "" if each.measured else "about "
        lines.append(
            f"| {each.workloads:,} | {each.starts_per_s:.2f} | {each.replicas} | {each.worker_cores:.1f} "
            f"| {about}{each.memory_mib:,.0f} MiB | {each.temporal_cores:.1f} | {each.history_mib / 1024:,.1f} GiB |"
        )
    return "\n".join(lines)


def _value(case: Case, name: str) -> float:
    found = taken(case.values(name), "median")
    assert found is not None, name
    return found
