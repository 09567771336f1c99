"""A worker cut off from Temporal and from the API server while it acts: another goes on; what comes late is collected.

What a fenced worker had under way is one request of each activity. It cannot be prevented from landing late, so these
tests have it land, at the worst time (docs/decisions/0012-fencing.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast import names
from holdfast.local import Stack
from holdfast.model import OperationKind
from tests.e2e.crash.scene import pod
from tests.e2e.nodes.fencing import (
    FINALIZER,
    Fence,
    bare,
    creates_pod,
    deletes_owner,
    deletes_pod,
    open_fence,
    streams,
    train,
)
from tests.e2e.witness.audit import Request

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

STUBBORN = {"holdfast.dev/kwok-stubborn": "true"}


@pytest.fixture
async def fence(stack: Stack, tmp_path: Path) -> AsyncIterator[Fence]:
    async with open_fence(stack, tmp_path) as opened:
        yield opened


async def _cut(cut: asyncio.Event) -> None:
    await asyncio.wait_for(cut.wait(), 60)


# --- in the middle of a create


@pytest.mark.row("L13", level="e2e")
async def test_fenced_in_a_create_whose_attempt_is_gone_when_it_lands(fence: Fence):
    cut = fence.api.cut_before(creates_pod, 2, beside=(fence.temporal,))
    await fence.submit(train(pod("first"), pod("second"), pod("third")))
    await _cut(cut)
    await fence.take_over()
    status = await fence.reach("Running", 1)
    assert status.restarts == 0, "another worker has finished what was begun"
    await fence.again()
    kept = {life.uid for life in fence.pods_made(2)}

    mended = await fence.mend()
    landed = await fence.late(mended, "pods", "create")
    assert landed.code == 201, landed
    stray = await fence.life_of(1, landed.name, after=_last(fence, 2))
    await fence.collected(stray)
    await fence.quiet()
    status = await fence.reach("Running", 2)
    assert {life.uid for life in fence.pods_made(2) if life.ended is None} == kept
    assert (status.restarts, status.executions) == (0, 2)
    await fence.finish(stray)


def _last(fence: Fence, attempt: int) -> int:
    return max(life.began for life in fence.pods_made(attempt))


async def test_fenced_in_a_create_whose_attempt_is_dying_when_it_lands(fence: Fence):
    cut = fence.api.cut_before(creates_pod, 2, beside=(fence.temporal,))
    await fence.submit(
        train(bare("first", finalizers=[FINALIZER]), pod("second"), forcefulDeletionGracePeriodDuration="300s")
    )
    await _cut(cut)
    # Whoever takes over must not make the second pod: its name is what the late request is to find free.
    quota = await fence.quota(0)
    await fence.handle.signal(names.SIGNAL_SUSPEND, "making room")
    await fence.take_over()
    await fence.audit.until(_owner_deleted, 150, "its owner is deleted")
    await fence.lift(quota)
    assert [life.name for life in fence.pods_made(1)] == ["first"]

    mended = await fence.mend()
    landed = await fence.late(mended, "pods", "create")
    assert landed.code == 201, landed
    stray = await fence.life_of(1, landed.name)
    # The collector comes to it when it next looks at its owner: when the pod that held that has gone.
    await fence.steer_pods(finalizers=None)
    await fence.collected(stray)
    await fence.reach("Suspended")
    await fence.handle.signal(names.SIGNAL_RESUME, "room again")
    status = await fence.reach("Running", 2)
    assert (status.restarts, status.executions) == (0, 2)
    # Here nothing is left out of the check: attempt 2 came after the last of attempt 1 was gone, what came late too.
    await fence.finish()


async def test_what_lands_late_has_the_name_that_the_next_attempt_needs(fence: Fence):
    cut = fence.api.cut_before(creates_pod, 1, beside=(fence.temporal,))
    await fence.submit(train(bare("worker", finalizers=[FINALIZER])))
    await _cut(cut)
    quota = await fence.quota(0)
    await fence.handle.signal(names.SIGNAL_SUSPEND, "making room")
    await fence.take_over()
    await fence.reach("Suspended")
    await fence.lift(quota)
    assert not fence.pods_made(1)

    mended = await fence.mend()
    landed = await fence.late(mended, "pods", "create")
    assert landed.code == 201, landed
    stray = await fence.life_of(1, landed.name)
    await fence.handle.signal(names.SIGNAL_RESUME, "room again")
    await fence.audit.until(
        lambda each: each.worker and (each.verb, each.resource, each.code) == ("create", "pods", 409),
        60,
        "attempt 2 finds its name taken",
    )
    status = await fence.reach("Resuming", 2)
    assert stray.ended is None, "it is held by a finalizer"
    assert status.restarts == 0
    await fence.steer_pods(finalizers=None)
    await fence.collected(stray)
    status = await fence.reach("Running", 2)
    (made,) = fence.pods_made(2)
    assert stray.ended is not None
    assert stray.ended < made.began
    assert (status.restarts, status.executions) == (0, 2)
    await fence.finish(stray)


# --- in the middle of a submission that is replaced whole


@pytest.mark.row("S4", level="e2e")
async def test_S4_fenced_in_a_submission_that_is_made_anew_and_never_mixed(fence: Fence):
    cut = fence.api.cut_before(creates_pod, 3, beside=(fence.temporal,))
    await fence.submit(streams(*(pod(name) for name in ("first", "second", "third", "fourth", "fifth"))))
    await _cut(cut)
    await fence.take_over()
    # More than one if Temporal hands the second submission to the worker that it believes to be there still.
    status = await fence.reach("Running")
    number = status.attempt
    assert number >= 2
    assert (status.restarts, status.executions) == (0, number), "our own crash is charged to nothing"
    assert len(fence.pods_made(1)) == 2, "nothing was added to what had been interrupted"
    assert all(life.ended is not None for life in fence.pods_made(1))
    kept = {life.uid for life in fence.pods_made(number)}
    assert len(kept) == 5

    mended = await fence.mend()
    landed = await fence.late(mended, "pods", "create")
    assert landed.code == 201, landed
    stray = await fence.life_of(1, landed.name)
    await fence.collected(stray)
    await fence.quiet()
    assert {life.uid for life in fence.pods_made(number) if life.ended is None} == kept
    status = await fence.reach("Running", number)
    assert (status.restarts, status.executions) == (0, number)
    await fence.finish(stray)


@pytest.mark.row("S5", level="e2e")
async def test_S5_no_submission_begins_while_the_interrupted_one_dies_with_what_came_late(fence: Fence):
    cut = fence.api.cut_before(creates_pod, 2, beside=(fence.temporal,))
    await fence.submit(streams(bare("first", finalizers=[FINALIZER]), pod("second"), pod("third")))
    await _cut(cut)
    await fence.take_over()
    await fence.audit.until(_owner_deleted, 150, "its owner is deleted")
    mended = await fence.mend()
    landed = await fence.late(mended, "pods", "create")
    assert landed.code == 201, landed
    stray = await fence.life_of(1, landed.name)
    await fence.quiet()
    assert [life.name for life in fence.witness.of(names.ATTEMPT_KIND)] == [names.attempt_name("first", 1)]
    await fence.steer_pods(finalizers=None)
    await fence.collected(stray)
    status = await fence.reach("Running")
    assert status.attempt >= 2
    assert (status.restarts, status.executions) == (0, status.attempt)
    # Nothing is left out of this check: attempt 2 came after the last of attempt 1 was gone, what came late too.
    await fence.finish()


def _owner_deleted(each: Request) -> bool:
    return each.worker and each.verb == "delete" and each.resource == "attempts"


# --- in the middle of a delete


@pytest.mark.parametrize("under_way", ["the deletion", "the proof"])
async def test_fenced_in_a_delete(fence: Fence, under_way: str):
    await fence.submit(train(bare("worker", labels=STUBBORN), forcefulDeletionGracePeriodDuration="300s"))
    await fence.reach("Running", 1)
    if under_way == "the deletion":
        cut = fence.api.cut_before(deletes_owner, 1, beside=(fence.temporal,))
    else:
        cut = fence.api.cut_before(
            lambda *asked: asked[0] == "GET" and "/attempts/" in asked[1], 3, beside=(fence.temporal,)
        )
    await fence.handle.signal(names.SIGNAL_SUSPEND, "making room")
    await _cut(cut)
    await fence.take_over()
    await fence.on_another(OperationKind.REMOVE)
    await fence.steer_pods(labels={"holdfast.dev/kwok-stubborn": None})
    await fence.reach("Suspended")
    await fence.handle.signal(names.SIGNAL_RESUME, "room again")
    await fence.reach("Running", 2)
    kept = {life.uid for life in fence.pods_made(2)}

    mended = await fence.mend()
    if under_way == "the deletion":
        landed = await fence.late(mended, "attempts", "delete")
        assert landed.code == 404, landed
    await fence.quiet()
    assert {life.uid for life in fence.pods_made(2) if life.ended is None} == kept
    await fence.steer_pods(labels={"holdfast.dev/kwok-stubborn": None})
    await fence.finish()


async def test_a_forced_deletion_that_lands_late_spares_the_next_attempt_s_pod_of_that_name(fence: Fence):
    await fence.submit(train(bare("worker", labels=STUBBORN), forcefulDeletionGracePeriodDuration="1s"))
    await fence.reach("Running", 1)
    cut = fence.api.cut_before(deletes_pod, 1, beside=(fence.temporal,))
    await fence.handle.signal(names.SIGNAL_SUSPEND, "making room")
    await _cut(cut)
    await fence.take_over()
    await fence.reach("Suspended")
    await fence.handle.signal(names.SIGNAL_RESUME, "room again")
    await fence.reach("Running", 2)
    (kept,) = fence.pods_made(2)

    mended = await fence.mend()
    landed = await fence.late(mended, "pods", "delete")
    assert (landed.code, landed.name) == (409, "worker"), landed
    await fence.quiet()
    assert kept.ended is None
    await fence.finish()
