"""A dozen scripts with the documents' own durations: what is decided, and to the second when."""

from __future__ import annotations

import pytest

from holdfast.cli.workloads.simulation_text import simulation_text
from holdfast.simulation import simulate
from tests.simulation.cases import CASES, GOLDEN, HERE, Case, parameters


@pytest.mark.parametrize("case", parameters("pure"))
def test_the_timeline_is_the_golden_one(case: Case):
    assert case.script.problems(case.workload()) == []
    expected = (GOLDEN / f"{case.name}.txt").read_text()
    assert simulation_text(simulate(case.workload(), case.script)) + "\n" == expected


def test_every_script_is_a_case():
    assert {path.stem for path in (HERE / "scripts").iterdir()} == {case.name for case in CASES}
    assert {path.stem for path in GOLDEN.iterdir()} == {case.name for case in CASES}
