"""A worker that may be replaced by one of the last release: nothing in a history that this one could not replay."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowFailureError
from temporalio.exceptions import ApplicationError

from holdfast import names
from holdfast.local import Stack
from holdfast.workflows import patches
from tests.e2e.ground.site import appwrapper, open_site
from tests.e2e.ground.space import Handle, open_space, pod
from tests.e2e.witness.invariants import check_replays

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
MARKER = EventType.EVENT_TYPE_MARKER_RECORDED
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


@pytest.mark.row("O4", level="e2e")
async def test_O4_a_life_under_compatible_with_has_no_marker_and_goes_on_once_the_upgrade_is_complete(
    stack: Stack, tmp_path: Path
):
    async with open_site(stack, tmp_path, prefix="u") as site:
        before = await site.start_worker(HOLDFAST_COMPATIBLE_WITH="0.1")
        async with open_space(site) as space:
            handle = await space.submit(appwrapper("train", pod("train"), failureGracePeriodDuration="0s"))
            await space.reach(handle, "Running", 1)
            assert await taken(handle) == {patches.SUBMITTED}, "only what 0.1 took"
            workload = site.read(appwrapper("claims", pod("claims")), space.namespace)
            document = workload.model_dump(mode="json", by_alias=True)
            document["volumeClaims"] = [{"name": "data", "spec": CLAIM}]
            with pytest.raises(WorkflowFailureError) as refused:
                await site.client.execute_workflow(
                    names.WORKLOAD_WORKFLOW, document, id=workload.workflow_id, task_queue=names.QUEUE_WORKFLOWS
                )
            cause: Any = refused.value.cause
            assert isinstance(cause, ApplicationError)
            assert cause.type == names.ERROR_INVALID_WORKLOAD
            assert "volumeClaims: needs release 0.2 of all workers" in cause.message

            after = await site.start_worker()
            assert await asyncio.to_thread(before.stop) == 0
            await space.fail_pod("train")
            await space.reach(handle, "Running", 2)
            assert (await space.site.status(handle)).restarts == 1
            later = await space.submit(appwrapper("later", pod("later")))
            await space.reach(later, "Running", 1)
            assert names.PATCH_WAITS in await taken(later), "what begins now is this release's own"
            for one, name in ((handle, "train"), (later, "later")):
                await space.complete(name)
                assert str((await space.ended(one)).phase) == "Succeeded"
            await check_replays(site.client)
            assert after.process.poll() is None


async def taken(handle: Handle) -> set[str]:
    """Return the patches that a workflow's history has taken."""
    events = (await handle.fetch_history()).events
    details = (one.marker_recorded_event_attributes.details for one in events if one.event_type == MARKER)
    return {json.loads(one["patch-data"].payloads[0].data)["id"] for one in details if "patch-data" in one}
