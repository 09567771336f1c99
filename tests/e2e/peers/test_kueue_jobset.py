"""Kueue decides when a JobSet of Holdfast's runs: admitted, preempted, admitted again, finished (rows F8, F16)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.local import Stack
from tests.e2e.door.front_door import applied, conditions
from tests.e2e.door.test_jobset_door import KIND, all_ready, counts, jobset, replicated, shows
from tests.e2e.ground.site import open_site, until
from tests.e2e.ground.space import Space, open_space
from tests.e2e.peers.kueue import LABEL_PRIORITY, LABEL_QUEUE, QUEUE, open_kueue, sampled

pytestmark = [pytest.mark.e2e, pytest.mark.kueue, pytest.mark.timeout(300)]


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
