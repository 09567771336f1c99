"""What Holdfast deletes itself dies as failed pods do, and is a failure to nobody (row U4), on real servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import names
from holdfast.local import Stack
from holdfast.model import OperationKind, Reason, Status
from tests.e2e.ground.site import appwrapper, job, open_site, until
from tests.e2e.ground.space import Handle, Space, open_space, pod
from tests.e2e.witness.truth import WORKER

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row
FAILURES = {Reason.RESETTING, Reason.FOUND_FAILED_PODS, Reason.FAILED_COMPONENT, Reason.MISSING_COMPONENT}


def doomed(delay: str = "1s") -> dict[str, Any]:
    """Return an AppWrapper whose processes answer SIGTERM with exit code 143, and whose pods vanish only later."""
    dies = {"holdfast.dev/kwok-delete-exit-code": "143", "holdfast.dev/kwok-delete-delay": delay}
    several = job()
    several["template"]["spec"]["template"]["metadata"]["annotations"] |= dies
    waits = {"failureGracePeriodDuration": "0s", "forcefulDeletionGracePeriodDuration": "60s"}
    return appwrapper("train", several, pod("lone", annotations=dies), retryLimit="1", **waits)


def failures(status: Status) -> list[Reason]:
    return [one.reason for one in status.causes if one.reason in FAILURES]


def died_failed(space: Space, attempt: int) -> bool:
    """Whether all pods of an attempt are gone, and were last seen as failed ones that were being deleted."""
    lives = space.truth.of(attempt, "Pod")
    return len(lives) == 3 and all(
        one.died is not None
        and one.object["status"]["phase"] == "Failed"
        and "deletionTimestamp" in one.object["metadata"]
        for one in lives
    )


async def assert_recorded_before_deleted(space: Space, handle: Handle, attempt: int, phase: str) -> None:
    """Assert that history had what an attempt's removal is for before its owner was deleted."""
    owner, requests = names.attempt_name("train", attempt), space.truth.requests()
    deleted = min(one.time for one in requests if (one.verb, one.name, one.user) == ("delete", owner, WORKER))
    removals = await space.acts(handle, OperationKind.REMOVE)
    first = next(one for one in removals if one.given["attempt"] == attempt)
    assert first.given["report"]["phase"] == phase
    assert first.scheduled <= deleted


@ROW("U4", level="e2e")
async def test_U4_pods_that_fail_of_our_own_deletion_are_charged_to_nobody(space: Space):
    handle = await space.submit(doomed())
    await space.reach(handle, "Running", 1)
    await space.fail_pod("train")
    status = await space.reach(handle, "Running", 2)
    assert (status.restarts, status.budgets[0].used) == (1, 1), (
        "the failure is charged, and what its reset kills is not"
    )
    charged = failures(status)

    for signal, attempt in ((names.SIGNAL_SUSPEND, 3), (names.SIGNAL_PREEMPT, 4)):
        await handle.signal(signal, "making room")
        await space.reach(handle, "Suspended")
        await handle.signal(names.SIGNAL_RESUME)
        status = await space.reach(handle, "Running", attempt)
        assert (status.restarts, status.budgets[0].used, failures(status)) == (1, 1, charged)
    await handle.signal(names.SIGNAL_CANCEL, "enough")
    status = await space.ended(handle)
    assert (status.phase, status.failure, failures(status)) == ("Cancelled", None, charged)

    await space.truth.settle()
    for attempt in (2, 3, 4):
        assert died_failed(space, attempt), "what was deleted did look like failed pods"
    for attempt, phase in ((1, "Resetting"), (2, "Suspending"), (3, "Suspending"), (4, "Terminating")):
        await assert_recorded_before_deleted(space, handle, attempt, phase)
    space.truth.assert_told_truly("train")


async def dying(space: Space, handle: Handle) -> None:
    """Wait until all of a workload's pods have failed of their deletion, and are there still."""

    async def check() -> bool:
        found = await space.pods()
        return len(found) == 3 and all(
            one["status"]["phase"] == "Failed" and "deletionTimestamp" in one["metadata"] for one in found
        )

    await until(check, 60, f"the pods of {handle.id} have failed of their deletion")


@ROW("U4", level="e2e")
async def test_U4_a_worker_that_finds_them_dying_takes_them_for_no_failure(stack: Stack, tmp_path: Path):
    async with open_site(stack, tmp_path, prefix="o") as site:
        worker = await site.start_worker()
        async with open_space(site) as space:
            handle = await space.submit(doomed(delay="25s"))
            await space.reach(handle, "Running", 1)
            await handle.signal(names.SIGNAL_SUSPEND, "making room")
            await dying(space, handle)
            worker.kill()
            await site.start_worker()
            status = await space.reach(handle, "Suspended")
            assert (status.restarts, status.failure, failures(status)) == (0, None, [])
            await space.truth.settle()
            assert died_failed(space, 1)
            await handle.signal(names.SIGNAL_RESUME)
            status = await space.reach(handle, "Running", 2)
            assert (status.restarts, status.executions, failures(status)) == (0, 2, [])
