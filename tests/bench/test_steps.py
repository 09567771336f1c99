"""How often a stall is seen where there is none, and how soon one is, as docs/performance.md publishes it (row P2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.report.write import DOCUMENT, parts
from bench.steps import BEGIN, END, FALSE_AT_MOST, SHAPES, STEPS, Shape, measure

ROOT = Path(__file__).parents[2]


@pytest.mark.row("P2", level="pure")
@pytest.mark.parametrize("outages", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_P2_few_false_alarms_and_a_stall_within_its_multiple_of_the_median(shape: Shape, outages: bool):
    found = measure(shape, steps=6_000, stalls=6, seed=7, outages=outages)
    # A heavy tail is the only shape that is not known yet after so few steps, as the document says.
    assert found.false <= (2 if shape.name == "heavy tail" else 0)
    assert 12 <= found.median <= shape.detected
    assert found.worst <= shape.detected


@pytest.mark.row("P2", level="pure")
def test_P2_the_published_table_has_all_shapes_at_full_size_and_keeps_the_target():
    rows = [line.split("|") for line in parts(ROOT / DOCUMENT, BEGIN, END)[1].splitlines() if "×" in line]
    every = [(shape, outages) for shape in SHAPES for outages in ("no", "yes")]
    assert [(row[1].strip().split(":")[0], row[2].strip()) for row in rows] == [(one.name, told) for one, told in every]
    for row, (shape, _) in zip(rows, every, strict=True):
        assert int(row[3].replace(",", "")) >= STEPS
        assert int(row[4]) <= FALSE_AT_MOST * STEPS
        assert float(row[7].strip(" ×")) <= shape.detected
