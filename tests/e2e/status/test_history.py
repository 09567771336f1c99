"""A workload's whole life told after it is over: its objects gone, no worker left, many causes, several runs (U12)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from holdfast import names
from holdfast.local import Stack
from tests.e2e.crash.scene import own_temporal
from tests.e2e.ground.site import appwrapper, job, open_site, until
from tests.e2e.ground.space import open_space
from tests.e2e.ground.terminal import command

pytestmark = pytest.mark.e2e
SUSPENSIONS = 11


@pytest.mark.row("U12", level="e2e")
async def test_U12_all_causes_are_told_once_objects_and_workers_are_gone(stack: Stack, tmp_path: Path):
    document = appwrapper(
        "train",
        job(),
        failureGracePeriodDuration="0s",
        retryPausePeriodDuration="0s",
        successTTLDuration="0s",
    )
    early = "limit.historyCount.suggestContinueAsNew=120"
    async with (
        own_temporal(stack, tmp_path, early) as temporal,
        open_site(stack, tmp_path, temporal_address=temporal.address) as site,
    ):
        worker = await site.start_worker()
        async with open_space(site) as space:
            handle = await space.submit(document)
            attempt = 1
            for _ in range(2):
                await space.reach(handle, "Running", attempt)
                await space.fail_pod("train", 7)
                attempt += 1
            for index in range(SUSPENSIONS):
                await space.reach(handle, "Running", attempt)
                await handle.signal(names.SIGNAL_SUSPEND, f"making room {index}")
                await space.reach(handle, "Suspended")
                await handle.signal(names.SIGNAL_RESUME)
                attempt += 1
            await space.reach(handle, "Running", attempt)
            await space.complete("train")
            status = await space.ended(handle)
            await until(lambda: site.gone(space.namespace), 60, "all is gone")
            worker.stop()

            life = json.loads(await command(site, "history", f"{space.namespace}/train", "-o", "json"))
            table = await command(site, "history", f"{space.namespace}/train")
            made = {
                one.name
                for one in space.truth.requests()
                if (one.verb, one.resource, one.subresource) == ("create", "attempts", "")
            }

    assert life["exact"], life["notes"]
    assert life["complete"]
    assert len(life["runs"]) > 1, "it was continued as new"
    assert life["outcome"] == "Succeeded"
    assert life["causesTotal"] == status.causes_total > 50
    assert [cause["number"] for cause in life["causes"]] == list(range(1, status.causes_total + 1))
    assert [cause["time"] for cause in life["causes"]] == sorted(cause["time"] for cause in life["causes"])
    reasons = Counter(cause["reason"] for cause in life["causes"])
    assert reasons["Resetting"] == life["restarts"] == 2
    assert reasons["SuspendRequested"] == reasons["Resumed"] == SUSPENSIONS
    assert reasons["DeletionComplete"] == life["executions"] == attempt == len(made), "as the audit log has it"
    assert [one["number"] for one in life["attempts"]] == list(range(1, attempt + 1))
    for one in life["attempts"][:2]:
        # Which of the two is seen first, the pod or its Job, is the cluster's.
        failure = one["failure"]
        assert (failure["exitCode"] == 7 and failure["node"]) or failure["reason"] == "BackoffLimitExceeded"
        assert one["charged"] == "restart"
    assert all(one["goneAt"] for one in life["attempts"])
    assert f"making room {SUSPENSIONS - 1}" in table
    assert "making room 0" in table
