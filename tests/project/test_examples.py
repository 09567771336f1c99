"""The examples: each says what it is and what it needs; what needs nothing is small and valid (row E11)."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.formats import read
from tests.e2e.status.test_examples import EXAMPLES, WORKLOADS, needs

ROW = pytest.mark.row
ALL = sorted(EXAMPLES.rglob("*.yaml"))
PODS_MOST = 12
"""Pods of an example that somebody may try on a laptop's cluster without reading it."""


@ROW("E11", level="pure")
@pytest.mark.parametrize("example", ALL, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_E11_each_example_says_what_it_is(example: Path) -> None:
    assert example.read_text().startswith("# ")


@ROW("E11", level="pure")
@pytest.mark.parametrize("example", WORKLOADS, ids=lambda path: path.stem)
def test_E11_an_example_of_many_pods_or_of_another_kind_says_what_it_needs(example: Path) -> None:
    (workload,) = read(example.read_text(), cluster="dev")
    alone = all(component.template.get("kind") != "TrainingPlan" for component in workload.components)
    small = workload.expected_pods <= PODS_MOST
    anywhere = workload.gang is None and not workload.mounts and workload.checkpoint is None
    anywhere = anywhere and "holdfast.dev/node: real" not in example.read_text()
    assert bool(needs(example)) is not (alone and small and anywhere)
