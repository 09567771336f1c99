"""What Temporal bills, as docs/performance.md says: the numbers themselves are held where they are counted."""

from __future__ import annotations

from pathlib import Path

from bench import bill
from bench.report.write import DOCUMENT, parts

ROOT = Path(__file__).parents[2]


def test_the_tables_of_the_document_are_current() -> None:
    """After another number or price: `python -m bench bill`."""
    assert parts(ROOT / DOCUMENT, bill.BEGIN, bill.END)[1] == bill.generated()


def test_a_bill_is_actions_times_the_price() -> None:
    counts = (0, 24_000, 1_000_000, 34_560_000)
    assert [bill.bill(actions) for actions in counts] == ["0 $", "1.20 $", "50 $", "1,728 $"]
