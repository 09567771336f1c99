"""The worker dies at every point there is, one a run: nothing twice, nothing mixed, nothing charged, nothing left.

`make test-crash` (TEST_CRASH=every) lives each scenario once for every failpoint it passes, and once for each of a
sample of pairs. Otherwise only a sample is run, of the places where a crash would hurt most.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from holdfast.local import Stack
from holdfast.worker.failpoints import Passing
from tests.e2e.crash import failpoints
from tests.e2e.crash.failpoints import SLICES
from tests.e2e.ground.site import Site, open_site
from tests.e2e.lives.scenarios import BY_NAME, SCENARIOS

EVERY = os.environ.get("TEST_CRASH") == "every"
STREAMS_ROWS = [pytest.mark.row(row, level="e2e") for row in ("S1", "S4", "S5", "S6")]
"""Rows that are shown by submissions that were interrupted anywhere."""
SAMPLE = (
    ("appwrapper-reset", "http.create.pods.after:1"),
    ("appwrapper-reset", "http.create.attempts.after:2"),
    ("appwrapper-reset", "activity.reset.after:1"),
    ("appwrapper-reset", "http.patch.anchors/status.after:4"),
    ("appwrapper-reset", "http.delete.attempts.before:1"),
    ("appwrapper-shown-as-it-waits", "http.create.anchors.after:1"),
    ("appwrapper-shown-as-it-waits", "http.patch.anchors/status.before:2"),
    ("appwrapper-suspend-and-force", "http.delete.attempts.after:1"),
    ("appwrapper-suspend-and-force", "activity.force_remove.after:1"),
    ("streams-submission", "http.create.pods.after:3"),
    ("streams-submission", "http.create.pods.after:5"),
    ("streams-submission", "activity.remove.after:1"),
    ("streams-pod-deleted", "http.create.pods.after:6"),
    ("jobset-restart-in-order", "activity.replace.before:1"),
    ("jobset-replicated-job", "http.delete.jobs.after:1"),
    ("jobset-suspended-in-order", "http.patch.jobs.after:2"),
    ("jobset-suspended-in-order", "activity.park.after:1"),
    ("jobset-suspended-in-order", "http.patch.jobs.after:5"),
    ("lattice-requeue", "activity.remove.after:1"),
    ("queued-requeue", "activity.look_queue.after:1"),
    ("queued-requeue", "activity.remove.after:1"),
    ("lattice-sensitive-walltime", "activity.create.before:1"),
    ("lattice-sensitive-walltime", "activity.remove.before:1"),
    ("preempted-and-saved", "http.patch.pods.after:1"),
    ("preempted-and-saved", "activity.checkpoint.after:1"),
    ("lattice-saved-after-its-walltime", "activity.remove.before:1"),
    ("lattice-saved-after-its-walltime", "activity.remove.after:1"),
    ("lattice-launch", "activity.reset.after:1"),
    ("lattice-walltime-extended", "activity.remove.before:2"),
    ("lattice-node-down", "http.patch.nodes.before:1"),
    ("lattice-node-down", "http.delete.pods.after:1"),
    ("lattice-probe", "activity.probe.after:1"),
    ("queue-of-one", "activity.look_queue.after:1"),
    ("queue-of-one", "activity.remove.after:1"),
    ("graph-in-order", "activity.report.after:1"),
    ("graph-in-order", "activity.remove.after:1"),
    ("machines-told-once", "machine.set_power.after:1"),
    ("machines-told-once", "machine.erase.after:2"),
    ("broker-has-one-save", "activity.ask_checkpoint.after:1"),
    ("staged-once", "activity.stage.after:1"),
    ("appwrapper-applied", "http.patch.appwrappers.after:1"),
    ("appwrapper-applied", "http.patch.appwrappers/status.before:2"),
    ("appwrapper-applied", "activity.prepare.before:2"),
)
"""In the middle of a creation, after its last object, in the middle of a removal, between proof and recreation; once a
node is Down and nobody has been told, as a pod there is forced, with a service's third silence. Of entities: as a queue
and a graph are to hear that one has ended or is gone, and as a machine, a workload or a cache has just been told."""


def _marked(scenario: str, *values: object) -> ParameterSet:
    """Return parameters with the rows that they show."""
    return pytest.param(*values, marks=STREAMS_ROWS if BY_NAME[scenario].replaces else ())


@pytest.fixture
async def workerless(stack: Stack, tmp_path: Path) -> AsyncIterator[Site]:
    """A site whose workers the harness starts."""
    async with open_site(stack, tmp_path, prefix="f") as site:
        yield site


if EVERY:

    @pytest.mark.timeout(3600)
    @pytest.mark.parametrize("index", range(SLICES))
    @pytest.mark.parametrize("scenario", [_marked(each.name, each) for each in SCENARIOS], ids=str)
    async def test_every_failpoint(workerless: Site, shared: Path, scenario: failpoints.Scenario, index: int):
        points = await failpoints.points_of(workerless, scenario, shared)
        outcomes: list[failpoints.Outcome] = []
        for crashes in failpoints.share(points, index, SLICES):
            outcomes.append(await failpoints.run(workerless, scenario, crashes))
            print(outcomes[-1])
            failpoints.record(outcomes, f"{scenario}-{index}")
        broken = [f"{one.crashes}: {one.problem}" for one in outcomes if one.problem]
        assert not broken, "\n\n".join(broken)
        assert any(one.reached for one in outcomes), "no run reached its failpoint"

else:

    @pytest.mark.sample(days=2)
    @pytest.mark.timeout(300)
    @pytest.mark.parametrize(("name", "point"), [_marked(name, name, point) for name, point in SAMPLE])
    async def test_a_sampled_failpoint(workerless: Site, name: str, point: str):
        outcome = await failpoints.run(workerless, BY_NAME[name], (Passing.parse(point),))
        print(f"MEASURED {outcome.seconds:.1f} s with {outcome.crashes}")
        assert not outcome.problem, outcome.problem
        assert outcome.reached, f"{point} was not passed"
