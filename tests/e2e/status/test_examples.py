"""Every example that needs nothing runs on the local stack as it is (row E11)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast import names
from tests.e2e.ground.space import Space

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
EXAMPLES = Path(__file__).parents[3] / "examples"
ELSEWHERE = ("crds", "graph", "queue", "scripts")
"""Folders with other things than workloads: test_graph.py runs the graph, test_queue.py reads the queues."""
WORKLOADS = [path for path in sorted(EXAMPLES.rglob("*.yaml")) if path.parent.name not in ELSEWHERE]


def needs(example: Path) -> str:
    """Return what an example's head comment says that it needs; empty if the local stack will do."""
    head = re.match(r"(#.*\n)+", example.read_text())
    said = re.search(r"^# Needs: (.+)$", head[0], re.MULTILINE) if head else None
    return said[1] if said else ""


@pytest.mark.row("E11", level="e2e")
@pytest.mark.parametrize(
    "text",
    [pytest.param(path.read_text(), id=path.stem) for path in WORKLOADS if not needs(path)],
)
async def test_E11_an_example_that_needs_nothing_runs(space: Space, text: str):
    handle = await space.submit(text)
    # Simulated pods run until they are cancelled, except those that say when they succeed.
    ends = f"{names.GROUP}/kwok-complete" in text
    status = await space.reach(handle, "Succeeded" if ends else "Running")
    assert (status.attempt, status.restarts) == (1, 0)
    await handle.signal(names.SIGNAL_CANCEL)
    assert (await space.ended(handle)).phase == ("Succeeded" if ends else "Cancelled")
