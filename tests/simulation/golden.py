"""Write the golden timelines again, to be read before they are committed: `python -m tests.simulation.golden`."""

from __future__ import annotations

from holdfast.cli.workloads.simulation_text import simulation_text
from holdfast.simulation import simulate
from tests.simulation.cases import CASES, GOLDEN


def main() -> None:
    for case in CASES:
        (GOLDEN / f"{case.name}.txt").write_text(simulation_text(simulate(case.workload(), case.script)) + "\n")


if __name__ == "__main__":
    main()
