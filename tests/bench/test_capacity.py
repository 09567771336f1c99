"""What so many workloads need, as docs/how-to/capacity.md says: arithmetic on what was published."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import capacity
from bench.capacity import DOCUMENT, Figures, need
from bench.report.write import parts

ROOT = Path(__file__).parents[2]
FIGURES = Figures(
    worker_cpu=0.2,
    temporal_cpu=0.1,
    apiserver_cpu=0.2,
    started_per_s=7,
    base_mib=300,
    more_mib=10,
    measured=10_000,
    idle_cpu=0.05,
    idle_temporal_cpu=0.04,
    life_bytes=1024 * 1024,
)


def test_the_tables_of_the_document_are_current() -> None:
    """After other figures or assumptions: `python -m bench capacity`."""
    assert parts(ROOT / DOCUMENT, capacity.BEGIN, capacity.END)[1] == capacity.generated()


def test_few_workloads_need_two_replicas_for_one_may_go() -> None:
    assert need(FIGURES, 1).replicas == 2
    assert need(FIGURES, 1).memory_mib == 300


def test_a_day_of_starts_with_its_peak_is_what_the_cores_are_for() -> None:
    found = need(FIGURES, 86_400)
    assert found.starts_per_s == 1
    assert found.worker_cores == pytest.approx(10 * 0.2 + 8.64 * 0.05)
    assert found.temporal_cores == pytest.approx(10 * 0.1 + 8.64 * 0.04)
    assert found.replicas == 5, "2.43 cores at half a core each"


def test_memory_and_history_grow_with_what_lives_and_what_is_kept() -> None:
    found = need(FIGURES, 11_000)
    assert found.memory_mib == 300 + 10 * 10
    assert found.history_mib == 11_000 * 8
    assert not found.measured
    assert need(FIGURES, 10_000).measured
