"""A worker cut off from Temporal or from the API server only: it writes without a lease, or cannot write with one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from holdfast import names
from holdfast.local import Stack
from holdfast.model import OperationKind
from tests.e2e.crash.scene import pod
from tests.e2e.ground.site import until
from tests.e2e.nodes.fencing import HEARTBEAT_SECONDS, Fence, creates_pod, open_fence, train

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


@pytest.fixture
async def fence(stack: Stack, tmp_path: Path) -> AsyncIterator[Fence]:
    async with open_fence(stack, tmp_path) as opened:
        yield opened


@pytest.mark.row("L13", level="e2e")
async def test_cut_off_from_temporal_only_it_goes_on_beside_the_next_and_makes_nothing_twice(fence: Fence):
    """It cannot learn that it has lost its lease, and creates beside its successor what has the same names."""
    quota = await fence.quota(1)
    await fence.submit(train(*(pod(f"p{index:02}") for index in range(8))))
    await fence.audit.until(_refused, 60, "the second pod is refused")
    fence.temporal.black_hole()
    await fence.take_over()
    await fence.on_another(OperationKind.CREATE, tries=1)  # Only who takes over creates apart from preparing.
    mark = len(fence.api.writes())
    await fence.lift(quota)
    status = await fence.reach("Running", 1)
    alone = [one for one in fence.api.writes()[mark:] if creates_pod(one.method, one.path)]
    made = [one for one in fence.audit.created() if one.startswith("pods/")]
    print(f"MEASURED {len(alone)} creations by the worker without a lease, {len(made)} pods made")
    assert len(set(made)) == len(made) == 8, made
    assert (status.restarts, status.executions) == (0, 1)
    await fence.mend()
    await fence.quiet()
    await fence.finish()


def _refused(each: Any) -> bool:
    return each.worker and each.resource == "pods" and each.code == 403


async def test_cut_off_from_temporal_only_it_is_not_mixed_into_the_next_attempt(fence: Fence):
    quota = await fence.quota(1)
    await fence.submit(train(pod("first"), pod("second"), pod("third")))
    await fence.audit.until(_refused, 60, "the second pod is refused")
    fence.temporal.black_hole()
    await fence.take_over()
    await fence.on_another(OperationKind.CREATE, tries=1)  # Only who takes over creates apart from preparing.
    await fence.handle.signal(names.SIGNAL_SUSPEND, "making room")
    deleted = await fence.audit.until(
        lambda each: each.worker and each.verb == "delete" and each.resource == "attempts", 150, "its owner is deleted"
    )
    await fence.reach("Suspended")
    await fence.lift(quota)
    await fence.handle.signal(names.SIGNAL_RESUME, "room again")
    status = await fence.reach("Running", 2)
    after = fence.api.writes(deleted.at)
    print(f"MEASURED {len(after)} requests by the worker without a lease after its attempt was deleted")
    assert len(after) <= 1, after
    assert (status.restarts, status.executions) == (0, 2)
    await fence.mend()
    await fence.finish()


async def test_cut_off_from_temporal_only_it_stops_at_the_next_request_once_its_attempt_is_deleted(fence: Fence):
    """What tells it is the owner, looked at before each request: dying or gone, nothing more is created under it.

    Its SDK gives the creation up by itself some seconds after its heartbeats have gone unanswered. So that it surely is
    still at it here, the attempt is deleted at once, as the next worker would a little later.
    """
    quota = await fence.quota(1)
    await fence.submit(train(*(pod(f"p{index:02}") for index in range(8))))
    await fence.audit.until(_refused, 60, "the second pod is refused")
    fence.temporal.black_hole()
    owner = await fence.site.kube.get(names.API_VERSION, names.ATTEMPT_KIND, "train-a1", fence.namespace)
    key = (names.API_VERSION, names.ATTEMPT_KIND, "train-a1", fence.namespace)
    # It may look while the deletion is on its way back to here: what it finds then makes it stop, and look no more.
    begun = datetime.now(UTC)
    await fence.site.kube.delete(*key, uid=owner["metadata"]["uid"], propagation="Foreground")
    deleted = datetime.now(UTC)
    await fence.lift(quota)

    async def looked() -> bool:
        return any(one.method == "GET" and "/attempts/" in one.path for one in fence.api.sent if one.at > begun)

    await until(looked, 20, "it has looked at its attempt's owner")
    await asyncio.sleep(HEARTBEAT_SECONDS)
    after = [one for one in fence.api.writes(deleted) if creates_pod(one.method, one.path)]
    assert len(after) <= 1, after
    await fence.mend()
    await fence.reach("Running", 2)
    await fence.handle.signal(names.SIGNAL_CANCEL, "the test is over")
    await asyncio.wait_for(fence.handle.result(), 60)
    fence.witness.check()


async def test_cut_off_from_the_api_server_only_it_keeps_its_lease_and_goes_on_when_mended(fence: Fence):
    cut = fence.api.cut_before(creates_pod, 2)
    await fence.submit(train(pod("first"), pod("second"), pod("third")))
    await asyncio.wait_for(cut.wait(), 60)
    await fence.take_over()
    await asyncio.sleep(3 * HEARTBEAT_SECONDS)
    (pending,) = (await fence.handle.describe()).raw_description.pending_activities
    assert (pending.activity_type.name, pending.attempt) == (OperationKind.PREPARE, 1), "its heartbeats still arrive"
    assert [life.name[:5] for life in fence.pods_made(1)] == ["first"]

    mended = await fence.mend()
    landed = await fence.late(mended, "pods", "create")
    assert landed.code == 201, landed
    status = await fence.reach("Running", 1)
    # Its own late request has made the second pod: it finds it, and knows it for its own.
    made = [one for one in fence.audit.created() if one.startswith("pods/")]
    assert len(set(made)) == len(made) == 3, made
    assert (status.restarts, status.executions) == (0, 1)

    async def recognized() -> bool:
        found = fence.audit.requests(lambda each: each.worker and (each.verb, each.code) == ("create", 409))
        return [each.name for each in found if each.resource == "pods"] == [landed.name]

    await until(recognized, 60, "it has met its own late request")
    await fence.finish()
