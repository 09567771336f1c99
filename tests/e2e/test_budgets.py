"""What a restart budget counts, and what renews it (rows U3, U10), on real controllers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import names
from holdfast.formats.appwrapper import RESET_AFTER
from holdfast.policy.change import PolicyChange
from tests.e2e.site import appwrapper, job
from tests.e2e.space import Handle, Space

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row


def renewed_after(health: str, document: dict[str, Any]) -> dict[str, Any]:
    document["metadata"]["annotations"][RESET_AFTER] = health
    return document


async def used(space: Space, handle: Handle) -> int:
    status, explanation = await space.site.status(handle), await space.explain(handle)
    assert status.budgets == explanation.budgets
    (budget,) = status.budgets
    return budget.used


@ROW("U10", level="e2e")
async def test_U10_a_healthy_period_renews_the_budget_and_none_does_not(space: Space):
    handle = await space.submit(renewed_after("6s", appwrapper("train", job(), retryLimit="1")))
    await space.reach(handle, "Running", 1)
    await space.fail_pod("train")
    await space.reach(handle, "Running", 2)
    assert await used(space, handle) == 1
    await asyncio.sleep(8)
    assert await used(space, handle) == 0, "shown before anything fails"

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
    assert acts.count(names.ACTIVITY_CREATE) == 3
    assert set(acts) <= {"prepare", "create", "observe", "remove", "force_remove", "report"}


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
    await handle.execute_update(names.UPDATE_POLICY, PolicyChange(reset_after={"restart": "5s"}))
    await asyncio.sleep(6)
    assert await used(space, handle) == 1
    await handle.signal(names.SIGNAL_RESUME)
    await space.reach(handle, "Running", 3)
    assert await used(space, handle) == 1
    await asyncio.sleep(7)
    assert await used(space, handle) == 0
