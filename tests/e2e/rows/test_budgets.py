"""What a restart budget counts, what renews it, and what is counted apart (rows U3, U6, U8, U10), on real servers."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from holdfast import names
from holdfast.activities.kube.client import Conflict
from holdfast.local import Stack
from holdfast.model import OperationKind, Status
from holdfast.policy.loop.change import PolicyChange
from tests.e2e.ground.site import appwrapper, free_port, job, open_site, until
from tests.e2e.ground.space import Handle, Space, open_space

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row


def renewed_after(health: str, document: dict[str, Any]) -> dict[str, Any]:
    document["metadata"]["annotations"][f"{names.GROUP}/restartBudgetResetAfter"] = health
    return document


async def used(space: Space, handle: Handle) -> int:
    """How much both queries say is used; asked again if it was renewed between the two."""
    told: list[Status] = []

    async def agree() -> bool:
        told[:] = [await space.site.status(handle)]
        return told[0].budgets == (await space.explain(handle)).budgets

    await until(agree, 60, "status and explain say the same of the budgets")
    (budget,) = told[0].budgets
    return budget.used


async def renewed(space: Space, handle: Handle) -> None:
    """Wait until nothing is said to be used any more."""

    async def unused() -> bool:
        return await used(space, handle) == 0

    await until(unused, 150, "what is healthy long enough is renewed")


@ROW("U10", level="e2e")
async def test_U10_a_healthy_period_renews_the_budget_and_none_does_not(space: Space):
    handle = await space.submit(renewed_after("40s", appwrapper("train", job(), retryLimit="1")))
    await space.reach(handle, "Running", 1)
    await space.fail_pod("train")
    await space.reach(handle, "Running", 2)
    assert await used(space, handle) == 1
    await renewed(space, handle)  # It is shown before anything fails.
    await asyncio.sleep(2)  # A pod's failure is told in whole seconds, and counts from the beginning of its own.

    await space.fail_pod("train")
    status = await space.reach(handle, "Running", 3)
    assert (status.restarts, await used(space, handle)) == (2, 1)
    (renewal,) = [one for one in status.causes if one.reason == "BudgetRenewed"]
    assert renewal.message.startswith("restart budget renewed: healthy for ")
    told = await space.site.objects("v1", "Event", space.namespace)
    assert [one["message"] for one in told if one["reason"] == "BudgetRenewed"] == [renewal.message]

    await space.fail_pod("train")
    status = await space.ended(handle)
    assert (status.phase, status.reason, status.restarts) == ("Failed", "RetryLimitExceeded", 2)
    acts = [act.name for act in await space.acts(handle)]
    assert acts.count(OperationKind.PREPARE) == 3
    assert set(acts) <= {"prepare", "observe", "remove", "force_remove", "report"}


@ROW("U10", level="e2e")
async def test_U10_suspended_is_not_healthy_and_a_policy_change_can_set_it(space: Space):
    handle = await space.submit(appwrapper("train", job(), retryLimit="1"))
    await space.reach(handle, "Running", 1)
    await space.fail_pod("train")
    await space.reach(handle, "Running", 2)
    policy: Any = await handle.execute_update(
        names.UPDATE_POLICY, PolicyChange(reset_after={"restart": "10m"}, note="unrelated failures")
    )
    assert policy["budgets"] == [{"name": "restart", "limit": 1, "scope": "Workload", "resetAfter": "10m"}]
    await handle.signal(names.SIGNAL_SUSPEND, "maintenance")
    await space.reach(handle, "Suspended")
    await handle.execute_update(names.UPDATE_POLICY, PolicyChange(reset_after={"restart": "30s"}))
    await asyncio.sleep(31)
    assert await used(space, handle) == 1
    await handle.signal(names.SIGNAL_RESUME)
    await space.reach(handle, "Running", 3)
    assert await used(space, handle) == 1
    await renewed(space, handle)


async def wipe_status(space: Space, name: str) -> None:
    """Empty an anchor's status, whatever version it has come to meanwhile."""
    while True:
        metadata = (await space.anchor(name))["metadata"]
        with suppress(Conflict):
            await space.site.kube.patch(
                names.API_VERSION,
                names.ANCHOR_KIND,
                name,
                space.namespace,
                uid=metadata["uid"],
                resource_version=metadata["resourceVersion"],
                subresource="status",
                patch={"status": None},
            )
            return


@ROW("U3", level="e2e")
async def test_U3_no_cleaning_up_renews_the_budget(space: Space):
    """Neither a Job that is cleaned up, as its TTL would, nor a status that somebody wipes."""
    handle = await space.submit(appwrapper("train", job(ttlSecondsAfterFinished=0), retryLimit="2"))
    await space.reach(handle, "Running", 1)
    await space.fail_pod("train")
    await space.reach(handle, "Running", 2)
    await space.delete("batch/v1", "Job", "train")
    await space.reach(handle, "Running", 3)
    await wipe_status(space, "train")
    assert await used(space, handle) == 2
    await space.fail_pod("train")
    status = await space.ended(handle)
    assert (status.phase, status.reason, status.restarts) == ("Failed", "RetryLimitExceeded", 2)
    await space.truth.settle()
    assert space.truth.attempts("train") == [1, 2, 3]


@ROW("U6", level="e2e")
@ROW("U8", level="e2e")
async def test_U6_U8_executions_and_restarts_are_counted_apart_and_a_preemption_is_timed(stack: Stack, tmp_path: Path):
    address = f"127.0.0.1:{free_port()}"
    async with open_site(stack, tmp_path, prefix="m") as site:
        await site.start_worker(HOLDFAST_METRICS_ADDRESS=address)
        async with open_space(site) as space:
            handle = await space.submit(appwrapper("train", job(), retryLimit="1"))
            await space.reach(handle, "Running", 1)
            await space.fail_pod("train")
            await space.reach(handle, "Running", 2)
            for signal, attempt in ((names.SIGNAL_SUSPEND, 3), (names.SIGNAL_PREEMPT, 4)):
                await handle.signal(signal, "making room")
                status = await space.reach(handle, "Suspended")
                assert (status.executions, status.restarts) == (attempt - 1, 1)
                assert status.failure is None
                await handle.signal(names.SIGNAL_RESUME)
                status = await space.reach(handle, "Running", attempt)
                assert (status.executions, status.restarts, await used(space, handle)) == (attempt, 1, 1)
            assert [one.message for one in status.causes if one.reason == "Preempted"] == ["preempted: making room"]

            async def told() -> bool:
                shown = (await space.anchor("train"))["status"]
                return (shown["executions"], shown["restarts"]) == (4, 1)

            await until(told, 30, "the anchor says so too")
            async with aiohttp.ClientSession() as session, session.get(f"http://{address}/metrics") as answer:
                lines = [one for one in (await answer.text()).splitlines() if names.METRIC_PREEMPTION in one]
            counted = {one.split("{")[0]: float(one.split()[-1]) for one in lines if not one.startswith("#")}
            assert counted[f"{names.METRIC_PREEMPTION}_seconds_count"] == 1, lines
            assert counted[f"{names.METRIC_PREEMPTION}_seconds_sum"] > 0
            assert any(f'cluster="{site.cluster}"' in one and 'queue="default"' in one for one in lines)
            acts = await space.acts(handle, OperationKind.REMOVE)
            print("asked to gone:", counted, "removals:", len(acts))
