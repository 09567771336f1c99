"""What is told through a whole reset (row A10), and whose settings win (row A14), on a real cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import groupby
from pathlib import Path

import pytest
import pytest_asyncio

from holdfast import names
from holdfast.local import Stack
from holdfast.model import OperationKind
from holdfast.profiles.appwrapper import POLICY
from tests.e2e.ground.site import appwrapper, job, open_site, until
from tests.e2e.ground.space import STUBBORN, Space, open_space, pod

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
ROW = pytest.mark.row


@ROW("A10", level="e2e")
async def test_A10_resources_and_quota_are_told_truly_through_a_whole_reset(space: Space):
    document = appwrapper("train", job(labels=STUBBORN), pod("lone", labels=STUBBORN), retryPausePeriodDuration="10s")
    handle = await space.submit(document)
    await space.reach(handle, "Running", 1)
    await space.fail_pod("train")
    await space.reach(handle, "Running", 2)

    async def told() -> bool:
        return (await space.anchor("train"))["status"]["phase"] == "Running"

    await until(told, 90, "the anchor says so")
    await space.truth.settle()
    shown = space.truth.shown("train")
    space.truth.assert_told_truly("train")

    phases = [phase for phase, _ in groupby(each.phase for each in shown)]
    assert phases == ["Resuming", "Running", "Resetting", "Resuming", "Running"], "transient phases are visible"
    quota = [value for value, _ in groupby(each.conditions["QuotaReserved"][0] for each in shown)]
    assert quota == [True], "QuotaReserved stays True through the whole reset"
    deployed = [value for value, _ in groupby(each.conditions["ResourcesDeployed"][0] for each in shown)]
    assert deployed == [True, False, True], "True before anything is made"

    first = [life for life in space.truth.of(1) if life.kind != names.ATTEMPT_KIND]
    gone = max(life.died or 0 for life in first)
    pause = [each for each in shown if each.phase == "Resetting" and not each.conditions["ResourcesDeployed"][0]]
    assert pause[0].conditions["ResourcesDeployed"] == (False, "Resetting")
    assert pause[0].version > gone, "told gone only once it was"
    removing = [each for each in shown if each.conditions.get("DeletingResources", (False, ""))[0]]
    assert {each.conditions["DeletingResources"][1] for each in removing} == {"DeletionInitiated", "DeletionForced"}
    assert all(each.version < gone for each in removing)
    ready = [value for value, _ in groupby(each.conditions["PodsReady"][0] for each in shown)]
    assert ready == [False, True, False, True]
    assert not any(each.conditions["Unhealthy"][0] for each in shown), "Resetting follows at once (record 0086)"


@ROW("A14", level="e2e")
async def test_A14_annotations_override_the_operators_defaults(space: Space):
    """The operator's defaults would have it fail at its first failure, and wait an hour for that."""
    timings = POLICY.timings.model_validate(
        dict.fromkeys((info.alias or name for name, info in type(POLICY.timings).model_fields.items()), "1h")
    )
    budgets = (POLICY.budgets[0].model_copy(update={"limit": 0}),)
    defaults = POLICY.model_copy(update={"timings": timings, "budgets": budgets})
    document = appwrapper("train", job(), retryLimit="1", deletionOnFailureGracePeriodDuration="0s")
    handle = await space.submit(document, defaults=defaults)
    await space.reach(handle, "Running", 1)
    await space.fail_pod("train")
    await space.reach(handle, "Running", 2)
    await space.fail_pod("train")
    status = await space.ended(handle)
    assert (status.phase, status.restarts) == ("Failed", 1)
    assert [(each.limit, each.used) for each in status.budgets] == [(1, 1)]


@pytest_asyncio.fixture(loop_scope="session")
async def capped(stack: Stack, tmp_path: Path) -> AsyncIterator[Space]:
    """A namespace on a site whose operator caps every grace and pause period at five seconds."""
    async with open_site(stack, tmp_path, prefix="m") as site:
        await site.start_worker("--grace-period-maximum", "5s")
        async with open_space(site) as opened:
            yield opened


@ROW("A14", level="e2e")
async def test_A14_the_operators_maximum_caps_every_grace_and_pause_but_not_the_ttl(capped: Space):
    space = capped
    document = appwrapper(
        "train",
        pod("lone"),
        pod("stubborn", labels=STUBBORN),
        failureGracePeriodDuration="1h",
        retryPausePeriodDuration="1h",
        forcefulDeletionGracePeriodDuration="1h",
        successTTLDuration="12s",
    )
    handle = await space.submit(document)
    await space.reach(handle, "Running", 1)
    await space.site.annotate("Pod", "lone", space.namespace, kwok_fail="0s")
    await space.reach(handle, "Running", 2)
    await space.truth.settle()
    space.truth.assert_one_attempt_at_a_time("train")
    assert await space.assert_paused(handle, "train", 2, 5.0) < 60, "the pause is capped"
    failed = min(
        one.time
        for one in space.truth.requests()
        if one.subresource == "status" and one.resource == "pods" and one.body["status"].get("phase") == "Failed"
    )
    graceful, forced = await space.acts(handle, OperationKind.REMOVE, OperationKind.FORCE_REMOVE)
    assert 5 <= (graceful.scheduled - failed).total_seconds() < 60, "the failure grace is capped"
    assert 4 <= (forced.scheduled - graceful.scheduled).total_seconds() < 60, "the forceful deletion grace is capped"

    await space.complete("train")
    await space.reach(handle, "Succeeded")
    status = await space.ended(handle)
    assert (status.phase, status.restarts) == ("Succeeded", 1)
    last = (await space.acts(handle, OperationKind.REMOVE))[-1]
    succeeded = next(each.time for each in status.causes if each.reason == "Completed")
    assert (last.scheduled - succeeded).total_seconds() >= 12, "the success TTL is not capped"
