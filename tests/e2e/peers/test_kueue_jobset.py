"""Kueue decides when a JobSet of Holdfast's runs: admitted, preempted, admitted again, finished (rows F8, F16).

Kueue's own end-to-end specs for JobSets run here, too, unmodified. How they are connected to Holdfast is
`local/build/kueue-suite/suite_test.go` (`docs/decisions/0102`). `make test-peers` runs this, as root.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.local import Stack
from holdfast.names import MANAGED_BY
from tests.e2e.door.front_door import applied, conditions
from tests.e2e.door.test_jobset_door import KIND, all_ready, counts, jobset, replicated, shows
from tests.e2e.ground.held import real_node, require_real
from tests.e2e.ground.site import Site, executable, open_site, until
from tests.e2e.ground.space import Space, open_space
from tests.e2e.peers import suite
from tests.e2e.peers.kueue import LABEL_PRIORITY, LABEL_QUEUE, QUEUE, open_kueue, sampled

pytestmark = [pytest.mark.e2e, pytest.mark.kueue, pytest.mark.timeout(900)]

SUITE = "kueue-suite"
IMAGE = "holdfast.local/agnhost:1"
EXITS_AT_ONCE = b'#!/bin/sh\necho "$0" "$@"\n'
"""What `agnhost entrypoint-tester` does."""
LABEL = "test.holdfast.dev/kueue"
"""Of the namespaces that the suite's Kueue is for."""
SPACES = "e2e-"
"""What the names of the specs' namespaces begin with."""
SPECS = 2


def asks(space: Space, name: str, priority: str = "") -> dict[str, Any]:
    """Return a JobSet that asks Kueue for two CPUs, in two Jobs; its pods name no node."""
    work = replicated("work", 2)
    pod = work["template"]["spec"]["template"]["spec"]
    pod.pop("nodeSelector")
    pod["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    made = jobset(space, work, name=name)
    made["metadata"]["labels"] = {LABEL_QUEUE: QUEUE} | ({LABEL_PRIORITY: priority} if priority else {})
    return made


def is_complete(found: dict[str, Any]) -> bool:
    return conditions(found).get("Completed") == "True"


@pytest.mark.row("F6", level="e2e")
@pytest.mark.row("F8", level="e2e")
@pytest.mark.row("F16", level="e2e")
async def test_F16_kueue_admits_a_jobset_preempts_it_and_finishes_it(stack: Stack, tmp_path: Path):
    async with open_site(stack, tmp_path, prefix="q") as site:
        await site.start_worker()
        async with open_space(site, KIND) as space, open_kueue(stack, tmp_path, space.namespace) as kueue:
            await kueue.quota("2", preemption={"withinClusterQueue": "LowerPriority"})
            urgent = await kueue.priority("urgent", 1000)
            async with sampled(space, kueue, "JobSet", "jobset.sigs.k8s.io/jobset-name"):
                await applied(space, asks(space, "patient"))
                found = await shows(space, all_ready, "it is admitted and runs", name="patient")
                (job,) = found["spec"]["replicatedJobs"]
                assert job["template"]["spec"]["template"]["spec"]["nodeSelector"] == {"holdfast.dev/node": "fake"}
                workloads = await kueue.workloads()
                assert set(workloads) == {"JobSet patient"}, "none of its Jobs is queued a second time"
                await applied(space, asks(space, "urgent", urgent))
                found = await shows(
                    space,
                    lambda one: conditions(one).get("Suspended") == "True" and not counts(one)["work"]["active"],
                    "it is preempted",
                    120,
                    name="patient",
                )
                assert not await space.pods("patient")
                await shows(space, all_ready, "the more important one runs", 120, name="urgent")
                await space.complete("urgent")
                await shows(space, is_complete, "it is complete", name="urgent")

                async def is_finished() -> bool:
                    told = (await kueue.workloads())["JobSet urgent"]["status"]["conditions"]
                    return any((one["type"], one["status"]) == ("Finished", "True") for one in told)

                await until(is_finished, 60, "Kueue knows that it has ended")
                found = await shows(space, all_ready, "the first is admitted again", 120, name="patient")
                assert found["status"]["restarts"] == 0, "a preemption is no restart"


@pytest.fixture
async def real_site(stack: Stack, tmp_path: Path) -> AsyncIterator[Site]:
    """A site whose worker runs every JobSet that names no controller, its pods on the real node."""
    async with open_site(stack, tmp_path, prefix="q") as opened:
        await require_real(opened)
        kube = opened.kube
        async with real_node(stack, alone=True), suite.given_to_holdfast(kube, "jobset"), suite.nodes_kept(kube):
            await suite.place(kube, real=True)
            await suite.label_real(kube, {"instance-type": "on-demand"})
            await suite.import_image(stack, tmp_path, IMAGE, {"entrypoint-tester": EXITS_AT_ONCE})
            await opened.start_worker(HOLDFAST_MANAGED_BY=MANAGED_BY)
            try:
                yield opened
            finally:
                await suite.label_real(kube, {"instance-type": None})
                spaces = [one["metadata"]["name"] for one in (await kube.list("v1", "Namespace"))["items"]]
                opened.namespaces += [one for one in spaces if one.startswith(SPACES)]


@pytest.mark.real_node
@pytest.mark.row("F8", level="e2e")
@pytest.mark.row("F16", level="e2e")
async def test_F16_kueues_own_specs_for_jobsets(real_site: Site, tmp_path: Path):
    environment = {
        "HOLDFAST": executable()[0],
        "KUEUE_LABEL": LABEL,
        "E2E_TEST_AGNHOST_IMAGE": IMAGE,
        "PROJECT_DIR": str(tmp_path / "project"),
    }
    async with open_kueue(real_site.stack, tmp_path, "kueue-suite", label=LABEL):
        specs = await suite.run(real_site.stack, tmp_path, "jobset", {}, suite=SUITE, env=environment)
    suite.judge(specs, ())
    assert len(specs) == SPECS, "the suite has run"


def test_its_suite_file_differs_from_the_published_one_as_the_document_says():
    assert suite.difference(SUITE) in suite.document(SUITE).read_text(), f"python -m tests.e2e.peers.suite {SUITE}"
